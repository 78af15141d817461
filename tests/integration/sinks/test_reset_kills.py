"""
``tidegate reset OUTPUT --rows`` killed with SIGKILL after each step, and within that of the store.

Law (:mod:`tidegate.tools.reset.deletion`): wherever it is killed, the same command deletes the rest, and then a new topic of the name
begins anew in the store: each of its results stands there once, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.stack.commands import run_command
from support.stack.jobs import Workspace, error_code
from support.stack.servers import SharedStack
from support.stack.topics import exists
from support.stores import kit
from support.stores.benches import BENCHES, CLEARABLE_BENCHES, RedisBench
from support.stores.kit import Bench
from support.stores.result_topic import ResultTopic

from tidegate.basics.fault_points import RESET_POINTS, VARIABLE

pytestmark = pytest.mark.integration
# Redis deletes a thousand keys at once: a kill after the first thousand leaves the others.
RESULTS = 1_500
ARGUMENTS = ("reset", "results", "--rows", "--yes")
SINK = ("sink", "results", "--until-end")


@pytest.fixture(scope="module", params=CLEARABLE_BENCHES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Each store that can delete what it was given, with its server."""
    made = BENCHES[request.param](tmp_path_factory.mktemp("store"))
    yield made
    made.close()


class Resets:
    """Runs the command in a folder."""

    def __init__(self, space: Workspace, stack: SharedStack, marks: Path) -> None:
        self._space, self._marks = space, marks
        self._environment = os.environ | {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}

    def kill_at(self, point: str, passage: int = 1) -> None:
        """Stop it at the point, and then kill it."""
        marker = self._marks / f"{point}-{passage}".replace(" ", "-")
        command = self._space.start(*ARGUMENTS, **{VARIABLE: f"{point}:{passage}:{marker}"})
        command.until(marker.exists, point)
        command.kill()

    def finish(self) -> str:
        """Run it to its end; return what it printed."""
        done = run_command(self._space.folder, *ARGUMENTS, environment=self._environment)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def resets(make_space: Callable[..., Workspace], topic: ResultTopic, stack: SharedStack, tmp_path: Path) -> tuple[Workspace, Resets]:
    """A folder whose store has all results of the topic, and the command there."""
    for partition in range(topic.partitions):
        topic.write(partition, 0, RESULTS)
    space = make_space()
    space.start(*SINK).finish()
    return space, Resets(space, stack, tmp_path)


def test_a_kill_after_each_step_is_mended_by_the_same_command(
    bench: Bench, topic: ResultTopic, target: str, resets: tuple[Workspace, Resets], stack: SharedStack
) -> None:
    """Each time a step further; a sink that is started between has no topic to copy. Then a topic of the name begins anew."""
    space, command = resets
    kit.check_stands(bench, target, dict.fromkeys(range(topic.partitions), RESULTS))
    for point in RESET_POINTS:
        command.kill_at(point)
        assert exists(stack.bootstrap, topic.name) is (point in RESET_POINTS[:2])
        if point == "rows cleared":
            assert error_code(space.start(*SINK)) == "TG-TOPIC-MISSING"
            if isinstance(bench, RedisBench) and len(bench.read(target)) > 2_000:
                command.kill_at(point, 3)
    assert "an earlier reset is unfinished" in command.finish()
    assert bench.read(target) == []
    assert "has made nothing that is still there" in command.finish()
    again = ResultTopic({"bootstrap.servers": stack.bootstrap}, topic.name)
    positions = {partition: 40 + partition for partition in range(again.partitions)}
    for partition, count in positions.items():
        again.write(partition, 0, count)
    space.start(*SINK).finish()
    kit.check_stands(bench, target, positions)


# The store does not matter to what the first command said: one is enough for every day.
@pytest.mark.parametrize(
    "bench",
    [param if param.values[0] == "redis hash" else pytest.param(*param.values, marks=pytest.mark.deep) for param in CLEARABLE_BENCHES],
    indirect=True,
)
@pytest.mark.parametrize("point", RESET_POINTS[2:4])
def test_a_single_kill_is_mended_whatever_the_first_command_said(
    bench: Bench, target: str, resets: tuple[Workspace, Resets], point: str
) -> None:
    """Killed once; the repetition without ``--rows`` deletes the rows too, as the first command was to."""
    space, command = resets
    command.kill_at(point)
    own = {"TIDEGATE_KAFKA__BOOTSTRAP": space.stack.bootstrap, "TIDEGATE_REDIS__URL": space.stack.redis_url}
    done = run_command(space.folder, "reset", "results", "--yes", "--format", "json", environment=os.environ | own)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["deleted"]
    assert bench.read(target) == []
