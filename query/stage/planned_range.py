"""A range of one log for one bucket, which the planner hands to the stage. The events stay in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.platform.spark.range_rows import Label, schema_of


@dataclass(frozen=True, slots=True)
class QueryRange:
    """Half-open offsets of a log."""

    # Spark's key of the task that works on the bucket.
    label: Label
    bucket: int
    # Number of the partition of an ordered topic.
    log: int
    # First offset, and the one after the last.
    start: int
    end: int
    # Whether a run to the present end has reached it.
    is_final: bool
    # How many versions of reference data the run has taken up since it was begun.
    references: int
    # How many buckets of its task stay open; 0: the batch ends where its ranges do.
    open_buckets: int = 0
    # The last request to end an open batch when this one was planned.
    end_request: str = ""


RANGE_SCHEMA = schema_of(QueryRange)
