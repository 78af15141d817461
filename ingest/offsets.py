"""
The source's offset: how far each input partition is planned, and the arrival frontier in force there.

An offset is what Spark writes to its log before a batch runs, so everything a replay of that batch must repeat stands
in it: the positions, the estimates and imported CTIs, when a range was first planned, and which partitions joined when.
It is JSON of integers with sorted keys: Spark compares offsets as text. Where no CTI was imported and no partition joined
the text has no word of that, as before there was any; so checkpoints of every version can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

Partition = tuple[str, int]
Marks = tuple[tuple[int, int], ...]
"""(position, time in microseconds), each in force from just before the record at that position is judged."""

RANGE_SCHEMA = StructType(
    [
        StructField("label", IntegerType()),
        StructField("number", IntegerType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
        StructField("marks", ArrayType(LongType())),
        StructField("imports", ArrayType(LongType())),
        StructField("planned_ms", LongType()),
        StructField("final", BooleanType()),
        StructField("roster", IntegerType()),
        StructField("inputs", IntegerType()),
        StructField("joined", LongType()),
        StructField("spans", ArrayType(LongType())),
        StructField("base", LongType()),
        StructField("found", ArrayType(LongType())),
    ]
)
"""
What the source hands to the stateful stage: ranges to read, never events. ``marks`` is position, frontier, position, ...,
``imports`` is position, c, position, ...; ``roster`` and ``inputs`` are the version of the roster and its size, ``joined`` is
J of a partition that joined, else ``NEVER``; ``spans`` is first position, moment, first position, ...; ``base`` is the base settled
before this range, 0 for none; ``found`` is how many facts were found too late, and how many moments were lifted.
"""


@dataclass(frozen=True, slots=True)
class PlannedPosition:
    """
    How far one input partition is planned.

    Args:
        next_offset: First offset not planned.
        frontier_us: Arrival estimate in force at that position, 0 for none.
        marks: Journaled estimates (position, frontier in microseconds) inside the range that ends here.
        planned_ms: Wall clock when that range was first planned, for records stamped absurdly far ahead.
        import_us: Time of another input in force at ``next_offset``, 0 for none.
        imports: Journaled imports (position, c in microseconds) inside the range that ends here.
        spans: (first position, microseconds): when the records of that range were first planned, each up to the next. Where ingest
            stamps them that is their arrival, elsewhere what absurd timestamps are told by.
        unclosed: Whether the journal had not been told, when that range was planned, that it is judged.
        base_us: The base from which a partition without records counts, where it was settled here; 0 for none.
        conflicts: How many facts the journal turned out to hold where records had been judged without them.
        clamped: How many moments were lifted because a clock had gone back.
    """

    next_offset: int
    frontier_us: int = 0
    marks: Marks = ()
    planned_ms: int = 0
    import_us: int = 0
    imports: Marks = ()
    spans: Marks = ()
    is_unclosed: bool = False
    base_us: int = 0
    conflicts: int = 0
    clamped: int = 0

    def marks_with_end(self) -> Marks:
        """Return the estimates for the range that ends here and for its end."""
        return _with_end(self.marks, self.next_offset, self.frontier_us)

    def imports_with_end(self) -> Marks:
        """Return the imports for the range that ends here and for its end."""
        return _with_end(self.imports, self.next_offset, self.import_us)

    def raise_time(self, frontier_us: int | None = None, import_us: int | None = None) -> PlannedPosition:
        """Return this position, no further, where time has been raised."""
        raised_us = self.frontier_us if frontier_us is None else frontier_us, self.import_us if import_us is None else import_us
        return PlannedPosition(self.next_offset, raised_us[0], import_us=raised_us[1])

    def to_json(self) -> dict[str, Any]:
        """Return the position as Spark stores it."""
        stored: dict[str, Any] = {
            "frontier": self.frontier_us,
            "marks": [list(mark) for mark in self.marks],
            "next": self.next_offset,
            "planned_ms": self.planned_ms,
        }
        if self.import_us:
            stored["import"] = self.import_us
        if self.imports:
            stored["imports"] = [list(mark) for mark in self.imports]
        if self.spans:
            stored["spans"] = [list(span) for span in self.spans]
        counts = {"unclosed": int(self.is_unclosed), "base": self.base_us, "conflicts": self.conflicts, "clamped": self.clamped}
        stored |= {name: count for name, count in counts.items() if count}
        return dict(sorted(stored.items()))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> PlannedPosition:
        """Read a stored position."""
        return cls(
            stored["next"],
            stored["frontier"],
            _pairs(stored["marks"]),
            stored["planned_ms"],
            stored.get("import", 0),
            _pairs(stored.get("imports", ())),
            _pairs(stored.get("spans", ())),
            bool(stored.get("unclosed", 0)),
            *(stored.get(name, 0) for name in ("base", "conflicts", "clamped")),
        )


def _pairs(stored: Iterable[Sequence[int]]) -> Marks:
    return tuple((position, value) for position, value in stored)


def _with_end(marks: Marks, position: int, value: int) -> Marks:
    return (*marks, (position, value)) if value else marks


class Join(NamedTuple):
    """How an input partition joined: its roster number, and J in microseconds: its events below are out of order."""

    number: int
    joined_us: int


def sort_by_roster(partitions: Iterable[Partition], joins: Mapping[Partition, Join]) -> tuple[Partition, ...]:
    """Return *partitions* in the order of their roster numbers: the first ones as they sort, then as they *joined*."""
    return tuple(sorted(partitions, key=lambda partition: (joins[partition].number if partition in joins else -1, partition)))


def partition_name(partition: Partition) -> str:
    """Return the text by which an input partition is told."""
    return f"{partition[0]}/{partition[1]}"


def parse_partition(name: str) -> Partition:
    """Return the input partition that *name* tells."""
    topic, _, number = name.rpartition("/")
    return topic, int(number)


@dataclass(frozen=True, slots=True)
class Offset:
    """
    The positions of all input partitions.

    Args:
        partitions: How far each is planned.
        final: Whether the input has ended.
        joined: Those that joined while the ordered topic was written already: roster number and J (spec section 4).
    """

    partitions: Mapping[Partition, PlannedPosition]
    is_final: bool = False
    joins: Mapping[Partition, Join] = field(default_factory=dict)

    @property
    def roster(self) -> tuple[Partition, ...]:
        """The input partitions in the order of their roster numbers: the first ones as they sort, then as they joined."""
        return sort_by_roster(self.partitions, self.joins)

    def advance(self, partitions: Mapping[Partition, PlannedPosition]) -> Offset:
        """Return this offset with its partitions planned on."""
        return Offset(partitions, self.is_final, self.joins)

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        planned = {partition_name(partition): at.to_json() for partition, at in sorted(self.partitions.items())}
        joined = {partition_name(partition): list(each) for partition, each in sorted(self.joins.items())}
        return {"final": int(self.is_final), **({"joined": joined} if joined else {}), "partitions": planned}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offset:
        """Read a stored offset."""
        partitions = {parse_partition(name): PlannedPosition.from_json(at) for name, at in stored["partitions"].items()}
        joined = {parse_partition(name): Join(*each) for name, each in stored.get("joined", {}).items()}
        return cls(partitions, bool(stored["final"]), joined)

    def ranges_to(self, end: Offset) -> Iterator[tuple[Partition, PlannedPosition, PlannedPosition]]:
        """
        Return what lies between this offset and *end*: partition, where it starts, where it ends.

        Unchanged ones are left out; one that joins ends where it starts.
        """
        for partition, there in sorted(end.partitions.items()):
            here = self.partitions.get(partition, there)
            if here != there or end.is_final != self.is_final or partition not in self.partitions:
                yield partition, here, there
