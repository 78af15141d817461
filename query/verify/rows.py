"""
Result rows as columns, their digest, and the first difference between standing and computed rows.

Law: the digest of a partition is that of its rows in the order of seq, wherever the columns were cut: SHA-256 over, for each row, seq and
System.Timestamp (64 bits), the length of the key (32 bits, -1: null), the key, the length of the value, the value; numbers little-endian.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.ordered_topic.events import OrderedEvents

# Rows from a difference on that show whether a row is missing, extra or changed.
ROWS_FROM_DIFFERENCE = 200


@dataclass(frozen=True, slots=True)
class ResultRow:
    """
    One result: its number in the channel, System.Timestamp in microseconds, key and value; ``place`` says where it stands, empty if it was
    computed. A row of a table has a value alone, and the number -1.
    """

    seq: int
    system_us: int
    key: bytes | None
    value: bytes | None
    place: str = ""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The first difference of a partition."""

    # The topic, file or table.
    where: str
    # The partition, which is also the bucket; -1: not known.
    partition: int
    # How many rows before it are equal; -1: the rows have no order.
    index: int
    # ``changed``, ``missing``, ``extra``, ``moved`` or ``header``.
    kind: str
    # The standing row and the computed one; None if there is none.
    stands: ResultRow | None
    should: ResultRow | None
    # The difference as a text.
    text: str = ""


@dataclass(slots=True)
class RowDigest:
    """The digest of one partition's rows, and how many they are."""

    count: int = 0
    least_us: int | None = None
    largest_us: int | None = None
    _hash: Any = field(default_factory=hashlib.sha256)

    def add(self, rows: OrderedEvents) -> None:
        if not len(rows):
            return
        self.count += len(rows)
        least_us, largest_us = int(rows.system_us.min()), int(rows.system_us.max())
        self.least_us = least_us if self.least_us is None else min(self.least_us, least_us)
        self.largest_us = largest_us if self.largest_us is None else max(self.largest_us, largest_us)
        self._hash.update(row_bytes(rows))

    @property
    def sha256(self) -> bytes:
        return bytes(self._hash.digest())


def row_bytes(rows: OrderedEvents) -> memoryview:
    """Return the bytes over which the digest of rows is computed."""
    numbers = np.empty((len(rows), 2), dtype="<i8")
    numbers[:, 0], numbers[:, 1] = rows.seq, rows.system_us
    parts: list[pa.Array] = [_as_binary(numbers, 16)]
    for column in (rows.key, rows.value):
        length = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype("<i4")
        parts += [_as_binary(length, 4), pc.fill_null(column, b"").cast(pa.large_binary())]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    _, ends, data = joined.buffers()
    bounds = np.frombuffer(ends, dtype=np.int64)
    return memoryview(data)[int(bounds[joined.offset]) : int(bounds[joined.offset + len(joined)])]


def _as_binary(table: Any, width: int) -> pa.Array:
    ends = np.arange(0, (len(table) + 1) * width, width, dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(table))]
    return pa.Array.from_buffers(pa.large_binary(), len(table), buffers)


def first_difference(one: OrderedEvents, other: OrderedEvents) -> int | None:
    """Return the first row in which two equally long columns differ; None if they are equal."""
    if _are_equal(one, other):
        return None
    low, high = 0, len(one)
    # The rows before *low* are equal, those before *high* are not.
    while high - low > 1:
        middle = (low + high) // 2
        if _are_equal(one.slice(low, middle), other.slice(low, middle)):
            low = middle
        else:
            high = middle
    return low


def _are_equal(one: OrderedEvents, other: OrderedEvents) -> bool:
    return bool(
        np.array_equal(one.stamp_ms, other.stamp_ms)
        and one.header.equals(other.header)
        and one.key.equals(other.key)
        and one.value.equals(other.value)
    )


def row_at(rows: OrderedEvents, index: int, topic: str = "", partition: int = 0) -> ResultRow:
    """Return one row; *topic* and *partition* say where it stands, without a topic it was computed."""
    place = f"{topic}-{partition}@{rows.log_offset[index]}" if topic else ""
    return ResultRow(int(rows.seq[index]), int(rows.system_us[index]), rows.key[index].as_py(), rows.value[index].as_py(), place)


def kind_of_difference(stands: list[ResultRow], should: list[ResultRow]) -> str:
    """Return the kind of a difference from the standing and computed rows from there on: at least one of the lists has a row."""
    if not should:
        return "extra"
    if not stands:
        return "missing"
    one, other = _content(stands[0]), _content(should[0])
    if one == other:
        return "header"
    if one[:2] == other[:2] and _contents(stands[1:])[:1] == _contents(should[1:])[:1]:
        return "changed"
    in_should, in_stands = one in _contents(should[1:]), other in _contents(stands[1:])
    if in_should and not in_stands:
        return "missing"
    if in_stands and not in_should:
        return "extra"
    return "moved" if in_should and in_stands else "changed"


def _content(row: ResultRow) -> tuple[int, bytes | None, bytes | None]:
    return row.system_us, row.key, row.value


def _contents(rows: list[ResultRow]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [_content(row) for row in rows]
