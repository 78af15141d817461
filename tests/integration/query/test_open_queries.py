"""Queries whose batches stay open (``query.batch_span``), in real jobs: killed while open, continued by micro-batches and by open ones."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.stack.drawn_logs import draw
from support.stack.jobs import Job, settings_of, workspace
from support.stack.keyed_input import TABLES
from support.stack.topics import Ordered, check_promises, create, exists, fresh, produce, read_ordered

from ordering.ticks import INFINITY

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS, PARTS = 9_000, 3, 6
# By script: with OVER each ordered partition is a bucket, so one of the two tasks keeps two buckets open; without, one reads all.
SCRIPTS = {
    "over": "SELECT k, n, LAG(n) OVER (LIMIT DURATION(minute, 1)) AS before INTO {0} FROM events TIMESTAMP BY at OVER k;\n"
    "SELECT k, COUNT(*) AS c, SUM(v) AS s INTO {1} FROM events TIMESTAMP BY at OVER k GROUP BY k, TumblingWindow(second, 5)",
    "line": "SELECT k, n INTO {0} FROM events TIMESTAMP BY at WHERE v > 100;\n"
    "SELECT COUNT(*) AS c, SUM(v) AS s INTO {1} FROM events TIMESTAMP BY at GROUP BY TumblingWindow(second, 5)",
}
TASKS = settings_of(spark__shuffle_partitions=2)
# Spark kills a task that has not ended two seconds after the stop; ending Spark comes on top.
STOPPED_WITHIN_S = 12.0


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.deep) if kind == "line" else kind for kind in SCRIPTS])
def test_open_queries_micro_batches_and_kills_write_what_one_run_writes(kind: str, stack: Stack, tmp_path: Path) -> None:
    """Law, levels 2 and 3: kill -9 in an open batch, micro-batches after it, open ones again: the bytes of one run of micro-batches."""
    raws = draw(7, EVENTS, PARTITIONS, keys=[f"key{number}" for number in range(20)])
    part = EVENTS // PARTS
    topic = create(stack.bootstrap, fresh("open"), PARTITIONS)
    outputs = [f"{run}_{number}" for run in ("mixed", "once") for number in (0, 1)]
    names = [f"{topic}.{output}" for output in outputs]
    # One watermark for all keys of a partition: with one for each, what is sure for all of them waits for late events.
    tables = TABLES.format(topic=topic).replace('over = "k"\n', "" if kind == "line" else 'over = "k"\n')
    tables += "".join(f'[outputs.{output}]\ntopic = "{topic}.{output}"\n' for output in outputs)

    def append(number: int, third: int | None = None) -> None:
        """Send a part, or one of its thirds."""
        begin, count = (number * part, part) if third is None else (number * part + third * part // 3, part // 3)
        produce(stack.bootstrap, topic, raws[begin : begin + count])

    def results(name: str) -> Ordered:
        return read_ordered(stack.bootstrap, name, PARTITIONS if kind == "over" else 1)

    def written() -> int:
        return len(results(names[0]).all_events()) if exists(stack.bootstrap, names[0]) else 0

    with workspace(tmp_path, stack, tables) as space:
        space.script("mixed.sql", SCRIPTS[kind].format(*outputs[:2]))
        space.script("once.sql", SCRIPTS[kind].format(*outputs[2:]))

        def start(span: str) -> Job:
            return space.start("query", "mixed.sql", *TASKS, *settings_of(query__batch_span=span))

        def wait_for(job: Job, parts: int) -> None:
            """Wait until results of so many parts have come; the last ones of all wait for time to advance."""
            least = round((parts - 0.75) * part * (1 if kind == "over" else 0.8))
            job.until(lambda: written() >= least, f"{least} results")

        ingest = space.start("ingest", "events", *settings_of(inputs__events__batch_span="10m")).once_started()
        append(0, 0)
        job = start("10m")
        for third in (1, 2):
            job.until(lambda third=third: job.batches >= third, "the first batches, which are short")  # type: ignore[misc]
            # Without records the next one would wait for estimates of ingest.
            append(0, third)
        wait_for(job, 1)
        job.until(lambda: job.batches >= 3, "the last of them")
        ended = []
        for number in (1, 2):
            batches = job.batches
            append(number)
            wait_for(job, number + 1)
            ended.append(job.batches - batches)
        assert 0 in ended, "results were written within an open batch"
        job.kill()
        append(3)
        job = start("0s")
        wait_for(job, 4)
        job.kill()
        job = start("10m")
        append(4)
        wait_for(job, 5)
        began_s = time.monotonic()
        os.kill(job.pid, signal.SIGTERM)
        assert job.wait() == 0
        assert time.monotonic() - began_s < STOPPED_WITHIN_S
        read_at_stop = job.last["events"]
        job = start("10m")
        append(5)
        ingest.stop()
        space.start("ingest", "events", "--until-end").finish()
        summary = job.finish()
        assert summary["finished"], "the end of the input ends the open batch"
        assert summary["events"] > read_at_stop
        assert summary["recovery"]["ahead"] < part, "nothing of the open batch was read again"
        assert space.start("query", "once.sql", *TASKS).finish()["finished"]
    for mixed, once in zip(names[:2], names[2:], strict=True):
        found, expected = results(mixed), results(once)
        assert found.events == expected.events
        assert found.all_events(), "there were results to compare"
        check_promises(found, killed=True)
        assert {found.c(channel) for channel in found.ctis} == {INFINITY}
