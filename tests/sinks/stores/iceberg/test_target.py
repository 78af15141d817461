"""The Iceberg table that gets the results: what is made, what is taken as it is, what is refused, and what other writers may do to it."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from support.iceberg_reader import read_metadata, read_rows
from support.stores.writers import batch, pause_with, refusal_of, write_at_once

from ordering.errors import UnreachableError
from sinks.stores.base import Progress, RowsRefused, Store, StoreContext, StoreError, Stream
from sinks.stores.iceberg import rest_timeouts
from sinks.stores.iceberg import store as module
from sinks.stores.registry import make_store
from tidegate.platform.settings.load import load
from tidegate.platform.settings.tables.stores.iceberg import IcebergSettings

COLUMNS = (("Car", "nvarchar(max)"), ("fixes", "bigint"), ("at", "datetime"), ("more", "record"))
NAME = "lake.rides"


def catalog_of(folder: Path) -> dict[str, str]:
    """Return the settings of a catalog in a file of SQLite."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def store_of(folder: Path, columns: Any = COLUMNS, topic: str = "rides", **settings: Any) -> Store:
    """Return a store of the output ``rides``."""
    given = IcebergSettings.model_validate({"table": NAME, "catalog": catalog_of(folder), **settings})
    return make_store("iceberg", given, StoreContext("rides", Stream(topic, f"id-of-{topic}", 1), columns))


def location(folder: Path) -> str:
    """Return where the catalog says the metadata of the table is."""
    with contextlib.closing(sqlite3.connect(folder / "catalog.db")) as connection:
        found: str = connection.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'rides'").fetchone()[0]
    return found


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return the rows as a reader finds them."""
    return read_rows(location(folder))


def client_of(folder: Path) -> Catalog:
    """Return another program's client of the catalog."""
    return load_catalog("default", **catalog_of(folder))


def make_table(folder: Path) -> Table:
    """Make a table as its owner would: with a column that must have a value."""
    catalog = client_of(folder)
    catalog.create_namespace("lake")
    fields = NestedField(1, "Car", StringType(), required=True), NestedField(2, "fixes", LongType(), required=False)
    return catalog.create_table(NAME, Schema(*fields))


def test_a_table_is_made_with_the_columns_of_the_query(tmp_path: Path) -> None:
    """Types follow from the query, times are UTC microseconds, records are JSON text; partitions may be null or have any text."""
    store = store_of(tmp_path, partition_by=["Car"])
    store.check()
    assert not list(tmp_path.glob("lake*")), "a check makes nothing"
    at = "2001-01-01T00:00:00.000001Z"
    rows = [{"Car": "ü/=x", "fixes": 1, "at": at, "more": {"a": [1]}}, {"Car": None, "fixes": None}, {"Car": "", "fixes": 3}]
    assert store.write(batch(0, *rows)).position == 3
    found = {row["fixes"]: row for row in rows_in(tmp_path)}
    assert found[1] == {
        "Car": "ü/=x",
        "fixes": 1,
        "at": pa.scalar(978_307_200_000_001, pa.timestamp("us", "UTC")).as_py(),
        "more": '{"a": [1]}',
    }
    assert found[None] == dict.fromkeys(("Car", "fixes", "at", "more"))
    assert found[3]["Car"] == ""
    parts = read_metadata(location(tmp_path))["partition-specs"][0]["fields"]
    assert [(part["name"], part["transform"]) for part in parts] == [("Car", "identity")]


def test_columns_are_added_only_if_told(tmp_path: Path) -> None:
    """Without schema_evolution the job does not start, with it the older rows have null; columns of the table's own are null."""
    store_of(tmp_path, COLUMNS[:2]).write(batch(0, {"Car": "a", "fixes": 1}))
    assert "ALTER TABLE lake.rides ADD COLUMNS (at timestamptz)" in refusal_of(store_of(tmp_path)).fix
    added = store_of(tmp_path, schema_evolution="add")
    assert added.write(batch(1, {"Car": "b", "more": [1]})).position == 2
    assert store_of(tmp_path, COLUMNS[1:2]).write(batch(2, {"fixes": 3})).position == 3
    found = sorted((row["fixes"] or 2, row["Car"], row["more"]) for row in rows_in(tmp_path))
    assert found == [(1, "a", None), (2, "b", "[1]"), (3, None, None)]


