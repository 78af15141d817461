"""
Whether Avro payloads are one value of their schema, and how much that value weighs, before it is built.

A *layout* is a schema as numbers: for each type its kind, then the numbers that decide its length (a size, a count, the places of the types
inside). A value *weighs* one for itself, one for each value inside, and some for long names of fields. Its weight bounds the memory and
time that it takes.

Law: a payload has a weight if it is exactly one value of the schema as the Avro specification writes it, and does not weigh too much.
Readers of Avro disagree about malformed values, so these are refused: a number of more bits than its type, an index below zero or beyond
the branches or symbols, a boolean that is neither 0 nor 1, a block of another size than it says. Text is not checked to be UTF-8.

``avro_layout.c`` weighs a column at a time; without it the functions here do, payload by payload.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints
from tidegate.basics import native_parts

EMPTY, BOOLEAN, INT, LONG, FIXED, BYTES, ENUM, UNION, RECORD, ARRAY, MAP = range(11)
_PLAIN = {"null": EMPTY, "boolean": BOOLEAN, "int": INT, "long": LONG, "bytes": BYTES, "string": BYTES}
_FIXED_BYTES = {"float": 4, "double": 8}
# A payload may weigh FREE_WEIGHT, and BYTE_WEIGHT more for each of its bytes, but never more than WEIGHT_MAX.
FREE_WEIGHT, BYTE_WEIGHT, WEIGHT_MAX = 100_000, 16, 2_000_000
# Characters of a field's name that weigh one.
_NAME_CHARACTERS = 16
_VARINT_BYTES = 10
# A layout has 32-bit numbers; no payload is this long, so a larger size may stand as this one.
_SIZE_MAX = 2**31 - 1


@dataclass(slots=True)
class _LayoutWriter:
    """Writes the layout of a schema; *named* has the schema of each type that is defined elsewhere, by name."""

    named: Mapping[str, Any]
    layout: list[int] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def write(self, schema: Any) -> int:
        """Write a type; return its place."""
        if isinstance(schema, list):
            return self._write_inner([UNION, len(schema)], schema)
        if isinstance(schema, str):
            return self._write_name(schema)
        kind = schema["type"]
        if "name" in schema:
            self._places[schema["name"]] = len(self.layout)
        if kind == "fixed":
            return self._add([FIXED, min(schema["size"], _SIZE_MAX)])
        if kind == "enum":
            return self._add([ENUM, len(schema["symbols"])])
        if "fields" in schema:
            names = sum(len(member["name"]) // _NAME_CHARACTERS for member in schema["fields"])
            return self._write_inner([RECORD, len(schema["fields"]), names], [member["type"] for member in schema["fields"]])
        if kind in ("array", "map"):
            return self._write_inner([ARRAY if kind == "array" else MAP], [schema["items" if kind == "array" else "values"]])
        return self.write(kind)

    def _write_name(self, name: str) -> int:
        if name in self._places:
            return self._places[name]
        if name in self.named:
            return self.write(self.named[name])
        return self._add([FIXED, _FIXED_BYTES[name]] if name in _FIXED_BYTES else [_PLAIN[name]])

    def _write_inner(self, head: list[int], inner: list[Any]) -> int:
        place = self._add([*head, *[0] * len(inner)])
        for index, schema in enumerate(inner, place + len(head)):
            self.layout[index] = self.write(schema)
        return place

    def _add(self, numbers: list[int]) -> int:
        self.layout += numbers
        return len(self.layout) - len(numbers)


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """The schema of payloads: in the form that fastavro reads by, and its layout."""

    parsed: Any
    layout: NDArray[np.int32]

    @classmethod
    def of(cls, parsed: Any, named: Mapping[str, Any]) -> AvroSchema:
        writer = _LayoutWriter(named)
        writer.write(parsed)
        return cls(parsed, np.array(writer.layout, dtype=np.int32))


@cache
def library() -> ctypes.CDLL | None:
    """Return ``avro_layout.c``, or None if it is not compiled or cannot be loaded."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    arguments = [pointer, pointer, pointer, ctypes.c_int, pointer, number, number, number, pointer, pointer]
    return native_parts.open_part(Path(__file__).parent, "_avro_layout", {"tg_avro_weights": (None, arguments)})


