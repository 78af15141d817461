"""
The door to ``plain_json.c``: fields of plain JSON objects, a whole column at a time.

Law: what it takes is what every parser would take; of payloads that are not plain it says nothing but that they are not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.json_columns.compiled import opened

_FIELDS_MAX, _VALUES_MAX = 8, 32
_OTHER, _PLAIN, MISSING = 0, 1, 2
_BYTES_MAX = 2**31 - 1
TEXT, BIGINT, FLOAT, FALSE, TRUE = 1, 2, 3, 4, 5
"""Kinds of values; 0: there is none, or it is null."""


@dataclass(frozen=True, slots=True)
class Plain:
    """
    What was found in a column of payloads.

    Args:
        well_formed: Which payloads are plain objects.
        others: The rows of which nothing is said.
        texts: For each field the JSON text of its values, null where there is none.
    """

    well_formed: NDArray[np.bool_]
    others: NDArray[np.int64]
    texts: list[pa.Array]


@dataclass(frozen=True, slots=True)
class PlainValues:
    """
    What was found in a column of payloads, as values.

    Args:
        status: Of each payload whether it is plain, missing (``MISSING``) or one of ``others``.
        others: The rows of which nothing is said.
        columns: Each field's values.
    """

    status: NDArray[np.uint8]
    others: NDArray[np.int64]
    columns: list[PlainColumn]


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """
    The values of a field, one entry a row.

    Args:
        kinds: What each is.
        text: Texts; of the other kinds an empty one.
        bits: The 64 bits of bigints and floats.
    """

    kinds: NDArray[np.uint8]
    text: pa.Array
    bits: NDArray[np.int64]


@cache
def library() -> ctypes.CDLL | None:
    """Return ``plain_json.c``, None where it was not compiled or this machine cannot open it."""
    found = opened("_plain_json")
    if found is None:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int
    pointers = ctypes.POINTER(pointer)
    asked: list[Any] = [
        *(pointer, pointer, number, pointer, ctypes.c_int64, ctypes.c_int64),
        *(ctypes.POINTER(ctypes.c_char_p), pointer, number),
    ]
    for function, answers in ((found.tg_plain_json, 3), (found.tg_plain_values, 4)):
        function.restype, function.argtypes = ctypes.c_int64, [*asked, *[pointers] * answers, pointer]
    return found


def take(found: ctypes.CDLL, payloads: pa.Array, names: Sequence[str]) -> Plain | None:
    """
    Take the fields of these *names* out of binary *payloads*; None where they are too many, or the column is too large.

    Args:
        found: :func:`library`.
        payloads: A binary or large_binary column.
        names: Names of members of the object, each once; printable ASCII.
    """
    asked = _asked(payloads, names, _FIELDS_MAX)
    if asked is None:
        return None
    arguments, size, rows = asked
    texts, text_ends = _room(names, size, rows)
    there = [np.empty((rows + 7) // 8, dtype=np.uint8) for _ in names]
    status = np.empty(rows, dtype=np.uint8)
    others = found.tg_plain_json(*arguments, _addresses(texts), _addresses(text_ends), _addresses(there), status.ctypes.data)
    columns = [_texts(text, ends, pa.py_buffer(bits)) for text, ends, bits in zip(texts, text_ends, there, strict=True)]
    return Plain(status == _PLAIN, _others(status, others), columns)


def take_values(found: ctypes.CDLL, payloads: pa.Array, names: Sequence[str]) -> PlainValues | None:
    """
    Take the values of the members with these *names*, or without one of that very name those with one that differs in case.

    Args and what is returned otherwise: as :func:`take`.
    """
    asked = _asked(payloads, names, _VALUES_MAX)
    if asked is None:
        return None
    arguments, size, rows = asked
    texts, text_ends = _room(names, size, rows)
    kinds = [np.empty(rows, dtype=np.uint8) for _ in names]
    bits = [np.empty(rows, dtype=np.int64) for _ in names]
    status = np.empty(rows, dtype=np.uint8)
    answers = (_addresses(each) for each in (texts, text_ends, kinds, bits))
    others = found.tg_plain_values(*arguments, *answers, status.ctypes.data)
    columns = [
        PlainColumn(kind, _texts(text, ends, valid_bits(kind == TEXT)), value)
        for kind, text, ends, value in zip(kinds, texts, text_ends, bits, strict=True)
    ]
    return PlainValues(status, _others(status, others), columns)


def _asked(payloads: pa.Array, names: Sequence[str], fields_max: int) -> tuple[tuple[Any, ...], int, int] | None:
    """Return the first arguments of both functions, how many bytes of payloads there are, and how many rows; None: too many."""
    rows, wide = len(payloads), pa.types.is_large_binary(payloads.type)
    valid, ends, octets = payloads.buffers()
    if not rows or len(names) > fields_max or octets is None or octets.size > _BYTES_MAX:
        return None
    lengths = (ctypes.c_int32 * len(names))(*map(len, names))
    spelled = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    known = valid.address if valid is not None and payloads.null_count else None
    column = (octets.address, ends.address, wide, known, payloads.offset, rows)
    return (*column, spelled, ctypes.cast(lengths, ctypes.c_void_p), len(names)), octets.size, rows


def _room(names: Sequence[str], size: int, rows: int) -> tuple[list[NDArray[np.uint8]], list[NDArray[np.int32]]]:
    return [np.empty(size, dtype=np.uint8) for _ in names], [np.empty(rows + 1, dtype=np.int32) for _ in names]


def _texts(text: NDArray[np.uint8], ends: NDArray[np.int32], valid: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), len(ends) - 1, [valid, pa.py_buffer(ends), pa.py_buffer(text[: max(int(ends[-1]), 1)])])


def valid_bits(mask: NDArray[np.bool_]) -> pa.Buffer:
    """Return the bitmap by which an Arrow column tells which of its values are there."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def _others(status: NDArray[np.uint8], others: int) -> NDArray[np.int64]:
    return np.flatnonzero(status == _OTHER) if others else np.empty(0, dtype=np.int64)


def _addresses(arrays: Sequence[NDArray[Any]]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
