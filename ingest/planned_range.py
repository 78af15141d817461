"""A range of one input partition, which the planner hands to the stage, and the facts that hold in it. The records stay in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from ordering.protocol.elements import Places
from ordering.ticks import NEVER
from tidegate.platform.spark.range_rows import Label, Pairs, schema_of


@dataclass(frozen=True, slots=True)
class IngestRange:
    """Offsets to read, half-open, and everything that a replay of the batch must repeat."""

    # Spark's key of the task that walks the range.
    label: Label
    number: int
    topic: str
    partition: int
    # First offset, and the one after the last.
    start: int
    end: int
    # The fields below are as in PlannedPosition; estimates and imports include those at the end of the range.
    marks: Pairs = ()
    imports: Pairs = ()
    planned_ms: int = 0
    is_final: bool = False
    # The roster's version, and how many input partitions it has.
    roster_version: int = 1
    inputs: int = 1
    # The time of the join of a partition that joined the ordered topic later, else ``NEVER``.
    joined_us: int = NEVER
    spans: Pairs = ()
    base_us: int = 0
    conflicts: int = 0
    clamped: int = 0
    losses: int = 0
    # Offsets that are not read: (first, first read again).
    skips: Pairs = ()
    # Because of a skip at *compare_from*, events up to this offset are compared with those of earlier attempts; 0: none are.
    compare_until: int = 0
    compare_from: int = 0
    # How many ranges of the same task stay open together after their end; 0: the batch does not stay open.
    open_ranges: int = 0
    # The last request to end an open batch when this one was planned: another one ends it.
    end_request: str = ""

    @property
    def joins(self) -> bool:
        """Whether the partition joins by this range: it is empty, and in a batch of its own, which does not stay open."""
        return self.joined_us > NEVER and self.start == self.end and not self.open_ranges


RANGE_SCHEMA = schema_of(IngestRange)


@dataclass(frozen=True, slots=True)
class RangeMarks:
    """Journaled facts that a range must repeat: (position, microseconds) of estimates and of imports."""

    estimates: tuple[tuple[int, int], ...]
    imports: tuple[tuple[int, int], ...]

    def between(self, first: int, last: int) -> RangeMarks:
        """Return the marks with first <= position <= last."""
        return RangeMarks(*(tuple(mark for mark in marks if first <= mark[0] <= last) for marks in (self.estimates, self.imports)))

    def at(self, places: Places) -> RangeMarks:
        """Return the marks with the places of their positions."""
        return RangeMarks(*(tuple((places.place_of(position), us) for position, us in marks) for marks in (self.estimates, self.imports)))
