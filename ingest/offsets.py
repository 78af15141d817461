"""
The source's offset: how far each input partition is planned, and the arrival frontier in force there.

An offset is what Spark writes to its log before a batch runs, so everything a replay of that batch must repeat stands
in it: the positions, the estimates and imported CTIs, and when a range was first planned. It is JSON of integers with
sorted keys: Spark compares offsets as text. Where no CTI was imported the text has no word of imports, as before there
were any; so checkpoints of every version can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    ]
)
"""
What the source hands to the stateful stage: ranges to read, never events. ``marks`` is position, frontier, position, ...,
``imports`` is position, c, position, ...
"""


@dataclass(frozen=True, slots=True)
class Planned:
    """
    How far one input partition is planned.

    Args:
        next_offset: First offset not planned.
        frontier_us: Arrival estimate in force at that position, 0 for none.
        marks: Journaled estimates (position, frontier in microseconds) inside the range that ends here.
        planned_ms: Wall clock when that range was first planned, for records stamped absurdly far ahead.
        import_us: Time of another input in force at ``next_offset``, 0 for none.
        imports: Journaled imports (position, c in microseconds) inside the range that ends here.
    """

    next_offset: int
    frontier_us: int = 0
    marks: Marks = ()
    planned_ms: int = 0
    import_us: int = 0
    imports: Marks = ()

    def all_marks(self) -> Marks:
        """Return the estimates for the range that ends here and for its end."""
        return _with_end(self.marks, self.next_offset, self.frontier_us)

    def all_imports(self) -> Marks:
        """Return the imports for the range that ends here and for its end."""
        return _with_end(self.imports, self.next_offset, self.import_us)

    def silent(self, frontier_us: int | None = None, import_us: int | None = None) -> Planned:
        """Return this position, no further, where time has been raised."""
        raised = self.frontier_us if frontier_us is None else frontier_us, self.import_us if import_us is None else import_us
        return Planned(self.next_offset, raised[0], import_us=raised[1])

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
        return dict(sorted(stored.items()))

    @classmethod
    def from_json(cls, at: Mapping[str, Any]) -> Planned:
        """Read a stored position."""
        return cls(at["next"], at["frontier"], _pairs(at["marks"]), at["planned_ms"], at.get("import", 0), _pairs(at.get("imports", ())))


def _pairs(stored: Iterable[Sequence[int]]) -> Marks:
    return tuple((position, value) for position, value in stored)


def _with_end(marks: Marks, position: int, value: int) -> Marks:
    return (*marks, (position, value)) if value else marks


@dataclass(frozen=True, slots=True)
class Offset:
    """The positions of all input partitions; *final* once the input has ended."""

    partitions: Mapping[Partition, Planned]
    final: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        planned = {f"{topic}/{partition}": at.to_json() for (topic, partition), at in sorted(self.partitions.items())}
        return {"final": int(self.final), "partitions": planned}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offset:
        """Read a stored offset."""
        partitions = {}
        for name, at in stored["partitions"].items():
            topic, _, partition = name.rpartition("/")
            partitions[topic, int(partition)] = Planned.from_json(at)
        return cls(partitions, bool(stored["final"]))

    def ranges(self, end: Offset) -> Iterator[tuple[Partition, Planned, Planned]]:
        """Return what lies between this offset and *end*: partition, where it starts, where it ends. Unchanged ones are left out."""
        for partition, there in sorted(end.partitions.items()):
            here = self.partitions[partition]
            if here != there or end.final != self.final:
                yield partition, here, there
