"""
Reference data from a table of PostgreSQL: its rows become the files of a table's ``path``, one for each version. Tables of Delta Lake and
Iceberg, which have versions of their own, are asked here too, and read in :mod:`query.reference.lake`.

Each row says from when on it is valid, and perhaps until when; a version begins at each of these instants, rounded up to a second, and has
all rows that are valid then.

Law: a version that is there is never written again. A version is written once its instant is less than two polls ahead, so it is there in
time, and may miss only rows that come later than that. Rows that come too late count from the poll that finds them, in a version of its own
instant. From there on a version is a file like any other (:mod:`query.reference.watch`): what a run has found, its replay finds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordering.errors import RefusedError, TidegateError
from ordering.ticks import SECOND_US
from query.reference.files import files_of_pattern
from query.reference.lake import poll_lake
from query.reference.version_files import FIRST_S, path_of, write_version
from sinks.stores.registry import import_client
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.settings.tables.references import ReferenceQuery, ReferenceSettings

# More versions are hardly meant: each has all rows that are valid then.
_VERSIONS_MAX = 1_000

_log = get_logger("query.reference")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as JSON; valid from and until these seconds since 1970 (None: for ever)."""

    from_s: int
    until_s: int | None
    text: str

    def is_valid(self, instant_s: int) -> bool:
        return self.from_s <= instant_s and (self.until_s is None or instant_s < self.until_s)


def poll(settings: ReferenceSettings, now_us: int) -> list[Path]:
    """
    Ask for versions; write and return those that are new, as files. Raises RefusedError (TG-REFERENCE-QUERY): the query is wrong, or gives
    too many versions; as :func:`query.reference.lake.poll_lake`; StoreError, UnreachableError: the server refuses, or does not answer.
    """
    if settings.postgres is None:
        return poll_lake(settings, now_us)
    rows = _read_rows(settings.name, settings.postgres)
    now_s, horizon_s = -(-now_us // SECOND_US), (now_us + 2 * settings.postgres.poll_us) // SECOND_US
    there = files_of_pattern(str(settings.path))
    last_s = there[-1][0] // SECOND_US if there else 0
    instants = {instant for row in rows for instant in (row.from_s, row.until_s) if instant is not None and last_s < instant <= horizon_s}
    if there and last_s < now_s and _version(rows, last_s) != there[-1][1].read_bytes():
        instants.add(now_s)
    if len(instants) > _VERSIONS_MAX:
        raise RefusedError(
            f"the query gives {len(instants):,} instants from which on rows are valid, and each is a version with all rows",
            code="TG-REFERENCE-QUERY",
            where=f"references.{settings.name}.postgres.query",
            fix="let rows begin and end at fewer instants, such as with date_trunc('hour', ...), or leave old rows out",
        )
    if not there and not instants:
        # A lookup needs a version, be it one without rows.
        instants.add(FIRST_S)
    return [path for instant in sorted(instants) if write_version(path := path_of(settings, instant), _version(rows, instant))]


def _read_rows(name: str, query: ReferenceQuery) -> list[_Row]:
    where = f"references.{name}.postgres"
    reading = import_client("sinks.stores.postgres.connecting", "postgres", where)
    connection = reading.connect(query, f"tidegate reference {name}", where)
    try:
        found = reading.read_validity(connection, query.query, query.valid_from, query.valid_until, where)
    except reading.QueryRefused as error:
        fix = "correct query, valid_from and valid_until; both name columns of the query, with times"
        raise RefusedError(f"the query of reference data fails: {error}", code="TG-REFERENCE-QUERY", where=where, fix=fix) from None
    finally:
        connection.close()
    return [_Row(max(from_s, FIRST_S), until_s, text) for from_s, until_s, text in found]


def _version(rows: Sequence[_Row], instant_s: int) -> bytes:
    return "".join(f"{row.text}\n" for row in rows if row.is_valid(instant_s)).encode()


def fill_empty(tables: Mapping[str, ReferenceSettings], names: Collection[str]) -> None:
    """Ask for the first versions of those tables of a script (*names*, in any case) that have none. Raises as :func:`poll`."""
    wanted = {name.lower() for name in names}
    for name, table in tables.items():
        if name.lower() in wanted and table.polled is not None and not files_of_pattern(str(table.path)):
            poll(table, _now_us())


def poll_at_start(settings: ReferenceSettings) -> None:
    """Ask when a job starts, if the table is asked at all; a failure is only logged, since there are versions already."""
    if settings.polled is None:
        return
    try:
        poll(settings, _now_us())
    except (TidegateError, OSError) as error:
        _warn(settings, error)


class Polling(threading.Thread):
    """Asks for new versions while a job runs; a server that does not answer delays nothing else."""

    def __init__(self, settings: ReferenceSettings) -> None:
        super().__init__(name=f"reference {settings.name}", daemon=True)
        self._settings = settings
        self._stopping = threading.Event()

    def ask_to_stop(self) -> None:
        """End after the poll under way."""
        self._stopping.set()

    def run(self) -> None:
        """Poll until asked to stop; a failure that repeats itself is logged once."""
        assert self._settings.polled is not None, "the table is asked for versions"
        reported = ""
        while not self._stopping.wait(self._settings.polled.poll_us / 1e6):
            try:
                for path in poll(self._settings, _now_us()):
                    _log.info("reference data found", table=self._settings.name, file=str(path))
                reported = ""
            except (TidegateError, OSError) as error:
                if str(error) != reported:
                    _warn(self._settings, error)
                reported = str(error)


def _now_us() -> int:
    return time.time_ns() // 1_000


def _warn(settings: ReferenceSettings, error: Any) -> None:
    fields = {"code": error.code, "fix": error.fix} if isinstance(error, TidegateError) else {}
    _log.warning("reference data was not renewed", table=settings.name, reason=str(error), **fields)
