"""
Real services for the integration tests: containers if a Docker engine answers and has the images, else the embedded stack.

``TIDEGATE_TEST_STACK=containers`` or ``embedded`` forces one of them; containers forced without an engine or an image are
a failure, never a skip. Which path was taken, and why, is said at the end of the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tidegate.stack.embedded import EmbeddedStack

_taken: list[str] = []


class Stack(Protocol):
    """A running Kafka and Redis, with switches for the faults that tests make."""

    @property
    def bootstrap(self) -> str:
        """Kafka's address."""

    @property
    def redis_url(self) -> str:
        """Redis's address."""

    def stop_kafka(self, grace_s: float = 30.0) -> None:
        """Stop the broker; with *grace_s* 0 as a power cut would."""

    def start_kafka(self) -> None:
        """Bring the broker back at the same address."""

    def stop_redis(self, grace_s: float = 30.0) -> None:
        """Stop Redis; with *grace_s* 0 as a power cut would."""

    def start_redis(self) -> None:
        """Bring Redis back at the same address."""


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One Kafka and one Redis for the whole run; a test that stops one of them starts it again."""
    wish = os.environ.get("TIDEGATE_TEST_STACK", "")
    if wish not in ("", "containers", "embedded"):
        pytest.fail(f"TIDEGATE_TEST_STACK={wish!r}: write containers or embedded", pytrace=False)
    obstacle = "TIDEGATE_TEST_STACK=embedded" if wish == "embedded" else _obstacle()
    if wish == "containers" and obstacle:
        pytest.fail(f"TIDEGATE_TEST_STACK=containers, but {obstacle}", pytrace=False)
    if obstacle:
        yield from _embedded(tmp_path_factory.mktemp("stack"), obstacle)
    else:
        yield from _containers()


def _obstacle() -> str:
    """Say what stands against containers; empty if nothing does."""
    from support.stack import containers

    if not containers.engine_answers():
        return "no Docker engine answers"
    missing = containers.missing_images()
    return f"the engine cannot get {' nor '.join(missing)}" if missing else ""


def _containers() -> Iterator[Stack]:
    from support.stack import containers

    running = containers.ContainerStack()
    _taken.append(f"containers ({containers.KAFKA_IMAGE} and {containers.REDIS_IMAGE})")
    try:
        running.start()
        yield running
    finally:
        running.stop()


def _embedded(folder: Path, reason: str) -> Iterator[Stack]:
    _taken.append(f"the embedded stack ({reason})")
    with EmbeddedStack(folder, heap="512m") as running:
        yield running
        running.stop(wipe=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that began this one, where several run tests side by side."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["services"] = list(_taken)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear it from a process that ran tests."""
    _taken.extend(getattr(node, "workeroutput", {}).get("services", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the integration tests ran on."""
    for path in dict.fromkeys(_taken):
        terminalreporter.section("services")
        terminalreporter.write_line(f"the integration tests ran on {path}")
