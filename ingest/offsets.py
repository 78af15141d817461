"""
The source's offset: how far each input partition is planned, and the facts in force there. Spark logs it before the batch runs.
Law: the offset holds everything that a replay of the batch must repeat: positions, estimates, imported CTIs, when a range was first
planned, and which partitions joined when. Spark compares offsets as text, so equal offsets must be equal text: JSON of integers with sorted
keys, without entries that are 0 or empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

Partition = tuple[str, int]

# (position, time in microseconds), each in force from just before the record at that position is judged.
Marks = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlannedPosition:
    """How far one input partition is planned."""

    # First offset not planned.
    next_offset: int
    # Arrival estimate in force at that position, 0 for none.
    frontier_us: int = 0
    # Journaled estimates (position, frontier in microseconds) inside the range that ends here.
    marks: Marks = ()
    # Wall clock when that range was first planned; implausible timestamps are recognized by it if no span is known.
    planned_ms: int = 0
    # Time of another input in force at ``next_offset``, 0 for none.
    import_us: int = 0
    # Journaled imports (position, c in microseconds) inside the range that ends here.
    imports: Marks = ()
    # Planning times (first position, microseconds): when the records from there on were first planned. If ingest stamps records this is
    # their arrival; else it serves to recognize implausible timestamps.
    spans: Marks = ()
    # Whether that range was planned without the journal, which does not know yet that its records are judged.
    is_unclosed: bool = False
    # The base of a partition without records (the frontier it starts from), if it was settled here; 0 for none.
    base_us: int = 0
    # How many facts the journal held for records that had been judged without them.
    conflicts: int = 0
    # How often the journal was found to have lost facts of this partition.
    losses: int = 0
    # How many planning times were raised because a clock had gone back.
    clamped: int = 0

    def marks_with_end(self) -> Marks:
        return _with_end(self.marks, self.next_offset, self.frontier_us)

    def imports_with_end(self) -> Marks:
        return _with_end(self.imports, self.next_offset, self.import_us)

    def range_fields(self) -> dict[str, Any]:
        """Return the fields of an :class:`~ingest.planned_range.IngestRange` that ends here: its end, and the facts to repeat there."""
        return {
            "end": self.next_offset,
            "marks": self.marks_with_end(),
            "imports": self.imports_with_end(),
            "spans": self.spans,
            "base_us": self.base_us,
            "conflicts": self.conflicts,
            "losses": self.losses,
            "clamped": self.clamped,
        }

    def raise_time(self, frontier_us: int) -> PlannedPosition:
        """Return the end of an empty range at this position, with a raised arrival frontier."""
        return PlannedPosition(self.next_offset, frontier_us, import_us=self.import_us)

    def to_json(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"next_offset": self.next_offset}
        for name in (field_.name for field_ in fields(self)):
            value = getattr(self, name)
            if value:
                stored[name] = [list(pair) for pair in value] if isinstance(value, tuple) else int(value)
        return dict(sorted(stored.items()))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> PlannedPosition:
        values: dict[str, Any] = {name: tuple(map(tuple, value)) if isinstance(value, list) else value for name, value in stored.items()}
        return cls(**{**values, "is_unclosed": bool(stored.get("is_unclosed", 0))})


Positions = Mapping[Partition, PlannedPosition]


def _with_end(marks: Marks, position: int, value: int) -> Marks:
    return (*marks, (position, value)) if value else marks


class PartitionJoin(NamedTuple):
    """How an input partition joined: its roster number, and the time of its join, microseconds; its events below that are out of order."""

    number: int
    joined_us: int


def sort_by_roster(partitions: Iterable[Partition], joins: Mapping[Partition, PartitionJoin]) -> tuple[Partition, ...]:
    """Return *partitions* in roster order: the initial ones sorted, then the others as they joined."""
    return tuple(sorted(partitions, key=lambda partition: (joins[partition].number if partition in joins else -1, partition)))


def partition_name(partition: Partition) -> str:
    """Return an input partition as text: ``TOPIC/NUMBER``."""
    return f"{partition[0]}/{partition[1]}"


def parse_partition(name: str) -> Partition:
    """Return the input partition of a :func:`partition_name`."""
    topic, _, number = name.rpartition("/")
    return topic, int(number)


class ChangedRange(NamedTuple):
    """What lies between two offsets of a partition."""

    partition: Partition
    start: PlannedPosition
    end: PlannedPosition


@dataclass(frozen=True, slots=True)
class IngestOffset:
    """The positions of all input partitions."""

    partitions: Positions
    # Whether the input has ended.
    is_final: bool = False
    # The partitions that joined after the ordered topic was begun.
    joins: Mapping[Partition, PartitionJoin] = field(default_factory=dict)

    @property
    def roster(self) -> tuple[Partition, ...]:
        return sort_by_roster(self.partitions, self.joins)

    def advance(self, partitions: Positions) -> IngestOffset:
        return IngestOffset(partitions, self.is_final, self.joins)

    def to_json(self) -> dict[str, Any]:
        positions = {partition_name(partition): position.to_json() for partition, position in sorted(self.partitions.items())}
        joins = {partition_name(partition): list(join) for partition, join in sorted(self.joins.items())}
        return {"final": int(self.is_final), "joins": joins, "partitions": positions}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> IngestOffset:
        positions = {parse_partition(name): PlannedPosition.from_json(position) for name, position in stored["partitions"].items()}
        joins = {parse_partition(name): PartitionJoin(*join) for name, join in stored["joins"].items()}
        return cls(positions, bool(stored["final"]), joins)

    def ranges_to(self, end: IngestOffset, *, with_empty: bool = False) -> Iterator[ChangedRange]:
        """
        Yield each range between this offset and *end*: one for each partition that changes, or *with_empty* for all. A partition that joins
        there has an empty range.
        """
        for partition, last in sorted(end.partitions.items()):
            first = self.partitions.get(partition, last)
            if with_empty or first != last or end.is_final != self.is_final or partition not in self.partitions:
                yield ChangedRange(partition, first, last)
