"""
The rows of a table in an SQLite file, for ``tidegate verify``.

Law: rows and progress are those of one moment. A column with a value that no result can have - SQLite keeps any value in any column - is
compared as text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sinks.extending import Keeps, Progress, Rows, Standing, StoreContext, make_schema, make_typed_table

PROGRESS = "tidegate_progress"
_PIECE_ROWS = 50_000
# What the values of a column are, as a condition that fails for no result.
_IS_RESULT = {
    "bigint": "typeof({0}) IN ('integer', 'null')",
    "float": "typeof({0}) IN ('real', 'integer', 'null')",
    "bit": "{0} IS NULL OR {0} IN (0, 1)",
}
_IS_TEXT = "typeof({0}) IN ('text', 'null')"


class SqliteReader:
    """The rows of *table*, and its progress."""

    key: tuple[str, ...] = ()
    keeps: Keeps = "all"

    def __init__(self, connection: sqlite3.Connection, table: str, context: StoreContext) -> None:
        self._connection, self._table, self._context = connection, table, context
        # Until the connection is closed it sees the file as it is now.
        connection.execute("BEGIN")
        known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        self._is_there, self._has_progress = table in known, PROGRESS in known
        strange = {name for name, kind in context.columns if self._is_there and self._has_strangers(name, kind)}
        # Times stand as text.
        self._schema = pa.schema(
            [
                pa.field(field.name, pa.string()) if field.name in strange or pa.types.is_timestamp(field.type) else field
                for field in make_schema(context.columns)
            ]
        )

    def read(self, accept: Callable[[pa.Table], None]) -> Standing:
        """See :meth:`sinks.extending.StoreReader.read`."""
        if self._is_there:
            names = ", ".join(map(quote, self._schema.names))
            rows = self._connection.execute(f"SELECT {names} FROM {quote(self._table)}")
            while piece := rows.fetchmany(_PIECE_ROWS):
                accept(self._kept(list(zip(*piece, strict=True))))
        if not self._has_progress:
            return Standing({})
        query = f"SELECT topic, partition, topic_id, position, log_offset FROM {PROGRESS} WHERE table_name = ?"
        found = self._connection.execute(query, [self._table]).fetchall()
        ours = self._context.stream.name
        progress = {partition: Progress(*rest) for topic, partition, *rest in found if topic == ours}
        return Standing(progress, is_shared=any(topic != ours for topic, *_ in found))

    def keep(self, rows: Rows, partition: int) -> pa.Table:
        """See :meth:`sinks.extending.StoreReader.keep`."""
        return self._kept([cells(column) for column in make_typed_table(rows, self._context.columns).columns])

    def _has_strangers(self, name: str, kind: str) -> bool:
        condition = _IS_RESULT.get(kind, _IS_TEXT).format(quote(name))
        return self._connection.execute(f"SELECT 1 FROM {quote(self._table)} WHERE NOT ({condition}) LIMIT 1").fetchone() is not None

    def _kept(self, columns: Sequence[Sequence[object]]) -> pa.Table:
        return pa.table([_array(values, field.type) for values, field in zip(columns, self._schema, strict=True)], schema=self._schema)


def cells(column: pa.ChunkedArray) -> list[object]:
    """Return the values of a column as SQLite keeps them."""
    if pa.types.is_timestamp(column.type):
        column = pc.replace_substring(column.cast(pa.string()), " ", "T")
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    values: list[object] = column.to_pylist()
    return values


def quote(name: str) -> str:
    """Return a name as a statement has it."""
    return '"' + name.replace('"', '""') + '"'


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array([None if value is None else str(value) for value in values], kind)
    if pa.types.is_boolean(kind):
        return pa.array([None if value is None else bool(value) for value in values], kind)
    return pa.array(values, kind)
