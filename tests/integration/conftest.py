"""Real services for the integration tests (:mod:`support.stack.servers`); the end of the run says which they were, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from support.stack import servers
from support.stack.servers import OwnRedis, SharedStack, Stack


@pytest.fixture(scope="session")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedStack]:
    """One Kafka and one Redis for the whole run, whatever number of processes it has; topics have names that nobody else has."""
    folder = tmp_path_factory.getbasetemp()
    with servers.shared_servers(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as running:
        yield running


@pytest.fixture(scope="session")
def stack(shared_stack: SharedStack) -> SharedStack:
    """What a test uses: the servers of all, unless its file has others."""
    return shared_stack


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A Kafka and a Redis for the tests of one file, which stop them or empty them, and start them again."""
    with servers.own_servers(tmp_path_factory.mktemp("own-stack")) as running:
        yield running


@pytest.fixture(scope="module")
def own_redis(shared_stack: SharedStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    """The Kafka of all, and a Redis for the tests of one file, which stop or empty it."""
    with servers.own_redis(tmp_path_factory.mktemp("own-redis"), shared_stack.bootstrap) as running:
        yield running


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what the servers were to the process that began this one."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["services"] = list(servers.started_on)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take it from a process that ran tests."""
    servers.started_on.extend(getattr(node, "workeroutput", {}).get("services", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the integration tests ran on."""
    for kind in dict.fromkeys(servers.started_on):
        terminalreporter.section("services")
        terminalreporter.write_line(f"the integration tests ran on {kind}")
