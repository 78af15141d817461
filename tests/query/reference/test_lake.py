"""Reference data from real tables of Delta Lake and Iceberg: which versions are found, and that one which was found stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import ValidationError
from pyiceberg.catalog import load_catalog

from ordering.errors import RefusedError
from ordering.ticks import parse_tick
from query.reference.files import load_reference
from query.reference.lake import version_in
from query.reference.polling import fill_empty, poll
from sinks.stores.delta import snapshot as delta_snapshot
from sinks.stores.iceberg import snapshot as iceberg_snapshot
from tidegate.platform.settings.tables.references import ReferenceSettings

NOW, LATER, LAST = "2024-03-01T12:00:00.5Z", "2024-03-01T12:01:00Z", "2024-03-01T12:02:00Z"


def rows(**cities: str) -> pa.Table:
    """Return airports with their cities."""
    return pa.table({"code": list(cities), "city": list(cities.values())})


class Lake(Protocol):
    """A table of one kind."""

    @property
    def settings(self) -> dict[str, Any]:
        """Its table in the settings."""

    def write(self, table: pa.Table) -> None:
        """Replace all rows."""

    def rewrite_files(self) -> None:
        """Make a version with the same rows in other files."""

    def destroy(self) -> None:
        """Let nothing of earlier versions remain."""


class Delta:
    """A Delta table in a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "airports")

    @property
    def settings(self) -> dict[str, Any]:
        """Its table in the settings."""
        return {"delta": {"path": self._path, "poll": "1s"}}

    def write(self, table: pa.Table) -> None:
        """Replace all rows."""
        write_deltalake(self._path, table, mode="overwrite")

    def rewrite_files(self) -> None:
        """Make a version with the same rows in other files, the last ones first."""
        table = DeltaTable(self._path).to_pyarrow_table()
        write_deltalake(self._path, table.take(pa.array(range(len(table)))[::-1]), mode="overwrite")

    def destroy(self) -> None:
        """Delete the files that only earlier versions have."""
        DeltaTable(self._path).vacuum(0, dry_run=False, enforce_retention_duration=False)


class Iceberg:
    """An Iceberg table of an SQL catalog."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        load_catalog("default", **self._catalog).create_namespace("travel")

    @property
    def settings(self) -> dict[str, Any]:
        """Its table in the settings."""
        return {"iceberg": {"table": "travel.airports", "catalog": self._catalog, "poll": "1s"}}

    def write(self, table: pa.Table) -> None:
        """Replace all rows."""
        load_catalog("default", **self._catalog).create_table_if_not_exists("travel.airports", table.schema).overwrite(table)

    def rewrite_files(self) -> None:
        """Make a snapshot with the same rows in another order."""
        table = load_catalog("default", **self._catalog).load_table("travel.airports").scan().to_arrow()
        self.write(table.take(pa.array(range(len(table)))[::-1]))

    def destroy(self) -> None:
        """Expire all earlier snapshots."""
        table = load_catalog("default", **self._catalog).load_table("travel.airports")
        current = table.current_snapshot()
        old = [snapshot.snapshot_id for snapshot in table.snapshots() if current is None or snapshot.snapshot_id != current.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()


@pytest.fixture(params=[Delta, Iceberg])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table that is not there yet."""
    made: Lake = request.param(tmp_path / "lake")
    return made


def settings_of(lake: Lake, folder: Path, **given: Any) -> ReferenceSettings:
    """Return settings with files in *folder*."""
    path = f"{folder}/found/airports-{{date}}T{{time}}.parquet"
    return ReferenceSettings.model_validate({"__name__": "airports", "path": path, **lake.settings, **given})


def asked(settings: ReferenceSettings, now: str) -> dict[str, list[str]]:
    """Poll; return the cities in each file that was written."""
    return {path.stem.removeprefix("airports-"): pq.read_table(path)["city"].to_pylist() for path in poll(settings, parse_tick(now))}


def test_each_version_is_a_file_that_stays(lake: Lake, tmp_path: Path) -> None:
    """The first counts from the beginning, a later one from the poll that finds it; a replay finds both, the table has but the last."""
    settings = settings_of(lake, tmp_path)
    lake.write(rows(SFO="San Francisco", ORD="Chicago"))
    assert asked(settings, NOW) == {"1970-01-01T00-00-01": ["Chicago", "San Francisco"]}
    assert asked(settings, NOW) == {}
    lake.write(rows(ORD="Chicago", MIA="Miami"))
    assert asked(settings, LATER) == {"2024-03-01T12-01-00": ["Miami", "Chicago"]}
    lake.destroy()
    table = load_reference(settings)
    assert [version.values.to_pylist() for version in table.versions] == [
        [b'{"code":"ORD","city":"Chicago"}', b'{"code":"SFO","city":"San Francisco"}'],
        [b'{"code":"MIA","city":"Miami"}', b'{"code":"ORD","city":"Chicago"}'],
    ]
    assert table.schema.is_closed


def test_a_file_names_the_version_whose_rows_it_has(lake: Lake, tmp_path: Path) -> None:
    """So what a lookup has found can be looked up again; other files with the same rows are no new version."""
    settings = settings_of(lake, tmp_path)
    lake.write(rows(ORD="Chicago", SFO="San Francisco"))
    (first,) = poll(settings, parse_tick(NOW))
    lake.rewrite_files()
    assert poll(settings, parse_tick(LATER)) == []
    lake.write(rows(ORD="Chicago"))
    (second,) = poll(settings, parse_tick(LAST))
    kind = "delta" if settings.delta else "iceberg"
    assert version_in(first).split()[0] == version_in(second).split()[0] == kind
    assert version_in(first) != version_in(second)
    if settings.delta:
        assert [version_in(first), version_in(second)] == ["delta 0", "delta 2"]


def test_a_table_that_is_not_there_is_refused(lake: Lake, tmp_path: Path) -> None:
    """Before anything starts; one without rows is a version."""
    settings = settings_of(lake, tmp_path)
    with pytest.raises(RefusedError) as error:
        fill_empty({"airports": settings}, ["airports"])
    assert (error.value.code, error.value.what) == ("TG-REFERENCE-FILE", "there is no such table")
    lake.write(rows(ORD="Chicago").slice(0, 0))
    fill_empty({"airports": settings}, ["airports"])
    assert [len(version.values) for version in load_reference(settings).versions] == [0]


def test_rows_are_those_of_the_version_that_was_found(lake: Lake, tmp_path: Path) -> None:
    """A version that comes between looking and reading changes nothing."""
    settings = settings_of(lake, tmp_path)
    lake.write(rows(ORD="Chicago"))
    found = delta_snapshot.find_snapshot(settings.delta, "t") if settings.delta else None
    found = iceberg_snapshot.find_snapshot(settings.iceberg, "t") if settings.iceberg else found
    lake.write(rows(MIA="Miami"))
    assert found is not None
    assert found.size_bytes > 0
    assert found.read_rows()["code"].to_pylist() == ["ORD"]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"path": "airports.parquet"}, "each version of delta is a file with the instant in its name"),
        ({"path": "s3://a/r-{date}T{time}.parquet"}, "versions of delta are written into a folder"),
        ({"path": "r-{date}T{time}.ndjson"}, "versions of delta are written as Parquet"),
        ({"iceberg": {"table": "a.b"}}, "delta and iceberg say where versions come from twice"),
        ({"delta": {"path": "lake", "poll": "1ms"}}, "poll is too short"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, given: dict[str, Any], what: str) -> None:
    """With the setting that is wrong."""
    with pytest.raises(ValidationError, match=what):
        settings_of(Delta(tmp_path), tmp_path, **given)
