"""
The table of timelines: which are known, and the largest system timestamp accepted on each.

A timeline is an input partition or, with OVER, a substream of it. Law: a timeline without held events whose own watermark is not above the
floor may be forgotten without effect on any later event. So after ``forget`` the table has only the timelines that can
still matter.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask
from ordering.columns.key_table import Keys, KeyTable, with_room
from ordering.protocol.partitioner import partitions_of
from ordering.ticks import NEVER

ShortInts = NDArray[np.int32]


class Timelines:
    """
    The table. Timelines have rows 0, 1, ... in order of first sight, which change only in :meth:`forget`.

    Args:
        partitions: Number of output partitions N; a substream's is ``murmur2(key) mod N``.
        only_partition: The output partition of the single timeline; None with OVER.

    >>> table = Timelines(partitions=2, only_partition=None)
    >>> rows = table.find_or_add(pa.array([b"car1", b"car2", b"car1"]))
    >>> rows.tolist()
    [0, 1, 0]
    >>> np.maximum.at(table.largest_us, rows, np.array([10, 30, 20]))
    >>> table.largest_us.tolist()
    [20, 30]

    At a floor of 25 nothing later depends on the first timeline any more. It goes, and the second one has its row.

    >>> table.forget(table.largest_us > 25).tolist()
    [-1, 0]
    >>> table.keys(np.array([0])).to_pylist()
    [b'car2']
    """

    def __init__(self, partitions: int, only_partition: int | None) -> None:
        self._partitions, self._only_partition = partitions, only_partition
        self._table = KeyTable()
        self._largest_us: Ints = np.empty(0, dtype=np.int64)
        self._announced_us: Ints | None = None
        self._partition: ShortInts = np.empty(0, dtype=np.int32)
        self._newest_chunk: ShortInts = np.empty(0, dtype=np.int32)
        self._place: ShortInts = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def has_substreams(self) -> bool:
        return self._only_partition is None

    @property
    def largest_us(self) -> Ints:
        """Largest system timestamp accepted on each timeline (``NEVER`` before the first); writable."""
        return self._largest_us[: len(self)]

    @property
    def announced_us(self) -> Ints:
        """Each timeline's watermark as readers know it from events and lists; writable. Not saved: a repeated list does no harm."""
        # Few models list substreams, so this column is made when it is first asked for.
        announced = np.empty(0, dtype=np.int64) if self._announced_us is None else self._announced_us
        if len(announced) < len(self):
            known, announced = len(announced), with_room(announced, len(self))
            announced[known:] = NEVER
        self._announced_us = announced
        return announced[: len(self)]

    @property
    def partition(self) -> ShortInts:
        return self._partition[: len(self)]

    @property
    def newest_chunk(self) -> ShortInts:
        """Number of the chunk with each timeline's newest value (see :mod:`ordering.model.state`); writable."""
        return self._newest_chunk[: len(self)]

    def keys(self, rows: Ints) -> pa.Array:
        return self._table.keys(rows).to_arrow()

    def find_or_add(self, keys: pa.Array) -> Ints:
        """Return the row of each key (binary or dictionary column without nulls); unknown timelines are added."""
        if pa.types.is_dictionary(keys.type):
            # A dictionary made elsewhere may hold a key twice, and keys that no row has: these would stay in the table for nothing.
            codes = keys.indices.to_numpy(zero_copy_only=False)
            is_used = np.bincount(codes, minlength=len(keys.dictionary)) > 0
            distinct = keys.dictionary.filter(pa.array(is_used)).dictionary_encode()
            index = distinct.indices.to_numpy()[(np.cumsum(is_used) - 1)[codes]]
        else:
            distinct = keys.dictionary_encode()
            index = distinct.indices.to_numpy()
        rows: Ints = self.find_or_add_distinct(Keys.of(distinct.dictionary))[index]
        return rows

    def find_or_add_distinct(self, keys: Keys) -> Ints:
        first = len(self._table)
        rows, added = self._table.find_or_add(keys)
        if len(added):
            count = len(self._table)
            self._largest_us, self._partition = with_room(self._largest_us, count), with_room(self._partition, count)
            self._newest_chunk, self._place = with_room(self._newest_chunk, count), with_room(self._place, count)
            self._largest_us[first:count] = NEVER
            self._newest_chunk[first:count] = -1
            # To the end of the buffer: a forgotten row is -1 and reads its last entry.
            self._place[first:] = -1
            self._partition[first:count] = (
                partitions_of(keys.take_rows(added), self._partitions) if self._only_partition is None else self._only_partition
            )
        return rows

    def places_among(self, chosen: Ints, asked: Ints | ShortInts) -> Ints:
        """Return for each timeline *asked* its index in *chosen*, -1 if it is not there."""
        self._place[chosen] = np.arange(len(chosen), dtype=np.int32)
        places = self._place[asked].astype(np.int64)
        self._place[chosen] = -1
        return places

    def mask_of(self, chosen: Ints) -> Mask:
        """Return a mask of the *chosen* table rows, with one extra False entry for forgotten timelines (-1)."""
        mask = np.zeros(len(self) + 1, dtype=np.bool_)
        mask[chosen] = True
        return mask

    def drop_repeats(self, rows: ShortInts) -> ShortInts:
        order = np.arange(len(rows), dtype=np.int32)
        self._place[rows] = order
        # Of rows that repeat, numpy leaves the last one written.
        is_last: Mask = self._place[rows] == order
        self._place[rows] = -1
        distinct: ShortInts = rows[is_last]
        return distinct

    def forget(self, needed: Mask) -> Ints:
        """Keep only the *needed* rows; return the new row of each old one (-1: forgotten)."""
        new_rows = np.where(needed, np.cumsum(needed) - 1, -1)
        if self._announced_us is not None:
            self._announced_us = self.announced_us[needed]
        self._largest_us, self._partition, self._newest_chunk = self.largest_us[needed], self.partition[needed], self.newest_chunk[needed]
        self._place = np.full(len(self._newest_chunk), -1, dtype=np.int32)
        self._table.keep(np.flatnonzero(needed))
        return new_rows
