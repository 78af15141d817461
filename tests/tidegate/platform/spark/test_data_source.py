"""The time between two batches."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidegate.platform.spark.data_source import PacedPlanner, RangeHandOut, RangePlanner


class Counting(RangePlanner):
    """Always has one more."""

    def initialOffset(self) -> dict[str, Any]:
        """Begin at nothing."""
        return {"next": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """There is no end."""

    def plan_end(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the next number."""
        return {"next": start["next"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """There is nothing to read."""
        return []


def planned_within(planner: PacedPlanner, seconds: float) -> int:
    """Ask as Spark does for so long; return how many batches there were."""
    here, end_s = {"next": 0}, time.monotonic() + seconds
    while time.monotonic() < end_s:
        here = planner.latestOffset(here, ReadAllAvailable())
    return here["next"]


def test_batches_are_a_trigger_apart() -> None:
    """The first is planned at once."""
    assert 2 <= planned_within(PacedPlanner(Counting, 200_000), 0.5) <= 3


def test_without_a_trigger_there_is_always_a_next_batch() -> None:
    """As soon as there is something to do."""
    assert planned_within(PacedPlanner(Counting, 0), 0.05) > 10


def test_a_wall_clock_that_is_set_back_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that leaps ahead."""
    planner = PacedPlanner(Counting, 100_000)
    planned_within(planner, 0.05)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert planned_within(planner, 0.3) >= 2


def test_where_only_reading_is_planned_no_planner_is_made() -> None:
    """Its imports and its plan would be in vain there; what a task is sent knows nothing of it either."""
    asked = []
    planner = PacedPlanner(lambda: asked.append(1) or Counting(), 0)  # type: ignore[func-returns-value]
    assert isinstance(pickle.loads(pickle.dumps(planner)), RangeHandOut)
    assert planner.getDefaultReadLimit() == ReadAllAvailable()
    assert not asked
    assert (planner.initialOffset(), planner.partitions({}, {}), asked) == ({"next": 0}, [], [1])
