"""
Encoding: result columns -> the bytes of each result's key and value.

The bytes are fixed, because results must be the same bytes on every replay: one JSON object without spaces, members in SELECT order; a
bigint in decimal digits; a float as Python's shortest text that reads back as the same float; bit as true or false; a datetime as ISO-8601
with Z and no, three or six fraction digits; text with only quote, backslash and characters below U+0020 escaped; records and arrays as
compact JSON; NULL as null.

A key holds the form that all equal values share (:mod:`query.columns.same_values`), so 1 and 1.0 are one key whatever the types of their
columns. A key of one value has the bytes of a substream key (text as UTF-8, the empty text as two quotes, a whole number in
digits, true or false, anything else canonical JSON, NULL as zero bytes); several values make a JSON array, none makes zero bytes. An
integer beyond 64 bits is a float here; with OVER the bucket replaces this key by the substream's own key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.protocol.keys import EMPTY_TEXT
from ordering.ticks import DAY_US, format_tick
from query.columns.same_values import canonicalize, map_distinct
from query.columns.splicing import STAR, splice_objects
from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant
from tidegate.language.json_columns import json_rows

# The calendar repeats itself after this time.
_FOUR_CENTURIES_US = 146_097 * DAY_US
# Fewer floats are written one by one: a query of DuckDB costs more than they do.
_PYTHON_FLOATS_MAX = 256
_NUMBERS = {Kind.BIGINT: json_rows.INTEGER, Kind.FLOAT: json_rows.FLOAT, Kind.DATETIME: json_rows.DATETIME}
# Which bytes of UTF-8 JSON escapes.
_IS_ESCAPED = np.isin(np.arange(256), [*range(0x20), ord('"'), ord("\\")])


def encode_objects(names: Sequence[str], columns: Sequence[Variant], length: int) -> pa.Array:
    """Encode *length* rows as JSON objects (binary); for a column named ``*`` see :mod:`query.columns.splicing`."""
    if STAR in names:
        return splice_objects(names, columns, length, _encode_plain_objects, _write_strings)
    return _encode_plain_objects(names, columns, length)


def _encode_plain_objects(names: Sequence[str], columns: Sequence[Variant], length: int) -> pa.Array:
    prefixes = [("," if place else "{") + json.dumps(name, ensure_ascii=False) + ":" for place, name in enumerate(names)]
    return _join_rows(prefixes, columns, "}", length)


def encode_keys(columns: Sequence[Variant], length: int) -> pa.Array:
    """Encode *length* keys (binary); keys of the same values have the same bytes."""
    if not columns:
        return pa.array([b""] * length, pa.binary())
    if len(columns) == 1:
        return pc.fill_null(_first_text(_key_texts(columns[0]), length), "").cast(pa.binary())
    return _join_rows(["," if place else "[" for place in range(len(columns))], [canonicalize(column) for column in columns], "]", length)


def encode_over_keys(columns: Sequence[Variant], length: int) -> pa.Array:
    """Encode *length* substream keys as ingest does: several columns as a JSON array of the texts that each column alone would give."""
    if len(columns) < 2:
        return encode_keys(columns, length)
    texts = [encode_keys([column], length).cast(pa.string()) for column in columns]
    return encode_keys([Variant.of(length, {Kind.NVARCHAR: text}) for text in texts], length)


def json_values(column: Variant) -> pa.Array:
    """Return each value of a column as JSON text."""
    texts = [_WRITERS[kind](part) for kind, part in column.parts.items()]
    return pc.fill_null(_first_text(texts, column.length), "null")


def _key_texts(column: Variant) -> list[pa.Array]:
    plain = {Kind.NVARCHAR: _tell_from_null, Kind.DATETIME: _write_datetimes}
    return [plain.get(kind, _WRITERS[kind])(part) for kind, part in canonicalize(column).parts.items()]


def _tell_from_null(part: pa.Array) -> pa.Array:
    """Return texts as they are, but the empty one as two quotes: NULL has no bytes."""
    is_empty = pc.equal(pc.binary_length(part), 0)
    return pc.if_else(is_empty, EMPTY_TEXT.decode(), part) if pc.any(is_empty).as_py() else part


def _join_rows(prefixes: Sequence[str], columns: Sequence[Variant], suffix: str, length: int) -> pa.Array:
    """Return rows of values, each after its prefix, with the suffix at the end."""
    native = json_rows.library()
    if native is not None and columns:
        json_columns = [
            json_rows.JsonColumn(text.encode(), *_cheapest_form(column)) for text, column in zip(prefixes, columns, strict=True)
        ]
        written = json_rows.write_rows(native, json_columns, suffix.encode(), length, lambda place: json_values(columns[place]))
        if written is not None:
            return written
    pieces: list[pa.Array | pa.Scalar] = []
    for text, column in zip(prefixes, columns, strict=True):
        pieces += [pa.scalar(text), json_values(column)]
    return _join_pieces([*pieces, pa.scalar(suffix)], length)


def _cheapest_form(column: Variant) -> tuple[int, pa.Array]:
    """Return the cheapest way to write a column's values, and the values for it."""
    if len(column.parts) == 1:
        ((kind, part),) = column.parts.items()
        if kind in _NUMBERS:
            return _NUMBERS[kind], part
        if kind is Kind.NVARCHAR and pa.types.is_string(part.type) and not _IS_ESCAPED[_utf8_bytes(part)].any():
            return json_rows.QUOTED, part
    return json_rows.TEXT, json_values(column).cast(pa.string())


