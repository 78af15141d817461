"""
The columns of results in files and tables: the query's columns with their types.

Law: names and types of the columns follow from the query alone, never from the rows. So all Parquet files of a query have the same
columns, wherever batches and spans were cut. A column of records or arrays, or whose type the query does not fix (``any``), is text that
holds each value as JSON: the number 7 is ``7``, the text 7 is ``"7"``. NULL is null in every column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from tidegate.language.json_columns import json_fields
from tidegate.language.json_columns.json_fields import MemberPath

# Name and type of a column, as a script spells types.
Column = tuple[str, str]

_TYPES = {
    "bit": pa.bool_(),
    "bigint": pa.int64(),
    "float": pa.float64(),
    "datetime": pa.timestamp("us", tz="UTC"),
    "nvarchar(max)": pa.string(),
}
# The JSON kind of a column's values, by the types of columns. Columns of other types (any, record, array) hold JSON text.
_JSON_KINDS = {
    "bigint": json_fields.BIGINT,
    "float": json_fields.FLOAT,
    "datetime": json_fields.TEXT,
    "nvarchar(max)": json_fields.TEXT,
    "bit": json_fields.TRUE,
}
_NEWLINE = pa.scalar(b"\n", pa.binary())
_SPACE = re.compile(r"[ \t\r\n]*")
# Python refuses to read integers of thousands of digits; a bigint has at most 20 characters.
_DIGITS_MAX = 20
_scan = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) <= _DIGITS_MAX else float(digits)).scan_once  # type: ignore[attr-defined]


def are_known(columns: Sequence[Column]) -> bool:
    """Return whether the columns follow from the query: not if it selects all members of an event (``*``)."""
    return bool(columns) and all(name != "*" for name, _ in columns)


def make_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the columns of a table; :func:`are_known` must be true of them."""
    return pa.schema([(name, _TYPES.get(kind, pa.string())) for name, kind in columns])


def make_table(values: pa.ChunkedArray, columns: Sequence[Column]) -> pa.Table:
    """Return results, JSON objects, as a table. Raises ``pa.ArrowException`` or ValueError: a value has not the type of its column."""
    tables = [_read_values(chunk, columns) for chunk in values.chunks]
    return pa.concat_tables(tables) if tables else make_schema(columns).empty_table()


def _read_values(values: pa.Array, columns: Sequence[Column]) -> pa.Table:
    if len(values):
        for read in (_walk_json, _parse_json):
            # After an error the slow way below reads the values, or says what is wrong.
            with suppress(pa.ArrowException):
                return read(values, columns)
    return scan_values(values.to_pylist(), columns)


def scan_values(values: Sequence[bytes], columns: Sequence[Column]) -> pa.Table:
    """Return what :func:`make_table` does, read row by row: what is in no way plain, and the model of the fast ways."""
    place = {name: number for number, (name, _) in enumerate(columns)}
    is_json = [kind not in _TYPES for _, kind in columns]
    cells: list[list[Any]] = [[None] * len(values) for _ in columns]
    for row, value in enumerate(values):
        try:
            found = list(members(value.decode("utf-8")))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        for name, member, text in found:
            if name not in place:
                raise ValueError(f"there is no column {name}")
            if member is not None:
                cells[place[name]][row] = text if is_json[place[name]] else member
    schema = make_schema(columns)
    return pa.table([_make_array(column, field.type) for column, field in zip(cells, schema, strict=True)], schema=schema)


def _make_array(cells: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        # Times are ISO-8601 text in JSON.
        return pa.array(cells, pa.string()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(cells, kind)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def members(text: str) -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and JSON text of each member of an object."""
    at = _skip_space(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = _scan(text, at)
        at = _skip_space(text, text.index(":", at) + 1)
        value, end = _scan(text, at)
        yield name, value, text[at:end]
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None, "the pattern matches the empty text too"
    return match.end()


def _walk_json(values: pa.Array, columns: Sequence[Column]) -> pa.Table:
    """Read values in C, several times as fast as pyarrow. Raises ``pa.ArrowException``: C does not read all of them."""
    wanted = tuple(MemberPath((name,), is_exact=True, is_raw=kind not in _JSON_KINDS) for name, kind in columns)
    found = json_fields.read_members(values, wanted)
    if found is None or (found.status | json_fields.NESTED != json_fields.READ | json_fields.NESTED).any():
        raise pa.ArrowInvalid("a value is not plain JSON, or has members of other names")
    kinds = [_JSON_KINDS.get(kind, json_fields.TEXT) for _, kind in columns]
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
    if not all(kind in _JSON_KINDS for _, kind in columns):
        raise pa.ArrowInvalid("pyarrow does not keep the JSON text of a value")
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
