"""kill -9 of a whole ingest job, twice, at moments nobody chose: the ordered topic stays what one run would have written."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.drawn import draw, expected, logs_of
from integration.running import Job, settings_of, workspace
from integration.topics import check_promises, create, fresh, produce, read_ordered

from ordering.policies import Policies
from ordering.ticks import INFINITY, SECOND_US

if TYPE_CHECKING:
    from integration.conftest import Stack

pytestmark = pytest.mark.integration

EVENTS, BATCHES, PARTITIONS = 120_000, 16, 2
POLICIES = Policies(early_us=60 * SECOND_US, late_us=30 * SECOND_US, reorder_us=2 * SECOND_US)
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "k"
early = "1m"
late = "30s"
reorder = "2s"
"""


def test_killed_twice_ingest_writes_what_an_undisturbed_run_writes(stack: Stack, tmp_path: Path) -> None:
    """Law, level 1, over kill -9 of driver, JVM and workers: no event lost, none twice, none in another place; promises hold."""
    seed = random.randrange(2**32)
    print(f"seed of the kills: {seed}")  # shown when the test fails
    dice = random.Random(seed)
    raws = draw(2, EVENTS, PARTITIONS, keys=[f"key{number}" for number in range(200)])
    topic = create(stack.bootstrap, fresh("killed"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:

        def start() -> Job:
            return space.start("ingest", "events", "--until-end", *settings_of(inputs__events__max_events_per_batch=EVENTS // BATCHES))

        for batches in (2, 3):
            job = start()
            job.until(lambda job=job, batches=batches: job.batches >= batches, f"{batches} batches")  # type: ignore[misc]
            time.sleep(dice.uniform(0, 1.5))
            assert job.running, "it was to be killed in the middle"
            job.kill()
            half_way = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
            assert not half_way.ended
            check_promises(half_way)
        summary = start().finish()
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
    assert found.events == expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=True)
    check_promises(found)
    assert {found.c(channel) for channel in found.ctis} == {INFINITY}
    assert summary["events_in"] == EVENTS, "counts survive the kills too"
