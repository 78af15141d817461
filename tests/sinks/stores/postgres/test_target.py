"""The table that gets the results: what is made, what is taken as it is, and what is refused with the statement that mends it."""

from __future__ import annotations

import itertools
from typing import Any

import psycopg
import pytest
from support.postgres_server import PostgresServer
from support.stores.writers import batch, refusal_of

from ordering.errors import UnreachableError
from sinks.stores.base import RowsRefused, Store, StoreContext, StoreError, Stream
from sinks.stores.postgres import target
from sinks.stores.postgres.target import TableName, parse_name
from sinks.stores.registry import make_store
from tidegate.platform.settings.tables.stores.postgres import PostgresSettings

pytestmark = pytest.mark.heavy
COLUMNS = (("Car", "nvarchar(max)"), ("fixes", "bigint"), ("at", "datetime"), ("more", "record"))
STREAM = Stream("rides", "id-of-rides", 1)
UPSERT = {"mode": "upsert", "primary_key": ["Car"]}
_number = itertools.count()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The URL of an empty database."""
    return postgres.make_database(f"d{next(_number)}")


def store_of(url: str, columns: Any = COLUMNS, **settings: Any) -> Store:
    """Return a store of the output ``rides``."""
    return make_store("postgres", PostgresSettings.model_validate({"url": url, **settings}), StoreContext("rides", STREAM, columns))


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as their user would; return the rows of the last."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_names_are_read_as_sql_reads_them() -> None:
    """Without quotes in lower case, with quotes as written; the schema is the session's unless it is named."""
    assert parse_name("Rides", "public") == TableName("public", "rides")
    assert parse_name('Analytics."Rides ""2"".x"', "public") == TableName("analytics", 'Rides "2".x')


def test_a_table_is_made_with_the_types_of_the_query(database: str) -> None:
    """Schema, table, primary key and the table of progress."""
    store = store_of(database, table='new_schema."My Rides"', mode="upsert", primary_key=["Car", "at"])
    store.prepare()
    store.write(batch(0, {"Car": "a", "fixes": 1, "at": "2001-01-01T00:00:00Z", "more": {"x": [1]}}))
    store.write(batch(1, {"Car": "a", "fixes": 2, "at": "2001-01-01T00:00:00Z"}, {"Car": "a", "fixes": 3, "at": "2001-01-01T00:00:00Z"}))
    store.close()
    types = execute(
        database, "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'My Rides' ORDER BY ordinal_position"
    )
    assert types == [("Car", "text"), ("fixes", "bigint"), ("at", "timestamp with time zone"), ("more", "jsonb")]
    assert execute(database, 'SELECT "Car", fixes, more FROM new_schema."My Rides"') == [("a", 3, None)], "the last result of the key"
    assert execute(database, "SELECT table_name, topic, partition, position FROM new_schema.tidegate_progress") == [
        ("My Rides", "rides", 0, 3)
    ]


def test_a_table_keeps_its_own_types_names_and_columns(database: str) -> None:
    """Smaller numbers, dates, text for JSON, names in lower case, and columns that the query knows nothing of."""
    execute(
        database, "CREATE TABLE rides (id serial PRIMARY KEY, car varchar(5), fixes smallint, at date, more text, note text DEFAULT 'new')"
    )
    store = store_of(database)
    store.prepare()
    store.write(batch(0, {"Car": "a", "fixes": 7, "at": "2001-01-02T03:04:05Z", "more": {"x": 1.50}}))
    assert execute(database, "SELECT id, car, fixes, at::text, more, note FROM rides") == [(1, "a", 7, "2001-01-02", '{"x": 1.5}', "new")]
    with pytest.raises(RowsRefused) as refused:
        store.write(batch(1, {"Car": "b"}, {"Car": "too long"}, {"fixes": 99_999}, {"Car": "c"}))
    assert [(refusal.position, refusal.reason) for refusal in refused.value.refusals] == [
        (2, "value too long for type character varying(5) (column car)"),
        (3, 'value "99999" is out of range for type smallint (column fixes)'),
    ]
    store.close()


