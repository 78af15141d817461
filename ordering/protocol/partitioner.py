"""
The output partition of a key: ``toPositive(murmur2(key)) mod N``, exactly as Kafka's Java partitioner.

So the ordered topic is co-partitioned with any topic that Java producers partition by the same key. A missing key is
hashed as zero bytes: one substream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.columns.key_table import Keys

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)


def murmur2(keys: Keys) -> NDArray[np.int32]:
    """Return Kafka's signed 32-bit murmur2 of every key, with one numpy call for each step of the hash."""
    hashed = _SEED ^ keys.length.astype(np.uint32)
    # Four bytes at a time: halves of the keys' words. The padding is zero, so the last incomplete half has the
    # value that Kafka gathers byte by byte.
    halves = keys.words.view("<u4")
    words = keys.length >> 2
    rows = np.arange(len(words))
    for place in range(int(words.max(initial=0))):
        rows = rows[words[rows] > place]
        word = halves[2 * keys.first[rows] + place] * _M
        word = (word ^ (word >> np.uint32(24))) * _M
        hashed[rows] = (hashed[rows] * _M) ^ word
    rows = np.flatnonzero(keys.length & 3)
    hashed[rows] = (hashed[rows] ^ halves[2 * keys.first[rows] + words[rows]]) * _M
    hashed = (hashed ^ (hashed >> np.uint32(13))) * _M
    return (hashed ^ (hashed >> np.uint32(15))).view(np.int32)


def murmur2_column(keys: Sequence[bytes]) -> NDArray[np.int32]:
    """Return Kafka's signed 32-bit murmur2 of every key."""
    return murmur2(Keys.of(pa.array(keys, type=pa.binary())))


def partitions_of(keys: Keys, partitions: int) -> NDArray[np.int32]:
    """Return the output partition, 0 to *partitions* - 1, of every key."""
    return ((murmur2(keys) & np.int32(0x7FFFFFFF)) % np.int32(partitions)).astype(np.int32)


def output_partitions(keys: Sequence[bytes], partitions: int) -> NDArray[np.int32]:
    """Return the output partition, 0 to *partitions* - 1, of every key."""
    return partitions_of(Keys.of(pa.array(keys, type=pa.binary())), partitions)
