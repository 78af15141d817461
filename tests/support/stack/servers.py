"""
The servers of the integration tests: containers if a Docker engine answers and has the images, else the embedded stack, and a PostgreSQL as
it is installed.

``TIDEGATE_TEST_STACK=containers`` or ``embedded`` forces one of them; containers forced without an engine or an image are a
failure, never a skip.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from support.postgres_server import PostgresServer
from support.valkey_server import Server

from ordering.errors import SettingError
from tidegate.platform.stack.embedded import EmbeddedStack
from tidegate.testing.stack.real_stack import RealStack
from tidegate.testing.stack.shared_servers import shared_servers as shared_by_processes
from tidegate.testing.stack.stack_choice import KAFKA_IMAGE, REDIS_IMAGE, find_obstacle

if TYPE_CHECKING:
    from support.stack.containers import PostgresContainer

POSTGRES_IMAGE = os.environ.get("TIDEGATE_POSTGRES_IMAGE", "postgres:18")
started_on: list[str] = []
"""What the servers that this process has used are, in words."""


class Addresses(Protocol):
    """Where a Kafka and a Redis answer."""

    @property
    def bootstrap(self) -> str:
        """Kafka's address."""

    @property
    def redis_url(self) -> str:
        """Redis's address."""


class Stack(Addresses, Protocol):
    """A running Kafka and Redis, with switches for the faults that tests make."""

    def stop_kafka(self, grace_s: float = 30.0) -> None:
        """Stop the broker; with *grace_s* 0 as a power cut would."""

    def start_kafka(self) -> None:
        """Bring the broker back at the same address."""

    def stop_redis(self, grace_s: float = 30.0) -> None:
        """Stop Redis; with *grace_s* 0 as a power cut would."""

    def start_redis(self) -> None:
        """Bring Redis back at the same address."""


SharedStack = RealStack
"""The servers that all processes of a test run use: nobody may stop them."""


@dataclass(frozen=True)
class OwnRedis:
    """The Kafka of all, and a Redis of one's own that may be stopped; its data stay."""

    bootstrap: str
    redis_url: str
    stop_redis: Callable[[], None]
    start_redis: Callable[[], None]


@contextlib.contextmanager
def own_redis(folder: Path, bootstrap: str) -> Iterator[OwnRedis]:
    """Start a Redis of one's own beside the Kafka at *bootstrap*, *folder* is its; stop it at the end."""
    if _obstacle(REDIS_IMAGE):
        server = Server(folder, "--appendonly", "yes", "--appendfsync", "always")
        yield OwnRedis(bootstrap, f"redis://127.0.0.1:{server.port}/0", server.stop, server.start)
        server.stop()
    else:
        from tidegate.testing.stack import containers

        container = containers.RedisContainer()
        container.start()
        containers.wait_for(container.answers, "Redis", container)
        yield OwnRedis(bootstrap, container.url, container.halt, container.resume)
        container.stop(force=True, delete_volume=True)


@contextlib.contextmanager
def own_servers(folder: Path) -> Iterator[Stack]:
    """Start a Kafka and a Redis of one's own, *folder* is theirs; stop them at the end."""
    obstacle = _obstacle(KAFKA_IMAGE, REDIS_IMAGE)
    with _embedded(folder, obstacle) if obstacle else _containers() as running:
        yield running


def open_postgres() -> PostgresServer | PostgresContainer:
    """Start a PostgreSQL of one's own, in a container if it can be; the summary says where it was."""
    if obstacle := _obstacle(POSTGRES_IMAGE):
        started_on.append(f"PostgreSQL as it is installed, in no container ({obstacle})")
        return PostgresServer()
    from support.stack import containers

    started_on.append(f"PostgreSQL in a container ({POSTGRES_IMAGE})")
    return containers.PostgresContainer()


def _obstacle(*images: str) -> str:
    """Say what stands against containers of these images; empty if nothing does. Fails the test if it must have containers."""
    try:
        return find_obstacle(*images)
    except SettingError as error:
        pytest.fail(str(error), pytrace=False)


@contextlib.contextmanager
def _containers() -> Iterator[Stack]:
    from tidegate.testing.stack import containers

    running = containers.ContainerStack()
    started_on.append(f"containers ({KAFKA_IMAGE} and {REDIS_IMAGE})")
    try:
        running.start()
        yield running
    finally:
        running.stop()


@contextlib.contextmanager
def _embedded(folder: Path, reason: str) -> Iterator[Stack]:
    started_on.append(f"the embedded stack ({reason})")
    with EmbeddedStack(folder, heap="1g") as running:
        yield running
        running.stop(wipe=True)


@contextlib.contextmanager
def shared_servers(folder: Path) -> Iterator[SharedStack]:
    """Give the servers of the whole run; the first process that needs them starts them."""

    @contextlib.contextmanager
    def start(place: Path) -> Iterator[SharedStack]:
        with own_servers(place) as running:
            yield SharedStack(running.bootstrap, running.redis_url, started_on.pop())

    with shared_by_processes(folder, start) as stack:
        started_on.append(stack.kind)
        yield stack
