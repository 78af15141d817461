"""The Delta table that gets the results: what is made, what is taken as it is, what is refused, and what other writers may do to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from support.delta_reader import read_actions, read_rows
from support.stores.writers import batch, pause_with, refusal_of, write_at_once

from ordering.errors import SettingError
from sinks.stores.base import Progress, RowsRefused, Store, StoreContext, StoreError, Stream
from sinks.stores.delta import store as module
from sinks.stores.registry import make_store
from tidegate.platform.settings.load import load
from tidegate.platform.settings.tables.stores.delta import DeltaSettings

COLUMNS = (("Car", "nvarchar(max)"), ("fixes", "bigint"), ("at", "datetime"), ("more", "record"))


def store_of(path: Path, columns: Any = COLUMNS, topic: str = "rides", **settings: Any) -> Store:
    """Return a store of the output ``rides``."""
    given = DeltaSettings.model_validate({"path": str(path), **settings})
    return make_store("delta", given, StoreContext("rides", Stream(topic, f"id-of-{topic}", 1), columns))


def test_a_table_is_made_with_the_columns_of_the_query(tmp_path: Path) -> None:
    """Types follow from the query, times are UTC microseconds, records are JSON text; partitions may be null or have any text."""
    store = store_of(tmp_path / "rides", partition_by=["Car"])
    at = "2001-01-01T00:00:00.000001Z"
    rows = [{"Car": "ü/=x", "fixes": 1, "at": at, "more": {"a": [1]}}, {"Car": None, "fixes": None}]
    assert store.write(batch(0, *rows)).position == 2
    found = {row["fixes"]: row for row in read_rows(tmp_path / "rides")}
    assert found[1] == {
        "Car": "ü/=x",
        "fixes": 1,
        "at": pa.scalar(978_307_200_000_001, pa.timestamp("us", "UTC")).as_py(),
        "more": '{"a": [1]}',
    }
    assert found[None] == dict.fromkeys(("Car", "fixes", "at", "more"))


def test_columns_are_added_only_if_told(tmp_path: Path) -> None:
    """Without schema_evolution the job does not start, with it the older rows have null; columns of the table's own are null."""
    store_of(tmp_path / "t", COLUMNS[:2]).write(batch(0, {"Car": "a", "fixes": 1}))
    assert "ADD COLUMNS (at timestamp)" in refusal_of(store_of(tmp_path / "t")).fix
    added = store_of(tmp_path / "t", schema_evolution="add")
    assert added.write(batch(1, {"Car": "b", "more": [1]})).position == 2
    assert store_of(tmp_path / "t", COLUMNS[1:2]).write(batch(2, {"fixes": 3})).position == 3
    found = [(row["Car"], row["fixes"], row["more"]) for row in read_rows(tmp_path / "t")]
    assert found == [("a", 1, None), ("b", None, "[1]"), (None, 3, None)]


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
    DeltaTable.create(tmp_path, pa.schema([pa.field("Car", pa.string(), nullable=False), pa.field("fixes", pa.int64())]))
    error = refusal_of(store_of(tmp_path, columns, **settings))
    assert error.code == "TG-STORE-COLUMN"
    assert words in error.what
    assert DeltaTable(tmp_path).version() == 0


def test_what_cannot_be_made_is_refused_before(tmp_path: Path) -> None:
    """Partitions that are no columns, columns that differ in case alone, a scheme that nobody knows, a table that forgets."""
    assert "no column day" in refusal_of(store_of(tmp_path / "a", partition_by=["day"])).what
    (tmp_path / "file").touch()
    assert refusal_of(store_of(tmp_path / "file")).code == "TG-STORE-REFUSED"
    with pytest.raises(StoreError, match="Could not create local directory"):
        store_of(Path("/proc/lake")).prepare()
    assert "two columns car" in refusal_of(store_of(tmp_path / "b", (("Car", "bigint"), ("car", "bigint")))).what
    with pytest.raises(StoreError, match="Unknown scheme"):
        make_store("delta", DeltaSettings(path="foo://x"), StoreContext("r", Stream("r", "i", 1), COLUMNS)).prepare()
    DeltaTable.create(
        tmp_path / "c", pa.schema([("Car", pa.string())]), configuration={"delta.setTransactionRetentionDuration": "interval 1 days"}
    )
    assert "forgets transactions" in refusal_of(store_of(tmp_path / "c", COLUMNS[:1])).what


def test_rows_that_do_not_fit_are_refused_alone(tmp_path: Path) -> None:
    """A null where the table wants a value, a wrong type: each by its position; without them the batch stands."""
    DeltaTable.create(tmp_path, pa.schema([pa.field("Car", pa.string(), nullable=False), pa.field("fixes", pa.int64())]))
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
    assert [row["Car"] for row in read_rows(tmp_path)] == ["a"]


