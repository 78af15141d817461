"""A field that is renamed upstream while a query runs: named in its log and in ``tidegate status``."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.stack.drawn_logs import Raw
from support.stack.jobs import workspace
from support.stack.topics import create, fresh, produce

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


def orders(name: str) -> list[Raw]:
    """Return orders with their amount in the field *name*."""
    now_ms = time.time_ns() // 1_000_000
    return [Raw(0, None, json.dumps({"country": "de", name: number}).encode(), now_ms + number) for number in range(COUNT)]


def nulls(status: Any) -> list[dict[str, Any]]:
    """Return the columns that ``tidegate status`` names."""
    status.wait()
    return [column for job in status.last["jobs"] for column in job.get("nulls", [])]


def test_a_renamed_field_is_named_by_log_and_status(stack: Stack, tmp_path: Path) -> None:
    """At first all is well; then more than half of the recent records have no such field."""
    topic = create(stack.bootstrap, fresh("orders"), 1)
    produce(stack.bootstrap, topic, orders("revenue"))
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        script = space.folder / "revenues.sql"
        script.write_text(SCRIPT)
        ingest = space.start("ingest", "orders").once_started()
        query = space.start("query", str(script))
        query.until(lambda: query.last.get("events", 0) >= COUNT - 1, "the good orders but for the last, which no later one releases")
        assert nulls(space.start("status")) == []
        produce(stack.bootstrap, topic, [*orders("turnover"), *orders("turnover")])
        query.until(lambda: bool(nulls(space.start("status"))), "the status")
        (told,) = nulls(space.start("status"))
        for job in (query, ingest):
            os.kill(job.pid, signal.SIGTERM)
            job.wait()
    assert (told["input"], told["column"], told["nulls"]) == ("orders", "revenue", told["absent"])
    assert told["share"] > 0.5
    warnings = [json.loads(line) for line in query.errors.splitlines() if line.startswith("{") and "are NULL in revenue" in line]
    assert [warning["code"] for warning in warnings] == ["TG-LINT-ABSENT"]
