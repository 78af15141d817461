"""A range of one input partition: what the planner hands to the stage. Records stay in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from ordering.ticks import NEVER
from tidegate.spark.range_rows import Label, Pairs, schema_of


@dataclass(frozen=True, slots=True)
class IngestRange:
    """
    Half-open offsets to read, and everything that a replay of the batch must repeat.

    Args:
        label: Spark's key of the task that walks the range.
        number: Roster number of the input partition.
        topic, partition: The input partition.
        start, end: First offset, and the one after the last.
        marks: Estimates in force: (position, arrival frontier in microseconds).
        imports: Imported CTIs in force: (position, c in microseconds).
        planned_ms: Wall clock when the range was first planned.
        is_final: Whether the input ends with the range.
        roster_version, inputs: The roster's version, and how many input partitions it has.
        joined_us: J of a partition that joined the ordered topic later, else ``NEVER``.
        spans: When records were first planned: (first position, microseconds).
        base_us: The base settled before the range, 0 for none.
        conflicts: How many facts the journal held where records had been judged without them.
        clamped: How many moments were lifted because a clock had gone back.
    """

    label: Label
    number: int
    topic: str
    partition: int
    start: int
    end: int
    marks: Pairs = ()
    imports: Pairs = ()
    planned_ms: int = 0
    is_final: bool = False
    roster_version: int = 1
    inputs: int = 1
    joined_us: int = NEVER
    spans: Pairs = ()
    base_us: int = 0
    conflicts: int = 0
    clamped: int = 0


RANGE_SCHEMA = schema_of(IngestRange)
