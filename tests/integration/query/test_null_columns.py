"""What a running query says of itself: a field that is renamed upstream, in its log, status and metrics; where its time goes."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.stack.drawn_logs import Raw
from support.stack.jobs import settings_of, workspace
from support.stack.topics import create, fresh, produce

from tidegate.platform.stack.embedded import free_port

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

TABLES = """
[inputs.orders]
topic = "{topic}"
[outputs.revenues]
topic = "{topic}.revenues"
"""
SCRIPT = "SELECT country, SUM(revenue) AS total INTO revenues FROM orders GROUP BY country, TumblingWindow(second, 1)"
COUNT = 200


def orders(name: str, count: int = COUNT) -> list[Raw]:
    """Return orders with their amount in the field *name*, each a millisecond later than the one before: all but the last are released."""
    now_ms = time.time_ns() // 1_000_000
    return [Raw(0, None, json.dumps({"country": "de", name: number}).encode(), now_ms + number) for number in range(count)]


def nulls(status: Any) -> list[dict[str, Any]]:
    """Return the columns that ``tidegate status`` names."""
    status.wait()
    return [column for job in status.last["jobs"] for column in job.get("nulls", [])]


def seconds(port: int) -> dict[str, float]:
    """Return the seconds of the query's only bucket by step, as Prometheus reads them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples if sample.name == "tidegate_query_stage_seconds_total"]
    assert {(sample.labels["query"], sample.labels["bucket"]) for sample in samples} == {("revenues", "0")}
    return {sample.labels["step"]: sample.value for sample in samples}


def test_a_renamed_field_is_named_by_log_and_status(stack: Stack, tmp_path: Path) -> None:
    """At first all is well; then more than half of the recent records have no such field. Each batch adds to the seconds of its steps."""
    port = free_port()
    topic = create(stack.bootstrap, fresh("orders"), 1)
    produce(stack.bootstrap, topic, orders("revenue"))
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        script = space.folder / "revenues.sql"
        script.write_text(SCRIPT)
        ingest = space.start("ingest", "orders").once_started()
        query = space.start("query", str(script), *settings_of(metrics__port=port))
        query.until(lambda: query.last.get("events", 0) >= COUNT - 1, "the good orders but for the last, which no later one releases")
        assert nulls(space.start("status")) == []
        before = seconds(port)
        produce(stack.bootstrap, topic, orders("turnover", 2 * COUNT))
        query.until(lambda: bool(nulls(space.start("status"))), "the status")
        (told,) = nulls(space.start("status"))
        after = seconds(port)
        for job in (query, ingest):
            os.kill(job.pid, signal.SIGTERM)
            job.wait()
    assert (told["input"], told["column"], told["nulls"]) == ("orders", "revenue", told["absent"])
    assert told["share"] > 0.5
    assert before.keys() == after.keys() == {"read", "compute", "write", "acknowledge"}
    assert all(after[step] >= before[step] for step in before)
    assert after["compute"] > before["compute"] > 0
    warnings = [json.loads(line) for line in query.errors.splitlines() if line.startswith("{") and "are NULL in revenue" in line]
    assert [warning["code"] for warning in warnings] == ["TG-LINT-ABSENT"]
