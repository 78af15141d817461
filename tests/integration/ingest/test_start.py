"""
Starting: at an output start time, which gives what a run from the beginning gives from then on; and starts that cannot
succeed: one clear error each, in time, with its exit code and without a traceback.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.stack.drawn_logs import START_MS, draw, expected, logs_of
from support.stack.jobs import error_code, settings_of, workspace
from support.stack.topics import Channel, Event, check_promises, create, fresh, produce, read_ordered

from ordering.policies import Policies
from ordering.ticks import INFINITY, SECOND_US, format_tick

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

WAIT_S_MAX = 12.0
"""Fifteen seconds, less three for starting a Python program with all that a job imports on a machine at rest."""
NOBODY = "127.0.0.1:9"  # the discard port: nothing listens there
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"

[outputs.counts]
topic = "{topic}-counts"
"""
SCRIPT = "SELECT COUNT(*) AS n FROM events TIMESTAMP BY at GROUP BY TumblingWindow(second, 1)"


def test_services_that_do_not_answer_are_named_within_fifteen_seconds(stack: Stack, tmp_path: Path) -> None:
    """Kafka or Redis unreachable at start: code, address and what to do; exit code 4."""
    topic = create(stack.bootstrap, fresh("unreachable"), 1)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        script = space.script("counts.sql", SCRIPT)
        waits_for_nobody = space.start("ingest", "unknown")
        jobs = {
            "ingest without Kafka": ("TG-KAFKA-UNREACHABLE", space.start("ingest", "events", TIDEGATE_KAFKA__BOOTSTRAP=NOBODY)),
            "query without Kafka": (
                "TG-KAFKA-UNREACHABLE",
                space.start("query", script, "--into", "counts", TIDEGATE_KAFKA__BOOTSTRAP=NOBODY),
            ),
            "ingest without Redis": (
                "TG-REDIS-UNREACHABLE",
                space.start(
                    "ingest", "events", TIDEGATE_REDIS__URL=f"redis://:secret@{NOBODY}/0", TIDEGATE_SPARK__CHECKPOINT_DIR="without-redis"
                ),
            ),
        }
        for name, (code, job) in jobs.items():
            assert error_code(job) == code, name
            assert job.wait() == 4, name
            assert waits_for_nobody.wait() == 2
            assert job.took_s - waits_for_nobody.took_s < WAIT_S_MAX, name
            assert NOBODY in job.errors, name
            assert '"fix": ' in job.errors, name
            assert "secret" not in job.errors, name


def test_wrong_settings_are_refused_with_the_nearest_spelling(stack: Stack, tmp_path: Path) -> None:
    """An unknown setting in the file, a flag or the environment: its name and the nearest one that exists; exit code 2."""
    with workspace(tmp_path, stack, TABLES.format(topic="any")) as space:
        misspelt = space.script("misspelt.toml", '[redis]\nurll = "redis://localhost"\n' + TABLES.format(topic="any"))
        jobs = [
            (space.start("ingest", "events", "--config", misspelt), ("redis.urll", "did you mean url?")),
            (space.start("ingest", "events", *settings_of(inputs__events__reordr="5s")), ("reordr", "did you mean reorder,")),
            (space.start("ingest", "events", TIDEGATE_KAFKA__BOOTSTRAPS="any:1"), ("bootstraps", "did you mean bootstrap?")),
            (space.start("ingest", "event"), ("event", "did you mean events?")),
        ]
        for job, words in jobs:
            assert job.wait() == 2, job.errors
            assert "Traceback" not in job.errors
            assert all(word in job.errors.lower() for word in words), job.errors


def test_missing_topics_are_named(stack: Stack, tmp_path: Path) -> None:
    """Neither ingest nor a query makes the topic it reads: it refuses (exit code 3)."""
    topic = fresh("missing")
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        jobs = [space.start("ingest", "events"), space.start("query", space.script("counts.sql", SCRIPT), "--into", "counts")]
        for job in jobs:
            assert error_code(job) == "TG-TOPIC-MISSING"
            assert job.wait() == 3
            assert topic in job.errors


EVENTS, PARTITIONS = 12_000, 2
POLICIES = Policies(early_us=60 * SECOND_US, late_us=30 * SECOND_US, reorder_us=2 * SECOND_US)
TWO_INPUTS = """
[inputs.substreams]
topic = "{topic}"
ordered_topic = "{topic}.substreams"
timestamp_by = "at"
over = "k"
early = "1m"
late = "30s"
reorder = "2s"
max_events_per_batch = 5000

[inputs.whole]
topic = "{topic}"
ordered_topic = "{topic}.whole"
timestamp_by = "at"
early = "1m"
late = "30s"
reorder = "2s"
"""
START_TIMES_S = (100, 190)
"""Seconds after the first record arrived; the last one arrives after some 270."""


def test_a_run_from_a_start_time_writes_what_a_run_from_the_beginning_writes_from_then_on(stack: Stack, tmp_path: Path) -> None:
    """
    Law, level 1, at two start times, with and without OVER, two inputs in one process: the same events byte
    for byte, numbered from 0; and not all of the raw topic was read.

    The run is bound to its start: another one is refused.
    """
    raws = draw(5, EVENTS, PARTITIONS, keys=[f"key{number}" for number in range(50)])
    topic = create(stack.bootstrap, fresh("started"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path, stack, TWO_INPUTS.format(topic=topic)) as space:
        for after_s in START_TIMES_S:
            start_us = START_MS * 1000 + after_s * SECOND_US
            names = {name: f"{topic}.{name}.{after_s}" for name in ("substreams", "whole")}
            into = settings_of(**{f"inputs__{name}__ordered_topic": ordered for name, ordered in names.items()})
            job = space.start("ingest", "substreams", "whole", "--start", format_tick(start_us), "--until-end", *into)
            assert job.wait() == 0, job.errors[-3000:]
            for name, ordered in names.items():
                ends = [line for line in job.lines if line["event"] == "end" and line["input"] == name]
                assert ends[0]["events_in"] < EVENTS, "it began in the middle"
                assert ends[0]["recovery"]["how"] == "start"
                found = read_ordered(stack.bootstrap, ordered, PARTITIONS)
                story = expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=name == "substreams")
                assert found.events == told_from(story, start_us)
                assert min(len(events) for events in found.events.values()) > 100
                check_promises(found)
                assert {found.c(channel) for channel in found.ctis} == {INFINITY}
        other = space.start("ingest", "whole", "--start", "now", *into)
        assert (error_code(other), other.wait()) == ("TG-START-BOUND", 3)
        unreadable = space.start("ingest", "whole", "--start", "yesterday", *into)
        assert (error_code(unreadable), unreadable.wait()) == ("TG-TICK-RANGE", 2)


def told_from(story: dict[Channel, list[Event]], start_us: int) -> dict[Channel, list[Event]]:
    """Return what a run with an output start time writes of a story told from the beginning."""
    return {
        channel: [event._replace(seq=seq) for seq, event in enumerate(event for event in events if event.system_us >= start_us)]
        for channel, events in story.items()
    }
