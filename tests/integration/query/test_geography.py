"""Distances by a job that is killed; and a checkpoint that was begun with other libraries of geography."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from pyproj import Geod
from support.query_oracle import iso
from support.stack.jobs import error_code, workspace
from support.stack.topics import create, fresh, produce, read_ordered

from tidegate.language.expressions.functions.geography import library_versions, package_versions

if TYPE_CHECKING:
    from pathlib import Path

    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

TABLES = """
[inputs.rides]
topic = "{topic}"
ordered_topic = "{topic}.ordered"
timestamp_by = "at"

[outputs.far]
topic = "{topic}.far"
partitions = 1

[query]
max_events_per_batch = 20
"""
FAR = """SELECT n, ROUND(ST_DISTANCE(CreatePoint(lat, lon), CreatePoint(52.5, 13.4)), 3) AS metres INTO far
FROM rides TIMESTAMP BY at"""
BEGIN_US = 1_700_000_000_000_000
RIDES = [{"at": iso(BEGIN_US + number * 1_000_000), "n": number, "lat": number / 3, "lon": -number / 2} for number in range(90)]


# What a start compares: tests/query/start/test_bound_geography.py. A job that is bound to what computes its results and is killed:
# test_local_time.py.
@pytest.mark.deep
def test_distances_survive_a_kill_and_other_libraries_are_refused(stack: Stack, tmp_path: Path) -> None:
    """
    Level 3: the distances are those of GeographicLib asked directly. The refusal names the packages that the run was begun with; with these
    the job goes on, and so it does after the last results without the checkpoint, which are the ways out that are printed.
    """
    topic = create(stack.bootstrap, fresh("rides"), 1)
    raws = [
        SimpleNamespace(value=json.dumps(ride).encode(), key=None, partition=0, stamp_ms=BEGIN_US // 1000 + ride["n"] * 1000, headers=())
        for ride in RIDES
    ]
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        script = space.script("far.sql", FAR)
        ingest = space.start("ingest", "rides").once_started()

        def append(first: int, until: int) -> None:
            produce(stack.bootstrap, topic, raws[first:until])
            ingest.until(lambda: ingest.last.get("events_in") == until, f"{until} rides are ordered")

        append(0, 40)
        job = space.start("query", script)
        job.until(lambda: job.last.get("events", 0) >= 20, "some are read")
        job.kill()
        folder = space.folder / ".tidegate" / "checkpoints" / f"query-{topic}.far"
        bound = json.loads((folder / "settings.json").read_text())
        assert (bound["geography"], bound["geography_packages"]) == (library_versions(), package_versions())
        others = {**bound, "geography": "GEOS 3.0.0, GeographicLib 1.9.0", "geography_packages": "shapely 1.0.0, pyproj 2.0.0"}
        (folder / "settings.json").write_text(json.dumps(others))
        refused = space.start("query", script)
        assert error_code(refused) == "TG-CHECKPOINT-GEOGRAPHY"
        (folder / "settings.json").write_text(json.dumps(bound))
        append(40, 70)
        goes_on = space.start("query", script)
        goes_on.until(lambda: goes_on.last.get("events", 0) >= 1, "more are read")
        goes_on.kill()
        shutil.rmtree(folder)
        append(70, len(raws))
        ingest.stop()
        space.start("ingest", "rides", "--until-end").finish()
        space.start("query", script, "--start", "last-stopped").finish()
        found = [json.loads(event.value or b"") for event in read_ordered(stack.bootstrap, f"{topic}.far", 1).events[0, 0]]
    geod = Geod(ellps="WGS84")
    expected = [(ride["n"], round(geod.inv(ride["lon"], ride["lat"], 13.4, 52.5)[2], 3)) for ride in RIDES]
    assert [(row["n"], row["metres"]) for row in found] == expected
