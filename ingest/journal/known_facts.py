"""
What one planner knows without asking the journal: Spark's offset, and the facts that it received or made.
Law: without the journal a partition may be planned only from a position that nobody has closed, and only if no answer about it was lost.
Only then is every fact in force known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ingest.config import IngestPlan, Partition
from ingest.journal.fact_memory import FactMemory
from ingest.offsets import Marks, PlannedPosition
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import JournalKey
from ordering.ticks import INFINITY


class RangeFacts(NamedTuple):
    """The facts that every replay of a range must repeat."""

    # Estimates and imports in the range, those at its start included.
    marks: Marks
    imports: Marks
    # When its records were first planned: stamps or verdicts, the one in force at its start first.
    spans: Marks
    # Whether the journal does not know yet that the range is judged.
    is_unclosed: bool = False
    # How many moments were raised because a clock had gone back.
    clamped: int = 0


class KnownFacts:
    """The facts of all input partitions of one job, as its planner knows them."""

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan
        self.stamps_arrivals = plan.settings.arrival == "ingest"
        self.span_kind = plan.settings.span_kind
        self.positions: Mapping[Partition, PlannedPosition] = {}
        # The first open position in the journal, as last known.
        self.closed: dict[Partition, int] = {}
        # Where the ranges begin that were judged without the journal.
        self.unclosed: dict[Partition, int] = {}
        # Partitions about which an answer of the journal was lost.
        self.uncertain: set[Partition] = set()
        self.joins: dict[JournalKey, Fact] = {}
        self._topic_ids = dict(plan.topic_ids)
        self._memory: dict[Partition, FactMemory] = {}

    def move_to(self, positions: Mapping[Partition, PlannedPosition]) -> None:
        """Take over the job's positions; of a partition seen for the first time also the facts in its position."""
        self.positions = positions
        for partition, position in positions.items():
            if partition not in self._memory:
                self.memory(partition).remember_planned(position)

    def add_topic(self, topic: str, topic_id: str) -> None:
        self._topic_ids.setdefault(topic, topic_id)

    def key(self, partition: Partition) -> JournalKey:
        return self._plan.journal_key(partition, self._topic_ids[partition[0]])

    def import_key(self, partition: Partition) -> JournalKey:
        """Return the key of imports; in a job without imports the partition's own key, which holds none."""
        if self._plan.imported is None:
            return self.key(partition)
        return self._plan.import_key(partition, self._topic_ids[partition[0]])

    def memory(self, partition: Partition) -> FactMemory:
        return self._memory.setdefault(partition, FactMemory(self.span_kind))

    def is_fresh(self, partition: Partition) -> bool:
        """Return whether nothing of a partition has been judged: then nothing below its start needs to be closed."""
        position = self.positions[partition]
        if partition in self._plan.starts:
            return position.next_offset == self._plan.starts[partition].next_offset
        return not position.planned_ms and not position.frontier_us

    def is_complete(self, partition: Partition, next_offset: int) -> bool:
        """Return whether every fact in force from an offset on is known here."""
        return next_offset >= self.closed.get(partition, INFINITY) and partition not in self.uncertain

    def range_facts(self, partition: Partition, start: int, end: int, *, is_unclosed: bool = False, clamped: int = 0) -> RangeFacts:
        memory = self.memory(partition)
        kinds = FactKind.ESTIMATE, FactKind.IMPORT, self.span_kind
        marks, imports, spans = (memory.between(kind, start, end) for kind in kinds)
        return RangeFacts(marks, imports, spans, is_unclosed, clamped)
