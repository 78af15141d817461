"""
What the planners of both jobs have in common with Spark's data source interface.

A planner hands out ranges, a few tiny rows a batch, so one task is enough for all of them; and it carries its plan
inside the class it is registered as, because Spark shows a source's options in query plans and the plan holds secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

SOURCE_NAME = "tidegate_ranges"


class Ranges(InputPartition):
    """All ranges of a batch, as rows of the source's schema."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows


class HandOut(DataSourceStreamReader):
    """What a task needs of a planner: it hands out the ranges it is given."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return nothing: ranges are planned beside the driver."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Return the ranges of a batch. Called in a task."""
        assert isinstance(partition, Ranges)
        return iter(partition.rows)


class RangePlanner(HandOut, SupportsTriggerAvailableNow):
    """A planner; subclasses say where it starts, where the next batch ends, and which ranges lie between."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit: planners cut batches themselves."""
        return ReadAllAvailable()

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark sends the planner to the task that hands ranges out; all else stays behind.
        return HandOut, ()


def source_of(make: Callable[[], RangePlanner], row_schema: StructType) -> type[DataSource]:
    """Return the data source whose planner *make* makes."""

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return SOURCE_NAME

        def schema(self) -> StructType:
            return row_schema

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return make()

    return Source
