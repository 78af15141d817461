"""
A table of byte keys: each distinct key has a row number 0, 1, ..., given in order of first sight. All methods work on whole columns.

With a million keys a Python dictionary costs half a microsecond a lookup (cache misses) and a hundred bytes a key. Here all keys lie in one
array of zero-padded 8-byte words. An open-addressing hash table holds (hash, row) pairs; each probe is one numpy call for all keys not yet
found.

Law: equal bytes have one row, different bytes have different rows. Hashes only choose where to search; words are always compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask

Words = NDArray[np.uint64]
Entry = TypeVar("Entry", bound=np.generic)

_MULTIPLY = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)
_ROW_BITS = np.uint64(0xFFFFFFFF)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
# The mask of a word of which 0, 1, ... or 8 bytes belong to the key.
_KEEP = np.array([(1 << (8 * count)) - 1 for count in range(8)] + [2**64 - 1], dtype=np.uint64)
_SLOTS_MIN = 1024
_BLOCK_WORDS = 1 << 17


@dataclass(slots=True)
class Keys:
    """Byte keys as zero-padded words, eight bytes a word, little-endian."""

    # The words of all keys.
    words: Words
    # Index of each key's first word.
    first: Ints
    # Length of each key in bytes; it has ``(length + 7) // 8`` words.
    length: Ints

    def __len__(self) -> int:
        return len(self.first)

    @staticmethod
    def of(column: pa.Array) -> Keys:
        """Return the keys of a binary or string column without nulls."""
        wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
        if not wide and not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
            column = column.cast(pa.binary())
        _, offsets, data = column.buffers()
        if not len(column) or data is None:
            return Keys(np.zeros(0, dtype=np.uint64), np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.int64))
        bounds = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)[column.offset : column.offset + len(column) + 1]
        bounds = bounds.astype(np.int64)
        length = np.diff(bounds)
        # Eight spare bytes: the last word of the last key may be read beyond its end.
        encoded = np.zeros(int(bounds[-1] - bounds[0]) + 8, dtype=np.uint8)
        encoded[:-8] = np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]]
        # Each byte begins a word here, so a key's words can be picked wherever it begins.
        everywhere = np.ndarray((len(encoded) - 7,), dtype="<u8", buffer=encoded, strides=(1,))
        begin = bounds[:-1] - bounds[0]
        counts = (length + 7) >> 3
        keys = Keys(np.empty(int(counts.sum()), dtype=np.uint64), np.cumsum(counts) - counts, length)
        for rows in _blocks(counts):
            own, place = keys._own_words(rows), _places(counts[rows])
            own[:] = everywhere[np.repeat(begin[rows], counts[rows]) + 8 * place]
            own &= _KEEP[np.minimum(np.repeat(length[rows], counts[rows]) - 8 * place, 8)]
        return keys

    def take_rows(self, rows: Ints) -> Keys:
        length = self.length[rows]
        counts = (length + 7) >> 3
        keys = Keys(np.empty(int(counts.sum()), dtype=np.uint64), np.cumsum(counts) - counts, length)
        for block in _blocks(counts):
            keys._own_words(block)[:] = self.words[np.repeat(self.first[rows[block]], counts[block]) + _places(counts[block])]
        return keys

    def to_arrow(self) -> pa.Array:
        counts = (self.length + 7) >> 3
        bounds = np.concatenate([[0], np.cumsum(self.length)]).astype(np.int64)
        encoded = np.empty(int(bounds[-1]), dtype=np.uint8)
        for rows in _blocks(counts):
            place = _places(counts[rows])
            words = self.words[np.repeat(self.first[rows], counts[rows]) + place]
            valid = np.arange(8)[None, :] < (np.repeat(self.length[rows], counts[rows]) - 8 * place)[:, None]
            encoded[bounds[rows.start] : bounds[rows.stop]] = words.view(np.uint8).reshape(-1, 8)[valid]
        column = pa.Array.from_buffers(pa.large_binary(), len(self), [None, pa.py_buffer(bounds), pa.py_buffer(encoded)])
        return column.cast(pa.binary())

    def _own_words(self, rows: slice) -> Words:
        """Return the words of a block of rows; their keys lie one after the other."""
        end = self.first[rows.stop] if rows.stop < len(self.first) else len(self.words)
        return self.words[self.first[rows.start] : end]

    def hashes(self) -> Words:
        """Return a 64-bit hash of each key; it never leaves this process."""
        hashed = self.length.astype(np.uint64) * _MIX
        for place, rows in self._by_word():
            word = self.words[self.first[rows] + place]
            mixed = (hashed[rows] ^ word) * _MULTIPLY
            hashed[rows] = mixed ^ (mixed >> _SHIFT)
        hashed *= _MIX
        return hashed ^ (hashed >> np.uint64(29))

    def _by_word(self) -> Iterator[tuple[int, slice | Ints]]:
        """Yield for each word position the keys that have a word there."""
        counts = (self.length + 7) >> 3
        least = int(counts.min()) if len(counts) else 0
        for place in range(least):
            yield place, slice(None)
        rows = np.arange(len(counts))
        for place in range(least, int(counts.max(initial=0))):
            # Those with fewer words are never looked at again: one huge key costs its own words only.
            rows = rows[counts[rows] > place]
            yield place, rows


def _blocks(counts: Ints) -> Iterator[slice]:
    """Cut keys of so many words each into blocks: a block's intermediate columns are ten times its words."""
    ends, start = np.cumsum(counts), 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + _BLOCK_WORDS, side="right")), start + 1)
        yield slice(start, stop)
        start = stop


