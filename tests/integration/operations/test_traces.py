"""Traces of real jobs: each batch of ingest and query reaches a collector, and the jobs go on when it is away."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.stack.jobs import workspace
from support.stack.servers import SharedStack
from support.stack.topics import create, fresh, produce
from support.trace_collector import collecting

pytestmark = pytest.mark.integration
START_MS = 1_767_600_000_000
SCRIPT = (
    "SELECT System.Timestamp() AS minute_end, COUNT(*) AS fixes INTO counts FROM cars TIMESTAMP BY at GROUP BY TumblingWindow(minute, 1)"
)


@dataclass(frozen=True)
class Sent:
    """A record to produce; its payload holds what no trace may show."""

    partition: int
    second: int
    key: bytes = b"a-private-key"
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def stamp_ms(self) -> int:
        return START_MS + self.second * 1_000

    @property
    def value(self) -> bytes:
        return json.dumps({"at": self.stamp_ms / 1000, "note": "a-private-value"}).encode()


def test_batches_of_jobs_are_traced(stack: SharedStack, tmp_path: Path) -> None:
    """The spans count the records that were produced, and name where they come from and go; nothing of a payload travels."""
    topic = fresh("cars")
    create(stack.bootstrap, topic, 2)
    produce(stack.bootstrap, topic, [Sent(number % 2, number) for number in range(200)])
    with collecting() as collector:
        tables = f"""
[inputs.cars]
topic = "{topic}"
timestamp_by = "at"

[outputs.counts]
topic = "{topic}.counts"
query = "counts.sql"

[traces]
endpoint = "{collector.endpoint}"
"""
        with workspace(tmp_path, stack, tables) as space:
            space.script("counts.sql", SCRIPT)
            space.start("ingest", "cars", "--until-end").finish()
            space.start("query", "counts.sql", "--until-end").finish()
    batches = collector.named("ingest cars batch")
    assert sum(each.attributes["tidegate.read"] for each in batches) == 200
    assert {each.attributes["tidegate.ordered_topic"] for each in batches} == {f"{topic}.ordered"}
    parts = [part for batch in batches for part in collector.below(batch)]
    assert max(part.attributes["tidegate.next_offset"] for part in parts if part.name == f"{topic}-1") == 100
    assert {step.name for part in parts for step in collector.below(part)} >= {"read", "parse", "order", "write", "acknowledge"}
    queries = collector.named("query counts batch")
    assert sum(each.attributes["tidegate.read"] for each in queries) == 200
    assert {each.attributes["tidegate.reads"] for each in queries} == {f"{topic}.ordered"}
    assert not any(private in body for body in collector.bodies for private in (b"a-private-key", b"a-private-value"))
