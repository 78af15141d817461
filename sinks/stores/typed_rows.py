"""
Results as a table with the query's columns and types.

Law: the table equals that of :func:`sinks.parquet_columns.make_table`; it is only made faster if every column has a type of its own. The
rows that do not fit are refused, each with the reason, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sinks.parquet_columns import Column, make_schema, make_table
from sinks.stores.base import Rows, RowsRefused, find_refusals
from tidegate.language.json_columns import json_fields
from tidegate.language.json_columns.json_fields import MemberPath

# The JSON kind of a column's values, by the types of columns that the fast parsers read exactly as we do. Columns of other types (any,
# record, array) hold JSON text, which these parsers do not keep.
_JSON_KINDS = {
    "bigint": json_fields.BIGINT,
    "float": json_fields.FLOAT,
    "datetime": json_fields.TEXT,
    "nvarchar(max)": json_fields.TEXT,
    "bit": json_fields.TRUE,
}
_NEWLINE = pa.scalar(b"\n", pa.binary())


def make_typed_table(rows: Rows, columns: Sequence[Column]) -> pa.Table:
    """Return *rows* as a table. Raises RowsRefused: a value has not the type of its column, or a row has an unknown column."""
    if len(rows) and all(kind in _JSON_KINDS for _, kind in columns):
        for read in (_walk_json, _parse_json):
            # After an error the slow way below reads the rows, or says which are wrong.
            with suppress(pa.ArrowException):
                return read(rows.value, columns)
    try:
        return make_table(rows.value.to_pylist(), columns)
    except (pa.ArrowException, ValueError):
        raise RowsRefused(find_refusals(rows, lambda part: _why_wrong(part, columns))) from None


def _why_wrong(rows: Rows, columns: Sequence[Column]) -> str | None:
    try:
        make_table(rows.value.to_pylist(), columns)
    except (pa.ArrowException, ValueError) as error:
        return str(error)
    return None


def _walk_json(values: pa.Array, columns: Sequence[Column]) -> pa.Table:
    """Read values in C, several times as fast as pyarrow. Raises ``pa.ArrowException``: C does not read all of them."""
    found = json_fields.read_members(values, tuple(MemberPath((name,), is_exact=True) for name, _ in columns))
    if found is None or (found.status != json_fields.READ).any():
        raise pa.ArrowInvalid("a value is not plain JSON, or has members of other names")
    kinds = [_JSON_KINDS[kind] for _, kind in columns]
    schema = make_schema(columns)
    arrays = [_as_typed(*column, len(values)) for column in zip(found.columns, kinds, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)


def _as_typed(parts: dict[int, pa.Array], kind: int, arrow: pa.DataType, length: int) -> pa.Array:
    if kind == json_fields.FLOAT and json_fields.BIGINT in parts:
        integers = parts.pop(json_fields.BIGINT).cast(arrow)
        parts[kind] = pc.coalesce(parts[kind], integers) if kind in parts else integers
    if parts.keys() - {kind}:
        raise pa.ArrowInvalid("a value is of another type than its column")
    return parts[kind].cast(arrow) if parts else pa.nulls(length, arrow)


def _parse_json(values: pa.Array, columns: Sequence[Column]) -> pa.Table:
    schema = make_schema(columns)
    # Times are text in JSON, and pyarrow would read numbers as times.
    read_as = pa.schema([(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type) for field in schema])
    lines = pa.LargeListArray.from_arrays(np.array([0, len(values)]), values.cast(pa.large_binary()))
    text = pc.binary_join(lines, _NEWLINE.cast(pa.large_binary()))[0].as_buffer()
    table = pa.json.read_json(
        pa.BufferReader(text),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=max(text.size, 1)),
        parse_options=pa.json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="error"),
    )
    if table.num_rows != len(values):
        raise pa.ArrowInvalid("a value is not one line")
    return table.cast(schema)
