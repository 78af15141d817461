"""Batches that stay open (``batch_span``), in real jobs: killed while open, continued by micro-batches and by open ones again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.stack.drawn_logs import draw, expected, logs_of
from support.stack.jobs import Job, settings_of, workspace
from support.stack.keyed_input import POLICIES, TABLES
from support.stack.topics import check_promises, create, fresh, produce, read_ordered, widen

from ordering.ticks import INFINITY

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS, PARTS = 12_000, 3, 6
# With two tasks, one of them keeps two of the three partitions open.
TASKS = settings_of(spark__master="local[2]", spark__shuffle_partitions=2)
# Spark kills a task that has not ended two seconds after the stop; ending Spark comes on top.
STOPPED_WITHIN_S = 12.0


def test_open_batches_micro_batches_and_kills_write_what_one_run_writes(stack: Stack, tmp_path: Path) -> None:
    """Law, level 1: kill -9 in an open batch, micro-batches after it and open ones again; a stop ends the open batch cleanly."""
    raws = draw(5, EVENTS, PARTITIONS, keys=[f"key{number}" for number in range(50)])
    part = EVENTS // PARTS
    topic = create(stack.bootstrap, fresh("open"), PARTITIONS)
    ordered = f"{topic}.ordered"

    def append(number: int) -> None:
        produce(stack.bootstrap, topic, raws[number * part : (number + 1) * part])

    def written() -> int:
        return len(read_ordered(stack.bootstrap, ordered, PARTITIONS).all_events())

    def wait_for(job: Job, least: int) -> None:
        job.until(lambda: written() >= least, f"{least} events")

    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:

        def start(span: str) -> Job:
            return space.start("ingest", "events", *TASKS, *settings_of(inputs__events__batch_span=span))

        append(0)
        job = start("10m")
        wait_for(job, 1)
        # Some part of what was appended is held: but what came before has left.
        ended = []
        for number in (1, 2):
            batches = job.batches
            append(number)
            wait_for(job, number * part)
            ended.append(job.batches - batches)
        # The first batches are short.
        assert 0 in ended, "events were written within an open batch"
        job.kill()
        append(3)
        job = start("0s")
        wait_for(job, 3 * part)
        job.kill()
        job = start("10m")
        append(4)
        wait_for(job, 4 * part)
        began_s = time.monotonic()
        os.kill(job.pid, signal.SIGTERM)
        assert job.wait() == 0
        assert time.monotonic() - began_s < STOPPED_WITHIN_S
        assert job.last["events_in"] == 5 * part, "the batch ended, and was counted"
        append(5)
        summary = space.start("ingest", "events", *TASKS, "--until-end").finish()
    assert summary["events_in"] == EVENTS
    assert summary["recovery"]["ahead"] == part, "nothing of the open batch was read again"
    found = read_ordered(stack.bootstrap, ordered, PARTITIONS)
    assert found.events == expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=True)
    check_promises(found, killed=True)
    assert {found.c(channel) for channel in found.ctis} == {INFINITY}


def test_work_goes_on_between_open_batches(stack: Stack, tmp_path: Path) -> None:
    """Law, level 1: records come all the time while short batches end and the next begin; the job is killed, and another reads the rest."""
    slices, size = 250, 24
    raws = draw(7, slices * size, PARTITIONS, keys=[f"key{number}" for number in range(50)])
    topic = create(stack.bootstrap, fresh("between"), PARTITIONS)
    ordered = f"{topic}.ordered"
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        job = space.start("ingest", "events", *TASKS)
        job.once_started()
        for number in range(slices):
            produce(stack.bootstrap, topic, raws[number * size : (number + 1) * size])
            time.sleep(0.03)
        half = len(raws) // 2
        job.until(lambda: len(read_ordered(stack.bootstrap, ordered, PARTITIONS).all_events()) >= half, "half of the events")
        job.kill()
        noted = [path.read_text() for path in space.folder.rglob("stage_notes_*.jsonl")]
        assert any(noted), "what open batches have closed is noted"
        summary = space.start("ingest", "events", *TASKS, "--until-end").finish()
    assert summary["events_in"] == len(raws)
    found = read_ordered(stack.bootstrap, ordered, PARTITIONS)
    assert found.events == expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=True)
    check_promises(found, killed=True)


def test_a_new_partition_ends_the_open_batch_and_joins(stack: Stack, tmp_path: Path) -> None:
    """It joins between two batches, so it must not wait for the end of a long one."""
    raws = draw(6, 600, 2)
    topic = create(stack.bootstrap, fresh("grows"), 1)
    ordered = f"{topic}.ordered"
    first = [raw for raw in raws if raw.partition == 0]
    produce(stack.bootstrap, topic, first)
    tables = f'[inputs.events]\ntopic = "{topic}"\nbatch_span = "10m"\ndiscovery_cadence = "1s"\noutput_partitions = 1\n'
    with workspace(tmp_path, stack, tables) as space:
        job = space.start("ingest", "events", *TASKS)
        job.until(lambda: len(read_ordered(stack.bootstrap, ordered, 1).all_events()) >= len(first) // 2, "the first partition")
        widen(stack.bootstrap, topic, 2)
        produce(stack.bootstrap, topic, [raw for raw in raws if raw.partition == 1])
        job.until(lambda: (1, 0) in read_ordered(stack.bootstrap, ordered, 1).events, "events of the new partition")
        job.stop()
