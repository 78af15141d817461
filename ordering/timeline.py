"""
The substream table: which timelines are known, and the largest system timestamp each has accepted.

A timeline is an input partition or, with OVER, a substream of it. Law: a timeline with nothing held whose own
watermark is not above the floor may be forgotten, and nothing any later event meets is changed by it (spec section 2);
so the table is as large as what must be known, and no larger after ``forget``.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.partitioner import output_partitions
from ordering.ticks import NEVER

Ints = NDArray[np.int64]
Entry = TypeVar("Entry", bound=np.generic)


class Timelines:
    """
    Rows are dense numbers 0, 1, ... given in order of first sight; they change only in :meth:`forget`.

    Args:
        partitions: Number of output partitions N; a substream's is ``murmur2(key) mod N``.
        whole: Without OVER, the output partition of the one timeline there is; None with OVER.
    """

    def __init__(self, partitions: int, whole: int | None) -> None:
        self._partitions, self._whole = partitions, whole
        self._rows: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._largest_us: Ints = np.empty(0, dtype=np.int64)
        self._partition = np.empty(0, dtype=np.int32)
        self._chunk: Ints = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def largest_us(self) -> Ints:
        """Largest system timestamp accepted per timeline (``NEVER`` before the first); writable."""
        return self._largest_us[: len(self._rows)]

    @property
    def partition(self) -> NDArray[np.int32]:
        """Output partition per timeline."""
        return self._partition[: len(self._rows)]

    @property
    def chunk(self) -> Ints:
        """The snapshot chunk that holds each timeline's newest entry (see :mod:`ordering.state`); writable."""
        return self._chunk[: len(self._rows)]

    def keys(self) -> list[bytes]:
        """Return the key bytes of every timeline, by row."""
        return self._keys

    def find(self, keys: pa.Array) -> Ints:
        """Return the row of each substream key (binary or dictionary column without nulls), adding timelines not yet known."""
        encoded = keys.dictionary_encode()
        unique: list[bytes] = encoded.dictionary.to_pylist()
        known = self._rows
        fresh = list(dict.fromkeys(key for key in unique if key not in known))
        if fresh:
            self._add(fresh)
        rows = np.fromiter((known[key] for key in unique), dtype=np.int64, count=len(unique))
        found: Ints = rows[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def _add(self, keys: list[bytes]) -> None:
        first, last = len(self._rows), len(self._rows) + len(keys)
        if last > len(self._largest_us):
            room = max(last, 2 * len(self._largest_us), 1024)
            self._largest_us = _grown(self._largest_us, room)
            self._partition = _grown(self._partition, room)
            self._chunk = _grown(self._chunk, room)
        self._rows.update(zip(keys, range(first, last), strict=True))
        self._keys.extend(keys)
        self._largest_us[first:last] = NEVER
        self._chunk[first:last] = -1
        self._partition[first:last] = output_partitions(keys, self._partitions) if self._whole is None else self._whole

    def forget(self, needed: NDArray[np.bool_]) -> Ints:
        """Keep only the *needed* rows; return the new row of each old one (-1: forgotten)."""
        moved = np.where(needed, np.cumsum(needed) - 1, -1)
        flags = needed.tolist()
        self._keys = [key for key, keep in zip(self._keys, flags, strict=True) if keep]
        self._largest_us, self._partition, self._chunk = self.largest_us[needed], self.partition[needed], self.chunk[needed]
        self._rows = {key: row for row, key in enumerate(self._keys)}
        return moved.astype(np.int64)


def _grown(column: NDArray[Entry], room: int) -> NDArray[Entry]:
    grown = np.empty(room, dtype=column.dtype)
    grown[: len(column)] = column
    return grown