def test_delta_rs_refuses_a_transaction_that_moved_since_it_was_read(tmp_path: Path) -> None:
    """What the store's law stands on: two commits based on one version, with one transaction, are one commit; others do not conflict."""
    DeltaTable.create(tmp_path, pa.schema([("n", pa.int64())]))
    first, second, other = (DeltaTable(tmp_path) for _ in range(3))

    def commit(table: DeltaTable, name: str) -> None:
        properties = CommitProperties(app_transactions=[Transaction(name, 1)])
        write_deltalake(table, pa.table({"n": [1]}), mode="append", commit_properties=properties)

    commit(first, "a")
    with pytest.raises(CommitFailedError):
        commit(second, "a")
    commit(other, "b")
    assert len(read_rows(tmp_path)) == 2


def test_a_zombie_finds_the_batch_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer stops between reading the progress and its commit, another one writes the batch and more: the first changes nothing."""
    zombie, other = store_of(tmp_path), store_of(tmp_path)
    zombie.prepare()
    pause_with(monkeypatch, module, lambda: other.write(batch(0, {"Car": "a"}, {"Car": "b"})))
    assert zombie.write(batch(0, {"Car": "a"}))[:2] == ("id-of-rides", 2)
    assert sorted(row["Car"] for row in read_rows(tmp_path)) == ["a", "b"]


def test_changed_properties_make_a_writer_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody alters the table between reading the progress and the commit: the batch is written on what is there then."""
    store = store_of(tmp_path)
    store.prepare()
    pause_with(monkeypatch, module, lambda: DeltaTable(tmp_path).alter.set_table_properties({"delta.checkpointInterval": "7"}))
    assert store.write(batch(0, {"Car": "a"})).position == 1
    assert [row["Car"] for row in read_rows(tmp_path)] == ["a"]


def test_many_writers_make_one_table_and_write_each_row_once(tmp_path: Path) -> None:
    """Four of one topic and one of another begin at once on nothing: one table, each row once, each topic's progress its own."""
    write_at_once(lambda topic: store_of(tmp_path / "t", topic=topic), ["rides"] * 4 + ["others"], 20)
    found = sorted((row["Car"], row["fixes"]) for row in read_rows(tmp_path / "t"))
    assert found == [(topic, number) for topic in ("others", "rides") for number in range(20)]
    assert len({action["metaData"]["id"] for action in read_actions(tmp_path / "t") if "metaData" in action}) == 1


def test_progress_outlives_compaction_checkpoints_and_the_old_log(tmp_path: Path) -> None:
    """Another program merges the files, writes a checkpoint, removes the files and the log before: the store goes on where it was."""
    store = store_of(tmp_path)
    for number in range(8):
        store.write(batch(number, {"Car": "a", "fixes": number}))
    keeper = DeltaTable(tmp_path)
    assert keeper.optimize.compact()["numFilesRemoved"] == 8
    assert store.write(batch(8, {"Car": "b"})).position == 9
    assert len(read_rows(tmp_path)) == 9
    keeper = DeltaTable(tmp_path)
    assert keeper.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    keeper = DeltaTable(tmp_path)
    keeper.create_checkpoint()
    for path in (tmp_path / "_delta_log").glob("*.json"):
        if int(path.stem) < keeper.version():
            path.unlink()
    again = store_of(tmp_path)
    assert again.progress([0]) == {0: Progress("id-of-rides", 9, 9)}
    assert again.write(batch(9, {"Car": "c"})).position == 10
    assert DeltaTable(tmp_path).count() == 10


def test_secrets_of_the_object_store_come_from_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    """The options reach delta-rs by their names; one with which two commits may both stand is refused."""
    file = tmp_path / "tidegate.toml"
    text = '[outputs.rides]\ntopic = "rides"\n[outputs.rides.delta]\npath = "s3://lake/rides"\n[outputs.rides.delta.storage_options]\n'
    file.write_text(f'{text}AWS_REGION = "eu"\nAWS_SECRET_ACCESS_KEY = "env:LAKE_KEY"\n')
    settings = load(file, env={"LAKE_KEY": "very-secret"})
    delta = settings.output("rides").delta
    assert delta is not None
    assert delta.storage_options["AWS_SECRET_ACCESS_KEY"].get_secret_value() == "very-secret"
    assert "very-secret" not in repr(delta) + delta.model_dump_json()
    file.write_text(f'{text}AWS_S3_ALLOW_UNSAFE_RENAME = "true"\n')
    with pytest.raises(SettingError, match="not yours to set"):
        load(file, env={})
