"""
The door to ``json_rows.c``: columns into JSON text, a row at a time.

Law: the bytes are those that a JSON writer makes of each row; what it cannot write so it leaves to whoever asks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from tidegate.json_columns.compiled import open_part

INTEGER, FLOAT, TEXT, QUOTED = range(4)
"""How the values of a column are written: decimals; as ``repr`` does; as they are; between quotes."""
_BYTES_MAX = 2**31 - 1
_NUMBER_BYTES = 24
_TEXT_EXTRA_BYTES = 4
"""Bytes a value takes besides its text at most: two quotes, or null."""


@dataclass(slots=True)
class JsonColumn:
    """
    A column of values.

    Args:
        before: What stands before each.
        how: One of the constants.
        part: int64, float64 or string; QUOTED ones need no escapes.
    """

    prefix: bytes
    style: int
    values: pa.Array

    @property
    def bytes_max(self) -> int:
        """How many bytes all of them take at most."""
        if self.style in (INTEGER, FLOAT):
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
    """Return ``json_rows.c``, None where it was not compiled or this machine cannot open it."""
    part = open_part("_json_rows")
    if part is None:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    part.tg_json_rows.restype = number
    part.tg_json_rows.argtypes = [ctypes.POINTER(_CColumn), number, ctypes.c_char_p, number, number, pointer, pointer]
    return part


def write_rows(
    library: ctypes.CDLL, columns: Sequence[JsonColumn], after: bytes, rows: int, text_of: Callable[[int], pa.Array]
) -> pa.Array | None:
    """
    Write *rows* rows; None where they are too many for one binary column.

    Args:
        found: :func:`library`.
        columns: What each row consists of.
        after: What stands at the end of each.
        rows: How many there are.
        text_of: Asked for the text of the column with this number where one of its floats is not plain.
    """
    columns = list(columns)
    while True:
        bytes_max = sum(column.bytes_max for column in columns) + rows * len(after)
        if bytes_max > _BYTES_MAX:
            return None
        out, ends = np.empty(max(bytes_max, 1), dtype=np.uint8), np.empty(rows + 1, dtype=np.int32)
        c_columns = (_CColumn * len(columns))(*map(_c_column, columns))
        size = library.tg_json_rows(c_columns, len(columns), after, len(after), rows, out.ctypes.data, ends.ctypes.data)
        if size >= 0:
            return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(out[:size])])
        not_plain = -1 - size
        columns[not_plain] = JsonColumn(columns[not_plain].prefix, TEXT, text_of(not_plain))


def _c_column(column: JsonColumn) -> _CColumn:
    part = column.values
    valid, *rest = part.buffers()
    ends, values = (None, *rest) if column.style in (INTEGER, FLOAT) else rest
    addresses = [None if buffer is None else buffer.address for buffer in (valid if part.null_count else None, values, ends)]
    return _CColumn(column.prefix, len(column.prefix), *addresses, part.offset, column.style)
