"""
The facts that one planner knows without asking the journal: those in Spark's offset, and those that it received or made.
Law: without the journal a partition may be planned only from a position that nobody has closed, and only if no answer about it was lost.
Only then does the planner know every fact in force.

The facts are kept to give them back to a journal that has lost them (:class:`FactMemory`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ingest.config import IngestPlan, Partition
from ingest.journal.stage_notes import NoteReader, StageNote
from ingest.offsets import Marks, PlannedPosition, Positions
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import Journal, JournalKey
from ordering.ticks import INFINITY

# Per partition and kind; some megabytes. Enough for hours of idle estimates at the default cadence, if a record follows each.
FACTS_MAX = 20_000


class _FactTable:
    def __init__(self) -> None:
        self.values: dict[int, int] = {}
        self.positions: list[int] = []

    def put(self, position: int, value: int) -> None:
        if position not in self.values:
            insort(self.positions, position)
        self.values[position] = value

    def keep_within(self, start: int, end: int, kept: Collection[int]) -> None:
        """Of the positions with start <= position < end keep only some."""
        first, last = bisect_left(self.positions, start), bisect_left(self.positions, end)
        for position in self.positions[first:last]:
            if position not in kept:
                del self.values[position]
        self.positions[first:last] = [position for position in self.positions[first:last] if position in kept]

    def drop(self, count: int) -> None:
        for position in self.positions[:count]:
            del self.values[position]
        del self.positions[:count]


class FactMemory:
    """The facts of one input partition; *planning_kind*: its planning times are stamps or clock readings."""

    def __init__(self, planning_kind: FactKind) -> None:
        self.planning_kind = planning_kind
        self.is_incomplete = False
        self._kinds = {kind: _FactTable() for kind in FactKind}

    def remember(self, kind: FactKind, marks: Iterable[tuple[int, int]]) -> None:
        table = self._kinds[kind]
        for position, value in marks:
            table.put(position, value if kind.is_planning_time else max(value, table.values.get(position, value)))
        if len(table.positions) > FACTS_MAX:
            table.drop(len(table.positions) - FACTS_MAX)
            self.is_incomplete = True

    def remember_closed(self, start: int, end: PlannedPosition) -> None:
        """
        Remember the facts of a range that a stage has closed from *start* on. Other facts within it are forgotten: the journal had lost
        them when it was closed, so they count for nobody.
        """
        for kind, marks in ((FactKind.ESTIMATE, end.marks), (FactKind.IMPORT, end.imports), (self.planning_kind, end.spans)):
            self._kinds[kind].keep_within(start, end.next_offset, {position for position, _ in marks})
        self.remember_planned(end)

    def remember_planned(self, planned: PlannedPosition) -> None:
        self.remember(FactKind.ESTIMATE, planned.marks_with_end())
        self.remember(FactKind.IMPORT, planned.imports_with_end())
        self.remember(self.planning_kind, planned.spans)

    def between(self, kind: FactKind, start: int, end: int) -> Marks:
        """Return the facts with start <= position < end, positions rising; of planning times also the one in force at *start*."""
        table = self._kinds[kind]
        in_range = table.positions[self._first_in_force(kind, start) : bisect_left(table.positions, end)]
        return tuple((position, table.values[position]) for position in in_range)

    def _first_in_force(self, kind: FactKind, position: int) -> int:
        positions = self._kinds[kind].positions
        return max(bisect_right(positions, position) - 1, 0) if kind.is_planning_time else bisect_left(positions, position)

    def value(self, kind: FactKind, position: int) -> int | None:
        return self._kinds[kind].values.get(position)

    def latest_us(self) -> int:
        """Return the latest time that this job has made or believed: estimates and planning times; 0 if there is none."""
        return max((us for kind in (FactKind.ESTIMATE, self.planning_kind) for us in self._kinds[kind].values.values()), default=0)

    def last(self, kind: FactKind) -> tuple[int, int] | None:
        table = self._kinds[kind]
        return (table.positions[-1], table.values[table.positions[-1]]) if table.positions else None

    def facts(self, imports: bool) -> list[Fact]:
        """Return the imports, or all other facts: they have separate keys in the journal."""
        kinds = [kind for kind in FactKind if (kind is FactKind.IMPORT) == imports]
        return [Fact(kind, *mark) for kind in kinds for mark in self._kinds[kind].values.items()]

    def restore(self, journal: Journal, key: JournalKey, import_key: JournalKey | None, closed: int) -> int:
        """
        Give all facts to a journal that has lost some, and close what lies below *closed*; imports have a key of their own, None if there
        are none. Return how many facts it holds with another value, imports aside.
        """
        closing = Fact(FactKind.CLOSED, closed, 0)
        contradicted = journal.restore(key, [*self.facts(imports=False), closing])
        if import_key is not None:
            journal.restore(import_key, [*self.facts(imports=True), closing])
        return contradicted

    def forget_below(self, position: int) -> None:
        """Forget facts below *position*, except the planning time in force there and facts without a position."""
        for kind in (FactKind.ESTIMATE, FactKind.IMPORT, self.planning_kind):
            self._kinds[kind].drop(self._first_in_force(kind, position))


class StageFacts(NamedTuple):
    """What an open batch has told of a partition at its position: the arrival frontier there, and whether an answer about it was lost."""

    frontier_us: int
    lost_answer: bool


class Unclosed(NamedTuple):
    """Where records begin that were judged without the journal, and the arrival frontier there, as far as a stage has told it; else 0."""

    offset: int
    frontier_us: int


class KnownFacts:
    """
    The facts of all input partitions of one job, as its planner knows them, or a task of its stage; *notes*: where the planner reads what
    the stage has noted.
    """

    def __init__(self, plan: IngestPlan, notes: NoteReader | None = None) -> None:
        self._plan, self._notes = plan, notes
        self.stamps_arrivals = plan.settings.arrival == "ingest"
        self.planning_kind = plan.settings.planning_kind
        self.positions: Positions = {}
        # The first open position in the journal, as last known.
        self.closed: dict[Partition, int] = {}
        self.unclosed: dict[Partition, Unclosed] = {}
        # Of the partitions that an open batch has judged up to their position.
        self.stages: Mapping[Partition, StageFacts] = {}
        # Up to where the stage has closed records, with facts that are known here.
        self._noted: dict[Partition, int] = {}
        # Partitions about which an answer of the journal was lost.
        self.uncertain: set[Partition] = set()
        # Facts that hold for this ordered topic only.
        self.own: dict[JournalKey, set[Fact]] = {}
        for skip in plan.skips:
            if not skip.is_undone:
                self.own.setdefault(plan.own_key(skip.input_partition), set()).add(skip.fact)
        self._topic_ids = dict(plan.topic_ids)
        self._memory: dict[Partition, FactMemory] = {}

    def move_to(self, positions: Positions) -> None:
        """Set the job's positions; remember the facts in the position of a partition that is new here."""
        self.positions = positions
        for partition, position in positions.items():
            if partition not in self._memory:
                self.memory(partition).remember_planned(position)

    def learn(self) -> None:
        """Remember what the stage has noted so far."""
        if self._notes is not None:
            self._remember(self._notes.read())

    def recall(self) -> None:
        """Remember all that the stage has noted; nothing more is, until the next batch begins. Raises TidegateError (TG-JOURNAL-BUSY)."""
        if self._notes is not None:
            self._remember(self._notes.read_all())

    def _remember(self, notes: Iterable[StageNote]) -> None:
        for partition, start, end in notes:
            self.memory(partition).remember_closed(start, end)
            self._noted[partition] = max(self._noted.get(partition, 0), end.next_offset)
            # Without an entry nothing is known of what was closed.
            if partition in self.closed:
                self.closed[partition] = max(self.closed[partition], end.next_offset)

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
        return self._memory.setdefault(partition, FactMemory(self.planning_kind))

    def is_fresh(self, partition: Partition) -> bool:
        """Return whether no record of a partition has been judged, so that no position needs to be closed."""
        position = self.positions[partition]
        if self._noted.get(partition, 0) > position.next_offset:
            return False
        if partition in self._plan.starts:
            return position.next_offset == self._plan.starts[partition].next_offset
        return not position.planned_ms and not position.frontier_us

    def closed_to(self, partition: Partition) -> int:
        """Return up to where the journal has certainly closed a partition: by Spark's offset, and by what the stage has noted."""
        position = self.positions[partition]
        return max(0 if position.is_unclosed else position.next_offset, self._noted.get(partition, 0))

    def judged_to(self, partition: Partition) -> int:
        """Return up to where this job has judged a partition, as far as it is known."""
        return max(self.positions[partition].next_offset, self._noted.get(partition, 0))

    def is_complete(self, partition: Partition, next_offset: int) -> bool:
        """Return whether the planner knows every fact in force from an offset on."""
        is_uncertain = partition in self.uncertain or (partition in self.stages and self.stages[partition].lost_answer)
        known_to = max(next_offset, self._noted.get(partition, 0))
        return known_to >= self.closed.get(partition, INFINITY) and not is_uncertain

    def begin_unclosed(self, partition: Partition, start: int) -> None:
        """Note that records from *start* on are judged without the journal, except those that an open batch has closed."""
        frontier_us = self.stages[partition].frontier_us if partition in self.stages else 0
        offset = max(start, self.judged_to(partition))
        self.unclosed.setdefault(partition, Unclosed(offset, frontier_us))

    def range_end(self, partition: Partition, start: int, end: int, *, is_unclosed: bool = False, clamped: int = 0) -> PlannedPosition:
        """Return the end of a range with all facts that every replay of the range must repeat, those at its start included."""
        kinds = FactKind.ESTIMATE, FactKind.IMPORT, self.planning_kind
        marks, imports, spans = (self.memory(partition).between(kind, start, end) for kind in kinds)
        return PlannedPosition(end, marks=marks, imports=imports, spans=spans, is_unclosed=is_unclosed, clamped=clamped)
