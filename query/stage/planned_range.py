"""A range of one log for one bucket: what the planner hands to the stage. Events stay in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.spark.range_rows import Label, schema_of


@dataclass(frozen=True, slots=True)
class QueryRange:
    """
    Half-open offsets of a log.

    Args:
        label: Spark's key of the task that works on the bucket.
        bucket: The bucket.
        log: Number of the partition of an ordered topic.
        start, end: First offset, and the one after the last.
        is_final: Whether a run to the present end has reached it.
        references: How many versions of reference data the run has taken up since it was begun.
    """

    label: Label
    bucket: int
    log: int
    start: int
    end: int
    is_final: bool
    references: int


RANGE_SCHEMA = schema_of(QueryRange)
