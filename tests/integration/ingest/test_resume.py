"""A lost checkpoint: ingest goes on from what the ordered topic itself promises, and nobody who reads it can tell."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.stack.drawn_logs import draw, expected, logs_of
from support.stack.jobs import Job, error_code, settings_of, workspace
from support.stack.keyed_input import POLICIES, TABLES
from support.stack.topics import Event, Ordered, check_promises, create, fresh, produce, read_ordered

from ordering.ticks import INFINITY

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, BATCHES, PARTITIONS = 20_000, 10, 2


def test_killed_and_robbed_of_its_checkpoint_ingest_goes_on_where_the_topic_ends(stack: Stack, tmp_path: Path) -> None:
    """
    Law, level 1, over a kill -9 and the loss of the checkpoint: the whole topic, read by the reader's rule, is what one
    undisturbed run writes; no number stands for two different events; and not all of the raw topic was read again.

    Other settings than the topic was made under are refused before anything is written.
    """
    raws = draw(3, EVENTS, PARTITIONS, keys=[f"key{number}" for number in range(100)])
    topic = create(stack.bootstrap, fresh("robbed"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path, stack, TABLES.format(topic=topic) + "max_events_per_batch = 2000\n") as space:
        job = space.start("ingest", "events")
        job.until(lambda: job.batches >= BATCHES - 3, "most of the batches")
        job.kill()
        half_way = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
        shutil.rmtree(space.folder / ".tidegate" / "checkpoints")
        other = space.start("ingest", "events", *settings_of(inputs__events__late="31s"))
        assert error_code(other) == "TG-TOPIC-SETTINGS"
        assert "late: 30s -> 31s" in other.errors
        job = space.start("ingest", "events", "--until-end")
        summary = job.finish()
    assert min(positions(job)) > EVENTS / PARTITIONS * 0.2, "it began in the middle"
    assert summary["events_in"] < EVENTS, "what was promised was not read again"
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
    assert found.events == expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=True)
    assert all(events == found.events[channel][: len(events)] for channel, events in half_way.events.items())
    check_promises(found, killed=True)
    assert {found.c(channel) for channel in found.ctis} == {INFINITY}
    no_number_stands_for_two(found)


def test_of_two_jobs_that_found_a_topic_empty_only_the_last_one_writes_it(stack: Stack, tmp_path: Path) -> None:
    """Neither settings nor starts mix, wherever the two run: the first one ends before its first event."""
    raws = draw(3, 400, PARTITIONS, keys=["a", "b"])
    topic = create(stack.bootstrap, fresh("claimed"), PARTITIONS)
    tables = TABLES.format(topic=topic)
    with workspace(tmp_path / "one", stack, tables) as one, workspace(tmp_path / "other", stack, tables) as other:
        early = one.start("ingest", "events", *settings_of(inputs__events__late="31s")).once_started()
        later = other.start("ingest", "events", "--start", "2001-01-01T00:00:00Z").once_started()
        produce(stack.bootstrap, topic, raws)
        assert error_code(early) == "TG-TOPIC-SETTINGS"
        later.until(lambda: later.last.get("events_in") == len(raws), "all is read")
        later.stop()
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
    complete = expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=True)
    assert sum(map(len, found.events.values())) > len(raws) / 2
    assert all(events == complete[channel][: len(events)] for channel, events in found.events.items())
    no_number_stands_for_two(found)


def positions(job: Job) -> list[int]:
    """Return the offsets from which a job said that it resumes."""
    return [line["offset"] for line in job.logged("resumes from the last CTI of each channel")]


def no_number_stands_for_two(found: Ordered) -> None:
    """Copies of an event are copies: channel and number name one event, whoever wrote it."""
    for partition, arrived in found.arrived.items():
        known: dict[tuple[int, int], Event] = {}
        for number, what in arrived:
            if isinstance(what, Event):
                assert known.setdefault((number, what.seq), what) == what, f"{partition}: two events of channel {number} are {what.seq}"
