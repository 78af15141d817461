"""
Columns -> JSON text, row by row, by ``json_rows.c``.

Law: the bytes equal those of Python's JSON writer. If C would format a float or time of a column differently, the caller supplies that
column's text.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidegate.basics.native_parts import open_part

# Styles of a column: decimal integers, floats as ``repr`` writes them, text as it is, text in quotes, microseconds as times in quotes.
INTEGER, FLOAT, TEXT, QUOTED, DATETIME = range(5)
_OF_NUMBERS = (INTEGER, FLOAT, DATETIME)
# Offsets of a binary column have 32 bits.
_BYTES_MAX = 2**31 - 1
# Most bytes of a number or time.
_NUMBER_BYTES = 32
# Most bytes of a value besides its text: two quotes, or null.
_TEXT_EXTRA_BYTES = 4


@dataclass(slots=True)
class JsonColumn:
    """A column of values: *prefix* stands before each value; *style* is one of the above (no value of QUOTED may need escapes)."""

    prefix: bytes
    style: int
    values: pa.Array

    @property
    def bytes_max(self) -> int:
        if self.style in _OF_NUMBERS:
            return len(self.values) * (len(self.prefix) + _NUMBER_BYTES)
        ends = np.frombuffer(self.values.buffers()[1], dtype=np.int32)[self.values.offset :] if len(self.values) else (0, 0)
        return int(ends[len(self.values)] - ends[0]) + len(self.values) * (len(self.prefix) + _TEXT_EXTRA_BYTES)


class _CColumn(ctypes.Structure):
    _fields_ = (
        ("before", ctypes.c_char_p),
        ("before_length", ctypes.c_int64),
        ("valid", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("first", ctypes.c_int64),
        ("kind", ctypes.c_int64),
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return ``json_rows.c``, or None if it is not compiled or cannot be loaded."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    arguments = [ctypes.POINTER(_CColumn), number, ctypes.c_char_p, number, number, pointer, pointer]
    return open_part(Path(__file__).parent, "_json_rows", {"tg_json_rows": (number, arguments)})


def write_rows(
    part: ctypes.CDLL, columns: Sequence[JsonColumn], suffix: bytes, row_count: int, text_of: Callable[[int], pa.Array]
) -> pa.Array | None:
    """
    Write rows that end in *suffix*; return None if their text is too long for one binary column.

    If C cannot write a float or time of a column, *text_of* returns that column (given its index) as text.
    """
    columns = list(columns)
    while True:
        bytes_max = sum(column.bytes_max for column in columns) + row_count * len(suffix)
        if bytes_max > _BYTES_MAX:
            return None
        out, ends = np.empty(max(bytes_max, 1), dtype=np.uint8), np.empty(row_count + 1, dtype=np.int32)
        c_columns = (_CColumn * len(columns))(*map(_c_column, columns))
        size = part.tg_json_rows(c_columns, len(columns), suffix, len(suffix), row_count, out.ctypes.data, ends.ctypes.data)
        if size >= 0:
            return pa.Array.from_buffers(pa.binary(), row_count, [None, pa.py_buffer(ends), pa.py_buffer(out[:size])])
        # A negative size names the column that C cannot write; C can write it as text.
        unwritten = -1 - size
        columns[unwritten] = JsonColumn(columns[unwritten].prefix, TEXT, text_of(unwritten))


def _c_column(column: JsonColumn) -> _CColumn:
    values_array = column.values
    valid, *rest = values_array.buffers()
    ends, values = (None, *rest) if column.style in _OF_NUMBERS else rest
    addresses = [None if buffer is None else buffer.address for buffer in (valid if values_array.null_count else None, values, ends)]
    return _CColumn(column.prefix, len(column.prefix), *addresses, values_array.offset, column.style)
