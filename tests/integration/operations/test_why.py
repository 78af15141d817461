"""
``tidegate why`` beside running jobs: the cause is named within seconds of the hold, and its removal releases the result. Level 3.

Most situations are drawn over the model in ``tests/tidegate/tools/why/``; here the facts come from real jobs, Redis and Kafka.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.stack.commands import run_command
from support.stack.jobs import workspace
from support.stack.servers import SharedStack
from support.stack.topics import create, fresh, produce

pytestmark = pytest.mark.integration

START_MS = 1_767_600_000_000  # 2026-01-05T08:00:00Z
SCRIPT = (
    "SELECT System.Timestamp() AS minute_end, COUNT(*) AS fixes INTO counts FROM cars TIMESTAMP BY at GROUP BY TumblingWindow(minute, 1)"
)


@dataclass(frozen=True)
class Sent:
    """A record to produce; its event time is its stamp."""

    partition: int
    second: int
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def stamp_ms(self) -> int:
        return START_MS + self.second * 1_000

    @property
    def value(self) -> bytes:
        return json.dumps({"at": self.stamp_ms / 1000}).encode()


def test_why_names_what_holds_the_next_results(stack: SharedStack, tmp_path: Path) -> None:
    """A partition that never spoke, a silent one, a query and an ingest job that do not run are named; without them the results come."""
    topic = fresh("cars")
    tables = f"""
[inputs.cars]
topic = "{topic}"
timestamp_by = "at"
late = "30s"
reorder = "2s"

[outputs.counts]
topic = "{topic}.counts"
query = "counts.sql"
"""

    def why(*flags: str) -> tuple[int, dict[str, Any]]:
        own = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url, "JAVA_HOME": "/nowhere"}
        done = run_command(tmp_path, "why", "counts", "--format", "json", *flags, environment=os.environ | own)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def until(holds: Callable[[list[dict[str, Any]]], bool]) -> tuple[int, dict[str, Any]]:
        deadline_s = time.monotonic() + 60
        while True:
            code, answer = why("--at", "2026-01-05T08:01:00Z")
            if holds(answer["holds"]):
                return code, answer
            assert time.monotonic() < deadline_s, answer
            time.sleep(0.5)

    create(stack.bootstrap, topic, 3)
    produce(stack.bootstrap, topic, [Sent(number % 2, number) for number in range(50)])
    with workspace(tmp_path, stack, tables) as space:
        space.script("counts.sql", SCRIPT)
        ingest = space.start("ingest", "cars").once_started()
        query = space.start("query", "counts.sql")
        produce(stack.bootstrap, topic, [Sent(0, 70), Sent(1, 49)])
        code, answer = until(lambda holds: {hold["place"]: hold["cause"] for hold in holds}.get(f"{topic}-2") == "never_spoke")
        assert code == 1
        produce(stack.bootstrap, topic, [Sent(2, 140)])
        # What a job has read it tells once a second: until then its records wait.
        code, answer = until(lambda holds: [(hold["place"], hold["cause"]) for hold in holds] == [(f"{topic}-1", "silent")])
        [hold] = answer["holds"]
        # The producers stamp the records, so silence moves no time: no time ends the wait.
        assert (code, hold["event"], hold["until"]) == (1, "2026-01-05T08:00:49Z", None)
        assert hold["stage"] == "ingest cars"
        assert why()[1]["due"] == "2026-01-05T08:01:00Z"
        query.stop()
        produce(stack.bootstrap, topic, [Sent(1, 71)])
        code, answer = until(lambda holds: [hold["stage"] for hold in holds] == ["query counts"])
        assert (code, answer["holds"][0]["cause"]) == (1, "stopped")
        # What releases the result is a command that does.
        assert answer["holds"][0]["remedy"] == "tidegate query counts.sql"
        space.start(*shlex.split(answer["holds"][0]["remedy"])[1:])
        code, answer = until(lambda holds: not holds)
        assert code == 0
        ingest.stop()
        produce(stack.bootstrap, topic, [Sent(0, 130), Sent(1, 131)])
        code, answer = why("--at", "2026-01-05T08:02:00Z")
        assert (code, [(hold["cause"], hold["stage"]) for hold in answer["holds"]]) == (1, [("stopped", "ingest cars")])
        assert answer["holds"][0]["remedy"] == "tidegate ingest cars"
