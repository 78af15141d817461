"""Reference data from a real PostgreSQL: which versions its rows make, and that one which is there is never written again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs
from support.postgres_server import PostgresServer

from ordering.errors import RefusedError, UnreachableError
from ordering.ticks import parse_tick
from query.reference import polling
from query.reference.files import load_references
from query.reference.polling import Polling, fill_empty, poll, poll_at_start
from tidegate.platform.settings.tables.references import ReferenceSettings

pytestmark = pytest.mark.heavy
QUERY = "SELECT code, city, begins, ends FROM airports;"
MANY = "SELECT now() - make_interval(secs => n) AS begins, NULL::date AS ends FROM generate_series(1, 2000) AS n"
NOW = "2001-01-05T12:00:00.5Z"


@pytest.fixture
def table(postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """An empty table of airports."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS airports; CREATE TABLE airports (code text, city text, begins timestamptz, ends timestamptz)"
        )
        yield connection


@pytest.fixture
def settings(postgres: PostgresServer, tmp_path: Path) -> ReferenceSettings:
    """A reference table that asks that table."""
    return make(postgres, tmp_path)


def make(postgres: PostgresServer, folder: Path, **given: Any) -> ReferenceSettings:
    """Return settings with files in *folder*."""
    query = {"url": postgres.url(), "query": QUERY, "valid_from": "begins", "valid_until": "ends", "poll": "1h", **given}
    return ReferenceSettings.model_validate(
        {"__name__": "airports", "path": f"{folder}/airports-{{date}}T{{time}}.ndjson", "postgres": query}
    )


def add(table: psycopg.Connection[Any], code: str, city: str, begins: str | None, ends: str | None = None) -> None:
    """Add a row."""
    table.execute("INSERT INTO airports VALUES (%s, %s, %s, %s)", [code, city, begins, ends])


def asked(settings: ReferenceSettings, now: str = NOW) -> dict[str, list[str]]:
    """Poll; return the cities in each file that was written."""
    return {path.stem.removeprefix("airports-"): cities(path) for path in poll(settings, parse_tick(now))}


def cities(path: Path) -> list[str]:
    """Return the cities of a version."""
    return [json.loads(line)["city"] for line in path.read_text().splitlines()]


def test_a_version_begins_where_a_row_begins_or_ends(table: psycopg.Connection[Any], settings: ReferenceSettings) -> None:
    """Each has all rows that are valid then; fractions of a second are rounded up; what lies more than two polls ahead waits."""
    add(table, "ORD", "Chicago", None)
    add(table, "SFO", "San Francisco", "2001-01-02", "2001-01-04T00:00:00.25Z")
    add(table, "JFK", "New York", "2001-01-05T13:59:59Z", "infinity")
    add(table, "MIA", "Miami", "2001-01-05T14:00:01Z")
    assert asked(settings) == {
        "1970-01-01T00-00-01": ["Chicago"],
        "2001-01-02T00-00-00": ["Chicago", "San Francisco"],
        "2001-01-04T00-00-01": ["Chicago"],
        "2001-01-05T13-59-59": ["Chicago", "New York"],
    }
    loaded = load_references({"airports": settings}, ["AIRPORTS"])["airports"]
    assert [len(version.values) for version in loaded.versions] == [1, 2, 1, 2]
    assert asked(settings) == {}, "nothing has changed"
    assert asked(settings, "2001-01-05T12:30:00Z") == {"2001-01-05T14-00-01": ["Chicago", "New York", "Miami"]}


def test_a_row_that_comes_too_late_counts_from_the_poll_that_finds_it(table: psycopg.Connection[Any], settings: ReferenceSettings) -> None:
    """Versions that are there stay as they were found: also if rows are changed or deleted in the database."""
    add(table, "ORD", "Chicago", None)
    add(table, "SFO", "San Francisco", "2001-01-02")
    asked(settings)
    first = {path: path.read_bytes() for path in Path(str(settings.path)).parent.iterdir()}
    table.execute("UPDATE airports SET city = 'Frisco' WHERE code = 'SFO'; DELETE FROM airports WHERE code = 'ORD'")
    add(table, "JFK", "New York", "2001-01-01")
    assert asked(settings) == {"2001-01-05T12-00-01": ["New York", "Frisco"]}
    assert {path: path.read_bytes() for path in first} == first
    assert asked(settings, "2001-01-05T12:00:30Z") == {}


def test_an_empty_table_is_a_version_too(table: psycopg.Connection[Any], settings: ReferenceSettings) -> None:
    """Nothing matches until something is there."""
    fill_empty({"airports": settings}, ["Airports"])
    assert load_references({"airports": settings}, ["airports"])["airports"].versions[0].effective_us == parse_tick("1970-01-01T00:00:01Z")


