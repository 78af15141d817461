"""What a batch reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ordering.errors import UnreachableError
from query.config import QueryPlan
from query.stage import planner
from query.stage.offsets import QueryOffset
from query.stage.open_positions import keep_positions, read_to
from query.stage.planned_range import QueryRange
from query.stage.planner import QueryPlanner
from tidegate.platform.checkpoint.open_batches import read_request, request_end, request_stop
from tidegate.platform.observe.reports import BucketReport


def test_the_first_batch_after_a_start_has_every_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that has read all says so once; else a job that goes on would wait for its report for ever."""
    monkeypatch.setattr(planner, "write_row", lambda planned: planned)
    plan = SimpleNamespace(labels=["a", "b"], readers_of=lambda log: [log])

    def ranges(made: QueryPlanner, start: dict[int, int], end: dict[int, int], *, is_final: bool = False) -> list[tuple[int, int, int]]:
        (task,) = made.partitions(QueryOffset(start).to_json(), QueryOffset(end, is_final=is_final).to_json())
        return [(planned.bucket, planned.start, planned.end) for planned in cast(Any, task).rows if isinstance(planned, QueryRange)]

    made = QueryPlanner(cast(QueryPlan, plan))
    for _ in range(2):
        assert ranges(made, {0: 5, 1: 4}, {0: 9, 1: 4}) == [(0, 5, 9), (1, 4, 4)]
    assert ranges(made, {0: 9, 1: 4}, {0: 12, 1: 4}) == [(0, 9, 12)]
    assert ranges(made, {0: 12, 1: 4}, {0: 12, 1: 4}, is_final=True) == [(0, 12, 12), (1, 4, 4)]


def test_a_run_to_the_present_end_waits_for_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A batch without an advance would be its last one for Spark; a job without an end is asked again."""
    monkeypatch.setattr(planner, "_RETRY_S", 0.0)
    logs = [("t", 0), ("t", 1)]
    parts = {"partitions": logs, "starts": dict.fromkeys(logs, 0), "buckets": 1, "logs_of": lambda bucket: [0, 1], "feeds": []}
    plan = SimpleNamespace(**parts, references=(), checkpoint=str(tmp_path), events_per_batch=4, bytes_per_batch=10**9, batch_span_us=0)
    answers: Iterator[Exception | None] = chain([UnreachableError("no answer", code="TG-KAFKA-UNREACHABLE")], repeat(None))

    def offsets_at(partitions: object, ms: int) -> dict[tuple[str, int], int]:
        if (error := next(answers)) is not None:
            raise error
        return dict.fromkeys(logs, min(ms // 1000, 9))

    def planned(*, until_end: bool) -> dict[int, int]:
        made = QueryPlanner(cast(QueryPlan, plan))
        made.__dict__["_admin"] = SimpleNamespace(ends=lambda partitions: dict.fromkeys(logs, 9), offsets_at=offsets_at)
        if until_end:
            made.prepareForTriggerAvailableNow()
        return dict(QueryOffset.from_json(made.plan_end(QueryOffset({0: 0, 1: 0}).to_json())).positions)

    assert planned(until_end=True) == {0: 2, 1: 2}
    answers = chain([UnreachableError("no answer", code="TG-KAFKA-UNREACHABLE")], repeat(None))
    assert planned(until_end=False) == {0: 0, 1: 0}


def test_a_batch_stays_open_once_all_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It begins without anything new too, so that what comes next waits for no batch; a request from its planning on ends it."""
    monkeypatch.setattr(planner, "write_row", lambda planned: planned)
    logs = [("t", 0), ("t", 1), ("t", 2)]
    parts = {"partitions": logs, "starts": dict.fromkeys(logs, 0), "buckets": 3, "shuffle_partitions": 2, "labels": "abc", "feeds": []}
    plan = SimpleNamespace(
        **parts,
        logs_of=lambda bucket: [bucket],
        readers_of=lambda log: [log],
        references=(),
        checkpoint=str(tmp_path),
        events_per_batch=12,
        bytes_per_batch=10**9,
        batch_span_us=10**7,
    )
    made = QueryPlanner(cast(QueryPlan, plan))
    made.__dict__["_admin"] = SimpleNamespace(ends=lambda partitions: dict(zip(logs, (5, 6, 3), strict=True)))

    def advance(start: dict[str, Any]) -> tuple[dict[str, Any], list[QueryRange]]:
        end = made.plan_end(start)
        (task,) = made.partitions(start, end)
        return end, list(cast(Any, task).rows)

    behind, ranges = advance(QueryOffset({0: 0, 1: 0, 2: 0}).to_json())
    assert QueryOffset.from_json(behind).positions == {0: 4, 1: 4, 2: 3}
    assert {planned.open_buckets for planned in ranges} == {0}, "it is behind"
    request_end(tmp_path)
    opened, ranges = advance(behind)
    assert [(planned.start, planned.end, planned.open_buckets) for planned in ranges] == [(4, 5, 2), (4, 6, 1), (3, 3, 2)]
    assert {planned.end_request for planned in ranges} == {read_request(tmp_path)}
    keep_positions(tmp_path, [BucketReport(bucket, open_batch=1, next_offsets={bucket: 7 + bucket}) for bucket in range(3)])
    assert read_to(tmp_path, {0: 5, 1: 6, 2: 3}, 0) == {0: 5, 1: 6, 2: 3}, "Spark has not finished that batch"
    again, ranges = advance(opened)
    assert [(planned.start, planned.end) for planned in ranges] == [(5, 7), (6, 8), (3, 9)], "what it has read is read past"
    assert again != opened
    keep_positions(tmp_path, [BucketReport(0)])
    assert read_to(tmp_path, {0: 5}, 9) == {0: 5}, "a batch that ended at its ranges has logged how far it read"
    request_stop(tmp_path)
    assert made.plan_end(again) == again
