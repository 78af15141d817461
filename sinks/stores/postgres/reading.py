"""
Reads the rows of a PostgreSQL table, and converts results to the form in which the table keeps them.

Law: rows and progress are those of one snapshot. A column of the type that a sink would make for the query's column is compared by its
values. A column of any other type is compared by the server's text: the server converts the values of the results to that type, in a query
that writes nothing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from sinks.stores.base import Progress, Rows, RowsRefused, StoreError, Stream, find_refusals
from sinks.stores.postgres.failures import is_about_rows, message_of, translate_errors
from sinks.stores.postgres.target import MADE_AS, PROGRESS_TABLE, PostgresTarget
from sinks.stores.reading import Keeps, Standing
from sinks.stores.typed_rows import make_typed_table
from tidegate.platform.settings.tables.stores.postgres import PostgresSettings
from tidegate.records.result_columns import Column, make_schema

_PIECE_BYTES = 4 * 2**20
# Further column types that keep a number or a text unchanged, beside the type that a sink makes.
_SAME_AS = {"bigint": {"integer", "smallint"}, "nvarchar(max)": {"character varying"}}
# Rows and results must become text in the same format, whatever the settings of server and role.
_TEXT_FORMATS = (
    "SET LOCAL TIME ZONE 'UTC'; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL extra_float_digits = 1; SET LOCAL intervalstyle = 'postgres'"
)
_TYPES = (
    "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
)


class PostgresReader:
    """The rows of *target*, the table for the *columns* of a query."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        target: PostgresTarget,
        settings: PostgresSettings,
        columns: Sequence[Column],
        stream: Stream,
        where: str,
    ) -> None:
        self._connection, self._target, self._columns, self._stream, self._where = connection, target, columns, stream, where
        self.keeps: Keeps = "all" if settings.mode == "append" else "first" if settings.mode == "insert" else "last"
        names = {target_column: name for (name, _), target_column in zip(columns, target.columns, strict=True)}
        self.key = tuple(names.get(column, column) for column in target.primary_key)
        if set(self.key) - {name for name, _ in columns}:
            what = "the query does not have all columns of primary_key, so nothing tells which results became which rows"
            raise StoreError(what, code="TG-STORE-COLUMN", where=where, fix="select them in the query")
        with translate_errors(where):
            self._is_there = self._has_relation(target.name.identifier)
            types = dict(connection.execute(_TYPES, [self._text(target.name.identifier)]).fetchall()) if self._is_there else {}
        # The columns of the query that are compared by the server's text, with the types of the table's columns.
        self._text_types = {
            name: types[target_column]
            for (name, kind), target_column in zip(columns, target.columns, strict=True)
            if target_column in types and types[target_column] not in {MADE_AS.get(kind), *_SAME_AS.get(kind, ())}
        }
        self._schema = pa.schema(
            [pa.field(field.name, pa.string()) if field.name in self._text_types else field for field in make_schema(columns)]
        )

    def read(self, accept: Callable[[pa.Table], None]) -> Standing:
        """See :meth:`sinks.stores.reading.StoreReader.read`."""
        if not self._is_there:
            return Standing({})
        with translate_errors(self._where), self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._connection.execute(_TEXT_FORMATS)
            standing = self._read_standing()
            for piece in self._read_pieces():
                for table in self._parse(piece):
                    accept(table)
        return standing

    def keep(self, rows: Rows, partition: int) -> pa.Table:
        """See :meth:`sinks.stores.reading.StoreReader.keep`."""
        typed = make_typed_table(rows, self._columns)
        for name, kind in self._text_types.items():
            sent = typed.column(name).cast(pa.string()).to_pylist()
            try:
                with translate_errors(self._where):
                    kept = self._convert_texts(sent, kind)
            except psycopg.Error:
                raise RowsRefused(find_refusals(rows, partial(self._why_wrong, name, kind))) from None
            typed = typed.set_column(typed.column_names.index(name), name, pa.array(kept, pa.string()))
        return typed

    def _read_standing(self) -> Standing:
        table = self._target.name.beside(PROGRESS_TABLE)
        if not self._has_relation(table):
            return Standing({})
        query = sql.SQL("SELECT topic, partition, topic_id, position, log_offset FROM {} WHERE table_name = %s").format(table)
        stored = self._connection.execute(query, [self._target.name.table]).fetchall()
        progress = {partition: Progress(*rest) for topic, partition, *rest in stored if topic == self._stream.name}
        return Standing(progress, is_shared=any(topic != self._stream.name for topic, *_ in stored))

    def _read_pieces(self) -> Iterator[bytes]:
        """Yield the rows as CSV, whole rows each time."""
        chosen = [
            sql.SQL("{}::text" if name in self._text_types else "{}").format(sql.Identifier(target_column))
            for (name, _), target_column in zip(self._columns, self._target.columns, strict=True)
        ]
        statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)")
        lines, size = [], 0
        with (
            self._connection.cursor() as cursor,
            cursor.copy(statement.format(sql.SQL(", ").join(chosen), self._target.name.identifier)) as copy,
        ):
            # The server sends one row in each message.
            for line in copy:
                lines.append(bytes(line))
                size += len(line)
                if size >= _PIECE_BYTES:
                    yield b"".join(lines)
                    lines, size = [], 0
        if lines:
            yield b"".join(lines)

    def _parse(self, piece: bytes) -> Iterator[pa.Table]:
        try:
            yield self._read_csv(piece, self._schema)
        except pa.ArrowException:
            # Some row has a value that no result can have, such as the time 'infinity': that row stays text.
            texts = self._read_csv(piece, pa.schema([pa.field(name, pa.string()) for name in self._schema.names]))
            for row in range(len(texts)):
                single = texts.slice(row, 1)
                try:
                    yield pa.table([_typed(single.column(field.name), field.type) for field in self._schema], schema=self._schema)
                except pa.ArrowException:
                    yield single

    def _read_csv(self, piece: bytes, schema: pa.Schema) -> pa.Table:
        return pa.csv.read_csv(
            io.BytesIO(piece),
            read_options=pa.csv.ReadOptions(column_names=schema.names, use_threads=False, block_size=max(len(piece), 1)),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pa.csv.ConvertOptions(
                column_types=schema,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )

    def _convert_texts(self, sent: Sequence[str | None], kind: str) -> list[str | None]:
        """Return the server's text for values in a column of a type. Raises psycopg.Error: one is no value of that type."""
        query = sql.SQL("SELECT value::{}::text FROM unnest(%s::text[]) WITH ORDINALITY AS sent (value, place) ORDER BY place")
        with self._connection.transaction():
            self._connection.execute(_TEXT_FORMATS)
            return [text for (text,) in self._connection.execute(query.format(sql.SQL(kind)), [list(sent)])]

    def _why_wrong(self, name: str, kind: str, rows: Rows) -> str | None:
        try:
            self._convert_texts(make_typed_table(rows, self._columns).column(name).cast(pa.string()).to_pylist(), kind)
        except psycopg.Error as error:
            if not is_about_rows(error):
                raise
            return message_of(error)
        return None

    def _has_relation(self, name: sql.Identifier) -> bool:
        return self._connection.execute("SELECT to_regclass(%s)", [self._text(name)]).fetchone() != (None,)

    def _text(self, name: sql.Identifier) -> str:
        return name.as_string(self._connection)


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_boolean(kind):
        return pa.chunked_array([pa.array([None if text is None else text == "t" for text in column.to_pylist()], kind)])
    return column.cast(kind)
