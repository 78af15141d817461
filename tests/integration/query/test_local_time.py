"""Local days over a change of the clock, by a job that is killed; and a time zone database in which that clock is another one."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from support.clocks import DAY, HOUR, MINUTE, ends_of_cells, us_of
from support.query_oracle import iso
from support.stack.jobs import error_code, workspace
from support.stack.topics import create, fresh, produce, read_ordered

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

TABLES = """
[inputs.events]
topic = "{topic}"
ordered_topic = "{topic}.ordered"
timestamp_by = "at"

[outputs.days]
topic = "{topic}.days"
partitions = 1

[query]
max_events_per_batch = 20
"""
DAYS = """SELECT System.Timestamp() AT TIME ZONE 'Europe/Berlin' AS day_end, COUNT(*) AS n INTO days FROM events TIMESTAMP BY at
GROUP BY TumblingWindow(Duration(day, 1), TimeZone('Europe/Berlin'))"""
BEGIN_US = us_of("2024-10-25T00:00:00")
TIMES = [BEGIN_US + number * HOUR for number in range(24 * 6)]


def test_days_of_25_hours_survive_kills_and_a_changed_database_is_refused(stack: Stack, tmp_path: Path) -> None:
    """
    Level 3: the days are those that a look at the clock finds. The refusal names the zone; with the clocks of before the job goes on, and
    so it does after the last results without the checkpoint, which are the ways out that are printed.
    """
    topic = create(stack.bootstrap, fresh("clocks"), 1)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        script = space.script("days.sql", DAYS)
        raws = [
            SimpleNamespace(value=json.dumps({"at": iso(at)}).encode(), key=None, partition=0, stamp_ms=at // 1000, headers=())
            for at in TIMES
        ]
        produce(stack.bootstrap, topic, raws[:60])
        ingest = space.start("ingest", "events").once_started()
        ingest.until(lambda: ingest.last.get("events_in") == 60, "the first days are ordered")
        job = space.start("query", script)
        job.until(lambda: job.last.get("events", 0) >= 59, "all but the last one are read")
        job.kill()
        planned = space.start("plan", script).finish()
        assert list(planned["time_zones"]["zones"]) == ["Europe/Berlin"]
        folder = space.folder / ".tidegate" / "checkpoints" / f"query-{topic}.days"
        bound = (folder / "settings.json").read_text()
        (folder / "settings.json").write_text(bound.replace(planned["time_zones"]["zones"]["Europe/Berlin"], "of another database"))
        refused = space.start("query", script)
        assert error_code(refused) == "TG-CHECKPOINT-ZONES"
        (folder / "settings.json").write_text(bound)
        produce(stack.bootstrap, topic, raws[60:100])
        goes_on = space.start("query", script)
        ingest.until(lambda: ingest.last.get("events_in") == 100, "more days are ordered")
        goes_on.until(lambda: goes_on.last.get("events", 0) >= 1, "some are read")
        goes_on.kill()
        shutil.rmtree(folder)
        produce(stack.bootstrap, topic, raws[100:])
        ingest.until(lambda: ingest.last.get("events_in") == len(TIMES), "all is ordered")
        ingest.stop()
        space.start("ingest", "events", "--until-end").finish()
        space.start("query", script, "--start", "last-stopped").finish()
        found = [
            (event.system_us, json.loads(event.value or b"")) for event in read_ordered(stack.bootstrap, f"{topic}.days", 1).events[0, 0]
        ]
    ends = list(ends_of_cells("Europe/Berlin", BEGIN_US - 2 * DAY, BEGIN_US + 8 * DAY, DAY, 0, 15 * MINUTE))
    counts = {end: sum(start < at <= end for at in TIMES) for start, end in pairwise(ends)}
    assert [(end, row["n"]) for end, row in found] == [(end, count) for end, count in counts.items() if count]
    assert [row["day_end"][10:] for _, row in found][1:4] == ["T00:00:00+02:00", "T00:00:00+01:00", "T00:00:00+01:00"]
    assert 25 in [row["n"] for _, row in found]
