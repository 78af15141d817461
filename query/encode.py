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

import pyarrow as pa
import pyarrow.compute as pc

from ordering import keys
from ordering.ticks import DAY_US, format_tick
from query.splicing import STAR, spliced
from tidegate.runtime.scalars.kinds import Kind
from tidegate.runtime.scalars.variant import Variant

_FOUR_CENTURIES_US = 146_097 * DAY_US
"""After so long the calendar repeats itself."""
_ESCAPED = '["\\\\\\x00-\\x1f]'


def encode_objects(names: Sequence[str], columns: Sequence[Variant], length: int) -> pa.Array:
    """Encode *length* rows as JSON objects (binary); of a column named ``*`` see :mod:`query.splicing`."""
    return spliced(names, columns, length, _objects, _strings) if STAR in names else _objects(names, columns, length)


def _objects(names: Sequence[str], columns: Sequence[Variant], length: int) -> pa.Array:
    pieces: list[pa.Array | pa.Scalar] = []
    for at, (name, column) in enumerate(zip(names, columns, strict=True)):
        pieces += [pa.scalar(("," if at else "{") + json.dumps(name, ensure_ascii=False) + ":"), json_values(column)]
    return _joined([*pieces, pa.scalar("}")], length)


def encode_keys(columns: Sequence[Variant], length: int) -> pa.Array:
    """Encode *length* keys (binary)."""
    if not columns:
        return pa.array([b""] * length, pa.binary())
    if len(columns) == 1:
        return pc.fill_null(_first(_key_texts(columns[0]), length), "").cast(pa.binary())
    pieces: list[pa.Array | pa.Scalar] = []
    for at, column in enumerate(columns):
        pieces += [pa.scalar("," if at else "["), json_values(column)]
    return _joined([*pieces, pa.scalar("]")], length)


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
    if pc.any(pc.match_substring_regex(part, _ESCAPED)).as_py():
        return _each(part, _json_string)
    return quoted


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _floats(part: pa.Array) -> pa.Array:
    return pa.array([None if value is None else repr(value) for value in part.to_pylist()], pa.string())


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
