"""
The fields that ``tidegate order`` reads: event time, end, arrival, partition, substream and record key.

Law: a field's value depends on the record and the field names alone. A member of exactly a given name counts, else the first whose name
matches ignoring case, record by record. The well-known names of arrival and partition are looked for once per file, ignoring case, in its
header or its first object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.columns.timestamps import to_ticks
from ordering.errors import SettingError
from ordering.protocol.keys import EMPTY_TEXT, canonical, number_key
from tidegate.records.files.blocks import spelled_in

FieldPath = tuple[str, ...]
Ticks = tuple[Ints, Mask]

ARRIVAL_NAMES = ("EventEnqueuedUtcTime", "EnqueuedTime", "LastModified")
PARTITION_NAMES = ("PartitionId",)
# The value of a field that a record does not have.
MISSING: Any = object()

_STEP = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")
_PLAIN = re.compile(r"[\w$@:-]+")
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?")
_INT64 = 2**63


def parse_path(text: str, flag: str) -> FieldPath:
    """Read a field path: names between dots, one with dots or brackets in ``[brackets]``. SettingError: *text* is no field path."""
    names, position = [], 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            break
        names.append(step[1] or step[2])
        position = step.end()
        if position < len(text) - 1 and text[position] == ".":
            position += 1
        elif position < len(text) and text[position] != "[":
            break
    if position < len(text) or not names:
        what = f"{text!r} is not a field path"
        fix = "write names with dots between them; put a name with odd characters in brackets"
        raise SettingError(what, code="TG-SETTING-VALUE", where=flag, fix=fix, example=f"{flag} sensor.[reading.at]")
    return tuple(names)


def format_path(path: FieldPath) -> str:
    """Write a path as :func:`parse_path` reads it."""
    return ".".join(name if _PLAIN.fullmatch(name) else f"[{name}]" for name in path)


def find_well_known(names: Iterable[str], candidates: Sequence[str]) -> FieldPath | None:
    """Return the first of *candidates* that is among *names*, ignoring case, as it is spelled there."""
    spelled = {name.lower(): name for name in names}
    return next(((spelled[name.lower()],) for name in candidates if name.lower() in spelled), None)


def path_getter(path: FieldPath) -> Callable[[dict[str, Any]], Any]:
    """Return a function that returns a record's value at *path*, or ``MISSING``."""

    def look_up(record: dict[str, Any]) -> Any:
        value: Any = record
        for name in path:
            spelled = spelled_in(value, name) if isinstance(value, dict) else None
            if spelled is None:
                return MISSING
            value = value[spelled]
        return value

    return look_up


def ticks_of(values: Sequence[Any], unit: str) -> Ticks:
    """
    Return times in microseconds, and which are valid, as :func:`ordering.columns.timestamps.to_ticks` reads them.
    Text such as ``12:07`` or ``12:07:30`` is a time on 1970-01-01, if *unit* accepts text.
    """
    # A column of text only is the common case; it needs no look at each value.
    texts = values if set(map(type, values)) == {str} else [_time_text(value, unit) for value in values]
    ticks, valid = to_ticks(_text_column(texts), unit)
    if unit in ("auto", "iso") and not valid.all():
        rows = [row for row in np.flatnonzero(~valid).tolist() if _CLOCK.fullmatch(texts[row] or "")]
        ticks[rows], valid[rows] = to_ticks(_text_column([f"1970-01-01T{texts[row]}" for row in rows]), unit)
    return ticks, valid


def _text_column(texts: Sequence[str | None]) -> pa.Array:
    try:
        return pa.array(texts, type=pa.string())
    except UnicodeEncodeError:  # single surrogates: no time has them
        return pa.array([None if text is None else text.encode(errors="replace") for text in texts], type=pa.binary())


def _time_text(value: Any, unit: str) -> str | None:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is datetime or kind is date:
        return str(value.isoformat())
    if unit == "iso":
        return None
    if kind is float:
        return repr(value)
    return str(value) if kind is int or kind is Decimal else None


def key_of(value: Any) -> bytes:
    """Return the key bytes of a value."""
    kind = type(value)
    if kind is str:
        return str(value).encode(errors="surrogatepass") or EMPTY_TEXT
    if kind is int or kind is float:
        return number_key(value)
    if kind is Decimal:
        return number_key(int(value) if value == value.to_integral_value() else float(value))
    if value is None or value is MISSING:
        return b""
    if kind is bool:
        return b"true" if value else b"false"
    if kind in (dict, list):
        try:
            text = orjson.dumps(value, default=str).decode()
        except TypeError:  # nested too deep for it, or with single surrogates
            text = _compact_json(value)
        return canonical(text).encode(errors="surrogatepass")
    return str(value).encode()


def _compact_json(value: Any) -> str:
    # Not recursive: values may be nested to any depth.
    text: list[str] = []
    stack: list[tuple[Any, str]] = [(value, "")]
    while stack:
        node, written = stack.pop()
        if written:
            text.append(written)
        elif isinstance(node, dict):
            # None marks text that is written already; [1:] drops the comma before the first member.
            inner = [part for name, member in node.items() for part in ((None, ","), (name, ""), (None, ":"), (member, ""))][1:]
            stack += reversed([(None, "{"), *inner, (None, "}")])
        elif isinstance(node, list | tuple):
            inner = [part for member in node for part in ((None, ","), (member, ""))][1:]
            stack += reversed([(None, "["), *inner, (None, "]")])
        else:
            text.append(json.dumps(node, ensure_ascii=False, default=str))
    return "".join(text)


@dataclass(frozen=True, slots=True, order=True)
class FilePartition:
    """A partition as the file names it. Partitions are ordered null, false, true, numbers, text. ``json`` is its JSON."""

    rank: int
    number: float | int
    text: str
    json: bytes

    @property
    def label(self) -> Any:
        return orjson.loads(self.json)


def partition_of(value: Any, *, is_typed: bool) -> FilePartition | None:
    """
    Return the partition that a JSON scalar names, or None if it names none.
    If the format does not distinguish numbers from text (*is_typed* False), text that looks like an integer is a number.
    """
    if isinstance(value, str) and not is_typed and re.fullmatch(r"-?(0|[1-9]\d{0,17})", value):
        value = int(value)
    if value is None or value is MISSING:
        return FilePartition(0, 0, "", b"null")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # bool is a kind of int in Python, so it is tested first.
    if isinstance(value, bool):
        return FilePartition(1, int(value), "", orjson.dumps(value))
    if isinstance(value, int | float):
        # A number beyond 64 bits, or NaN, has more than one spelling.
        return FilePartition(2, value, "", orjson.dumps(value)) if abs(value) < _INT64 else None
    if isinstance(value, str):
        try:
            return FilePartition(3, 0, value, orjson.dumps(value))
        except TypeError:
            return None
    return None
