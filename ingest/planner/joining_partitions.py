"""
Input partitions that are added while the ordered topic is being written: more partitions of a topic, or a new topic whose
name the input's pattern matches.

Law (spec section 4, roster): a partition joins at a moment J that no channel has passed. J is the largest c of all
channels, told by the ordered topic's own CTIs when no batch runs. The joining is a batch of its own, in which nothing else
moves: its CTI c = J is acknowledged in every output partition it writes to before anything else is planned. Spark's
offset, logged before that batch, is what makes it so; the journal hears of it afterwards, as what was logged holds for
good. So whoever starts from an older copy of the checkpoint finds J in the journal, and lets it join there again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.journal.client import FactDesk
from ingest.journal.topic_identity import WAYS_OUT
from ingest.offsets import Joined, Offset, Planned, in_roster_order, name_of
from ordering.errors import RefusedError
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Journal
from ordering.ticks import NEVER, SECOND_US, TICK_MIN, format_tick
from tidegate.checkpoint.binding import check_same_topics, last_batches, offset_of
from tidegate.kafka.admin import Admin
from tidegate.kafka.channel_promises import last_promises

if TYPE_CHECKING:
    # The planner, which imports this module, must start fast; it needs none of how settings are read.
    from tidegate.settings.inputs import InputSettings
    from tidegate.settings.load import Settings

_MISSING_US = 10 * SECOND_US


def topics_of(chosen: InputSettings, names: Iterable[str], excluded: frozenset[str]) -> list[str]:
    """
    Return the topics of an input among *names*, sorted: those it lists, there or not, and those its pattern matches.

    Args:
        chosen: The input's settings.
        names: Every topic there is.
        excluded: Topics that the pattern never means.
    """
    pattern = chosen.topic_pattern
    matching = (name for name in names if pattern is not None and name not in excluded and re.fullmatch(pattern, name))
    # Kafka's own topics are nobody's events.
    return sorted({*chosen.topics, *(name for name in matching if not name.startswith("__"))})


def written_by_us(settings: Settings) -> frozenset[str]:
    """Return the topics that Tidegate writes under these settings: no pattern means them."""
    inputs = {topic for each in settings.inputs.values() for topic in (each.ordered_topic, each.dead_letter_topic)}
    return frozenset(inputs | {topic for output in settings.outputs.values() if (topic := getattr(output, "topic", None)) is not None})


def last_offset(folder: Path) -> Offset | None:
    """Return the offset at the end of the last batch planned from a checkpoint's folder, None where there is none."""
    stored = offset_of(folder, last_batches(folder)[0])
    return None if stored is None else Offset.from_json(stored)


def with_roster(plan: IngestPlan, partitions: Iterable[Partition], joined: Mapping[Partition, Joined]) -> IngestPlan:
    """Return the plan of a job that goes on with these *partitions*; what else is there joins while it runs."""
    return replace(plan, partitions=in_roster_order(partitions, joined), joined=joined)


