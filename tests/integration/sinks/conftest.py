"""Each store with its server, a result topic, and a folder whose settings lead the one into the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.stack.jobs import Workspace
from support.stack.servers import SharedStack
from support.stack.topics import fresh
from support.stores import kit
from support.stores.benches import BENCHES, JOB_BENCHES
from support.stores.kit import Bench
from support.stores.result_topic import ResultTopic

COLUMNS = "\n".join(f'{name} = "{kind}"' for name, kind in kit.COLUMNS)


@pytest.fixture(scope="module", params=JOB_BENCHES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Each store, with its server; some of them only with ``make test-deep``."""
    made = BENCHES[request.param](tmp_path_factory.mktemp("store"))
    yield made
    made.close()


@pytest.fixture
def topic(stack: SharedStack) -> ResultTopic:
    """A result topic of this test."""
    return ResultTopic({"bootstrap.servers": stack.bootstrap}, fresh("results"))


@pytest.fixture
def target(topic: ResultTopic) -> str:
    """A name for what the topic is copied into."""
    return topic.name.replace("-", "_")


@pytest.fixture
def make_space(tmp_path: Path, stack: SharedStack, bench: Bench, topic: ResultTopic, target: str) -> Iterator[Callable[..., Workspace]]:
    """Make folders with settings that lead the topic into the store; *more* are settings of the store."""
    made: list[Workspace] = []

    def make(more: str = "", port: int | None = None) -> Workspace:
        output = f'[outputs.results]\ntopic = "{topic.name}"\n[outputs.results.columns]\n{COLUMNS}\n'
        made.append(Workspace(tmp_path / f"job{len(made)}", stack, f"{output}{bench.table(target, port)}\n{more}\n"))
        return made[-1]

    yield make
    for space in made:
        space.clear()


@pytest.fixture
def space(make_space: Callable[..., Workspace]) -> Workspace:
    """One such folder with nothing more."""
    return make_space()
