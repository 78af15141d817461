"""What a batch reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from query.config import QueryPlan
from query.stage import planner
from query.stage.offsets import Offset
from query.stage.planned_range import QueryRange
from query.stage.planner import Planner


def test_the_first_batch_after_a_start_has_every_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that has read all says so once; else a job that goes on would wait for its report for ever."""
    monkeypatch.setattr(planner, "write_row", lambda planned: planned)
    plan = SimpleNamespace(labels=["a", "b"], readers_of=lambda log: [log])

    def ranges(made: Planner, start: dict[int, int], end: dict[int, int], *, is_final: bool = False) -> list[tuple[int, int, int]]:
        (task,) = made.partitions(Offset(start).to_json(), Offset(end, is_final=is_final).to_json())
        return [(planned.bucket, planned.start, planned.end) for planned in cast(Any, task).rows if isinstance(planned, QueryRange)]

    made = Planner(cast(QueryPlan, plan))
    for _ in range(2):
        assert ranges(made, {0: 5, 1: 4}, {0: 9, 1: 4}) == [(0, 5, 9), (1, 4, 4)]
    assert ranges(made, {0: 9, 1: 4}, {0: 12, 1: 4}) == [(0, 9, 12)]
    assert ranges(made, {0: 12, 1: 4}, {0: 12, 1: 4}, is_final=True) == [(0, 12, 12), (1, 4, 4)]
