"""A range of one input partition: what the planner hands to the stage. Records stay in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from ordering.ticks import NEVER
from tidegate.spark.range_rows import Label, Pairs, schema_of


@dataclass(frozen=True, slots=True)
class IngestRange:
    """Half-open offsets to read, and everything that a replay of the batch must repeat."""

    # Spark's key of the task that walks the range.
    label: Label
    number: int
    topic: str
    partition: int
    # First offset, and the one after the last.
    start: int
    end: int
    # Estimates in force: (position, arrival frontier in microseconds).
    marks: Pairs = ()
    # Imported CTIs in force: (position, c in microseconds).
    imports: Pairs = ()
    # Wall clock when the range was first planned.
    planned_ms: int = 0
    is_final: bool = False
    # The roster's version, and how many input partitions it has.
    roster_version: int = 1
    inputs: int = 1
    # J of a partition that joined the ordered topic later, else ``NEVER``.
    joined_us: int = NEVER
    # When records were first planned: (first position, microseconds).
    spans: Pairs = ()
    # The base settled before the range, 0 for none.
    base_us: int = 0
    # How many facts the journal held where records had been judged without them.
    conflicts: int = 0
    # How many moments were lifted because a clock had gone back.
    clamped: int = 0


RANGE_SCHEMA = schema_of(IngestRange)
