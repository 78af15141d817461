"""
Planners as Spark's data sources.

A planner hands out ranges, a few tiny rows a batch, so one task is enough for all of them; and it carries its plan
inside the class it is registered as, because Spark shows a source's options in query plans and the plan holds secrets.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ordering.ticks import SECOND_US

SOURCE_NAME = "tidegate_ranges"
# Spark asks again that often while it is too early: it must be able to stop meanwhile.
_NAP_S = 0.1
# Where nothing has come for so long, so much of it may pass until the next look: each look asks the brokers.
_NAP_GROWTH = 0.05


class Ranges(InputPartition):
    """All ranges of a batch, as rows of the source's schema."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows


class RangeHandOut(DataSourceStreamReader):
    """What a task needs of a planner: it hands out the ranges it is given."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return nothing: ranges are planned beside the driver."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Return the ranges of a batch. Called in a task."""
        assert isinstance(partition, Ranges)
        return iter(partition.rows)


class RangePlanner(ABC):
    """Where a job starts, where its next batch ends (:meth:`plan_end`), and which ranges lie between, in Spark's words."""

    @abstractmethod
    def initialOffset(self) -> dict[str, Any]:
        """Return where the job starts."""

    @abstractmethod
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the present end as the job's end."""

    @abstractmethod
    def plan_end(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return where the next batch ends; *start* itself when there is nothing to do."""

    @abstractmethod
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges between two offsets."""


class PacedPlanner(RangeHandOut, SupportsTriggerAvailableNow):
    """
    A planner as Spark knows it. It is made when it is first asked for anything: where only reading is planned, never.

    It also keeps the time between batches, by the monotonic clock: Spark's own trigger stands still for as long as
    the wall clock is set back.

    Args:
        make: Makes the planner.
        trigger_us: Least time between the plans of two batches, microseconds.
    """

    def __init__(self, make: Callable[[], RangePlanner], trigger_us: int) -> None:
        self._make, self._trigger_s = make, trigger_us / SECOND_US
        self._planned_s = -math.inf

    @cached_property
    def _planner(self) -> RangePlanner:
        return self._make()

    def initialOffset(self) -> dict[str, Any]:
        """Return where the job starts."""
        return self._planner.initialOffset()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the present end as the job's end."""
        self._planner.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; *start* itself when there is nothing to do, or it is too early."""
        early_s = self._planned_s + self._trigger_s - time.monotonic()
        if early_s > 0:
            time.sleep(min(early_s, _NAP_S))
            return start
        end = self._planner.plan_end(start)
        if end != start:
            self._planned_s = time.monotonic()
        else:
            silent_s = time.monotonic() - self._planned_s
            time.sleep(min(max(self._trigger_s, _NAP_GROWTH * silent_s), _NAP_S))
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges between two offsets."""
        return self._planner.partitions(start, end)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit: planners cut batches themselves."""
        return ReadAllAvailable()

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark sends the planner to the task that hands ranges out; all else stays behind.
        return RangeHandOut, ()


def make_source(make: Callable[[], RangePlanner], row_schema: StructType, trigger_us: int = 0) -> type[DataSource]:
    """Return the data source whose planner *make* makes; *trigger_us* is the least time between two batches, microseconds."""

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return SOURCE_NAME

        def schema(self) -> StructType:
            return row_schema

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return PacedPlanner(make, trigger_us)

    return Source
