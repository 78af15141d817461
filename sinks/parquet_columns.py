"""
The columns of Parquet files: the query's columns with their types.

Law: names and types of the columns follow from the query alone, never from the rows of a file. So all files of a query have the same
columns, wherever batches and spans were cut. A column of records or arrays, or whose type the query does not fix (``any``), is text that
holds each value as JSON: the number 7 is ``7``, the text 7 is ``"7"``. NULL is null in every column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

# Name and type of a column, as a script spells types.
Column = tuple[str, str]

_TYPES = {
    "bit": pa.bool_(),
    "bigint": pa.int64(),
    "float": pa.float64(),
    "datetime": pa.timestamp("us", tz="UTC"),
    "nvarchar(max)": pa.string(),
}
_SPACE = re.compile(r"[ \t\r\n]*")
# Python refuses to read integers of thousands of digits; a bigint has at most 20 characters.
_DIGITS_MAX = 20
_scan = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) <= _DIGITS_MAX else float(digits)).scan_once  # type: ignore[attr-defined]


def are_known(columns: Sequence[Column]) -> bool:
    """Return whether the columns follow from the query: not if it selects all members of an event (``*``)."""
    return bool(columns) and all(name != "*" for name, _ in columns)


def make_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the columns of a file; :func:`are_known` must be true of them."""
    return pa.schema([(name, _TYPES.get(kind, pa.string())) for name, kind in columns])


def make_table(values: Sequence[bytes], columns: Sequence[Column]) -> pa.Table:
    """Return results, JSON objects, as a table. Raises ``pa.ArrowException`` or ValueError: a value has not the type of its column."""
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
