"""
Avro: payload bytes -> fields, by a schema from a file or from a registry.

Law: a payload is exactly one value of the schema; anything else is bad. The names of a path are names of record fields or map keys; the
exact spelling counts, else the first that differs in case only. Integers are bigints, dates and timestamps datetimes, floats and decimals
floats; text, enumerations and UUIDs are text; bytes are text in hexadecimal digits; records, maps and arrays are kept as compact JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from ordering.ticks import TICK_MAX, TICK_MIN, format_tick
from tidegate.expressions.field_columns import NO_PAYLOAD, FieldColumns
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Field
from tidegate.expressions.variant import Variant, finite
from tidegate.payloads.avro_schema import Moment

NOT_AVRO = "payload is not one value of the Avro schema"


class AvroReader:
    """Reads payloads that are values of one schema (:func:`~tidegate.payloads.avro_schema.parse_avro_schema`)."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        reasons: dict[int, str] = {}
        values: list[Any] = [None] * len(payloads)
        for row, payload in enumerate(payloads.to_pylist()):
            if payload is None:
                reasons[row] = NO_PAYLOAD
            elif (read := read_value(self._schema, payload)) is None:
                reasons[row] = NOT_AVRO
            else:
                (values[row],) = read
        return extract_columns(values, fields, reasons)


def read_value(schema: Any, payload: bytes, start: int = 0) -> tuple[Any] | None:
    """Return the value in *payload* from *start* to its end, in a tuple; None if the bytes are not one value of *schema*."""
    source = BytesIO(payload)
    source.seek(start)
    try:
        value = fastavro.schemaless_reader(source, schema, None)
    except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, ArithmeticError, MemoryError):
        return None
    return (value,) if source.tell() == len(payload) else None


def extract_columns(values: Sequence[Any], fields: Sequence[Field], reasons: Mapping[int, str]) -> FieldColumns:
    """Extract *fields* from decoded rows; a bad row is None."""
    return FieldColumns.of({field: _variant(_members(values, field.path)) for field in fields}, reasons)


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
