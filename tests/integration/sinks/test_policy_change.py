"""A policy of an input is changed while its results go into a table that only takes rows in addition: the way that the manual names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from support.stack.drawn_logs import draw
from support.stack.jobs import error_code, workspace
from support.stack.topics import create, fresh, produce, records

if TYPE_CHECKING:
    from support.postgres_server import PostgresServer
    from support.stack.servers import SharedStack

pytestmark = pytest.mark.integration
TABLES = """
[inputs.events]
topic = "{topic}"
ordered_topic = "{topic}.{ordered}"
timestamp_by = "at"
early = "1m"
late = "{late}"
reorder = "2s"

[outputs.counts]
topic = "{topic}.counts"
query = "counts.sql"
sink_in_job = true

[outputs.counts.postgres]
url = "{url}"
table = "{table}"
"""
SCRIPT = "SELECT System.Timestamp() AS w, COUNT(*) AS n INTO counts FROM events TIMESTAMP BY at GROUP BY TumblingWindow(second, 5)"


def test_a_changed_policy_doubles_no_row_of_a_table(stack: SharedStack, postgres: PostgresServer, tmp_path: Path) -> None:
    """
    A new ordered topic beside the old one, then the query goes on from its last results: each window stands in the table once, those
    before as they were.
    """
    topic, table = create(stack.bootstrap, fresh("late"), 1), fresh("counts").replace("-", "_")
    raws = draw(21, 2_000, 1)
    settings = {"topic": topic, "url": postgres.url(), "table": table}
    with workspace(tmp_path, stack, TABLES.format(**settings, ordered="first", late="20s")) as space:
        space.script("counts.sql", SCRIPT)
        produce(stack.bootstrap, topic, raws[:1_000])
        ingest = space.start("ingest", "events").once_started()
        ingest.until(lambda: ingest.last.get("events_in") == 1_000, "the first half")
        query = space.start("query", "counts.sql")
        query.until(lambda: query.batches > 0 and query.last["results"] > 5, "results")
        query.stop()
        ingest.stop()
        with psycopg.connect(postgres.url()) as connection:
            before = connection.execute(f"SELECT w, n FROM {table} ORDER BY w".encode()).fetchall()

        configuration = space.folder / "tidegate.toml"
        configuration.write_text(configuration.read_text().replace('late = "20s"', 'late = "40s"'))
        assert error_code(space.start("ingest", "events")) == "TG-CHECKPOINT-SETTINGS"
        configuration.write_text(configuration.read_text().replace(f"{topic}.first", f"{topic}.second"))
        assert error_code(space.start("query", "counts.sql")) == "TG-TOPIC-MISSING"
        produce(stack.bootstrap, topic, raws[1_000:])
        space.start("ingest", "events", "--until-end").finish()
        assert error_code(space.start("query", "counts.sql")) == "TG-CHECKPOINT-SETTINGS"
        shutil.rmtree(space.folder / ".tidegate/checkpoints" / f"query-{topic}.counts")
        space.start("query", "counts.sql", "--start", "last-stopped").finish()
        with psycopg.connect(postgres.url()) as connection:
            after = connection.execute(f"SELECT w, n FROM {table} ORDER BY w".encode()).fetchall()
    assert len(after) > len(before) > 0
    assert after[: len(before)] == before
    assert len({w for w, _ in after}) == len(after)
    standing = [
        json.loads(value) for message in records(stack.bootstrap, f"{topic}.counts") if (value := message.value()) and value[:1] == b"{"
    ]
    assert sorted(row["n"] for row in standing) == sorted(n for _, n in after)
