"""A query that looks rows up in reference data on an object store: what was found stays, over kill -9, whatever becomes of the objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.object_server import CREDENTIALS, ObjectServer, run_object_server
from support.stack.drawn_logs import START_MS, draw
from support.stack.jobs import Workspace, error_code, settings_of, workspace
from support.stack.topics import check_promises, create, fresh, produce, read_ordered

from ordering.ticks import SECOND_US, format_tick

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = [pytest.mark.integration, pytest.mark.deep]
EVENTS, PARTITIONS = 8_000, 2
START_US = START_MS * 1000
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
early = "1m"
late = "20s"

[references.r]
path = "{url}"

[outputs.found]
topic = "{topic}.found"

[outputs.expected]
topic = "{topic}.expected"
"""
SCRIPT = "SELECT e.k AS k, e.v AS v, r.name AS name FROM events TIMESTAMP BY at e JOIN r ON r.one = 1"


def name_of(instant_us: int) -> str:
    """Return the name of the version that begins at an instant."""
    return f"r-{format_tick(instant_us)[:19].replace(':', '-')}.csv"


def results(space: Workspace, topic: str) -> list[tuple[int, bytes]]:
    """Return time and value of each result, by the reader's rule: a killed job may have written some of them twice."""
    found = read_ordered(space.stack.bootstrap, topic, PARTITIONS)
    check_promises(found, killed=True)
    return [(event.system_us, event.value or b"") for channel in sorted(found.events) for event in found.events[channel]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectServer]:
    """A server, and credentials for it in the environment."""
    with run_object_server(tmp_path / "log") as made:
        yield made


def test_a_replay_finds_what_was_found(server: ObjectServer, stack: Stack, tmp_path: Path) -> None:
    """Level 3: a version that comes while the job runs, is taken away, and a kill -9: the bytes of a run on a folder that had both."""
    bucket = server.new_bucket()
    versions = {name_of(START_US - 3600 * SECOND_US): b"one,name\n1,first\n"}
    server.put(f"{bucket}/lake/{next(iter(versions))}", next(iter(versions.values())))
    topic = create(stack.bootstrap, fresh("objects"), PARTITIONS)
    raws = draw(7, EVENTS, PARTITIONS, keys=("a", "b", "c"))
    last_us = max(raw.stamp_ms for raw in raws) * 1000
    url = server.url(f"{bucket}/lake/r-{{date}}T{{time}}.csv")
    with workspace(tmp_path / "job", stack, TABLES.format(topic=topic, url=url)) as space:
        space.script("found.sql", SCRIPT)
        produce(stack.bootstrap, topic, raws[: EVENTS // 3])
        ingest = space.start("ingest", "events").once_started()
        job = space.start("query", "found.sql", "--into", "found", **CREDENTIALS)
        job.until(lambda: job.batches > 0, "a batch")
        second_us = (START_US + last_us) // 2 // SECOND_US * SECOND_US
        versions[name_of(second_us)] = b"one,name\n1,second\n"
        server.put(f"{bucket}/lake/{name_of(second_us)}", versions[name_of(second_us)])
        job.until(lambda: len(job.logged("new reference data is read")) == 1, "the second version")
        server.delete(f"{bucket}/lake/{name_of(second_us)}")
        produce(stack.bootstrap, topic, raws[EVENTS // 3 :])
        before = job.batches
        job.until(lambda: job.batches > before, "something after it")
        job.kill()
        ingest.stop()
        # Back with other bytes it is refused; gone, the copy counts.
        server.put(f"{bucket}/lake/{name_of(second_us)}", b"one,name\n1,other\n")
        assert error_code(space.start("query", "found.sql", "--into", "found", **CREDENTIALS)) == "TG-REFERENCE-CHANGED"
        server.delete(f"{bucket}/lake/{name_of(second_us)}")
        space.start("ingest", "events", "--until-end").finish()
        last = space.start("query", "found.sql", "--into", "found", **CREDENTIALS).finish()
        assert not last.get("late_reference_versions")
        (space.folder / "lake").mkdir()
        for name, content in versions.items():
            (space.folder / "lake" / name).write_bytes(content)
        in_folder = settings_of(references__r__path="lake/r-{date}T{time}.csv")
        space.start("query", "found.sql", "--into", "expected", *in_folder).finish()
        found = results(space, f"{topic}.found")
        assert found == results(space, f"{topic}.expected")
        seconds = {(json.loads(value)["name"], system_us >= second_us) for system_us, value in found}
        assert seconds == {("first", False), ("second", True)}
