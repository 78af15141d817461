"""
The servers of the integration tests: containers if a Docker engine answers and has the images, else the embedded stack, and a PostgreSQL as
it is installed.

``TIDEGATE_TEST_STACK=containers`` or ``embedded`` forces one of them; containers forced without an engine or an image are a
failure, never a skip.

Law: all processes of a test run use one Kafka and one Redis. The first that needs them starts them and stops them once all
others have ended, by whatever way.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import pytest
from support.postgres_server import PostgresServer
from support.valkey_server import Server

from tidegate.platform.stack.embedded import EmbeddedStack

if TYPE_CHECKING:
    from support.stack.containers import PostgresContainer

_NAP_S = 0.2
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


@dataclass(frozen=True)
class SharedStack:
    """The servers that all processes of a test run use: nobody may stop them."""

    bootstrap: str
    redis_url: str
    kind: str


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
    if _obstacle("REDIS_IMAGE"):
        server = Server(folder, "--appendonly", "yes", "--appendfsync", "always")
        yield OwnRedis(bootstrap, f"redis://127.0.0.1:{server.port}/0", server.stop, server.start)
        server.stop()
    else:
        from support.stack import containers

        container = containers.RedisContainer()
        container.start()
        containers.wait_for(container.answers, "Redis", container)
        yield OwnRedis(bootstrap, container.url, container.halt, container.resume)
        container.stop(force=True, delete_volume=True)


@contextlib.contextmanager
def own_servers(folder: Path) -> Iterator[Stack]:
    """Start a Kafka and a Redis of one's own, *folder* is theirs; stop them at the end."""
    obstacle = _obstacle("KAFKA_IMAGE", "REDIS_IMAGE")
    with _embedded(folder, obstacle) if obstacle else _containers() as running:
        yield running


def open_postgres() -> PostgresServer | PostgresContainer:
    """Start a PostgreSQL of one's own, in a container if it can be; the summary says where it was."""
    if obstacle := _obstacle("POSTGRES_IMAGE"):
        started_on.append(f"PostgreSQL as it is installed, in no container ({obstacle})")
        return PostgresServer()
    from support.stack import containers

    started_on.append(f"PostgreSQL in a container ({containers.POSTGRES_IMAGE})")
    return containers.PostgresContainer()


def _obstacle(*images: str) -> str:
    """Say what stands against containers of these images; empty if nothing does. Fails the test if it must have containers."""
    wish = os.environ.get("TIDEGATE_TEST_STACK", "")
    if wish not in ("", "containers", "embedded"):
        pytest.fail(f"TIDEGATE_TEST_STACK={wish!r}: write containers or embedded", pytrace=False)
    if wish == "embedded":
        return "TIDEGATE_TEST_STACK=embedded"
    from support.stack import containers

    obstacle = "no Docker engine answers"
    if containers.engine_answers():
        missing = containers.missing_images(getattr(containers, name) for name in images)
        obstacle = f"the engine cannot get {' nor '.join(missing)}" if missing else ""
    if wish and obstacle:
        pytest.fail(f"TIDEGATE_TEST_STACK=containers, but {obstacle}", pytrace=False)
    return obstacle


@contextlib.contextmanager
def _containers() -> Iterator[Stack]:
    from support.stack import containers

    running = containers.ContainerStack()
    started_on.append(f"containers ({containers.KAFKA_IMAGE} and {containers.REDIS_IMAGE})")
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
    """Give the servers whose addresses *folder* tells; start them if it tells none."""
    addresses = folder / "stack.json"
    with contextlib.ExitStack() as opened:
        users = opened.enter_context((folder / "users.lock").open("w"))
        with _locked(folder / "start.lock"):
            # The system gives the lock back when this process ends, even by a kill.
            fcntl.flock(users, fcntl.LOCK_SH)
            if addresses.exists():
                stack = SharedStack(**json.loads(addresses.read_text()))
                started_on.append(stack.kind)
            else:
                running = opened.enter_context(own_servers(folder / "servers"))
                stack = SharedStack(running.bootstrap, running.redis_url, started_on[-1])
                addresses.write_text(json.dumps(stack.__dict__))
                opened.callback(_wait_for_users, users, folder)
        yield stack


def _wait_for_users(users: IO[str], folder: Path) -> None:
    """Return once no other process uses the servers; whoever comes then starts new ones."""
    fcntl.flock(users, fcntl.LOCK_UN)  # two that wait for each other's share would wait for ever
    while True:
        with _locked(folder / "start.lock"), contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / "stack.json").unlink()
            return
        time.sleep(_NAP_S)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