@pytest.mark.parametrize(
    ("table", "settings", "what", "fix"),
    [
        ("Car text, at timestamptz, more json", {}, "has no column for fixes", 'ADD COLUMN "fixes" bigint'),
        ("Car text, fixes text, at timestamptz, more json", {}, "has column fixes of type text, and the query's is bigint", "TYPE bigint"),
        ("Car text, fixes int, at timestamptz, more json, no int NOT NULL", {}, "needs a value in column no", "DROP NOT NULL"),
        ("Car text, fixes int GENERATED ALWAYS AS (1) STORED, at date, more json", {}, "computes its column fixes", "another name"),
        ("Car text, fixes int, at date, more json", UPSERT, "has no unique index on just", "CREATE UNIQUE"),
        ("Car text UNIQUE, fixes int, at date, more json", UPSERT, "takes any number of rows whose car", "NULLS NOT DISTINCT"),
        ("Car text NOT NULL, fixes int, at date, more json", UPSERT, "has no unique index on just", "CREATE UNIQUE INDEX"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_refused_before_anything_starts(
    database: str, table: str, settings: dict[str, Any], what: str, fix: str
) -> None:
    """Each misfit by its own words, with what mends it; nothing is changed. The statement that it shows does mend it."""
    execute(database, f"CREATE TABLE rides ({table})")
    store = store_of(database, **settings)
    error = refusal_of(store)
    assert error.code == "TG-STORE-COLUMN"
    assert what in error.what
    assert fix in error.fix
    if fix == "another name":
        store = store_of(database, [(name.replace("fixes", "fixes_2"), kind) for name, kind in COLUMNS], schema_evolution="add")
    else:
        execute(database, statement_of(error))
    store.prepare()
    assert store.write(batch(0, {"Car": "a"}, {"Car": None} if "NOT NULL, fixes" not in table else {"Car": "b"})).position == 2
    store.close()


def statement_of(error: StoreError) -> str:
    """Return the statement among the ways out that an error shows."""
    return error.fix.removeprefix('set schema_evolution = "add", or: ').partition("; or ")[0]


def test_a_key_may_be_null_in_a_table_that_is_made(database: str) -> None:
    """NULLs are one key: upsert replaces that row, whether both results come in one batch or not; insert keeps or refuses the second."""
    store = store_of(database, mode="upsert", primary_key=["Car", "fixes"])
    assert store.null_refusals() == {}, "it will be made so"  # type: ignore[attr-defined]
    store.prepare()
    store.write(batch(0, {"fixes": 1, "more": 1}, {"Car": "a", "fixes": 1}, {"fixes": 1, "more": 2}, {"more": 3}))
    store.write(batch(4, {"fixes": 1, "more": 4}, {"Car": None, "fixes": None, "more": 5}))
    store.close()
    assert store.null_refusals() == {}  # type: ignore[attr-defined]
    rows = [("a", 1, None), (None, 1, 4), (None, None, 5)]
    assert execute(database, 'SELECT "Car", fixes, more FROM rides ORDER BY "Car", fixes') == rows
    refusing = store_of(database, mode="insert", primary_key=["Car", "fixes"], table="once")
    refusing.prepare()
    with pytest.raises(RowsRefused) as refused:
        refusing.write(batch(0, {"fixes": 1}, {"fixes": 1}))
    assert [refusal.position for refusal in refused.value.refusals] == [1]
    refusing.close()
    keeping = store_of(database, mode="insert", primary_key=["Car", "fixes"], table="once", on_conflict="keep")
    keeping.write(batch(0, {"fixes": 1, "more": 1}, {"fixes": 1, "more": 2}))
    keeping.close()
    assert execute(database, "SELECT more FROM once") == [(1,)]


def test_a_key_that_takes_no_null_says_which_statement_lets_it(database: str) -> None:
    """Ahead, and with the row that is refused: played, the store takes that row."""
    execute(database, 'CREATE TABLE rides ("Car" text, fixes bigint, at timestamptz, more jsonb, PRIMARY KEY ("Car", fixes))')
    store = store_of(database, mode="upsert", primary_key=["Car", "fixes"])
    store.prepare()
    first = batch(0, {"Car": "a", "fixes": 1}, {"Car": "a"})
    with pytest.raises(RowsRefused) as refused:
        store.write(first)
    assert [refusal.position for refusal in refused.value.refusals] == [1]
    store.close()
    ahead = store.null_refusals()  # type: ignore[attr-defined]
    assert (list(ahead), ahead["fixes"]) == (["Car", "fixes"], refused.value.fix)
    execute(database, refused.value.fix)
    assert store.write(first).position == 2
    with pytest.raises(RowsRefused) as refused:
        store.write(batch(2, {"fixes": 1}))
    execute(database, refused.value.fix)
    assert store.write(batch(2, {"fixes": 1})).position == 3
    store.close()
    assert store.null_refusals() == {}  # type: ignore[attr-defined]


def test_a_column_that_takes_no_null_says_so_too(database: str) -> None:
    """Beside the key; rows that break another rule are told without a statement, since nobody knows whether the rule is meant."""
    execute(database, "CREATE TABLE rides (car text CHECK (car <> 'x'), fixes int NOT NULL, at date, more json)")
    store = store_of(database)
    with pytest.raises(RowsRefused) as refused:
        store.write(batch(0, {"Car": "a"}))
    execute(database, refused.value.fix)
    assert store.write(batch(0, {"Car": "a"})).position == 1
    with pytest.raises(RowsRefused) as refused:
        store.write(batch(1, {"Car": "x"}))
    assert refused.value.fix == ""
    store.close()


def test_an_old_server_has_primary_keys(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before version 15 no key takes NULL: the table is made with a primary key, and the columns are told ahead."""
    monkeypatch.setattr(target, "_EQUAL_NULLS_SINCE", 10**9)
    store = store_of(database, **UPSERT)
    assert store.null_refusals() == {"Car": ""}  # type: ignore[attr-defined]
    store.prepare()
    with pytest.raises(RowsRefused) as refused:
        store.write(batch(0, {"fixes": 1}))
    assert refused.value.fix == ""
    store.close()
    execute(database, "CREATE TABLE own (car text, fixes int, at date, more json)")
    own = store_of(database, table="own", **UPSERT)
    execute(database, statement_of(refusal_of(own)))
    own.prepare()
    assert own.write(batch(0, {"Car": "a"})).position == 1
    own.close()


def test_a_table_that_is_changed_while_it_is_written_says_what_mends_it(database: str) -> None:
    """A dropped column names its ALTER TABLE, a dropped table what to do: played, the job's next try succeeds."""
    store = store_of(database)
    store.prepare()
    store.write(batch(0, {"Car": "a", "fixes": 1}))
    execute(database, "ALTER TABLE rides DROP COLUMN fixes")
    with pytest.raises(StoreError):
        store.write(batch(1, {"Car": "b", "fixes": 2}))
    store.close()
    changed = refusal_of(store)
    assert (changed.code, "has no column for fixes" in changed.what) == ("TG-STORE-COLUMN", True)
    execute(database, statement_of(changed))
    assert store.write(batch(1, {"Car": "b", "fixes": 2})).position == 2
    execute(database, "DROP TABLE rides")
    with pytest.raises(StoreError):
        store.write(batch(2, {"Car": "c"}))
    store.close()
    changed = refusal_of(store)
    assert changed.code == "TG-STORE-LOST"
    execute(database, changed.fix.rpartition(": ")[2])
    assert store.write(batch(0, {"Car": "a", "fixes": 1})).position == 1
    store.close()


def test_schema_evolution_adds_columns(database: str) -> None:
    """Columns of the query that the table lacks are added at its end; rows of before have NULL there."""
    execute(database, "CREATE TABLE rides (car text)", "INSERT INTO rides VALUES ('old')")
    store = store_of(database, schema_evolution="add")
    store.check()
    assert len(execute(database, "SELECT * FROM rides")[0]) == 1, "a check changes nothing"
    store.prepare()
    store.write(batch(0, {"Car": "new", "fixes": 1}))
    store.close()
    assert execute(database, "SELECT car, fixes, at, more FROM rides") == [("old", None, None, None), ("new", 1, None, None)]


def test_a_table_that_was_dropped_is_not_made_again(database: str) -> None:
    """Its progress would pass over what it had; without the progress it is filled anew."""
    store = store_of(database)
    store.prepare()
    store.write(batch(0, {"Car": "a"}))
    store.close()
    execute(database, "DROP TABLE rides")
    lost = refusal_of(store)
    assert lost.code == "TG-STORE-LOST"
    execute(database, lost.fix.rpartition(": ")[2])
    store.prepare()
    assert store.progress([0]) == {}
    store.close()


def test_constraints_are_told_row_by_row(database: str) -> None:
    """Also those that wait for the commit, and keys that are twice in one batch; insert keeps or refuses the second."""
    execute(database, "CREATE TABLE cars (name text PRIMARY KEY)", "INSERT INTO cars VALUES ('a'), ('b')")
    execute(
        database, "CREATE TABLE rides (car text REFERENCES cars DEFERRABLE INITIALLY DEFERRED, fixes int PRIMARY KEY, at date, more json)"
    )
    store = store_of(database, mode="insert", primary_key=["fixes"])
    store.prepare()
    rows = [("a", 1), ("x", 2), ("b", 1), ("b", 3)]
    first = batch(0, *({"Car": car, "fixes": fixes} for car, fixes in rows))
    with pytest.raises(RowsRefused) as refused:
        store.write(first)
    assert [refusal.position for refusal in refused.value.refusals] == [1, 2]
    assert "violates foreign key constraint" in refused.value.refusals[0].reason
    assert "duplicate key value" in refused.value.refusals[1].reason
    assert store.write(first.without({1, 2})).position == 4
    store.close()
    keeping = store_of(database, mode="insert", primary_key=["fixes"], on_conflict="keep")
    keeping.write(batch(4, {"Car": "b", "fixes": 1}, {"Car": "b", "fixes": 5}))
    keeping.close()
    assert execute(database, "SELECT car, fixes FROM rides ORDER BY fixes") == [("a", 1), ("b", 3), ("b", 5)]


def test_a_stopped_writer_holds_nobody_up_for_ever(database: str) -> None:
    """A lock that another session holds is waited for; the store answers as one that does not."""
    store = store_of(database)
    store.prepare()
    store.write(batch(0, {"Car": "a"}))
    with psycopg.connect(database) as other:
        other.execute("SELECT * FROM tidegate_progress FOR UPDATE")
        with pytest.raises(UnreachableError) as waiting:
            store.write(batch(1, {"Car": "b"}))
    assert "lock timeout" in waiting.value.what
    assert store.write(batch(1, {"Car": "b"})).position == 2
    store.close()


def test_wrong_users_and_rights_end_the_job(postgres: PostgresServer, database: str) -> None:
    """Repeating does not help them; a server that is not there may come."""
    with pytest.raises(StoreError):
        store_of(postgres.url("nowhere")).check()
    with pytest.raises(UnreachableError):
        store_of("postgresql://postgres@127.0.0.1:1/x").check()


def test_each_right_that_is_lacking_is_named_with_its_grant(database: str) -> None:
    """The check says so before anything starts; with the grants that it names, one after the other, the store can be written."""
    execute(database, "CREATE USER reader LOGIN", "CREATE TABLE rides (car text PRIMARY KEY, fixes int, at date, more json)")
    execute(database, "REVOKE TEMPORARY ON DATABASE " + database.rpartition("/")[2] + " FROM PUBLIC")
    granted = []
    store = store_of(database.replace("postgres@", "reader@"), **UPSERT)
    for _ in range(5):
        error = refusal_of(store)
        assert error.code == "TG-STORE-REFUSED"
        granted.append(error.fix.partition(" ON ")[0])
        execute(database, error.fix)
    assert granted == ["GRANT CREATE", "GRANT SELECT", "GRANT INSERT", "GRANT UPDATE", "GRANT TEMPORARY"]
    store.check()
    store.prepare()
    store.write(batch(0, {"Car": "a"}))
    store.close()
    elsewhere = store_of(database.replace("postgres@", "reader@"), table="mine.rides")
    assert refusal_of(elsewhere).fix.startswith("GRANT CREATE ON DATABASE")
    execute(database, "CREATE SCHEMA mine")
    assert refusal_of(elsewhere).fix == "GRANT USAGE ON SCHEMA mine TO reader"


def test_a_key_that_the_query_has_not_is_refused_before_the_table_is_made(database: str) -> None:
    """There is nothing yet to compare with but the query's columns."""
    error = refusal_of(store_of(database, mode="upsert", primary_key=["carr"]))
    assert "no column carr, which primary_key names" in error.what
    assert "Car, fixes, at, more" in error.fix