def _join_pieces(pieces: Sequence[pa.Array | pa.Scalar], length: int) -> pa.Array:
    if not length:
        return pa.array([], pa.binary())
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(""))
    if isinstance(joined, pa.Scalar):
        return pa.array([joined.as_py().encode()] * length, pa.binary())
    return joined.cast(pa.binary())


def _first_text(texts: Sequence[pa.Array], length: int) -> pa.Array:
    return pc.coalesce(*texts) if texts else pa.nulls(length, pa.string())


def _write_strings(part: pa.Array) -> pa.Array:
    if _IS_ESCAPED[_utf8_bytes(part)].any():
        return map_distinct(part, lambda text: json.dumps(text, ensure_ascii=False))
    return _quote(part)


def _quote(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), texts, pa.scalar('"'), pa.scalar(""))


def _utf8_bytes(part: pa.Array) -> NDArray[np.uint8]:
    wide = pa.types.is_large_string(part.type)
    _, ends, data = part.buffers()
    if data is None or not len(part):
        return np.empty(0, dtype=np.uint8)
    edges = np.frombuffer(ends, dtype=np.int64 if wide else np.int32)[part.offset : part.offset + len(part) + 1]
    return np.frombuffer(data, dtype=np.uint8)[edges[0] : edges[-1]]


def _write_floats(part: pa.Array) -> pa.Array:
    if len(part) < _PYTHON_FLOATS_MAX:
        return pa.array([None if value is None else repr(value) for value in part.to_pylist()], pa.string())
    # DuckDB writes floats as Python does, the shortest text that reads back, a column at a time.
    return run("SELECT CAST(v AS VARCHAR) AS text FROM input", input=pa.table({"v": part}))["text"].combine_chunks()


def _write_datetimes(part: pa.Array) -> pa.Array:
    return map_distinct(part, _format_iso8601)


def _format_iso8601(tick: int) -> str:
    if tick >= 0:
        return format_tick(tick)
    # format_tick takes ticks from 1970 on; values such as dates of birth can be earlier.
    years = -(tick // _FOUR_CENTURIES_US)
    text = format_tick(tick + years * _FOUR_CENTURIES_US)
    return f"{int(text[:4]) - 400 * years:04}{text[4:]}"


_WRITERS: dict[Kind, Callable[[pa.Array], pa.Array]] = {
    Kind.BIT: lambda part: part.cast(pa.string()),
    Kind.BIGINT: lambda part: part.cast(pa.string()),
    Kind.FLOAT: _write_floats,
    Kind.DATETIME: lambda part: _quote(_write_datetimes(part)),
    Kind.NVARCHAR: _write_strings,
    Kind.RECORD: lambda part: part,
    Kind.ARRAY: lambda part: part,
}
