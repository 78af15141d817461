"""A query that was killed between its results and their CTI, and goes on as another query: docs/operate/starting.md, Continue."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.stack.drawn_logs import draw
from support.stack.jobs import JOB_TIMEOUT_S, settings_of, workspace
from support.stack.keyed_input import TABLES
from support.stack.topics import create, fresh, header, produce, records

from ordering.protocol.wire import EVENT_HEADER_BYTES, HEADER_NAME, decode_event_headers
from tidegate.basics.fault_points import VARIABLE

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration
OUTPUT = """
[outputs.counts]
topic = "{topic}.counts"
"""
SCRIPT = """
SELECT CAST(k AS nvarchar(max)) AS k, System.Timestamp() AS w, COUNT(*) + {change} AS n INTO counts
FROM events TIMESTAMP BY at {over} GROUP BY k, TumblingWindow(second, 5)
"""


def is_event(message: Any) -> bool:
    """Tell a result from a CTI."""
    return len(header(message, HEADER_NAME)) == EVENT_HEADER_BYTES


# Without OVER what a changed query writes over is in test_plan_start.py too.
@pytest.mark.parametrize("over", [pytest.param("", marks=pytest.mark.deep), "OVER k"])
def test_results_without_a_cti_are_not_written_over_by_another_query(over: str, stack: Stack, tmp_path: Path) -> None:
    """Level 2 of each key: every window stands once, and no number has results of both queries."""
    topic = create(stack.bootstrap, fresh("changed"), 1)
    with workspace(tmp_path, stack, (TABLES + OUTPUT).format(topic=topic)) as space:
        produce(stack.bootstrap, topic, draw(12, 2_000, 1, keys=("a", "bb", "ccc"), gaps_ms=(0, 10, 50, 100, 290)))
        space.start("ingest", "events", *settings_of(inputs__events__max_events_per_batch=200), "--until-end").finish()
        space.script("counts.sql", SCRIPT.format(change=0, over=over))
        marker = tmp_path / "stopped"
        small = settings_of(query__max_events_per_batch=300)
        job = space.start("query", "counts.sql", *small, **{VARIABLE: f"events acknowledged:3:{marker}"})
        deadline_s = time.monotonic() + JOB_TIMEOUT_S
        while not marker.exists():
            assert job.running, job.errors
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        job.kill()
        shutil.rmtree(space.folder / ".tidegate/checkpoints" / f"query-{topic}.counts")
        space.script("counts.sql", SCRIPT.format(change=1_000, over=over))
        space.start("query", "counts.sql", "--start", "last-stopped").finish()
        found = [message for message in records(stack.bootstrap, f"{topic}.counts") if is_event(message)]
    by_number: dict[int, set[bytes]] = {}
    for message in found:
        (fields,) = decode_event_headers([header(message, HEADER_NAME)])
        by_number.setdefault(int(fields["seq"]), set()).add(message.value())
    assert {len(values) for values in by_number.values()} == {1}
    results = [json.loads(value) for values in by_number.values() for value in values]
    windows = Counter((row["k"], row["w"]) for row in results)
    assert set(windows.values()) == {1}
    assert {row["n"] > 1_000 for row in results} == {True, False}