def test_two_jobs_that_ask_at_the_same_time_do_not_overwrite_each_other(
    table: psycopg.Connection[Any], postgres: PostgresServer, settings: ReferenceSettings
) -> None:
    """Who comes second keeps what is there."""
    add(table, "ORD", "Chicago", None)
    path = Path(str(settings.path).replace("{date}", "1970-01-01").replace("{time}", "00-00-01"))
    path.write_text('{"city": "first"}\n')
    table.execute("INSERT INTO airports VALUES ('SFO', 'San Francisco', '1960-01-01', NULL)")
    assert list(asked(settings).values()) == [["San Francisco", "Chicago"]]
    assert cities(path) == ["first"]
    assert not [each for each in path.parent.iterdir() if each.name.startswith(".")]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"query": "SELECT nothing FROM airports"}, 'column "nothing" does not exist'),
        ({"valid_from": "city"}, "isfinite"),
        ({"query": "DELETE FROM airports RETURNING *"}, "syntax error"),
        ({"query": MANY}, "2,000 instants"),
    ],
)
def test_a_wrong_query_is_refused(
    table: psycopg.Connection[Any], postgres: PostgresServer, tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    """With the server's words; nothing is written, neither there nor here."""
    add(table, "ORD", "Chicago", None)
    with pytest.raises(RefusedError) as caught:
        poll(make(postgres, tmp_path, **given), time.time_ns() // 1_000)
    assert caught.value.code == "TG-REFERENCE-QUERY"
    assert words in caught.value.what
    assert list(tmp_path.iterdir()) == []
    assert table.execute("SELECT count(*) FROM airports").fetchone() == (1,)


def test_a_server_that_is_away_stops_a_start_only_if_nothing_is_there(
    table: psycopg.Connection[Any], postgres: PostgresServer, tmp_path: Path
) -> None:
    """Else the job goes on with what it has, and says so."""
    add(table, "ORD", "Chicago", None)
    away = make(postgres, tmp_path, url="postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(UnreachableError):
        fill_empty({"airports": away}, ["airports"])
    poll(make(postgres, tmp_path), parse_tick(NOW))
    fill_empty({"airports": away}, ["airports"])
    with capture_logs() as logs:
        poll_at_start(away)
    assert [line["code"] for line in logs] == ["TG-STORE-UNREACHABLE"]


def test_a_folder_that_cannot_be_written_does_not_stop_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job goes on with the versions it has, as a running one does."""
    (tmp_path / "versions").write_text("no folder")
    query = {"url": "postgresql://postgres@127.0.0.1:1/postgres", "query": QUERY, "valid_from": "begins"}
    path = f"{tmp_path}/versions/airports-{{date}}T{{time}}.ndjson"
    unwritable = ReferenceSettings.model_validate({"__name__": "airports", "path": path, "postgres": query})
    monkeypatch.setattr(polling, "_read_rows", lambda name, query: [])
    with capture_logs() as logs:
        poll_at_start(unwritable)
    assert [line["log_level"] for line in logs] == ["warning"]


def test_a_running_job_finds_new_versions(table: psycopg.Connection[Any], postgres: PostgresServer, tmp_path: Path) -> None:
    """Each poll asks; one that fails is logged once, and the next one asks again."""
    add(table, "ORD", "Chicago", None)
    job = Polling(make(postgres, tmp_path, poll="1s"))
    with capture_logs() as logs:
        job.start()
        until(lambda: len(list(tmp_path.iterdir())) == 1)
        table.execute("ALTER TABLE airports RENAME TO away")
        until(lambda: any("does not exist" in str(line.get("reason")) for line in logs))
        table.execute("ALTER TABLE away RENAME TO airports")
        add(table, "SFO", "San Francisco", datetime.now(UTC).isoformat())
        until(lambda: any(cities(path) == ["Chicago", "San Francisco"] for path in tmp_path.iterdir() if path.suffix == ".ndjson"))
        job.ask_to_stop()
        job.join(10)
    assert not job.is_alive()


def until(holds: Any, patience_s: float = 20.0) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.1)


@pytest.mark.parametrize("path", [None, "airports.ndjson", "airports-{date}.ndjson", "airports-{date}T{time}.csv"])
def test_versions_need_files_with_their_instants(path: str | None) -> None:
    """A path with date and time, for JSON objects line by line."""
    query = {"url": "postgresql://localhost/x", "query": "SELECT 1", "valid_from": "begins"}
    with pytest.raises(ValidationError):
        ReferenceSettings.model_validate({"path": path, "postgres": query})