@pytest.mark.parametrize(
    ("columns", "settings", "words"),
    [
        ((("Car", "bigint"),), {}, "has column Car of type string, and the query's is long"),
        ((("car", "nvarchar(max)"),), {}, "has column Car, and the query's is car: case does not count"),
        ((("fixes", "bigint"),), {}, "needs a value in column Car, which the query does not have"),
        ((("Car", "nvarchar(max)"),), {"partition_by": ["fixes"]}, "is partitioned by no column"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, columns: Any, settings: Any, words: str) -> None:
    """Another type, another case, a value that must be there, other partitions: nothing is written."""
    before = make_table(tmp_path).metadata_location
    error = refusal_of(store_of(tmp_path, columns, **settings))
    assert error.code == "TG-STORE-COLUMN"
    assert words in error.what
    assert location(tmp_path) == before


def test_what_cannot_be_made_is_refused_before(tmp_path: Path) -> None:
    """Partitions that are no columns, columns that differ in case alone, a catalog that is not there or that nobody knows."""
    assert "no column day" in refusal_of(store_of(tmp_path, partition_by=["day"])).what
    assert "two columns car" in refusal_of(store_of(tmp_path, (("Car", "bigint"), ("car", "bigint")))).what
    away = {**catalog_of(tmp_path), "uri": f"sqlite:///{tmp_path}/none/catalog.db"}
    assert "unable to open" in refusal_of(store_of(tmp_path, catalog=away)).what
    unknown = {**catalog_of(tmp_path), "uri": "nosuch://x"}
    assert refusal_of(store_of(tmp_path, catalog=unknown)).code == "TG-STORE-REFUSED"
    for wrong in ({}, {"type": "sql"}, {"type": "sqlite", "uri": "x"}, {"uri": "x"}):
        assert refusal_of(store_of(tmp_path, catalog=wrong)).code == "TG-STORE-REFUSED"
    nowhere = {key: value for key, value in catalog_of(tmp_path).items() if key != "warehouse"}
    with pytest.raises(StoreError, match="No default path"):
        store_of(tmp_path, catalog=nowhere).prepare()


def test_rows_that_do_not_fit_are_refused_alone(tmp_path: Path) -> None:
    """A null where the table wants a value, a wrong type: each by its position; without them the batch stands."""
    make_table(tmp_path)
    store = store_of(tmp_path, COLUMNS[:2])
    written = batch(0, {"fixes": 1}, {"Car": "a", "fixes": 2}, {"Car": "b", "fixes": "x"})
    with pytest.raises(RowsRefused) as refused:
        store.write(written)
    assert [refusal.position for refusal in refused.value.refusals] == [2]
    with pytest.raises(RowsRefused) as refused:
        store.write(written.without([2]))
    assert [refusal.position for refusal in refused.value.refusals] == [0]
    assert store.write(written.without([0, 2])).position == 3
    assert store.write(batch(3, {"fixes": 1}).without([3])).position == 4, "a batch of which nothing is left moves the progress"
    assert store.progress([0]) == {0: Progress("id-of-rides", 4, 4)}
    assert [row["Car"] for row in rows_in(tmp_path)] == ["a"]


def test_a_commit_that_was_overtaken_is_refused_and_not_repeated(tmp_path: Path) -> None:
    """What the store's law stands on: the client would append on the other's snapshot, and so twice; without retries it gives up."""
    make_table(tmp_path)
    first, second, third = (client_of(tmp_path).load_table(NAME) for _ in range(3))
    row = pa.table({"Car": ["a"]}, pa.schema([pa.field("Car", pa.string(), nullable=False)]))
    first.append(row)
    second.append(row)
    assert len(rows_in(tmp_path)) == 2, "left to itself it repeats"
    third.metadata = third.metadata.model_copy(update={"properties": {"commit.retry.num-retries": "0"}})
    with pytest.raises(CommitFailedException):
        third.append(row)
    assert len(rows_in(tmp_path)) == 2


def test_a_zombie_finds_the_batch_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer stops between reading the progress and its commit, another one writes the batch and more: the first changes nothing."""
    zombie, other = store_of(tmp_path), store_of(tmp_path)
    zombie.prepare()
    pause_with(monkeypatch, module, lambda: other.write(batch(0, {"Car": "a"}, {"Car": "b"})))
    assert zombie.write(batch(0, {"Car": "a"}))[:2] == ("id-of-rides", 2)
    assert sorted(row["Car"] for row in rows_in(tmp_path)) == ["a", "b"]


def test_rows_of_other_programs_make_a_writer_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody appends between reading the progress and the commit: the batch is written once, on what is there then."""
    store = store_of(tmp_path, COLUMNS[:1])
    store.prepare()
    pause_with(monkeypatch, module, lambda: client_of(tmp_path).load_table(NAME).append(pa.table({"Car": ["foreign"]})))
    assert store.write(batch(0, {"Car": "a"})).position == 1
    assert sorted(row["Car"] for row in rows_in(tmp_path)) == ["a", "foreign"]


def test_many_writers_make_one_table_and_write_each_row_once(tmp_path: Path) -> None:
    """Two of one topic and one of another begin at once on nothing: one table, each row once, each topic's progress its own."""
    write_at_once(lambda topic: store_of(tmp_path, topic=topic), ["rides", "rides", "others"], 8)
    found = sorted((row["Car"], row["fixes"]) for row in rows_in(tmp_path))
    assert found == [(topic, number) for topic in ("others", "rides") for number in range(8)]


def test_a_rollback_takes_rows_and_progress_back(tmp_path: Path) -> None:
    """The owner goes back to an earlier snapshot: the sink goes on from there, and each row stands once again."""
    store = store_of(tmp_path)
    store.write(batch(0, {"Car": "a"}))
    before = client_of(tmp_path).load_table(NAME)
    kept = before.current_snapshot()
    assert kept is not None
    store.write(batch(1, {"Car": "b"}))
    owner = client_of(tmp_path).load_table(NAME)
    owner.manage_snapshots().rollback_to_snapshot(kept.snapshot_id).commit()
    assert store.progress([0]) == {0: Progress("id-of-rides", 1, 1)}
    store.write(batch(1, {"Car": "b"}))
    assert sorted(row["Car"] for row in rows_in(tmp_path)) == ["a", "b"]


def test_progress_outlives_snapshots(tmp_path: Path) -> None:
    """Another program appends, and lets all snapshots before its own expire: the store goes on where it was."""
    store = store_of(tmp_path, COLUMNS[:1])
    for number in range(3):
        store.write(batch(number, {"Car": "a"}))
    owner = client_of(tmp_path).load_table(NAME)
    owner.append(pa.table({"Car": ["foreign"]}))
    current = owner.current_snapshot()
    assert current is not None
    expired = [snapshot.snapshot_id for snapshot in owner.snapshots() if snapshot.snapshot_id != current.snapshot_id]
    owner.maintenance.expire_snapshots().by_ids(expired).commit()
    assert len(read_metadata(location(tmp_path))["snapshots"]) == 1
    again = store_of(tmp_path, COLUMNS[:1])
    assert again.progress([0]) == {0: Progress("id-of-rides", 3, 3)}
    assert again.write(batch(3, {"Car": "b"})).position == 4
    assert len(rows_in(tmp_path)) == 5


def test_a_table_that_was_replaced_is_filled_again(tmp_path: Path) -> None:
    """The owner begins the table anew, without the snapshots before: the sink begins with the first result."""
    store = store_of(tmp_path)
    store.write(batch(0, {"Car": "a"}))
    owner = client_of(tmp_path).load_table(NAME)
    owner.manage_snapshots().remove_branch("main").commit()
    assert store.progress([0]) == {}
    store.write(batch(0, {"Car": "a"}, {"Car": "b"}))
    assert sorted(row["Car"] for row in rows_in(tmp_path)) == ["a", "b"]


def test_a_rest_catalog_that_falls_silent_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the connection and says nothing: an error that the job repeats, and tells."""
    monkeypatch.setattr(rest_timeouts, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        catalog = {"type": "rest", "uri": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        with pytest.raises(UnreachableError, match="timed out"):
            store_of(tmp_path, catalog=catalog).prepare()


def test_secrets_of_the_catalog_come_from_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    """The properties reach the client by their names, dots included."""
    file = tmp_path / "tidegate.toml"
    text = '[outputs.rides]\ntopic = "rides"\n[outputs.rides.iceberg]\ntable = "lake.rides"\n[outputs.rides.iceberg.catalog]\n'
    file.write_text(f'{text}type = "rest"\n"s3.region" = "eu"\n"s3.secret-access-key" = "env:LAKE_KEY"\ncredential = "env:LAKE_ID"\n')
    settings = load(file, env={"LAKE_KEY": "very-secret", "LAKE_ID": "me:hidden"})
    iceberg = settings.output("rides").iceberg
    assert iceberg is not None
    assert iceberg.catalog["s3.secret-access-key"].get_secret_value() == "very-secret"
    shown = repr(iceberg) + iceberg.model_dump_json()
    assert "very-secret" not in shown
    assert "hidden" not in shown
