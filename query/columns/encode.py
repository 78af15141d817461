"""
Encoding: result columns -> the bytes of each result's key and value.

The bytes are pinned, because results must be the same bytes on every replay: one JSON object without spaces, members in
SELECT order; a bigint in decimal digits; a float as Python's shortest text that reads back as the same float; bit as
true or false; a datetime as ISO-8601 with Z and none, three or six fraction digits; text with only quote, backslash and
characters below U+0020 escaped; records and arrays as compact JSON; NULL as null.

A key is one value as substream key bytes (spec section 1: text as UTF-8, a bigint in digits, true or false, anything
else canonical JSON, NULL as zero bytes); several values make a JSON array, none makes zero bytes. An integer beyond 64
bits is a float here; with OVER the bucket puts the substream's own key in place of this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.protocol import keys
from ordering.ticks import DAY_US, format_tick
from query.columns.splicing import STAR, spliced
from tidegate.expressions.duckdb_pool import run
from tidegate.expressions.kinds import Kind
from tidegate.expressions.variant import Variant
from tidegate.json_columns import json_rows

_FOUR_CENTURIES_US = 146_097 * DAY_US
"""After so long the calendar repeats itself."""
_FEW = 256
"""So few floats are written one by one."""
_NUMBERS = {Kind.BIGINT: json_rows.INTEGER, Kind.FLOAT: json_rows.FLOAT}
_ESCAPED = np.isin(np.arange(256), [*range(0x20), ord('"'), ord("\\")])
"""Which bytes of UTF-8 are written in another way in JSON."""


def encode_objects(names: Sequence[str], columns: Sequence[Variant], length: int) -> pa.Array:
    """Encode *length* rows as JSON objects (binary); of a column named ``*`` see :mod:`query.columns.splicing`."""
    return spliced(names, columns, length, _objects, _strings) if STAR in names else _objects(names, columns, length)


def _objects(names: Sequence[str], columns: Sequence[Variant], length: int) -> pa.Array:
    before = [("," if at else "{") + json.dumps(name, ensure_ascii=False) + ":" for at, name in enumerate(names)]
    return _rows(before, columns, "}", length)


def encode_keys(columns: Sequence[Variant], length: int) -> pa.Array:
    """Encode *length* keys (binary)."""
    if not columns:
        return pa.array([b""] * length, pa.binary())
    if len(columns) == 1:
        return pc.fill_null(_first(_key_texts(columns[0]), length), "").cast(pa.binary())
    return _rows(["," if at else "[" for at in range(len(columns))], columns, "]", length)


def json_values(column: Variant) -> pa.Array:
    """Return each value of a column as JSON text."""
    texts = [_WRITERS[kind](part) for kind, part in column.parts.items()]
    return pc.fill_null(_first(texts, column.length), "null")


def canonical(column: Variant) -> Variant:
    """Return the column with records and arrays written canonically: members sorted by name, no spaces."""
    if not {Kind.RECORD, Kind.ARRAY} & set(column.kinds):
        return column
    parts = {kind: _each(part, keys.canonical) if kind in (Kind.RECORD, Kind.ARRAY) else part for kind, part in column.parts.items()}
    return Variant.of(column.length, parts)


def _key_texts(column: Variant) -> list[pa.Array]:
    plain = {Kind.NVARCHAR: lambda part: part, Kind.DATETIME: _datetimes}
    return [plain.get(kind, _WRITERS[kind])(part) for kind, part in canonical(column).parts.items()]


def _rows(before: Sequence[str], columns: Sequence[Variant], after: str, length: int) -> pa.Array:
    """Return rows of values, each with what stands *before* it, and *after* at the end."""
    native = json_rows.library()
    if native is not None and columns:
        given = [json_rows.Values(text.encode(), *_plainest(column)) for text, column in zip(before, columns, strict=True)]
        written = json_rows.written(native, given, after.encode(), length, lambda at: json_values(columns[at]))
        if written is not None:
            return written
    pieces: list[pa.Array | pa.Scalar] = []
    for text, column in zip(before, columns, strict=True):
        pieces += [pa.scalar(text), json_values(column)]
    return _joined([*pieces, pa.scalar(after)], length)


def _plainest(column: Variant) -> tuple[int, pa.Array]:
    """Return how the values of a column are written with the least work, and what of them."""
    if len(column.parts) == 1:
        ((kind, part),) = column.parts.items()
        if kind in _NUMBERS:
            return _NUMBERS[kind], part
        if kind is Kind.NVARCHAR and pa.types.is_string(part.type) and not _ESCAPED[_octets(part)].any():
            return json_rows.QUOTED, part
    return json_rows.TEXT, json_values(column).cast(pa.string())


def _joined(pieces: Sequence[pa.Array | pa.Scalar], length: int) -> pa.Array:
    if not length:
        return pa.array([], pa.binary())
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(""))
    if isinstance(joined, pa.Scalar):
        return pa.array([joined.as_py().encode()] * length, pa.binary())
    return joined.cast(pa.binary())


def _first(texts: Sequence[pa.Array], length: int) -> pa.Array:
    return pc.coalesce(*texts) if texts else pa.nulls(length, pa.string())


def _each(part: pa.Array, write: Callable[[str], str]) -> pa.Array:
    """Apply *write* to each distinct value of a column of strings."""
    distinct = part.dictionary_encode()
    return pa.array([write(text) for text in distinct.dictionary.to_pylist()], pa.string()).take(distinct.indices)


def _strings(part: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise(pa.scalar('"'), part, pa.scalar('"'), pa.scalar(""))
    if _ESCAPED[_octets(part)].any():
        return _each(part, _json_string)
    return quoted


def _octets(part: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of all strings of a column, one string after the other."""
    wide = pa.types.is_large_string(part.type)
    _, ends, octets = part.buffers()
    if octets is None or not len(part):
        return np.empty(0, dtype=np.uint8)
    at = np.frombuffer(ends, dtype=np.int64 if wide else np.int32)[part.offset : part.offset + len(part) + 1]
    return np.frombuffer(octets, dtype=np.uint8)[at[0] : at[-1]]


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _floats(part: pa.Array) -> pa.Array:
    if len(part) < _FEW:
        return pa.array([None if value is None else repr(value) for value in part.to_pylist()], pa.string())
    # DuckDB writes floats as Python does, a column at a time.
    return run("SELECT CAST(v AS VARCHAR) AS text FROM input", input=pa.table({"v": part}))["text"].combine_chunks()


def _datetimes(part: pa.Array) -> pa.Array:
    distinct = part.dictionary_encode()
    return pa.array([_iso8601(tick) for tick in distinct.dictionary.to_pylist()], pa.string()).take(distinct.indices)


def _iso8601(tick: int) -> str:
    if tick >= 0:
        return format_tick(tick)
    # Event times begin in 1970, dates of birth do not.
    years = -(tick // _FOUR_CENTURIES_US)
    text = format_tick(tick + years * _FOUR_CENTURIES_US)
    return f"{int(text[:4]) - 400 * years:04}{text[4:]}"


def _quoted_datetimes(part: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), _datetimes(part), pa.scalar('"'), pa.scalar(""))


_WRITERS: dict[Kind, Callable[[pa.Array], pa.Array]] = {
    Kind.BIT: lambda part: part.cast(pa.string()),
    Kind.BIGINT: lambda part: part.cast(pa.string()),
    Kind.FLOAT: _floats,
    Kind.DATETIME: _quoted_datetimes,
    Kind.NVARCHAR: _strings,
    Kind.RECORD: lambda part: part,
    Kind.ARRAY: lambda part: part,
}
