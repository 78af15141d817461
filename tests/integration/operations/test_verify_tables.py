"""
``tidegate verify`` on tables in a real PostgreSQL, of Delta Lake and in SQLite, and on a plain topic: as sinks filled them, and tampered
with.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from support.installing import installed_here
from support.postgres_server import PostgresServer
from support.repository import ROOT
from support.stack import keyed_input
from support.stack.drawn_logs import draw
from support.stack.jobs import Workspace, workspace
from support.stack.topics import create, fresh, produce
from support.stack.verifying import run_verify, stage

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS = 4_000, 2
TABLES = (
    keyed_input.TABLES
    + """
[outputs.counts]
topic = "{topic}.counts"
query = "counts.sql"
plain_topic = "{topic}.plain"
file_span = "1m"

[outputs.counts.postgres]
url = "{url}"
table = "lake.counts"

[outputs.counts.delta]
path = "counts"
partition_by = ["k"]

[outputs.counts.sqlite]
path = "counts.db"

[outputs.latest]
topic = "{topic}.latest"
query = "latest.sql"

[outputs.latest.postgres]
url = "{url}"
table = "lake.latest"
mode = "upsert"
primary_key = ["k"]
on_error = "dead_letter"
"""
)
QUERY = """
SELECT CAST(k AS nvarchar(max)) AS k, System.Timestamp() AS w, COUNT(*) AS n, SUM(CAST(v AS float)) AS total, MIN(v) AS least
INTO {name}
FROM events TIMESTAMP BY at OVER k
GROUP BY k, TumblingWindow(second, 10)
"""
# A table of the user's own, whose types are other ones than would be made; the results of one key do not fit into it.
LATEST = """
CREATE TABLE lake.latest (
  id bigint GENERATED ALWAYS AS IDENTITY, k varchar(3) PRIMARY KEY, n integer, total numeric(20, 2), w timestamp(0), least text, note text
)
"""


@dataclass
class Filled:
    """A workspace whose jobs have ended, and whose tables are filled."""

    space: Workspace
    server: PostgresServer
    topic: str

    def verify(self, name: str, exit_code: int = 0, *flags: str) -> dict[str, Any]:
        """Verify an output; return what is told of its query."""
        return stage(run_verify(self.space, name, "--query", f"{name}.sql", *flags, exit_code=exit_code), name)

    def execute(self, statement: str, *values: Any) -> list[Any]:
        """Do something to the database."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def filled(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Ingest, two queries and their sinks, all of which have come to their end."""
    server, package = PostgresServer(), contextlib.ExitStack()
    package.enter_context(installed_here(ROOT / "examples" / "sqlite", tmp_path_factory.mktemp("site")))
    topic = create(stack.bootstrap, fresh("tables"), PARTITIONS)
    produce(stack.bootstrap, topic, draw(5, EVENTS, PARTITIONS, keys=("a", "bb", "Zür", "long name", None)))
    try:
        with workspace(tmp_path_factory.mktemp("tables"), stack, TABLES.format(topic=topic, url=server.url())) as space:
            made = Filled(space, server, topic)
            made.execute("CREATE SCHEMA lake")
            made.execute(LATEST)
            for name in ("counts", "latest"):
                space.script(f"{name}.sql", QUERY.format(name=name))
            space.start("ingest", "events", "--until-end").finish()
            for name in ("counts", "latest"):
                space.start("query", f"{name}.sql").finish()
                space.start("sink", name, "--until-end").finish()
            yield made
    finally:
        package.close()
        server.stop()


def test_tables_and_plain_topics_have_what_follows_from_the_raw_topic(filled: Filled) -> None:
    """Level 2: each row of a table that gets all results, and the last result of each key in the other."""
    told = filled.verify("counts")
    topic, *tables, plain = sorted(told["published"], key=lambda each: ("topic", "table", "plain topic").index(each["kind"]))
    assert {each["name"].partition(" ")[0] for each in tables} == {"delta", "postgres", "sqlite"}
    assert len({each["rows"] for each in told["published"]}) == 1
    assert topic["rows"] > 100
    assert {each["ahead"] for each in told["published"]} == {0}
    assert plain["sha256"] not in {each["sha256"] for each in tables}
    latest = filled.verify("latest")
    (table,) = [each for each in latest["published"] if each["kind"] == "table"]
    assert table["rows"] == len(filled.execute("SELECT k FROM lake.latest")) == 3
    assert latest["differences"] == []


def test_a_changed_value_and_a_deleted_row_of_a_table_are_named(filled: Filled) -> None:
    """One value in one of many rows; the row that is gone is named with number, key and columns."""
    (changed,), (gone,) = filled.execute("SELECT ctid::text FROM lake.counts WHERE k IS NOT NULL ORDER BY w, k LIMIT 2")
    before = filled.execute("SELECT k, n FROM lake.counts WHERE ctid IN (%s::tid, %s::tid) ORDER BY w, k", changed, gone)
    filled.execute("CREATE TABLE lake.kept AS SELECT * FROM lake.counts")
    try:
        filled.execute("UPDATE lake.counts SET n = n + 1 WHERE ctid = %s::tid", changed)
        filled.execute("DELETE FROM lake.counts WHERE ctid = %s::tid", gone)
        told = filled.verify("counts", 1)
        kinds = {each["kind"]: each for each in told["differences"]}
        assert sorted(kinds) == ["changed", "missing"]
        assert kinds["missing"]["expected"]["key"] == before[1][0]
        assert kinds["missing"]["expected"]["seq"] >= 0
        assert kinds["missing"]["expected"]["value"].startswith(f'{{"k":"{before[1][0]}","w":"2024-')
        assert f"column n: found {before[0][1] + 1}, expected {before[0][1]}" in told["because"]
        assert all("lake.counts" in each["where"] for each in told["differences"])
        filled.execute("UPDATE lake.counts SET w = 'infinity', total = 'NaN' WHERE k = 'a'")
        assert filled.verify("counts", 1)["published"][1]["differing"] > 2
    finally:
        filled.execute("TRUNCATE lake.counts; INSERT INTO lake.counts SELECT * FROM lake.kept; DROP TABLE lake.kept")
    filled.verify("counts")


