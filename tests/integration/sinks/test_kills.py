"""
``tidegate sink`` killed with SIGKILL before, during and after each step of a commit, its line and its store cut off, two of them at once.

Law (:mod:`sinks.stores.base`): whatever dies, after a run to the end the store has each result of the topic once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cutting_proxy import CuttingProxy
from support.stack.jobs import Workspace
from support.stores import kit
from support.stores.benches import COPY_BENCHES
from support.stores.kit import Bench
from support.stores.result_topic import ResultTopic

from tidegate.basics.fault_points import STORE_POINTS, VARIABLE

pytestmark = pytest.mark.integration
# So that a run has many batches, and a kill finds some done and some not.
SMALL = 'batch_rows = 100\nflush_interval = "50ms"'
RESULTS = 1_500
RUN = ("sink", "results", "--until-end")
TURNS = 4


def fill(topic: ResultTopic) -> dict[int, int]:
    """Write results to all partitions, some of them twice; return how many each has."""
    for partition in range(topic.partitions):
        topic.write(partition, 0, RESULTS // 2)
        topic.write(partition, RESULTS // 3, RESULTS)
    return dict.fromkeys(range(topic.partitions), RESULTS)


Record = Callable[[str, object], None]


def test_a_kill_at_each_step_of_a_commit(
    bench: Bench, topic: ResultTopic, target: str, make_space: Callable[..., Workspace], tmp_path: Path, record_property: Record
) -> None:
    """Stopped at the point and then killed, at the first passage and later; each start goes on from what the store has."""
    positions, space = fill(topic), make_space(SMALL)
    kills = 0
    for passage in (1, 5):
        for point in STORE_POINTS:
            marker = tmp_path / f"{point}-{passage}".replace(" ", "-")
            job = space.start(*RUN, **{VARIABLE: f"{point}:{passage}:{marker}"})
            while job.running and not marker.exists():
                time.sleep(0.02)
            # It stops itself a moment after it has left the mark; a store may not pass by every point.
            time.sleep(0.1)
            kills += job.running
            job.kill()
    assert kills >= 4, "it was killed in the middle"
    record_property("kills", kills)
    space.start(*RUN).finish()
    kit.check_stands(bench, target, positions)


class Growing:
    """A topic that grows while it is copied: each turn writes the next results of every partition, some of them twice."""

    def __init__(self, topic: ResultTopic) -> None:
        self._topic, self.end = topic, 0

    def grow(self, count: int = 400) -> None:
        for partition in range(self._topic.partitions):
            self._topic.write(partition, max(self.end - 50, 0), self.end + count)
        self.end += count

    def finish(self) -> dict[int, int]:
        """Write the last result of each partition and the final CTI; return how many each has."""
        for partition in range(self._topic.partitions):
            self._topic.write(partition, self.end, self.end + 1, is_final=True)
        return dict.fromkeys(range(self._topic.partitions), self.end + 1)


def await_rows(bench: Bench, target: str, count: int, seconds: float = 60) -> None:
    """Return once the store has so many rows."""
    until_s = time.monotonic() + seconds
    while len(bench.read(target)) < count:
        assert time.monotonic() < until_s, f"{len(bench.read(target))} rows after {seconds:g} s, not {count}"
        time.sleep(0.05)


# Each store with its own commits: three writers that do not know of each other, tests/sinks/stores/test_contract.py.
@pytest.mark.parametrize("bench", COPY_BENCHES, indirect=True)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.deep)])
def test_kills_at_any_moment_of_one_of_two(
    bench: Bench, topic: ResultTopic, target: str, make_space: Callable[..., Workspace], seed: int, record_property: Record
) -> None:
    """Two jobs copy the same growing topic at once, and one after the other is killed in the middle while the other goes on."""
    dice, growing, space = random.Random(seed), Growing(topic), make_space(SMALL)
    jobs = [space.start("sink", "results") for _ in range(2)]
    record_property("kills", TURNS)
    for turn in range(TURNS):
        before = len(bench.read(target))
        growing.grow()
        await_rows(bench, target, before + dice.randint(1, 1_000))
        jobs[turn % 2].kill()
        jobs[turn % 2] = space.start("sink", "results")
    positions = growing.finish()
    for job in jobs:
        job.finish()
    kit.check_stands(bench, target, positions)


# Each store behind a line that breaks: tests/sinks/stores/test_contract.py.
@pytest.mark.parametrize("bench", COPY_BENCHES, indirect=True)
def test_a_cut_line_and_a_store_that_dies(bench: Bench, topic: ResultTopic, target: str, make_space: Callable[..., Workspace]) -> None:
    """The line breaks every moment, also between a commit and its answer, and the store is killed twice: one job lives through it all."""
    if bench.port is None:
        return
    dice, growing, proxy = random.Random(5), Growing(topic), CuttingProxy(bench.port)
    job = make_space(SMALL, proxy.port).start("sink", "results")
    growing.grow()
    await_rows(bench, target, 1)
    for turn in range(12):
        growing.grow(200)
        towards = dice.choice(["server", "client"])
        proxy.cut_after(dice.randint(1, 30_000 if towards == "server" else 500), towards)
        time.sleep(dice.uniform(0.1, 0.4))
        if turn in (3, 8):
            bench.kill()
            bench.start()
    positions = growing.finish()
    last = job.finish()
    proxy.close()
    (counts,) = last["stores"].values()
    assert counts["retries"] >= 3, "it was disturbed"
    assert counts["rows"] == sum(positions.values()), "what the store has got, those of lost answers too"
    kit.check_stands(bench, target, positions)
