"""
Values of Parquet files that JSON lacks, by the rules that Avro's records follow too.

Law: the form of a value follows from the type of its column, never from the value. Bytes are text in hexadecimal digits. A map is a
record, whose names are the texts of the map's keys; of keys with one text the first counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pyarrow as pa

Convert = Callable[[Any], Any]
JSON_OPTIONS = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z


def converter_of(kind: pa.DataType) -> Convert | None:
    """Return what makes records of maps and text of data in a value of this type, as Python has it; None if it can hold neither."""
    if is_binary(kind):
        return _hexadecimal
    if pa.types.is_map(kind):
        return _make_record_reader(converter_of(kind.item_type))
    if pa.types.is_struct(kind):
        members = {member.name: convert for member in kind if (convert := converter_of(member.type)) is not None}
        return _make_struct_reader(members) if members else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        convert = converter_of(kind.value_type)
        return _make_list_reader(convert) if convert else None
    return None


def is_binary(kind: pa.DataType) -> bool:
    """Return whether values of this type are data."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def record_of(pairs: Iterable[tuple[Any, Any]], convert: Convert | None = None) -> dict[str, Any]:
    """Return the record of a map's pairs, with *convert* applied to its values."""
    record: dict[str, Any] = {}
    for key, value in pairs:
        record.setdefault(member_name(key), convert(value) if convert else value)
    return record


def member_name(key: Any) -> str:
    """Return the name for a map's key: its text, else its JSON without quotes."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.hex()
    return orjson.dumps(key, default=str, option=JSON_OPTIONS).decode().strip('"')


def _hexadecimal(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _make_record_reader(convert: Convert | None) -> Convert:
    return lambda pairs: None if pairs is None else record_of(pairs, convert)


def _make_list_reader(convert: Convert) -> Convert:
    return lambda values: None if values is None else [convert(value) for value in values]


def _make_struct_reader(members: dict[str, Convert]) -> Convert:
    return lambda record: None if record is None else record | {name: convert(record[name]) for name, convert in members.items()}
