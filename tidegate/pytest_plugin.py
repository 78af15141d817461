"""
The fixtures of ``tidegate.testing`` for pytest; they are there once Tidegate is installed.

Law: a session that uses none of them pays nothing: what a fixture needs is imported when it is first used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidegate.testing.stack.real_stack import RealStack
    from tidegate.testing.virtual_time import VirtualTime


@pytest.fixture
def virtual_time() -> VirtualTime:
    """Time that moves only by ``virtual_time.advance("5s")``; ``virtual_time.event(...)`` is an event that arrives at its present."""
    from tidegate.testing.virtual_time import VirtualTime

    return VirtualTime()


@pytest.fixture
def rows_like(request: pytest.FixtureRequest) -> Callable[..., list[dict[str, Any]]]:
    """
    Rows with the disorder of a profile beside the test: ``rows_like("rides.toml", 1000, examples=[{"speed": 50}])``; see
    :func:`tidegate.testing.rows_like`.
    """
    from ingest.tuning.profiled_rows import rows_like

    def draw(profile: str | Path, *arguments: Any, **named: Any) -> list[dict[str, Any]]:
        return rows_like(request.path.parent / profile, *arguments, **named)

    return draw


@pytest.fixture(scope="session")
def tidegate_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    """
    A real Kafka and a real Redis, one of each for all processes of the session: in containers if a Docker engine answers, else those of
    ``tidegate up``, which need Java 17.
    """
    from tidegate.testing.stack.real_stack import real_stack
    from tidegate.testing.stack.shared_servers import shared_servers

    folder = tmp_path_factory.getbasetemp()
    # Those of pytest-xdist's processes lie in one.
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "tidegate-stack"
    shared.mkdir(exist_ok=True)
    with shared_servers(shared, real_stack) as running:
        yield running


@pytest.fixture
def kill_and_restart(tidegate_stack: RealStack, tmp_path: Path) -> Callable[..., bool]:
    """
    Start a stage in ``tmp_path``, kill it once it has written something, start it again, wait for its end:
    ``kill_and_restart(["ingest", "a", "--until-end"])``.
    """
    return partial(tidegate_stack.kill_and_restart, folder=tmp_path)


@pytest.fixture
def assert_same_bytes(tidegate_stack: RealStack, tmp_path: Path) -> Callable[[str, str], None]:
    """Compare two ordered topics or result topics to their ends: ``assert_same_bytes("rides-1", "rides-2")``."""
    return partial(tidegate_stack.assert_same_bytes, folder=tmp_path)
