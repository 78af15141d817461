"""Partitions and topics that are added while the job runs, dies and rests: they join at a J that no channel has passed."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.stack.drawn_logs import Raw, draw, expected, logs_of
from support.stack.jobs import Job, error_code, settings_of, workspace
from support.stack.topics import Channel, Event, Ordered, check_promises, create, exists, fresh, produce, read_ordered, widen

from ingest.planner.joining_partitions import read_planned_offset
from ordering.policies import Policies
from ordering.protocol.punctuation import Cti
from ordering.ticks import SECOND_US, parse_tick

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

COUNT, OUTPUTS, MEMBERS = 3_000, 2, 5
POLICIES = Policies(early_us=60 * SECOND_US, late_us=5 * SECOND_US, reorder_us=2 * SECOND_US)
WINDOW_US = 10 * SECOND_US
TABLES = """
[inputs.events]
topic = "{topic}"
topic_pattern = "{topic}-[a-z]"
ordered_topic = "{topic}.ordered"
output_partitions = 2
discovery_cadence = "500ms"
batch_span = "30s"
timestamp_by = "at"
over = "k"
early = "1m"
late = "5s"
reorder = "2s"

[outputs.counts]
topic = "{topic}.counts"
"""
COUNTS = """
SELECT System.Timestamp() AS w, COUNT(*) AS n FROM events TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)
"""


class Growing:
    """An input that grows; its members are numbered as they come to it, which is also how they must join."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.topic = stack, fresh("grows")
        self.raws = draw(11, COUNT, MEMBERS)
        self.members: list[tuple[str, int]] = []
        self._sent = 0
        self._waiting: defaultdict[int, list[Raw]] = defaultdict(list)
        create(stack.bootstrap, self.topic, 2)
        self._admit(self.topic, 0, 1)

    @property
    def second(self) -> str:
        """The topic that only the pattern knows."""
        return f"{self.topic}-b"

    def widen(self, topic: str, partitions: int) -> None:
        """Give a topic one more partition, or make it."""
        if exists(self.stack.bootstrap, topic):
            widen(self.stack.bootstrap, topic, partitions)
        else:
            create(self.stack.bootstrap, topic, partitions)
        self._admit(topic, partitions - 1)

    def _admit(self, topic: str, *partitions: int) -> None:
        self.members += [(topic, partition) for partition in partitions]

    def send(self, share: float) -> None:
        """Send what comes up to a share of everything; those not there yet keep theirs for later, when it is old."""
        until = round(share * len(self.raws))
        for raw in self.raws[self._sent : until]:
            self._waiting[raw.partition].append(raw)
        self._sent = until
        for number, (topic, partition) in enumerate(self.members):
            produce(self.stack.bootstrap, topic, [_moved(raw, partition) for raw in self._waiting.pop(number, [])])

    def look(self) -> Ordered:
        """Read the ordered topic as it is now."""
        return read_ordered(self.stack.bootstrap, f"{self.topic}.ordered", OUTPUTS)

    def speaks(self, number: int) -> bool:
        """Whether a roster number is heard of in every output partition."""
        found = self.look()
        return all((number, output) in found.ctis for output in range(OUTPUTS))


def _moved(raw: Raw, partition: int) -> Raw:
    return Raw(partition, raw.key, raw.value, raw.stamp_ms)


def test_partitions_and_topics_join_while_the_job_runs_dies_and_rests(stack: Stack, tmp_path: Path) -> None:
    """
    Law, level 1: with J as the checkpoint holds it, every channel is what the oracle tells, over kill -9, restarts and a
    checkpoint that is lost.

    Each joins with c = J before any channel passes J; a query that reads the ordered topic goes on over all of it.
    """
    growing = Growing(stack)
    growing.send(0.2)
    with workspace(tmp_path, stack, TABLES.format(topic=growing.topic)) as space:
        job = space.start("ingest", "events").once_started()
        job.until(lambda: job.batches > 0, "what was there from the start")
        query = space.start("query", space.script("counts.sql", COUNTS), "--into", "counts")
        growing.widen(growing.topic, 3)
        growing.send(0.4)
        job.until(lambda: bool(job.logged("partition joins")), "a partition that was added")
        job.kill()
        folder = space.folder / ".tidegate" / "checkpoints" / f"ingest-{growing.topic}.ordered"
        older = shutil.copytree(folder, tmp_path / "older")
        growing.widen(growing.second, 1)
        growing.send(0.6)
        # The planner would journal the last join two seconds later: the ordered topic alone knows of it.
        job = space.start("ingest", "events", *settings_of(spark__trigger="2s"))
        job.until(lambda: growing.speaks(2) and growing.speaks(3), "the partition and a topic that was added")
        growing.send(0.8)
        job.kill()
        before = read_planned_offset(folder)
        shutil.rmtree(folder)
        shutil.copytree(older, folder)
        assert error_code(space.start("ingest", "events")) == "TG-ROSTER", "its copy is older than what the topic alone knows"
        shutil.rmtree(folder)
        growing.widen(growing.second, 2)
        growing.send(1.0)
        space.start("ingest", "events", "--until-end").finish()
        assert query.finish()["finished"]
        offset = read_planned_offset(folder)
        results = _counted(stack, growing.topic, query)
    assert before is not None
    assert offset is not None
    assert list(offset.roster) == growing.members
    assert before.joins.items() < offset.joins.items(), "without its checkpoint the job knows who joined and when"
    joined_us = {number: offset.joins[partition].joined_us for number, partition in enumerate(growing.members) if number >= 2}
    found = growing.look()
    check_promises(found, killed=True)
    for number, at_us in joined_us.items():
        _check_first_word(found, number, at_us)
    story = expected(logs_of(growing.raws, MEMBERS), POLICIES, OUTPUTS, over=True, joined_us=joined_us)
    assert found.events == story
    assert any(event.system_us == joined_us[2] for event in _events_of(story, 2)), "what came from before J is out of order"
    assert results == _counts_of(found)


def _events_of(story: dict[Channel, list[Event]], number: int) -> Sequence[Event]:
    return [event for channel, events in story.items() if channel[0] == number for event in events]


def _check_first_word(found: Ordered, number: int, joined_us: int) -> None:
    """A member first says c = J in each output partition, and before that no channel passes J there."""
    for output, arrived in found.arrived.items():
        place = next(place for place, (of, _) in enumerate(arrived) if of == number)
        first = arrived[place][1]
        assert isinstance(first, Cti), f"an event of {number} came before its first CTI"
        assert (first.c, first.n) == (joined_us, 0)
        assert max((cti.c for _, cti in arrived[:place] if isinstance(cti, Cti)), default=0) <= joined_us, f"partition {output} passed J"


def _counted(stack: Stack, topic: str, query: Job) -> dict[int, int]:
    assert query.last["finished"]
    rows = [json.loads(event.value or b"") for event in read_ordered(stack.bootstrap, f"{topic}.counts", 1).all_events()]
    return {parse_tick(row["w"]): row["n"] for row in rows}


def _counts_of(found: Ordered) -> dict[int, int]:
    return dict(Counter(-(-event.system_us // WINDOW_US) * WINDOW_US for event in found.all_events()))
