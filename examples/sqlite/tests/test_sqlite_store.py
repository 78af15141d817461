"""The store by itself, on files: which tables fit, which rows are refused, what a reader finds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tidegate_sqlite.settings import SqliteSettings

from tidegate.sinks.extending import Batch, ReadableStore, Rows, RowsRefused, Store, StoreContext, StoreError, Stream

COLUMNS = (("car", "nvarchar(max)"), ("fixes", "bigint"), ("speed", "float"), ("is_last", "bit"), ("at", "datetime"))


def store_of(path: Path) -> Store:
    """Return a store for the results of one topic."""
    return SqliteSettings(path=str(path)).make_store(StoreContext("rides", Stream("rides", "id", 1), COLUMNS))


def batch_of(values: Sequence[dict[str, object]], start: int = 0) -> Batch:
    """Return results as the batch that begins at *start*."""
    position = np.arange(start, start + len(values))
    texts = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    rows = Rows(position, position, position, pa.nulls(len(values), pa.binary()), texts)
    return Batch("id", 0, start, start + len(values), start + len(values), rows)


def ask(path: Path, statement: str) -> list[tuple[object, ...]]:
    """Do something to the file as any program may."""
    connection = sqlite3.connect(path)
    with connection:
        found = connection.execute(statement).fetchall()
    connection.close()
    return found


RESULTS: Sequence[dict[str, object]] = [
    {"car": "a", "fixes": 2, "speed": 41.5, "is_last": True, "at": "2026-11-25T11:06:00.000000Z"},
    {"car": "b"},
]


def test_rows_have_the_types_of_the_query(tmp_path: Path) -> None:
    """Numbers are numbers, times ISO-8601 text; NULL is NULL."""
    store = store_of(tmp_path / "rides.db")
    store.prepare()
    assert store.write(batch_of(RESULTS)).position == 2
    store.close()
    found = ask(tmp_path / "rides.db", "SELECT *, typeof(speed) FROM rides ORDER BY car")
    assert found == [("a", 2, 41.5, 1, "2026-11-25T11:06:00.000000Z", "real"), ("b", None, None, None, None, "null")]


def test_rows_that_a_constraint_refuses_are_named(tmp_path: Path) -> None:
    """By the table that a user made; the others can be written without them."""
    ask(tmp_path / "rides.db", "CREATE TABLE rides (car TEXT, fixes INTEGER CHECK (fixes < 10), speed, is_last, at)")
    store = store_of(tmp_path / "rides.db")
    store.prepare()
    batch = batch_of([{"fixes": number % 11} for number in range(100)])
    with pytest.raises(RowsRefused) as refused:
        store.write(batch)
    assert [refusal.position for refusal in refused.value.refusals] == list(range(10, 100, 11))
    assert "CHECK constraint failed" in refused.value.refusals[0].reason
    assert store.progress([0]) == {}, "nothing of it stands"
    assert store.write(batch.without({refusal.position for refusal in refused.value.refusals})).position == 100
    store.close()
    assert ask(tmp_path / "rides.db", "SELECT count(*) FROM rides") == [(91,)]


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        (["CREATE TABLE rides (car, fixes, speed, at)"], "TG-STORE-COLUMN"),
        (["DROP TABLE rides"], "TG-STORE-LOST"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, statements: Sequence[str], code: str) -> None:
    """Before anything is written, and by a check alone."""
    if code == "TG-STORE-LOST":
        store = store_of(tmp_path / "rides.db")
        store.prepare()
        store.write(batch_of(RESULTS))
        store.close()
    for statement in statements:
        ask(tmp_path / "rides.db", statement)
    for refuses in (store_of(tmp_path / "rides.db").check, store_of(tmp_path / "rides.db").prepare):
        with pytest.raises(StoreError) as refused:
            refuses()
        assert refused.value.code == code


def test_a_file_that_is_no_database_and_a_folder_that_is_missing_are_refused(tmp_path: Path) -> None:
    """They stay as they are."""
    (tmp_path / "rides.db").write_text("no database at all, and longer than its header would be: " * 10)
    for path in (tmp_path / "rides.db", tmp_path / "missing" / "rides.db"):
        with pytest.raises(StoreError) as refused:
            store_of(path).prepare()
        assert refused.value.code == "TG-STORE-REFUSED"
    assert not (tmp_path / "missing").exists()


def test_what_stands_is_read_as_it_was_written(tmp_path: Path) -> None:
    """And a value that no result can have is told as text, whatever the type of its column."""
    store = store_of(tmp_path / "rides.db")
    store.check()
    assert not (tmp_path / "rides.db").exists(), "a check makes nothing"
    store.prepare()
    batch = batch_of(RESULTS)
    store.write(batch)
    store.close()
    for change in ("UPDATE rides SET car = car", "UPDATE rides SET fixes = 'many', is_last = 7, speed = x'00' WHERE car = 'a'"):
        ask(tmp_path / "rides.db", change)
        assert isinstance(store, ReadableStore)
        reader, found = store.reader(), []
        standing = reader.read(found.append)
        assert standing.progress[0][:2] == ("id", 2)
        told, kept = pa.concat_tables(found).sort_by("car").to_pylist(), reader.keep(batch.rows, 0).to_pylist()
        if change.endswith("= car"):
            assert told == kept
        else:
            assert told[1] == kept[1], "only the row that was changed differs"
            assert [told[0][name] for name in ("car", "fixes", "is_last")] == ["a", "many", "7"]
            assert (kept[0]["fixes"], kept[0]["is_last"]) == ("2", "1")
        store.close()


def test_a_file_that_is_not_there_reads_as_empty(tmp_path: Path) -> None:
    """Verifying makes nothing."""
    store = store_of(tmp_path / "rides.db")
    assert isinstance(store, ReadableStore)
    assert store.reader().read(lambda rows: pytest.fail("there are no rows")).progress == {}
    store.close()
    assert list(tmp_path.iterdir()) == []
