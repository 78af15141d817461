"""
Planners as Spark data sources. A planner returns the ranges of a batch, a few tiny rows, so one task is enough to hand them out.

The class of a source carries the plan. Options would not do: Spark shows them in query plans, and the plan contains secrets.
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
NAP_S = 0.1  # longest sleep in one call while it is too early: Spark must be able to stop meanwhile
# The sleep without new records grows by this share of the silence, because each call asks the brokers.
_NAP_GROWTH = 0.05


class Ranges(InputPartition):
    """All ranges of a batch, as rows of the source's schema."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows


class RangeHandOut(DataSourceStreamReader):
    """The part of a planner that a task needs: it returns the ranges it was given."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return nothing: ranges are planned beside the driver."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Ranges)
        return iter(partition.rows)


class RangePlanner(ABC):
    """Decides the start of a job, the end of each batch and the ranges between. Methods in camel case have Spark's names."""

    @abstractmethod
    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the job."""

    @abstractmethod
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the present end as the job's end."""

    @abstractmethod
    def plan_end(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the end of the next batch; *start* itself if there is nothing to do."""

    @abstractmethod
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges between two offsets."""

    def rest(self, nap_s: float) -> None:
        """
        Wait after :meth:`plan_end` has found nothing to do: *nap_s* seconds, which grow in a silence up to ``NAP_S``; longer if something
        wakes the planner as soon as there is something to do. Spark cannot stop meanwhile.
        """
        time.sleep(nap_s)


class PacedPlanner(RangeHandOut, SupportsTriggerAvailableNow):
    """
    A planner in the shape that Spark calls. *make* runs on first use, so a process that only plans the read never runs it.

    It leaves at least *trigger_us* between two batches, by the monotonic clock: Spark's own trigger stalls if the wall clock is set back.
    """

    def __init__(self, make: Callable[[], RangePlanner], trigger_us: int) -> None:
        self._make, self._trigger_s = make, trigger_us / SECOND_US
        self._planned_s = -math.inf

    @cached_property
    def _planner(self) -> RangePlanner:
        return self._make()

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initialOffset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; *start* itself if there is nothing to do, or it is too early."""
        early_s = self._planned_s + self._trigger_s - time.monotonic()
        if early_s > 0:
            time.sleep(min(early_s, NAP_S))
            return start
        end = self._planner.plan_end(start)
        if end != start:
            self._planned_s = time.monotonic()
        else:
            silent_s = time.monotonic() - self._planned_s
            self._planner.rest(min(max(self._trigger_s, _NAP_GROWTH * silent_s), NAP_S))
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._planner.partitions(start, end)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit: planners limit batches themselves."""
        return ReadAllAvailable()

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles the planner for the task that hands out the ranges; that task needs nothing else.
        return RangeHandOut, ()


def make_source(
    make: Callable[[], RangePlanner], row_schema: StructType, trigger_us: int = 0, own_name: str = SOURCE_NAME
) -> type[DataSource]:
    """
    Return the data source class of a planner. *trigger_us* is the least time between two batches, microseconds; *own_name* differs from
    those of other sources in the same session.
    """

    # Spark pickles this class for processes that do not need the plan, so its body captures *make* instead of the plan.
    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return own_name

        def schema(self) -> StructType:
            return row_schema

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return PacedPlanner(make, trigger_us)

    return Source
