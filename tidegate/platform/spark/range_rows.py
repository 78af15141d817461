"""
Ranges on their way from planner to stage: a frozen dataclass is written as a Spark row and read back.

Law: the schema follows from the dataclass, and ``read_row(kind, write_row(a_range))`` equals ``a_range``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import Annotated, Any, TypeVar, get_type_hints

from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegerType, LongType, StringType, StructField, StructType

Kind = TypeVar("Kind")

# Spark hashes 32-bit integers differently from 64-bit ones; labels are chosen for the 32-bit hash.
Label = Annotated[int, IntegerType()]
Pairs = tuple[tuple[int, int], ...]

_TYPES: dict[Any, DataType] = {int: LongType(), Label: IntegerType(), str: StringType(), bool: BooleanType(), Pairs: ArrayType(LongType())}


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    # Most of the cost of a row is the evaluation of these annotations, and each partition has a row in each batch.
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind, include_extras=True)
    return _HINTS[kind]


def schema_of(kind: type) -> StructType:
    """Return the schema of a dataclass whose fields are ``int``, ``Label``, ``str``, ``bool`` or ``Pairs``."""
    return StructType([StructField(name, _TYPES[hint]) for name, hint in _hints(kind).items()])


def write_row(a_range: Any) -> tuple[Any, ...]:
    """Return the fields of a dataclass in order, pairs as one flat list."""
    hints = _hints(type(a_range)).values()
    return tuple(_flatten(value) if hint == Pairs else value for value, hint in zip(astuple(a_range), hints, strict=True))


def read_row(kind: type[Kind], row: Any) -> Kind:
    """Return the dataclass written as *row*, which has its fields as attributes: plain values or numpy's."""
    return kind(**{name: _read(hint, getattr(row, name)) for name, hint in _hints(kind).items()})


def _flatten(pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [value for pair in pairs for value in pair]


def _read(hint: Any, value: Any) -> Any:
    if hint == Pairs:
        return tuple((int(value[place]), int(value[place + 1])) for place in range(0, len(value), 2))
    return int(value) if hint == Label else hint(value)
