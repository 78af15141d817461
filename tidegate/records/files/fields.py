"""
The fields that ``tidegate order`` reads: event time, end, arrival, partition, substream and record key.

Law: a field's value depends on the record and the field names alone. A member of exactly a given name counts, else the first whose name
matches ignoring case, record by record. The well-known names of arrival and partition are looked for once per file, ignoring case, in its
header or its first object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.columns.timestamps import to_ticks
from ordering.errors import SettingError
from tidegate.language.expressions.kinds import Kind
from tidegate.records.fields.values import Values
from tidegate.records.files.blocks import spelled_in

FieldPath = tuple[str, ...]
Ticks = tuple[Ints, Mask]

ARRIVAL_NAMES = ("EventEnqueuedUtcTime", "EnqueuedTime", "LastModified")
PARTITION_NAMES = ("PartitionId",)

_STEP = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")
_PLAIN = re.compile(r"[\w$@:-]+")
_CLOCK = r"^\d\d:\d\d(:\d\d(\.\d{1,9})?)?$"
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


def has_member(records: Iterable[Mapping[str, Any] | None], path: FieldPath) -> bool:
    """Return whether one of the records, of which unreadable ones are None, has a member at *path*, be it null."""
    return any(_has(record, path) for record in records if record is not None)


def _has(record: Any, path: FieldPath) -> bool:
    for name in path:
        spelled = spelled_in(record, name) if isinstance(record, dict) else None
        if spelled is None:
            return False
        record = record[spelled]
    return True


def read_ticks(values: Values, unit: str) -> Ticks:
    """
    Return times in microseconds, and which are valid, as ingest reads them. Text such as ``12:07`` or ``12:07:30`` is a time on 1970-01-01
    too, if *unit* accepts text.
    """
    ticks, valid = values.ticks(unit)
    texts = values.variant.parts.get(Kind.NVARCHAR)
    if unit in ("auto", "iso") and texts is not None and not valid.all():
        is_clock = pc.fill_null(pc.match_substring_regex(texts, _CLOCK), False).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(is_clock & ~valid)
        dated = pc.binary_join_element_wise("1970-01-01T", texts.take(pa.array(rows)), "")
        ticks[rows], valid[rows] = to_ticks(dated, unit)
    return ticks, valid


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
    if value is None:
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
