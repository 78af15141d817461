"""
Writes results as rows of a PostgreSQL table, each once.

Law: rows and progress change in one transaction. It begins by locking the progress row of the partition, and ends without effect if the
batch does not begin at that progress. So of two writers one waits for the other, and then finds the batch done. In mode append rows are
copied into the table itself: the progress rules out a repetition, so no index is needed. In the other modes they are copied into a
temporary table and inserted from it; of several results with one key in a batch, upsert keeps the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from psycopg import sql

from sinks.stores.base import Batch, Progress, Rows, RowsRefused, StoreContext, StoreError, find_refusals
from sinks.stores.postgres.clearing import clear, count_clearable
from sinks.stores.postgres.connecting import connect, place_of
from sinks.stores.postgres.failures import is_about_rows, message_of, translate_errors
from sinks.stores.postgres.reading import PostgresReader
from sinks.stores.postgres.target import PROGRESS_TABLE, PostgresTarget, allow_null, find_target, null_refusals
from sinks.stores.typed_rows import make_typed_table
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.tables.stores.postgres import PostgresSettings

_STAGING = sql.Identifier("pg_temp", "tidegate_batch")
_ORDINAL = sql.Identifier("tidegate_row")
_COPY_ROWS = 10_000
# The SQLSTATE of a NULL where none may be.
_NOT_NULL = "23502"


class PostgresStore:
    """The table of one output; see the law above."""

    def __init__(self, context: StoreContext, settings: PostgresSettings) -> None:
        self._context, self._settings = context, settings
        self._connection: psycopg.Connection[Any] | None = None
        self._target: PostgresTarget | None = None
        self._where = f"postgres {place_of(settings)}.{settings.table or context.output}"

    @property
    def name(self) -> str:
        return self._where

    def check(self) -> None:
        """Check the table's columns and the user's rights; nothing is changed."""
        self._find_target("check")

    def prepare(self) -> None:
        """Make the tables that are missing, and check them."""
        self._target = self._find_target("make")
        if self._settings.mode != "append":
            with translate_errors(self._where):
                self._make_staging(self._target)

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the rows of the progress table."""
        query = sql.SQL(
            "SELECT partition, topic_id, position, log_offset FROM {} WHERE table_name = %s AND topic = %s AND partition = ANY (%s)"
        ).format(self._progress_table)
        with translate_errors(self._where), self._connect().transaction():
            stored = self._connect().execute(query, [self._ready.name.table, self._context.stream.name, list(partitions)]).fetchall()
        return {partition: Progress(*progress) for partition, *progress in stored}

    def write(self, batch: Batch) -> Progress:
        """Copy the rows and move the progress, in one transaction."""
        if self._connection is None or self._target is None:
            # Not within the transaction, which may be rolled back.
            self.prepare()
        try:
            with translate_errors(self._where), self._connect().transaction():
                before = self._lock_progress(batch)
                if before[:2] != (batch.stream_id, batch.start):
                    return before
                self._write_rows(batch.rows)
                pause_at("rows sent")
                self._move_progress(batch)
                pause_at("progress sent")
        except psycopg.Error as error:
            raise self._refusals(batch.rows, message_of(error)) from None
        return batch.progress

    def null_refusals(self) -> Mapping[str, str]:
        """See :class:`sinks.stores.base.KeyedStore`."""
        target = self._find_target("read")
        with translate_errors(self._where), self._connect().transaction():
            return null_refusals(self._connect(), target)

    def count_clearable(self) -> int | None:
        """See :class:`sinks.stores.base.ClearableStore`."""
        with translate_errors(self._where), self._connect().transaction():
            return count_clearable(self._connect(), self._settings, self._context.output, self._context.stream.name)

    def clear(self) -> None:
        """Delete the rows of the table and the progress of the topic, in one transaction."""
        with translate_errors(self._where), self._connect().transaction():
            clear(self._connect(), self._settings, self._context.output, self._context.stream.name)

    def reader(self) -> PostgresReader:
        """Return a reader of the table."""
        target = self._find_target("read")
        return PostgresReader(self._connect(), target, self._settings, self._context.columns, self._context.stream, self._where)

    def close(self) -> None:
        """Disconnect; an open transaction has no effect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._target = None

    @property
    def _ready(self) -> PostgresTarget:
        if self._target is None:
            self.prepare()
        assert self._target is not None
        return self._target

    @property
    def _progress_table(self) -> sql.Identifier:
        return self._ready.name.beside(PROGRESS_TABLE)

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._target = None
            self._connection = connect(self._settings, f"tidegate {self._context.output}", self._where)
        return self._connection

    def _find_target(self, access: Literal["read", "check", "make"]) -> PostgresTarget:
        connection = self._connect()
        with translate_errors(self._where), connection.transaction():
            return find_target(connection, self._settings, self._context.output, self._context.columns, access)

    def _make_staging(self, target: PostgresTarget) -> None:
        """Make the temporary table: the query's columns with the types of the table, and the position of the row."""
        made = sql.SQL(
            "DROP TABLE IF EXISTS {staging}; CREATE TEMPORARY TABLE tidegate_batch ON COMMIT DELETE ROWS AS "
            "SELECT {columns}, 0::bigint AS {ordinal} FROM {table} WITH NO DATA"
        )
        parts = {"staging": _STAGING, "columns": target.column_list(), "ordinal": _ORDINAL, "table": target.name.identifier}
        self._connect().execute(made.format(**parts))

    def _lock_progress(self, batch: Batch) -> Progress:
        """Return the progress of the partition; no other session can move it until the transaction ends."""
        table, key = self._progress_table, [self._ready.name.table, self._context.stream.name, batch.partition]
        query = sql.SQL(
            "SELECT topic_id, position, log_offset FROM {} WHERE table_name = %s AND topic = %s AND partition = %s FOR UPDATE"
        ).format(table)
        found = self._connect().execute(query, key).fetchone()
        if found is None:
            made = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, 0, 0, now()) ON CONFLICT DO NOTHING").format(table)
            self._connect().execute(made, [*key, batch.stream_id])
            found = self._connect().execute(query, key).fetchone()
        assert found is not None, "the row was made, by us or by another writer"
        return Progress(*found)

    def _move_progress(self, batch: Batch) -> None:
        query = sql.SQL(
            "UPDATE {} SET position = %s, log_offset = %s, updated_at = now() WHERE table_name = %s AND topic = %s AND partition = %s"
        ).format(self._progress_table)
        key = [self._ready.name.table, self._context.stream.name, batch.partition]
        self._connect().execute(query, [batch.end, batch.offset, *key])

    def _write_rows(self, rows: Rows) -> None:
        if not len(rows):
            return
        target = self._ready
        if self._settings.mode == "append":
            self._copy(rows, target.name.identifier, target.column_list())
        else:
            self._copy(rows, _STAGING, target.column_list((*target.columns, "tidegate_row")))
            self._connect().execute(self._insert_statement(target))
        # Deferred constraints are checked now instead of at the commit, while the refused rows can still be found.
        self._connect().execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _copy(self, rows: Rows, into: sql.Identifier, columns: sql.Composed) -> None:
        """Copy rows piece by piece, so that the server reads one piece while the next is made."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(into, columns)
        with self._connect().cursor() as cursor, cursor.copy(statement) as copy:
            for start in range(0, len(rows), _COPY_ROWS):
                piece = rows.slice(start, min(start + _COPY_ROWS, len(rows)))
                table = make_typed_table(piece, self._context.columns)
                if self._settings.mode != "append":
                    table = table.append_column("tidegate_row", pa.array(piece.position))
                copy.write(_as_csv(table))

    def _insert_statement(self, target: PostgresTarget) -> sql.Composed:
        key = target.column_list(target.primary_key)
        changes = [
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in target.columns if column not in target.primary_key
        ]
        rows = sql.SQL("SELECT {columns} FROM {staging} ORDER BY {ordinal}")
        conflict: sql.Composable = sql.SQL("")
        if self._settings.mode == "upsert":
            rows = sql.SQL("SELECT DISTINCT ON ({key}) {columns} FROM {staging} ORDER BY {key}, {ordinal} DESC")
            conflict = sql.SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(key, sql.SQL(", ").join(changes))
        if self._settings.on_conflict == "keep" or (self._settings.mode == "upsert" and not changes):
            conflict = sql.SQL("ON CONFLICT ({}) DO NOTHING").format(key)
        selected = rows.format(columns=target.column_list(), staging=_STAGING, ordinal=_ORDINAL, key=key)
        return sql.SQL("INSERT INTO {} ({}) {} {}").format(target.name.identifier, target.column_list(), selected, conflict)

    def _refusals(self, rows: Rows, message: str) -> RowsRefused:
        """Find the rows that the server refuses, in a transaction that is rolled back."""
        connection, states = self._connect(), dict[str, tuple[str | None, str | None]]()

        def attempt(part: Rows) -> str | None:
            try:
                with connection.transaction():
                    self._write_rows(part)
                    if self._settings.mode != "append":
                        connection.execute(sql.SQL("TRUNCATE {}").format(_STAGING))
            except psycopg.Error as error:
                if not is_about_rows(error):
                    raise
                states[reason := message_of(error)] = error.sqlstate, error.diag.column_name
                return reason
            return None

        with translate_errors(self._where), connection.transaction(force_rollback=True):
            refusals = find_refusals(rows, attempt)
        if not refusals:
            fix = "look at the triggers and constraints of the table"
            raise StoreError(f"refused together, but not one by one: {message}", code="TG-STORE-REFUSED", where=self._where, fix=fix)
        return RowsRefused(refusals, self._fix_of(*states[refusals[0].reason]))

    def _fix_of(self, state: str | None, column: str | None) -> str:
        if state != _NOT_NULL or column is None:
            return ""
        with translate_errors(self._where), self._connect().transaction():
            return allow_null(self._connect(), self._ready, column)


def _as_csv(table: pa.Table) -> memoryview:
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            # With a time zone, Arrow looks up the zone for each value: a microsecond a row, more than everything else together.
            text = table.column(place).cast(pa.timestamp("us")).cast(pa.string())
            table = table.set_column(place, field.name, pc.binary_join_element_wise(text, "Z", ""))
    lines = pa.BufferOutputStream()
    pa.csv.write_csv(table, lines, pa.csv.WriteOptions(include_header=False))
    return memoryview(lines.getvalue())
