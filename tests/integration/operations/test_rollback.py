"""
The way back to an older version, as docs/operate/running.md writes it: every stage is stopped, the checkpoints are put aside, and each
stage resumes from what it has written.

``TIDEGATE_OLDER_TREE``, a checkout of an older version, makes the stages after the way back those of that version.
"""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest
from support.postgres_server import PostgresServer
from support.stack.drawn_logs import draw
from support.stack.jobs import Job, Workspace, workspace
from support.stack.servers import Stack
from support.stack.topics import create, fresh, produce, read_ordered

pytestmark = pytest.mark.integration
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
late = "20s"
reorder = "2s"

[outputs.counts]
topic = "{topic}.counts"
query = "counts.sql"

[outputs.counts.postgres]
url = "{url}"
table = "{table}"

[outputs.undisturbed]
topic = "{topic}.undisturbed"
"""
COUNTS = "SELECT COUNT(*) AS n, System.Timestamp() AS ends INTO {} FROM events TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)"
EVENTS, PARTITIONS = 8_000, 2


def start_older(space: Workspace, *arguments: str) -> Job:
    """Start a stage after the way back."""
    older = os.environ.get("TIDEGATE_OLDER_TREE")
    return space.start_alone(*arguments, PYTHONPATH=older) if older else space.start(*arguments)


def test_an_older_version_goes_on_from_the_topics(stack: Stack, postgres: PostgresServer, tmp_path: Path) -> None:
    """
    Law, level 3: the results, in their topic and in the table, are those of a query that was never disturbed, each once and with the same
    numbers. The checkpoints of the newer version are not read.
    """
    raws = draw(17, EVENTS, PARTITIONS)
    topic, table = create(stack.bootstrap, fresh("back"), PARTITIONS), fresh("back").replace("-", "_")
    with workspace(tmp_path, stack, TABLES.format(topic=topic, url=postgres.url(), table=table)) as space:
        for output in ("counts", "undisturbed"):
            space.script(f"{output}.sql", COUNTS.format(output))
        produce(stack.bootstrap, topic, raws[: EVENTS // 2])
        ingest = space.start("ingest", "events").once_started()
        query = space.start("query", "counts.sql")
        sink = space.start("sink", "counts")
        ingest.until(lambda: ingest.last.get("events_in") == EVENTS // 2, "half is ordered")
        query.until(lambda: query.last.get("results", 0) > 3, "results")
        sink.until(lambda: sink.last.get("stores", {}).get("postgres", {}).get("rows", 0) > 3, "rows")
        for job in (ingest, query, sink):
            job.stop()
        checkpoints = space.folder / ".tidegate" / "checkpoints"
        checkpoints.rename(space.folder / "checkpoints-of-the-newer-version")
        produce(stack.bootstrap, topic, raws[EVENTS // 2 :])
        sink = start_older(space, "sink", "counts")
        start_older(space, "ingest", "events", "--until-end").finish()
        start_older(space, "query", "counts.sql", "--start", "last-stopped").finish()
        sink.finish()
        space.start("query", "undisturbed.sql").finish()
    results, expected = (read_ordered(stack.bootstrap, f"{topic}.{name}", 1).all_events() for name in ("counts", "undisturbed"))
    assert [(result.seq, result.system_us, result.value) for result in results] == [
        (result.seq, result.system_us, result.value) for result in expected
    ]
    with psycopg.connect(postgres.url()) as connection:
        counts = connection.execute(f"SELECT n FROM {table} ORDER BY ends".encode()).fetchall()
    assert len(counts) == len(expected) > 5
