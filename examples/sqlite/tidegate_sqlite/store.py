"""
Results as rows of a table in an SQLite file, each once.

Law: the rows of a batch and the progress of its partition are one transaction, which begins by looking whether the batch is the next one.
SQLite lets one writer in at a time, so of two writers one commits, and the other finds the batch done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tidegate.sinks.extending import (
    Batch,
    Progress,
    Refusal,
    Rows,
    RowsRefused,
    StoreContext,
    StoreError,
    UnreachableError,
    find_refusals,
    make_typed_table,
    pause_at,
)
from tidegate_sqlite.reading import PROGRESS, SqliteReader, cells, quote
from tidegate_sqlite.settings import SqliteSettings

# The type of a column that is made; others are text: times as ISO-8601, records and arrays as JSON.
_MADE_AS = {"bigint": "INTEGER", "float": "REAL", "bit": "INTEGER"}
# What only the user can mend; whatever else is wrong with the file may pass.
_USERS = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_NOTADB", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_CORRUPT")
_BUSY_S = 5.0


class SqliteStore:
    """The table of one output; see the law above."""

    def __init__(self, context: StoreContext, settings: SqliteSettings) -> None:
        self._context, self._path = context, Path(settings.path)
        self._table = settings.table or context.output
        self._connection: sqlite3.Connection | None = None

    @property
    def name(self) -> str:
        return f"sqlite {self._path} {self._table}"

    def check(self) -> None:
        """Compare the table's columns with the query's; nothing is changed."""
        with self._errors_translated():
            connection = self._open_to_read()
            try:
                self._check(connection)
            finally:
                connection.close()

    def prepare(self) -> None:
        """Make the file, the table and the one for the progress."""
        with self._transaction() as connection:
            self._check(connection)
            columns = ", ".join(f"{quote(name)} {_MADE_AS.get(kind, 'TEXT')}" for name, kind in self._context.columns)
            connection.execute(f"CREATE TABLE IF NOT EXISTS {quote(self._table)} ({columns})")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {PROGRESS} (table_name TEXT, topic TEXT, partition INTEGER, "
                "topic_id TEXT, position INTEGER, log_offset INTEGER, PRIMARY KEY (table_name, topic, partition))"
            )

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the rows of the progress."""
        with self._errors_translated():
            connection = self._connect()
            found = {partition: self._progress_of(connection, partition) for partition in partitions}
        return {partition: progress for partition, progress in found.items() if progress is not None}

    def write(self, batch: Batch) -> Progress:
        """Insert the rows and move the progress."""
        typed = make_typed_table(batch.rows, self._context.columns)
        try:
            with self._transaction() as connection:
                stands = self._progress_of(connection, batch.partition) or Progress(batch.stream_id, 0, 0)
                if stands[:2] != (batch.stream_id, batch.start):
                    return stands
                self._insert(connection, typed)
                pause_at("rows sent")
                place = (self._table, self._context.stream.name, batch.partition)
                connection.execute(f"INSERT OR REPLACE INTO {PROGRESS} VALUES (?, ?, ?, ?, ?, ?)", [*place, *batch.progress[:3]])
                pause_at("progress sent")
        except sqlite3.IntegrityError:
            raise RowsRefused(self._find_refusals(batch.rows)) from None
        return batch.progress

    def reader(self) -> SqliteReader:
        """Return a reader of the table."""
        with self._errors_translated():
            self._connection = self._open_to_read()
            return SqliteReader(self._connection, self._table, self._context)

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            # Readers do not hold up the writer, and what is committed is on the disk.
            self._connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        return self._connection

    def _open_to_read(self) -> sqlite3.Connection:
        # A file that is not there is not made, and reads as empty.
        place = f"{self._path.absolute().as_uri()}?mode=ro" if self._path.exists() else ":memory:"
        return sqlite3.connect(place, uri=True, timeout=_BUSY_S, isolation_level=None)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors_translated():
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        """Raise errors of SQLite as StoreError or UnreachableError; a constraint (IntegrityError) passes."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            words, kind = f"SQLite says: {error}", str(getattr(error, "sqlite_errorname", ""))
            if kind.startswith(_USERS):
                fix = "give a file in a folder that is there and may be written"
                raise StoreError(words, code="TG-STORE-REFUSED", where=self.name, fix=fix) from None
            raise UnreachableError(words, code="TG-STORE-UNREACHABLE", where=self.name) from None

    def _check(self, connection: sqlite3.Connection) -> None:
        # Names ignore case, as SQLite does.
        there = {str(name).lower() for _, name, *_ in connection.execute(f"PRAGMA table_info({quote(self._table)})")}
        for name, kind in self._context.columns:
            if there and name.lower() not in there:
                what = f"table {self._table} has no column {name}, which the query has"
                fix = f"ALTER TABLE {quote(self._table)} ADD COLUMN {quote(name)} {_MADE_AS.get(kind, 'TEXT')}"
                raise StoreError(what, code="TG-STORE-COLUMN", where=self.name, fix=fix)
        is_known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [PROGRESS]).fetchone()
        if is_known and not there and connection.execute(f"SELECT 1 FROM {PROGRESS} WHERE table_name = ?", [self._table]).fetchone():
            what, fix = f"table {self._table} is gone, its progress is there", f"bring it back, or delete its rows of {PROGRESS}"
            raise StoreError(what, code="TG-STORE-LOST", where=self.name, fix=fix)

    def _progress_of(self, connection: sqlite3.Connection, partition: int) -> Progress | None:
        query = f"SELECT topic_id, position, log_offset FROM {PROGRESS} WHERE (table_name, topic, partition) = (?, ?, ?)"
        found = connection.execute(query, [self._table, self._context.stream.name, partition]).fetchone()
        return Progress(*found) if found else None

    def _insert(self, connection: sqlite3.Connection, typed: pa.Table) -> None:
        names = ", ".join(map(quote, typed.column_names))
        statement = f"INSERT INTO {quote(self._table)} ({names}) VALUES ({', '.join('?' * typed.num_columns)})"
        connection.executemany(statement, zip(*(cells(column) for column in typed.columns), strict=True))

    def _find_refusals(self, rows: Rows) -> Sequence[Refusal]:
        """Insert the rows piece by piece, and take all of them back."""
        with self._errors_translated():
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            try:
                refusals = find_refusals(rows, lambda part: self._why_refused(connection, part))
            finally:
                connection.execute("ROLLBACK")
        if not refusals:
            raise UnreachableError("the rows are refused together, but not one by one", code="TG-STORE-UNREACHABLE", where=self.name)
        return refusals

    def _why_refused(self, connection: sqlite3.Connection, rows: Rows) -> str | None:
        connection.execute("SAVEPOINT attempt")
        try:
            self._insert(connection, make_typed_table(rows, self._context.columns))
        except sqlite3.IntegrityError as error:
            connection.execute("ROLLBACK TO attempt")
            return str(error)
        connection.execute("RELEASE attempt")
        return None
