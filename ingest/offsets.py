"""
The source's offset: how far each input partition is planned, and the arrival frontier in force there.

An offset is what Spark writes to its log before a batch runs, so everything a replay of that batch must repeat stands
in it: the positions, the estimates, and when a range was first planned. It is JSON of integers with sorted keys: Spark
compares offsets as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

Partition = tuple[str, int]

RANGE_SCHEMA = StructType(
    [
        StructField("label", IntegerType()),
        StructField("number", IntegerType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
        StructField("marks", ArrayType(LongType())),
        StructField("planned_ms", LongType()),
        StructField("final", BooleanType()),
    ]
)
"""What the source hands to the stateful stage: ranges to read, never events. ``marks`` is position, frontier, position, ..."""


@dataclass(frozen=True, slots=True)
class Planned:
    """
    How far one input partition is planned.

    Args:
        next_offset: First offset not planned.
        frontier_us: Arrival estimate in force at that position, 0 for none.
        marks: Journaled estimates (position, frontier in microseconds) inside the range that ends here.
        planned_ms: Wall clock when that range was first planned, for records stamped absurdly far ahead.
    """

    next_offset: int
    frontier_us: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    planned_ms: int = 0


@dataclass(frozen=True, slots=True)
class Offset:
    """The positions of all input partitions; *final* once the input has ended."""

    partitions: Mapping[Partition, Planned]
    final: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        planned = {
            f"{topic}/{partition}": {
                "frontier": at.frontier_us,
                "marks": [list(mark) for mark in at.marks],
                "next": at.next_offset,
                "planned_ms": at.planned_ms,
            }
            for (topic, partition), at in sorted(self.partitions.items())
        }
        return {"final": int(self.final), "partitions": planned}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offset:
        """Read a stored offset."""
        partitions = {}
        for name, at in stored["partitions"].items():
            topic, _, partition = name.rpartition("/")
            marks = tuple((mark[0], mark[1]) for mark in at["marks"])
            partitions[topic, int(partition)] = Planned(at["next"], at["frontier"], marks, at["planned_ms"])
        return cls(partitions, bool(stored["final"]))

    def ranges(self, end: Offset) -> Iterator[tuple[Partition, Planned, Planned]]:
        """Return what lies between this offset and *end*: partition, where it starts, where it ends. Unchanged ones are left out."""
        for partition, there in sorted(end.partitions.items()):
            here = self.partitions[partition]
            if here != there or end.final != self.final:
                yield partition, here, there
