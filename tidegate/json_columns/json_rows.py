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

from tidegate.json_columns.compiled import opened

INTEGER, FLOAT, TEXT, QUOTED = range(4)
"""How the values of a column are written: decimals; as ``repr`` does; as they are; between quotes."""
_BYTES_MAX = 2**31 - 1
_NUMBER_BYTES = 24
_AROUND_TEXT = 4
"""Bytes a value takes besides its text at most: two quotes, or null."""


@dataclass(slots=True)
class Values:
    """
    A column of values.

    Args:
        before: What stands before each.
        how: One of the constants.
        part: int64, float64 or string; QUOTED ones need no escapes.
    """

    before: bytes
    how: int
    part: pa.Array

    @property
    def bytes_max(self) -> int:
        """How many bytes all of them take at most."""
        if self.how in (INTEGER, FLOAT):
            return len(self.part) * (len(self.before) + _NUMBER_BYTES)
        ends = np.frombuffer(self.part.buffers()[1], dtype=np.int32)[self.part.offset :] if len(self.part) else (0, 0)
        return int(ends[len(self.part)] - ends[0]) + len(self.part) * (len(self.before) + _AROUND_TEXT)


class _Column(ctypes.Structure):
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
    found = opened("_json_rows")
    if found is None:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.tg_json_rows.restype = number
    found.tg_json_rows.argtypes = [ctypes.POINTER(_Column), number, ctypes.c_char_p, number, number, pointer, pointer]
    return found


def written(found: ctypes.CDLL, columns: Sequence[Values], after: bytes, rows: int, text_of: Callable[[int], pa.Array]) -> pa.Array | None:
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
        room = sum(column.bytes_max for column in columns) + rows * len(after)
        if room > _BYTES_MAX:
            return None
        out, ends = np.empty(max(room, 1), dtype=np.uint8), np.empty(rows + 1, dtype=np.int32)
        given = (_Column * len(columns))(*map(_column, columns))
        size = found.tg_json_rows(given, len(columns), after, len(after), rows, out.ctypes.data, ends.ctypes.data)
        if size >= 0:
            return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(out[:size])])
        other = -1 - size
        columns[other] = Values(columns[other].before, TEXT, text_of(other))


def _column(column: Values) -> _Column:
    part = column.part
    valid, *rest = part.buffers()
    ends, values = (None, *rest) if column.how in (INTEGER, FLOAT) else rest
    addresses = [None if buffer is None else buffer.address for buffer in (valid if part.null_count else None, values, ends)]
    return _Column(column.before, len(column.before), *addresses, part.offset, column.how)
