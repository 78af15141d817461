"""
Avro: payload bytes -> fields, by a schema from a file or from a registry.

Law: a payload is exactly one value of the schema; anything else is bad. The names of a path are names of record fields or map keys; the
exact spelling counts, else the first that differs in case only. Integers are bigints, dates and timestamps datetimes, floats and decimals
floats; text, enumerations and UUIDs are text; bytes are text in hexadecimal digits; records, maps and arrays are kept as compact JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.ticks import TICK_MAX, TICK_MIN, format_tick
from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText
from tidegate.language.expressions.field_columns import NO_PAYLOAD, FieldColumns
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.language.expressions.variant import Variant, finite, gather
from tidegate.records.payloads.avro_layout import AvroSchema, weigh
from tidegate.records.payloads.avro_schema import Moment

NOT_AVRO = QueryReason.NOT_AVRO.text()
# The weight of the values that are decoded at a time.
DECODED_WEIGHT = 1_000_000


class AvroReader:
    """Reads payloads that are values of one schema (:func:`~tidegate.records.payloads.avro_schema.parse_avro_schema`)."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        reasons = dict.fromkeys(np.flatnonzero(payloads.is_null().to_numpy(zero_copy_only=False)).tolist(), NO_PAYLOAD)
        rows = np.flatnonzero(payloads.is_valid().to_numpy(zero_copy_only=False))
        pieces = read_rows(self._schema, payloads, rows, fields, reasons)
        return join_rows(len(payloads), pieces, fields, reasons)


# Some rows, and the values of each field in these rows.
Piece = tuple[Ints, list[Variant]]


def read_rows(
    schema: AvroSchema, payloads: pa.Array, rows: Ints, fields: Sequence[Field], reasons: dict[int, ReasonText], skipped: int = 0
) -> Iterator[Piece]:
    """
    Yield *fields* of the *rows* whose payloads, without their first *skipped* bytes, are values of *schema*; add the others to *reasons*.

    Values of a limited weight are decoded at a time, which bounds the memory of a batch whatever values its payloads expand to.
    """
    weights = weigh(schema, payloads if len(rows) == len(payloads) else payloads.take(pa.array(rows)), skipped)
    cuts = np.flatnonzero(np.diff(np.cumsum(np.maximum(weights, 0)) // DECODED_WEIGHT)) + 1
    for chosen, chosen_weights in zip(np.split(rows, cuts), np.split(weights, cuts), strict=True):
        good = chosen[chosen_weights >= 0]
        reasons |= dict.fromkeys(chosen[chosen_weights < 0].tolist(), NOT_AVRO)
        data = payloads.to_pylist() if len(good) == len(payloads) else payloads.take(pa.array(good)).to_pylist()
        read, values = _decode(schema.parsed, good.tolist(), data, skipped)
        reasons |= dict.fromkeys(set(good.tolist()) - set(read) if len(read) < len(good) else (), NOT_AVRO)
        yield np.array(read, dtype=np.int64), [_variant(_members(values, field.path)) for field in fields]


def join_rows(length: int, pieces: Iterable[Piece], fields: Sequence[Field], reasons: dict[int, ReasonText]) -> FieldColumns:
    """Return the *fields* of all rows; reading *pieces* may add to *reasons*."""
    read = list(pieces)
    columns = {field: gather(length, [(rows, columns[at]) for rows, columns in read]) for at, field in enumerate(fields)}
    return FieldColumns.of(columns, reasons)


def _decode(parsed: Any, rows: Sequence[int], payloads: Sequence[bytes], skipped: int) -> tuple[list[int], list[Any]]:
    """Return the rows whose text is UTF-8, and their values."""
    read, values = [], []
    for row, payload in zip(rows, payloads, strict=True):
        try:
            values.append(fastavro.schemaless_reader(BytesIO(payload[skipped:]), parsed, None))
            read.append(row)
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, ArithmeticError, MemoryError):
            continue
    return read, values


def _members(values: Sequence[Any], path: Sequence[str]) -> Sequence[Any]:
    for name in path:
        try:
            values = [None if value is None else value[name] for value in values]
        except (KeyError, TypeError, IndexError):
            folded = name.lower()
            values = [_member(value, name, folded) for value in values]
    return values


def _member(value: Any, name: str, folded: str) -> Any:
    if not isinstance(value, dict):
        return None
    if name in value:
        return value[name]
    return next((inner for key, inner in value.items() if key.lower() == folded), None)


def _json_text(value: Any) -> str:
    return json.dumps(_json_value(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _json_value(value: Any) -> Any:
    """Return *value* as it is written inside a record or array."""
    if isinstance(value, dict):
        return {name: _json_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_json_value(inner) for inner in value]
    if isinstance(value, Moment):
        return format_tick(value) if TICK_MIN <= value <= TICK_MAX else int(value)
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and not float("-inf") < value < float("inf") else value


_KINDS: dict[type, tuple[Kind, Callable[[Any], Any] | None]] = {
    bool: (Kind.BIT, None),
    int: (Kind.BIGINT, None),
    float: (Kind.FLOAT, None),
    Moment: (Kind.DATETIME, None),
    str: (Kind.NVARCHAR, None),
    bytes: (Kind.NVARCHAR, bytes.hex),
    dict: (Kind.RECORD, _json_text),
    list: (Kind.ARRAY, _json_text),
}


def _variant(values: Sequence[Any]) -> Variant:
    parts: dict[Kind, pa.Array] = {}
    present = set(map(type, values)) - {type(None)}
    for kind in dict.fromkeys(_KINDS[python][0] for python in present):
        of_kind = {python: _KINDS[python][1] for python in present if _KINDS[python][0] is kind}
        if len(of_kind) == len(present) and not any(of_kind.values()):
            chosen: Sequence[Any] = values
        else:
            chosen = [_convert(value, of_kind) for value in values]
        column = pa.array(chosen, kind.arrow)
        parts[kind] = finite(column) if kind is Kind.FLOAT else column
    return Variant.of(len(values), parts)


def _convert(value: Any, of_kind: Mapping[type, Callable[[Any], Any] | None]) -> Any:
    if type(value) not in of_kind:
        return None
    convert = of_kind[type(value)]
    return value if convert is None else convert(value)
