"""Where keys go: Kafka's own hashes, and the columnar code against a scalar one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import partition_of

from ordering.protocol.partitioner import murmur2_column, output_partitions

_KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Hashes that Kafka's Java client gives for these keys."""


def murmur2(key: bytes) -> int:
    """Return Kafka's hash of one key, octet by octet, signed."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    hashed, left = 0x9747B28C ^ len(key), key
    while len(left) >= 4:
        word = (left[0] | left[1] << 8 | left[2] << 16 | left[3] << 24) * multiplier & mask
        hashed = (hashed * multiplier & mask) ^ ((word ^ word >> 24) * multiplier & mask)
        left = left[4:]
    if left:
        for place, octet in enumerate(left):
            hashed ^= octet << 8 * place
        hashed = hashed * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    hashed ^= hashed >> 15
    return hashed - 2**32 if hashed >= 2**31 else hashed


def test_known_keys_have_kafkas_hashes() -> None:
    """The topic is co-partitioned with what Java producers write: their hashes are ours, all lengths in one call."""
    assert dict(zip(_KNOWN, murmur2_column(list(_KNOWN)).tolist(), strict=True)) == _KNOWN


@given(st.lists(st.binary(max_size=40)))
def test_a_column_hashes_like_one_key_at_a_time(keys: list[bytes]) -> None:
    """Grouping by length and hashing in columns changes nothing, whatever lengths stand beside each other."""
    assert murmur2_column(keys).tolist() == [murmur2(key) for key in keys]


@given(st.lists(st.binary(max_size=20)), st.integers(1, 1000))
def test_partitions_are_the_positive_hash_modulo_n(keys: list[bytes], partitions: int) -> None:
    """Partitions are those of Kafka's default partitioner, also for negative hashes, and those of the oracle."""
    found = output_partitions(keys, partitions).tolist()
    assert found == [(murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert found == [partition_of(key, partitions) for key in keys]


@pytest.mark.parametrize("partitions", [1, 3, 64])
def test_a_missing_key_is_a_key_of_no_bytes(partitions: int) -> None:
    """Zero bytes are hashed like any other key: one substream of its own, in one partition."""
    assert murmur2_column([b"", b""]).tolist() == [275646681, 275646681]
    assert output_partitions([b""], partitions).tolist() == [275646681 % partitions]


def test_no_keys_have_no_partitions() -> None:
    """An empty column stays empty."""
    assert output_partitions([], 4).tolist() == []