def weigh(schema: AvroSchema, payloads: pa.Array, skipped: int = 0) -> Ints:
    """Return the weight of each of *payloads* (binary) without its first *skipped* bytes; -1 if it is null, no value, or too heavy."""
    part = library() if native_parts.is_enabled() else None
    if part is None:
        layout = schema.layout.tolist()
        weights = (-1 if payload is None else _weigh_one(layout, payload, skipped) for payload in payloads.to_pylist())
        return np.fromiter(weights, np.int64, len(payloads))
    out = np.full(len(payloads), -1, dtype=np.int64)
    valid, ends, encoded = payloads.buffers()
    if encoded is not None:
        limits = np.array([FREE_WEIGHT, BYTE_WEIGHT, WEIGHT_MAX], dtype=np.int64)
        part.tg_avro_weights(
            schema.layout.ctypes.data,
            *(encoded.address, ends.address, pa.types.is_large_binary(payloads.type)),
            *(valid.address if valid is not None and payloads.null_count else None, payloads.offset, len(payloads), skipped),
            *(limits.ctypes.data, out.ctypes.data),
        )
    return out


class _NoValue(Exception):
    """The bytes are no value, or weigh too much."""


class _Scanner:
    """Walks over one payload and adds up its weight. Raises _NoValue where the payload is no value of the schema, or weighs too much."""

    def __init__(self, layout: list[int], payload: bytes, at: int) -> None:
        self._layout, self._payload, self.at = layout, payload, at
        self.weight, self._weight_max = 0, min(WEIGHT_MAX, FREE_WEIGHT + BYTE_WEIGHT * len(payload))

    def skip_value(self, node: int) -> None:
        kind = self._layout[node]
        if kind != UNION:
            self._add_weight(1)
        if kind == BOOLEAN:
            self._refuse_unless(self._octet() <= 1)
        elif kind == INT:
            self._refuse_unless(-(2**31) <= self._long() < 2**31)
        elif kind == LONG:
            self._long()
        elif kind == FIXED:
            self._skip(self._layout[node + 1])
        elif kind == BYTES:
            self._skip(self._long())
        elif kind == ENUM:
            self._index(node)
        elif kind == UNION:
            self.skip_value(self._layout[node + 2 + self._index(node)])
        elif kind == RECORD:
            self._add_weight(self._layout[node + 2])
            for inner in self._layout[node + 3 : node + 3 + self._layout[node + 1]]:
                self.skip_value(inner)
        elif kind in (ARRAY, MAP):
            self._skip_blocks(self._layout[node + 1], is_keyed=kind == MAP)

    def _skip_blocks(self, items: int, *, is_keyed: bool) -> None:
        for count, end in self._blocks():
            for _ in range(count):
                if is_keyed:
                    self._skip(self._long())
                self.skip_value(items)
            self._refuse_unless(end in (None, self.at))

    def _blocks(self) -> Iterator[tuple[int, int | None]]:
        """Yield how many items each block has, and where it ends if the block says so."""
        while count := self._long():
            if count > 0:
                yield count, None
                continue
            size = self._long()
            self._refuse_unless(count > -(2**63) and 0 <= size <= len(self._payload) - self.at)
            yield -count, self.at + size

    def _index(self, node: int) -> int:
        index = self._long()
        self._refuse_unless(0 <= index < self._layout[node + 1])
        return index

    def _octet(self) -> int:
        self._refuse_unless(self.at < len(self._payload))
        self.at += 1
        return self._payload[self.at - 1]

    def _long(self) -> int:
        bits = 0
        for place in range(_VARINT_BYTES):
            octet = self._octet()
            self._refuse_unless(place < _VARINT_BYTES - 1 or octet <= 1)
            bits |= (octet & 0x7F) << (7 * place)
            if octet < 0x80:
                break
        return (bits >> 1) ^ -(bits & 1)

    def _skip(self, count: int) -> None:
        self._refuse_unless(0 <= count <= len(self._payload) - self.at)
        self.at += count

    def _add_weight(self, weight: int) -> None:
        self.weight += weight
        self._refuse_unless(self.weight <= self._weight_max)

    @staticmethod
    def _refuse_unless(is_valid: bool) -> None:
        if not is_valid:
            raise _NoValue


def _weigh_one(layout: list[int], payload: bytes, skipped: int) -> int:
    if skipped > len(payload):
        return -1
    scanner = _Scanner(layout, payload, skipped)
    try:
        scanner.skip_value(0)
    except _NoValue:
        return -1
    return scanner.weight if scanner.at == len(payload) else -1