class Joining:
    """
    Finds input partitions that are new, and lets them join.

    Args:
        plan: The job.
        admin: For topics and their partitions.
        desk: Where it is journaled when they joined.
        log: Where it is said.
    """

    def __init__(self, plan: IngestPlan, admin: Admin, desk: FactDesk, log: FilteringBoundLogger) -> None:
        self._plan, self._admin, self._desk, self._log = plan, admin, desk, log
        self._topic_ids = dict(plan.topic_ids)
        self._due_us = NEVER
        self._told: set[Partition] = set()
        self._waits = ""
        self._missing_us: int | None = None

    def all_there(self) -> list[Partition]:
        """Return every partition that the input has by now, new ones included."""
        counts = self._admin.partition_counts()
        topics = topics_of(self._plan.settings, counts, self._plan.excluded)
        return [(topic, number) for topic in topics for number in range(counts.get(topic, 0))]

    def look(self, here: Offset, now_us: int, wanted: Iterable[Partition] | None = None) -> Offset | None:
        """
        Return the offset at which new partitions have joined, None where there is none or it is too early to look again.

        Args:
            here: Where the job stands; no batch runs.
            now_us: A monotonic clock.
            wanted: Partitions that may join, where not all may.

        Raises:
            RefusedError: The ordered topic has ended.
            TidegateError: The brokers do not answer.
        """
        self._tell(here)
        if now_us < self._due_us:
            return None
        self._due_us = now_us + self._plan.settings.discovery_cadence_us
        new = set(self.all_there() if wanted is None else wanted) - here.partitions.keys()
        return self._joined(here, sorted(new)) if new else None

    def check_topics(self, now_us: int) -> None:
        """
        Compare the topics that were made while the job runs with what they were; those there before are watched by the driver.

        Args:
            now_us: A monotonic clock: a broker that has just started may for a moment know of no topic.

        Raises:
            RefusedError: One was deleted, or made again (TG-TOPIC-RECREATED).
            TidegateError: The brokers do not answer.
        """
        own = {topic: topic_id for topic, topic_id in self._topic_ids.items() if topic_id and topic not in self._plan.topic_ids}
        now = self._admin.topic_ids(own) if own else {}
        if all(now.values()):
            self._missing_us = None
        elif self._missing_us is None:
            self._missing_us = now_us
        patient = self._missing_us is not None and now_us - self._missing_us < _MISSING_US
        there = {topic: topic_id for topic, topic_id in now.items() if topic_id or not patient}
        check_same_topics(own, there, self._plan.checkpoint, WAYS_OUT)

    def _tell(self, here: Offset) -> None:
        """Journal who joined; where the journal does not answer, the next pass does."""
        for partition, joined in here.joined.items():
            if partition not in self._told and self._desk.joined(partition, self._topic_id(partition), joined):
                self._told.add(partition)

    def _joined(self, here: Offset, new: list[Partition]) -> Offset | None:
        ids = {partition: self._topic_id(partition) for partition in new}
        if not all(ids.values()):
            self._later(new, "not every broker knows of the topic yet")
            return None
        known = self._desk.known_joins(ids)
        if known is None:
            self._later(new, "the journal does not answer")
            return None
        there = self._again(here, known) or self._anew(here, new)
        if there is None:
            return None
        starts = self._admin.starts(there.keys())
        for partition, (number, at_us) in there.items():
            self._log.info("partition joins", topic=partition[0], partition=partition[1], number=number, at=format_tick(at_us))
        self._waits = ""
        planned = {partition: Planned(starts[partition]) for partition in there}
        return replace(here, partitions={**here.partitions, **planned}, joined={**here.joined, **there})

    def _again(self, here: Offset, known: Mapping[Partition, Joined]) -> dict[Partition, Joined]:
        """Return those that joined once already, as the journal knows; the next numbers are theirs."""
        turn = sorted(known.items(), key=lambda each: each[1].number)
        expected = range(len(here.partitions), len(here.partitions) + len(turn))
        if [joined.number for _, joined in turn] != list(expected):
            raise RefusedError(
                f"the checkpoint knows {len(here.partitions)} input partitions, and the journal of later ones "
                + ", ".join(f"{name_of(partition)} as number {joined.number}" for partition, joined in turn),
                code="TG-ROSTER",
                where=self._plan.checkpoint,
                fix="bring back a newer copy of the checkpoint, or delete it: the job then goes on from the ordered topic's CTIs",
            )
        return dict(turn)

    def _anew(self, here: Offset, new: list[Partition]) -> dict[Partition, Joined] | None:
        moment_us = self._moment(new)
        if moment_us is None:
            return None
        return {partition: Joined(number, moment_us) for number, partition in enumerate(new, start=len(here.partitions))}

    def _moment(self, new: list[Partition]) -> int | None:
        """Return J: how far any channel has come, microseconds; None while that cannot be told."""
        topic = self._plan.settings.ordered_topic
        outputs = [(topic, number) for number in range(self._plan.output_partitions)]
        try:
            promises = last_promises(self._plan.kafka, topic, self._admin.starts(outputs), self._admin.ends(outputs))
        except RefusedError as error:
            if error.code != "TG-RETENTION":
                raise
            self._later(new, error.what)
            return None
        reached = [cti.c for channels in promises.values() for cti in channels.values()]
        return max([TICK_MIN, self._plan.start_us, *reached])

    def _later(self, new: list[Partition], reason: str) -> None:
        if self._waits != reason:
            self._log.warning("new partitions cannot join yet", partitions=", ".join(map(name_of, new)), reason=reason)
        self._waits = reason

    def _topic_id(self, partition: Partition) -> str:
        topic = partition[0]
        if not self._topic_ids.get(topic):
            self._topic_ids |= self._admin.topic_ids([topic])
        return self._topic_ids[topic]


def joins_of(plan: IngestPlan, journal: Journal, founders: Collection[Partition]) -> dict[Partition, Joined]:
    """Return who joined after the ordered topic was begun from *founders*, as the journal knows: for a lost checkpoint."""
    joins: dict[Partition, Joined] = {}
    for partition in plan.partitions:
        facts = journal.dump(plan.join_key(partition, plan.topic_ids[partition[0]])) if partition not in founders else []
        joins.update((partition, Joined(fact.position, fact.value)) for fact in facts if fact.kind == FactKind.JOIN)
    return joins
