"""
The door to ``plain_json.c``: fields of plain JSON objects, a whole column at a time.

Law: what it takes is what every parser would take; of payloads that are not plain it says nothing but that they are not.
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

_FIELDS_MAX = 8
_OTHER, _PLAIN = 0, 1
_BYTES_MAX = 2**31 - 1


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


@cache
def library() -> ctypes.CDLL | None:
    """Return ``plain_json.c``, None where it was not compiled."""
    compiled = next(iter(sorted(Path(__file__).parent.glob("_plain_json*.so"))), None)
    return None if compiled is None else opened(compiled)


def opened(compiled: Path) -> ctypes.CDLL | None:
    """Open the compiled file; None where this machine cannot."""
    try:
        found = ctypes.CDLL(str(compiled))
    except OSError:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int
    pointers = ctypes.POINTER(pointer)
    found.tg_plain_json.restype = ctypes.c_int64
    found.tg_plain_json.argtypes = [
        *(pointer, pointer, number, pointer, ctypes.c_int64, ctypes.c_int64),
        *(ctypes.POINTER(ctypes.c_char_p), pointer, number, pointers, pointers, pointers, pointer),
    ]
    return found


def take(found: ctypes.CDLL, payloads: pa.Array, names: Sequence[str]) -> Plain | None:
    """
    Take the fields of these *names* out of binary *payloads*; None where they are too many, or the column is too large.

    Args:
        found: :func:`library`.
        payloads: A binary or large_binary column.
        names: Names of members of the object, each once; printable ASCII.
    """
    rows, wide = len(payloads), pa.types.is_large_binary(payloads.type)
    valid, ends, octets = payloads.buffers()
    if not rows or len(names) > _FIELDS_MAX or octets is None or octets.size > _BYTES_MAX:
        return None
    size = octets.size
    lengths = np.array([len(name) for name in names], dtype=np.int32)
    texts = [np.empty(size, dtype=np.uint8) for _ in names]
    text_ends = [np.empty(rows + 1, dtype=np.int32) for _ in names]
    there = [np.empty((rows + 7) // 8, dtype=np.uint8) for _ in names]
    status = np.empty(rows, dtype=np.uint8)
    others = found.tg_plain_json(
        octets.address,
        ends.address,
        wide,
        valid.address if valid is not None and payloads.null_count else None,
        payloads.offset,
        rows,
        (ctypes.c_char_p * len(names))(*(name.encode() for name in names)),
        lengths.ctypes.data,
        len(names),
        _addresses(texts),
        _addresses(text_ends),
        _addresses(there),
        status.ctypes.data,
    )
    columns = [
        pa.Array.from_buffers(pa.string(), rows, [pa.py_buffer(bits), pa.py_buffer(end), pa.py_buffer(text[: max(int(end[-1]), 1)])])
        for bits, end, text in zip(there, text_ends, texts, strict=True)
    ]
    return Plain(status == _PLAIN, np.flatnonzero(status == _OTHER) if others else np.empty(0, dtype=np.int64), columns)


def _addresses(arrays: Sequence[NDArray[Any]]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