def test_a_table_with_a_key_must_have_the_last_result_of_each(filled: Filled) -> None:
    """An older result of a key, a key without a row, and a row that no result has made; columns of the table's own do not matter."""
    filled.execute("UPDATE lake.latest SET note = 'checked'")
    filled.verify("latest")
    filled.execute("CREATE TABLE lake.kept AS SELECT * FROM lake.latest")
    try:
        filled.execute("UPDATE lake.latest SET total = total + 0.01 WHERE k = 'a'")
        filled.execute("DELETE FROM lake.latest WHERE k = 'bb'")
        filled.execute("INSERT INTO lake.latest (k, n) VALUES ('xyz', 1)")
        told = filled.verify("latest", 1)
        found = {each["kind"]: each for each in told["differences"]}
        assert sorted(found) == ["changed", "extra", "missing"]
        assert found["missing"]["expected"]["key"] == "bb"
        assert '"k":"xyz"' in found["extra"]["found"]["value"]
        assert any(line.startswith("column total: ") for line in told["because"])
    finally:
        columns = "k, n, total, w, least, note"
        filled.execute(f"TRUNCATE lake.latest; INSERT INTO lake.latest ({columns}) SELECT {columns} FROM lake.kept; DROP TABLE lake.kept")
    filled.verify("latest")


def test_a_changed_and_a_deleted_row_of_a_delta_table_are_found(filled: Filled) -> None:
    """Both are commits of their own, as any writer may make them; a compacted table has the same rows."""
    table = DeltaTable(str(filled.space.folder / "counts"))
    version = table.version()
    changed, gone = table.to_pyarrow_table(filters=[("k", "=", "a")]).slice(0, 2).to_pylist()
    # The other input partition may have a row of the same key and window.
    conditions = [f"k = 'a' AND w = '{row['w'].isoformat()}' AND total = {row['total']}" for row in (changed, gone)]
    assert table.update(updates={"n": "n + 1"}, predicate=conditions[0])["num_updated_rows"] == 1
    assert table.delete(conditions[1])["num_deleted_rows"] == 1
    told = filled.verify("counts", 1)
    assert sorted(each["kind"] for each in told["differences"]) == ["changed", "missing"]
    assert all(each["where"].startswith("delta ") for each in told["differences"])
    assert f"column n: found {changed['n'] + 1}, expected {changed['n']}" in told["because"]
    table.restore(version)
    table.optimize.compact()
    filled.verify("counts")


def test_a_table_of_a_store_that_a_package_brings_is_compared_too(filled: Filled) -> None:
    """By the reader that the package has: a changed value, also one of another type, and a row that is gone."""
    with contextlib.closing(sqlite3.connect(filled.space.folder / "counts.db", isolation_level=None)) as file:
        before = file.execute("SELECT rowid, * FROM counts WHERE k = 'a' ORDER BY w LIMIT 2").fetchall()
        try:
            file.execute("UPDATE counts SET n = n + 1 WHERE rowid = ?", before[0][:1])
            file.execute("DELETE FROM counts WHERE rowid = ?", before[1][:1])
            told = filled.verify("counts", 1)
            assert sorted(each["kind"] for each in told["differences"]) == ["changed", "missing"]
            assert all(each["where"].startswith("sqlite ") for each in told["differences"])
            assert f"column n: found {before[0][3] + 1}, expected {before[0][3]}" in told["because"]
            file.execute("UPDATE counts SET n = 'many' WHERE rowid = ?", before[0][:1])
            assert sorted(each["kind"] for each in filled.verify("counts", 1)["differences"]) == ["changed", "missing"]
        finally:
            file.executemany("INSERT OR REPLACE INTO counts (rowid, k, w, n, total, least) VALUES (?, ?, ?, ?, ?, ?)", before)
    filled.verify("counts")


def test_a_part_is_compared_without_tables(filled: Filled) -> None:
    """Rows of a table do not say which results they are: only the topic is compared, whatever the table has."""
    filled.execute("CREATE TABLE lake.kept AS SELECT * FROM lake.counts; TRUNCATE lake.counts")
    try:
        told = filled.verify("counts", 0, "--since", "2024-03-01T00:01:00Z")
        assert {each["kind"] for each in told["published"]} == {"topic"}
    finally:
        filled.execute("INSERT INTO lake.counts SELECT * FROM lake.kept; DROP TABLE lake.kept")
    assert run_verify(filled.space, "lake.latest", "--query", "latest.sql")["target"] == "latest"


def test_a_strange_row_of_a_plain_topic_is_found(filled: Filled) -> None:
    """Whoever may write into it may add one."""
    producer = Producer({"bootstrap.servers": filled.space.stack.bootstrap})
    producer.produce(f"{filled.topic}.plain", b'{"k":"a"}', b"a")
    assert producer.flush(30) == 0
    (difference,) = filled.verify("counts", 1)["differences"]
    assert (difference["where"], difference["kind"]) == (f"{filled.topic}.plain", "extra")
