"""
Fields of plain JSON objects, a whole column at a time, by ``plain_json.c``.

An object is plain if it is flat, printable ASCII and without escapes: all parsers agree on such objects. Law: plain objects are read as
every parser would read them; other payloads are only reported as not plain.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.native_parts import open_part

_FIELDS_MAX, _VALUES_MAX = 8, 32
_OTHER, _PLAIN, MISSING = 0, 1, 2
_BYTES_MAX = 2**31 - 1
# Kinds of values; 0 is a missing or null value.
TEXT, BIGINT, FLOAT, FALSE, TRUE = 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class PlainTexts:
    """The fields of a column of payloads as JSON texts, one array per field, null if absent; *other_rows* are not plain."""

    is_plain: NDArray[np.bool_]
    other_rows: NDArray[np.int64]
    texts: list[pa.Array]


@dataclass(frozen=True, slots=True)
class PlainValues:
    """The fields of a column of payloads as values; *status* of a payload: plain, ``MISSING``, or not plain (in *other_rows*)."""

    status: NDArray[np.uint8]
    other_rows: NDArray[np.int64]
    columns: list[PlainColumn]


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """The values of a field, one entry a row: *kinds* of values, *text* of TEXT values, *bits* (64) of bigints and floats."""

    kinds: NDArray[np.uint8]
    text: pa.Array
    bits: NDArray[np.int64]


@cache
def library() -> ctypes.CDLL | None:
    """Return ``plain_json.c``, or None if it is not compiled or cannot be loaded."""
    part = open_part(Path(__file__).parent, "_plain_json")
    if part is None:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int
    pointers = ctypes.POINTER(pointer)
    arguments: list[Any] = [
        *(pointer, pointer, number, pointer, ctypes.c_int64, ctypes.c_int64),
        *(ctypes.POINTER(ctypes.c_char_p), pointer, number),
    ]
    for function, answers in ((part.tg_plain_json, 3), (part.tg_plain_values, 4)):
        function.restype, function.argtypes = ctypes.c_int64, [*arguments, *[pointers] * answers, pointer]
    return part


def read_texts(part: ctypes.CDLL, payloads: pa.Array, names: Sequence[str]) -> PlainTexts | None:
    """
    Read the JSON texts of fields from a binary or large_binary column; return None if there are too many fields or bytes.

    Each of *names* is printable ASCII and occurs once.
    """
    prepared = _c_arguments(payloads, names, _FIELDS_MAX)
    if prepared is None:
        return None
    arguments, size, rows = prepared
    texts, text_ends = _allocate(names, size, rows)
    valid = [np.empty((rows + 7) // 8, dtype=np.uint8) for _ in names]
    status = np.empty(rows, dtype=np.uint8)
    other_count = part.tg_plain_json(*arguments, _addresses(texts), _addresses(text_ends), _addresses(valid), status.ctypes.data)
    columns = [_texts(text, ends, pa.py_buffer(bits)) for text, ends, bits in zip(texts, text_ends, valid, strict=True)]
    return PlainTexts(status == _PLAIN, _other_rows(status, other_count), columns)


def read_values(part: ctypes.CDLL, payloads: pa.Array, names: Sequence[str]) -> PlainValues | None:
    """Read the values of fields like :func:`read_texts`; a name without exact match takes the first member that differs in case only."""
    prepared = _c_arguments(payloads, names, _VALUES_MAX)
    if prepared is None:
        return None
    arguments, size, rows = prepared
    texts, text_ends = _allocate(names, size, rows)
    kinds = [np.empty(rows, dtype=np.uint8) for _ in names]
    bits = [np.empty(rows, dtype=np.int64) for _ in names]
    status = np.empty(rows, dtype=np.uint8)
    answers = (_addresses(arrays) for arrays in (texts, text_ends, kinds, bits))
    other_count = part.tg_plain_values(*arguments, *answers, status.ctypes.data)
    columns = [
        PlainColumn(kind, _texts(text, ends, valid_bits(kind == TEXT)), value)
        for kind, text, ends, value in zip(kinds, texts, text_ends, bits, strict=True)
    ]
    return PlainValues(status, _other_rows(status, other_count), columns)


def _c_arguments(payloads: pa.Array, names: Sequence[str], fields_max: int) -> tuple[tuple[Any, ...], int, int] | None:
    """Return the common first arguments of both C functions, the bytes of the payloads and the number of rows; None if too many."""
    rows, wide = len(payloads), pa.types.is_large_binary(payloads.type)
    valid, ends, octets = payloads.buffers()
    if not rows or len(names) > fields_max or octets is None or octets.size > _BYTES_MAX:
        return None
    lengths = (ctypes.c_int32 * len(names))(*map(len, names))
    spelled = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    valid_address = valid.address if valid is not None and payloads.null_count else None
    column = (octets.address, ends.address, wide, valid_address, payloads.offset, rows)
    return (*column, spelled, ctypes.cast(lengths, ctypes.c_void_p), len(names)), octets.size, rows


def _allocate(names: Sequence[str], size: int, rows: int) -> tuple[list[NDArray[np.uint8]], list[NDArray[np.int32]]]:
    # No field has more text than all payloads together.
    return [np.empty(size, dtype=np.uint8) for _ in names], [np.empty(rows + 1, dtype=np.int32) for _ in names]


def _texts(text: NDArray[np.uint8], ends: NDArray[np.int32], valid: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), len(ends) - 1, [valid, pa.py_buffer(ends), pa.py_buffer(text[: max(int(ends[-1]), 1)])])


def valid_bits(mask: NDArray[np.bool_]) -> pa.Buffer:
    """Return *mask* as the validity bitmap of an Arrow column."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def _other_rows(status: NDArray[np.uint8], other_count: int) -> NDArray[np.int64]:
    return np.flatnonzero(status == _OTHER) if other_count else np.empty(0, dtype=np.int64)


def _addresses(arrays: Sequence[NDArray[Any]]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