def _places(counts: Ints) -> Ints:
    """Return the place of each word within its key, for keys of so many words each."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


class KeyTable:
    """The table of keys that the module describes."""

    def __init__(self) -> None:
        self._count = 0
        self._words = np.zeros(0, dtype=np.uint64)
        self._words_used = 0
        self._first = np.zeros(0, dtype=np.int64)
        self._length = np.zeros(0, dtype=np.int32)
        self._slots = np.full(_SLOTS_MIN, _EMPTY, dtype=np.uint64)

    def __len__(self) -> int:
        return self._count

    def keys(self, rows: Ints) -> Keys:
        """Return the keys of some rows, without a copy: valid until the table changes."""
        return Keys(self._words, self._first[rows], self._length[rows].astype(np.int64))

    def find_or_add(self, keys: Keys) -> tuple[Ints, Ints]:
        """Add the unknown ones of the distinct *keys*; return the row of each key, and the indices of the added keys, rising."""
        hashed = keys.hashes()
        rows = self._look_up(keys, hashed)
        fresh = np.flatnonzero(rows < 0)
        if len(fresh):
            rows[fresh] = np.arange(self._count, self._count + len(fresh))
            self._append(keys.take_rows(fresh))
            # At most half of the slots are used, so that few probes are needed.
            if 2 * self._count > len(self._slots):
                self._rehash()
            else:
                self._insert(hashed[fresh], rows[fresh])
        return rows, fresh

    def keep(self, needed: Ints) -> None:
        """Keep only the *needed* rows (rising) and renumber them 0, 1, ... in that order."""
        kept = self.keys(needed).take_rows(np.arange(len(needed)))
        self._count = len(kept)
        self._words, self._words_used, self._first = kept.words, len(kept.words), kept.first
        self._length = kept.length.astype(np.int32)
        self._rehash()

    def _look_up(self, keys: Keys, hashed: Words) -> Ints:
        rows = np.full(len(keys), -1, dtype=np.int64)
        mask = np.uint64(len(self._slots) - 1)
        slot = (hashed & mask).astype(np.int64)
        tags = hashed & ~_ROW_BITS
        sought = np.arange(len(keys))
        while len(sought):
            entry = self._slots[slot]
            is_open = entry != _EMPTY
            likely = np.flatnonzero(is_open & ((entry & ~_ROW_BITS) == tags))
            candidates = (entry[likely] & _ROW_BITS).astype(np.int64)
            same = self._are_equal(keys, sought[likely], candidates)
            rows[sought[likely[same]]] = candidates[same]
            is_open[likely[same]] = False
            # A key that met a free slot is new; one that met another key looks into the next slot.
            sought, tags = sought[is_open], tags[is_open]
            slot = (slot[is_open] + 1) & int(mask)
        return rows

    def _are_equal(self, keys: Keys, places: Ints, rows: Ints) -> Mask:
        length = keys.length[places]
        same: Mask = self._length[rows] == length
        words = (length + 7) >> 3
        undecided = np.arange(len(same))
        for place in range(int(words.max(initial=0))):
            undecided = undecided[same[undecided] & (words[undecided] > place)]
            own = self._words[self._first[rows[undecided]] + place]
            same[undecided] = own == keys.words[keys.first[places[undecided]] + place]
        return same

    def _append(self, keys: Keys) -> None:
        count, words = self._count + len(keys), self._words_used + len(keys.words)
        self._first = with_room(self._first, count)
        self._length = with_room(self._length, count)
        self._words = with_room(self._words, words)
        self._first[self._count : count] = keys.first + self._words_used
        self._length[self._count : count] = keys.length
        self._words[self._words_used : words] = keys.words
        self._count, self._words_used = count, words

    def _insert(self, hashed: Words, rows: Ints) -> None:
        mask = len(self._slots) - 1
        entries = (hashed & ~_ROW_BITS) | rows.astype(np.uint64)
        slot = (hashed & np.uint64(mask)).astype(np.int64)
        while len(slot):
            free = self._slots[slot] == _EMPTY
            self._slots[slot[free]] = entries[free]
            # Several may have chosen one slot: the last one written has it, the others go on.
            lost = self._slots[slot] != entries
            slot, entries = (slot[lost] + 1) & mask, entries[lost]

    def _rehash(self) -> None:
        slots = _SLOTS_MIN
        while slots < 4 * self._count:
            slots *= 2
        self._slots = np.full(slots, _EMPTY, dtype=np.uint64)
        rows = np.arange(self._count)
        used = Keys(self._words[: self._words_used], self._first[: self._count], self._length[: self._count].astype(np.int64))
        self._insert(used.hashes(), rows)


def with_room(column: NDArray[Entry], room: int) -> NDArray[Entry]:
    """Return *column*, enlarged to at least *room* entries if it is shorter; new entries are undefined."""
    if room <= len(column):
        return column
    wider = np.empty(max(room, len(column) + (len(column) >> 2), 256), dtype=column.dtype)
    wider[: len(column)] = column
    return wider
