"""
Which output partition a key goes to: ``toPositive(murmur2(key)) mod N``, exactly as Kafka's Java partitioner.

The ordered topic is thereby co-partitioned with any topic that Java producers partition by the same key (spec
section 4). A missing key is zero bytes and hashed like any other: one substream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)


def murmur2_column(keys: Sequence[bytes]) -> NDArray[np.int32]:
    """Return Kafka's signed 32-bit murmur2 of every key, computed per key length so that each step is one numpy call."""
    hashes = np.empty(len(keys), dtype=np.uint32)
    lengths = np.fromiter((len(key) for key in keys), dtype=np.int64, count=len(keys))
    with np.errstate(over="ignore"):
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            joined = b"".join([keys[row] for row in rows.tolist()])
            hashes[rows] = _murmur2_of_length(np.frombuffer(joined, dtype=np.uint8).reshape(len(rows), int(length)))
    return hashes.view(np.int32)


def _murmur2_of_length(octets: NDArray[np.uint8]) -> NDArray[np.uint32]:
    count, length = octets.shape
    hashed = np.full(count, _SEED ^ np.uint32(length), dtype=np.uint32)
    whole = length - length % 4
    words = np.ascontiguousarray(octets[:, :whole]).view("<u4")
    for column in range(whole // 4):
        word = words[:, column] * _M
        word = (word ^ (word >> np.uint32(24))) * _M
        hashed = (hashed * _M) ^ word
    tail = octets[:, whole:].astype(np.uint32)
    for position in range(length % 4 - 1, -1, -1):
        hashed = hashed ^ (tail[:, position] << np.uint32(8 * position))
    if length % 4:
        hashed = hashed * _M
    hashed = (hashed ^ (hashed >> np.uint32(13))) * _M
    return hashed ^ (hashed >> np.uint32(15))


def output_partitions(keys: Sequence[bytes], partitions: int) -> NDArray[np.int32]:
    """Return the output partition, 0 to *partitions* - 1, of every key."""
    return ((murmur2_column(keys) & np.int32(0x7FFFFFFF)) % np.int32(partitions)).astype(np.int32)
