"""A query that looks rows up in a real PostgreSQL and a Delta table: what was found stays; new versions are taken up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.postgres_server import PostgresServer
from support.stack.drawn_logs import draw
from support.stack.jobs import Workspace, settings_of, workspace
from support.stack.servers import SharedStack
from support.stack.topics import create, fresh, produce, records
from support.stack.verifying import run_verify, stage

from query.reference.lake import version_in

pytestmark = pytest.mark.integration
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
early = "1m"
late = "20s"

[references.prices]
path = "reference/prices-{{date}}T{{time}}.ndjson"

[references.prices.postgres]
url = "{url}"
query = "SELECT * FROM prices"
valid_from = "begins"
poll = "1s"
valid_until = "ends"

[references.labels]
path = "reference/labels-{{date}}T{{time}}.parquet"

[references.labels.delta]
path = "labels"
poll = "1s"

[outputs.priced]
topic = "{topic}.priced"

[outputs.again]
topic = "{topic}.again"
"""
SCRIPT = """SELECT e.k AS k, e.v AS v, p.price AS price, l.label AS label
FROM events TIMESTAMP BY at e JOIN prices p ON e.k = p.product LEFT JOIN labels l ON e.k = l.product"""
CHANGE = datetime(2024, 3, 1, 0, 1, tzinfo=UTC)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL with prices, one of which changes in the midst of the events."""
    made = PostgresServer()
    with psycopg.connect(made.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE prices (product text, price int, begins timestamptz, ends timestamptz)")
        for product, price, begins, ends in (("a", 1, None, CHANGE), ("a", 2, CHANGE, None), ("b", 3, None, None)):
            connection.execute("INSERT INTO prices VALUES (%s, %s, %s, %s)", [product, price, begins, ends])
    yield made
    made.stop()


@pytest.fixture
def space(tmp_path: Path, stack: SharedStack, server: PostgresServer) -> Iterator[Workspace]:
    """A folder whose input has been ordered to its end."""
    topic = create(stack.bootstrap, fresh("sold"), 2)
    produce(stack.bootstrap, topic, draw(4, 3_000, 2, keys=("a", "b", "c")))
    with workspace(tmp_path / "job", stack, TABLES.format(topic=topic, url=server.url())) as made:
        made.script("priced.sql", SCRIPT)
        write_labels(made, a="apples", b="bread")
        made.topic = topic  # type: ignore[attr-defined]
        yield made


def write_labels(space: Workspace, **labels: str) -> None:
    """Write a version of the Delta table."""
    write_deltalake(str(space.folder / "labels"), pa.table({"product": list(labels), "label": list(labels.values())}), mode="overwrite")


def results(space: Workspace, output: str) -> list[tuple[bytes | None, int]]:
    """Return value and time of each result."""
    topic = f"{space.topic}.{output}"  # type: ignore[attr-defined]
    return [(each.value(), each.timestamp()[1]) for each in records(space.stack.bootstrap, topic) if (each.value() or b"").startswith(b"{")]


def test_a_replay_finds_what_was_found(server: PostgresServer, space: Workspace) -> None:
    """Prices and labels are changed in place and deleted, then the server is away: the same bytes out, and verify says so."""
    space.start("ingest", "events", "--until-end").finish()
    space.start("query", "priced.sql", "--into", "priced").finish()
    found = results(space, "priced")
    changed_ms = int(CHANGE.timestamp() * 1000)
    prices = {(json.loads(value or b"")["k"], json.loads(value or b"")["price"], stamp_ms >= changed_ms) for value, stamp_ms in found}
    assert prices == {("a", 1, False), ("a", 2, True), ("b", 3, False), ("b", 3, True)}
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("UPDATE prices SET price = 100 WHERE price = 1; DELETE FROM prices WHERE product = 'b'")
    assert {json.loads(value or b"")["label"] for value, _ in found} == {"apples", "bread"}
    write_labels(space, a="avocados")
    space.start("query", "priced.sql", "--into", "again").finish()
    versions = sorted((space.folder / "reference").glob("labels-*"))
    assert [version_in(path) for path in versions] == ["delta 0", "delta 1"]
    assert results(space, "again") == found
    server.kill()
    told = stage(run_verify(space, "priced", "--query", "priced=priced.sql"), "priced")
    assert told["published"][0]["rows"] == len(found)
    server.start()


def test_a_running_job_takes_up_what_is_new(server: PostgresServer, space: Workspace) -> None:
    """A row that begins in a moment is in a version of its own, and counts once its time has come."""
    ingest = space.start("ingest", "events").once_started()
    query = space.start("query", "priced.sql", "--into", "priced", *settings_of(logging__format="json"))
    query.until(lambda: query.batches > 0, "a batch")
    before = len(query.logged("new reference data is read"))
    begins = datetime.now(UTC) + timedelta(seconds=2)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("INSERT INTO prices VALUES ('c', 7, %s, NULL)", [begins])
    query.until(lambda: len(query.logged("new reference data is read")) > before, "the new version")
    query.stop()
    ingest.stop()
    newest = max((space.folder / "reference").glob("prices-*"))
    assert newest.stem >= f"prices-{begins:%Y-%m-%dT%H-%M-%S}"
    assert '"price":7' in newest.read_text()
