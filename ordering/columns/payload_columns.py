"""
Payload columns: keys and values pass through the model unread, as numpy arrays of Python bytes or as Arrow binary columns.

Law: entries never change, and an Arrow column keeps its type. Selected rows are copied, so a held event does not keep its whole batch in
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask

Objects = NDArray[np.object_]
# A numpy array of objects (bytes or None), or an Arrow binary column.
Payload = Any


# The most payload bytes of an Arrow column with 32-bit offsets.
BYTES_MAX = 2**31 - 1


def take_rows(column: Payload, rows: Ints) -> Payload:
    """Return the entries at *rows*, in their order."""
    if isinstance(column, np.ndarray):
        return column[rows]
    return pc.take(column, pa.array(rows), boundscheck=False)


def rows_above(bytes_max: int, *columns: Payload) -> Mask:
    """Return which rows of Arrow binary columns have more than *bytes_max* bytes together."""
    sizes = sum(pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0).to_numpy() for column in columns)
    return np.asarray(sizes > bytes_max)


def concat_columns(parts: Sequence[Payload]) -> Payload:
    """Return the entries of all *parts* in order; an empty part may be of either kind."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    if all(isinstance(part, np.ndarray) for part in filled):
        return np.concatenate(filled)
    return pa.concat_arrays([to_arrow(part) for part in filled])


def take_rows_of_two(first: Payload, second: Payload, rows: Ints) -> Payload:
    """Return the entries at *rows* of *first* followed by *second*, as the column type of *second* (large_binary if it would overflow)."""
    if not len(first):
        return take_rows(second, rows)
    if not isinstance(second, np.ndarray):
        first = to_arrow(first)
        kind = second.type if first.nbytes + second.nbytes <= BYTES_MAX else pa.large_binary()
        both = pa.concat_arrays([first.cast(kind), second.cast(kind)])
        # All but a few rows at the end, as if events come in order: concatenating has copied them.
        if 2 * len(rows) > len(both) and rows[-1] == len(rows) - 1 and (np.diff(rows) == 1).all():
            return both[: len(rows)]
        return take_rows(both, rows)
    if second.dtype != object:
        return np.concatenate([first, second])[rows]
    first = first if isinstance(first, np.ndarray) else to_objects(first)
    out = np.empty(len(rows), dtype=second.dtype)
    early = rows < len(first)
    out[early] = first[rows[early]]
    late = ~early
    out[late] = second[rows[late] - len(first)]
    return out


def to_arrow(column: Payload) -> pa.Array:
    """Return the column as Arrow large_binary."""
    if isinstance(column, np.ndarray):
        return pa.array(column.tolist(), type=pa.large_binary())
    return column if pa.types.is_large_binary(column.type) else column.cast(pa.large_binary())


def to_objects(column: pa.Array | pa.ChunkedArray | Sequence[bytes | None]) -> Objects:
    """Return an Arrow column, or a list of bytes, as a numpy column of objects."""
    objects = np.empty(len(column), dtype=object)
    objects[:] = column.to_pylist() if isinstance(column, pa.Array | pa.ChunkedArray) else column
    return objects


def empty_column() -> NDArray[np.object_]:
    """Return a column without entries."""
    return np.empty(0, dtype=object)
