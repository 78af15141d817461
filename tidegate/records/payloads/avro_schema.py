"""
Avro schemas: checked before a record is read, with dates and timestamps read in microseconds.

Law: an accepted schema reads every payload in time and memory proportional to the payload's length. So two kinds of schema that Avro allows
are refused: a type that contains itself, because its values can be nested as deep as a payload is long, and an array of values without
bytes, because a short payload can claim any number of them. :mod:`tidegate.records.payloads.avro_layout` bounds the values of accepted
schemas.

Dates and timestamps become :class:`Moment` (microseconds since 1970), decimals floats; other logical types are ignored.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import fastavro.read
from fastavro.schema import SchemaParseException, UnknownType

from ordering.errors import SettingError
from ordering.ticks import DAY_US
from tidegate.records.payloads.avro_layout import AvroSchema

# Longest schema accepted.
CHARACTERS_MAX = 1_048_576
# Deepest nesting of types accepted.
DEPTH_MAX = 64
# Most types accepted with all names expanded.
TYPES_MAX = 10_000
# A decimal of more bytes exceeds every float; it becomes NULL.
_DECIMAL_BYTES_MAX = 128
# Members of a schema that hold schemas.
_INNER_SCHEMAS = frozenset({"type", "fields", "items", "values"})
_OWN_PREFIX = "tidegate-"
_YEAR_1_US, _YEAR_9999_END_US = -62_135_596_800_000_000, 253_402_300_799_999_999


class Moment(int):
    """A date or timestamp: microseconds since 1970-01-01T00:00:00Z. A local timestamp is treated as UTC."""


class UnusableSchema(ValueError):
    """A text is no schema, or the schema is refused; ``place`` is ``:line:column`` if known."""

    def __init__(self, why: str, place: str = "") -> None:
        super().__init__(why)
        self.place = place


def _datetime_reader(multiply: int, divide: int = 1) -> Callable[..., Moment | None]:
    def read(value: int, writer: Any = None, reader: Any = None) -> Moment | None:
        us = value * multiply // divide
        return Moment(us) if _YEAR_1_US <= us <= _YEAR_9999_END_US else None

    return read


def _decimal(value: bytes, writer: Any, reader: Any = None) -> float | None:
    if len(value) > _DECIMAL_BYTES_MAX:
        return None
    return float(f"{int.from_bytes(value, 'big', signed=True)}e{-int(writer.get('scale', 0))}")


_READERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("long", "timestamp-millis"): _datetime_reader(1_000),
    ("long", "timestamp-micros"): _datetime_reader(1),
    ("long", "timestamp-nanos"): _datetime_reader(1, 1_000),
    ("long", "local-timestamp-millis"): _datetime_reader(1_000),
    ("long", "local-timestamp-micros"): _datetime_reader(1),
    ("long", "local-timestamp-nanos"): _datetime_reader(1, 1_000),
    ("int", "date"): _datetime_reader(DAY_US),
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
}
# The readers have names of their own, so that other users of fastavro in this process read Avro as before.
fastavro.read.LOGICAL_READERS.update({f"{written}-{_OWN_PREFIX}{logical}": reader for (written, logical), reader in _READERS.items()})


def parse_avro_schema(text: str, named: Mapping[str, str] | None = None) -> AvroSchema:
    """Check a schema (JSON) and return it; *named* are the schemas it refers to, dependencies first."""
    named_types: dict[str, Any] = {}
    for other in (named or {}).values():
        _parse(other, named_types)
    schema = _parse(text, named_types)
    _Sizes(named_types).size_of(schema)
    return AvroSchema.of(schema, named_types)


def _parse(text: str, named_types: dict[str, Any]) -> Any:
    if len(text) > CHARACTERS_MAX:
        raise UnusableSchema(f"the schema has more than {CHARACTERS_MAX} characters")
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise UnusableSchema(f"no JSON: {error.msg}", f":{error.lineno}:{error.colno}") from None
    except (ValueError, RecursionError):
        raise UnusableSchema("the schema is nested too deeply") from None
    _refuse_deep(raw)
    try:
        return fastavro.parse_schema(_with_own_readers(raw), named_schemas=named_types)
    except (SchemaParseException, UnknownType) as error:
        raise UnusableSchema(f"no Avro schema: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # fastavro raises errors of any kind for malformed schemas.
        raise UnusableSchema(f"no Avro schema: {type(error).__name__} {error}") from None


def _refuse_deep(raw: Any) -> None:
    pending = [(raw, 0)]
    while pending:
        value, depth = pending.pop()
        if depth > 4 * DEPTH_MAX:
            raise UnusableSchema("the schema is nested too deeply")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        pending.extend((child, depth + 1) for child in inner)


def _with_own_readers(raw: Any) -> Any:
    """Return the schema with logical types of our own for dates, times and decimals, and without other logical types."""
    if isinstance(raw, list):
        return [_with_own_readers(branch) for branch in raw]
    if not isinstance(raw, dict):
        return raw
    schema = {key: _with_own_readers(value) if key in _INNER_SCHEMAS else copy.copy(value) for key, value in raw.items()}
    logical, written = schema.pop("logicalType", None), schema.get("type")
    if isinstance(written, str) and isinstance(logical, str) and (written, logical) in _READERS:
        schema["logicalType"] = f"{_OWN_PREFIX}{logical}"
    return schema


@dataclass(frozen=True, slots=True)
class _Size:
    """Whether a value may take no bytes, and the number of types with all names expanded."""

    empty: bool
    types: int


class _Sizes:
    """The sizes of types; that of a named type is None while the types inside it are measured."""

    def __init__(self, named_types: Mapping[str, Any]) -> None:
        self._named_types = named_types
        self._sizes: dict[str, _Size | None] = {}

    def size_of(self, schema: Any, depth: int = 0) -> _Size:
        """Return the size of *schema*. Raises UnusableSchema: its values may need more time or memory than their length suggests."""
        if depth > DEPTH_MAX:
            raise UnusableSchema(f"types are nested more than {DEPTH_MAX} deep")
        if isinstance(schema, list):
            inner = [self.size_of(branch, depth + 1) for branch in schema]
            return self._combine(False, inner)
        if isinstance(schema, str):
            return self.size_of(self._named_types[schema], depth) if schema in self._named_types else _Size(schema == "null", 1)
        return self._size_of_named(schema, depth) if "name" in schema else self._size_of_unnamed(schema, depth)

    def _size_of_named(self, schema: Mapping[str, Any], depth: int) -> _Size:
        name = schema["name"]
        if name in self._sizes:
            size = self._sizes[name]
            if size is None:
                raise UnusableSchema(f"{name} contains itself: a payload could nest it without end")
            return size
        self._sizes[name] = None
        if schema["type"] == "fixed":
            if not isinstance(schema["size"], int) or schema["size"] < 0:
                raise UnusableSchema(f"{name} has no size")
            size = _Size(schema["size"] == 0, 1)
        elif schema["type"] == "enum":
            size = _Size(False, 1)
        else:
            inner = [self.size_of(field["type"], depth + 1) for field in schema["fields"]]
            size = self._combine(all(size_of_field.empty for size_of_field in inner), inner)
        self._sizes[name] = size
        return size

    def _size_of_unnamed(self, schema: Mapping[str, Any], depth: int) -> _Size:
        kind = schema["type"]
        if kind == "array":
            items = self.size_of(schema["items"], depth + 1)
            if items.empty:
                raise UnusableSchema("an array of values that take no bytes: a payload could claim any number of them")
            return self._combine(False, [items])
        return self._combine(False, [self.size_of(schema["values"], depth + 1)]) if kind == "map" else self.size_of(kind, depth + 1)

    def _combine(self, empty: bool, inner: Sequence[_Size]) -> _Size:
        types = 1 + sum(inner_size.types for inner_size in inner)
        if types > TYPES_MAX:
            raise UnusableSchema(f"it is made of more than {TYPES_MAX} types, names spelled out")
        return _Size(empty, types)


def schema_error(problem: UnusableSchema, where: str) -> SettingError:
    """Return the error for a schema file that cannot be used."""
    return SettingError(
        f"the Avro schema cannot be used: {problem}",
        code="TG-AVRO-SCHEMA",
        where=where,
        fix="give an Avro schema as JSON, without types that contain themselves",
        example='{"type": "record", "name": "Flight", "fields": [{"name": "origin", "type": "string"}]}',
    )
