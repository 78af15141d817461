"""In which order results leave, where only the last parts of it decide."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from query.buckets.emission_order import sort_by_emission

# Substreams by a bucket's numbers, which depend on which it met first: their keys and input partitions.
KEYS = [b"b", b"a", b"a"]
NUMBERS = np.array([0, 1, 0])


@pytest.mark.parametrize(
    ("final_by", "system_us", "expected"),
    [
        ([5, 5, 5], [9, 9, 9], [b"a0", b"a1", b"b0"]),
        ([5, 5, 4], [9, 9, 9], [b"a0", b"a1", b"b0"]),
        ([5, 5, 6], [9, 9, 9], [b"a1", b"b0", b"a0"]),
        ([5, 5, 5], [8, 9, 9], [b"b0", b"a0", b"a1"]),
    ],
)
def test_of_one_record_and_time_the_key_decides_and_then_the_input_partition(
    final_by: list[int], system_us: list[int], expected: list[bytes]
) -> None:
    """Level 2: whatever numbers the bucket gave its substreams."""
    values = [b"b0", b"a1", b"a0"]
    results = pa.table({"sub": [0, 1, 2], "system_us": system_us, "key": pa.array([b""] * 3, pa.binary()), "value": values})
    found = sort_by_emission(results, np.array(final_by), KEYS.__getitem__, NUMBERS.__getitem__)
    assert found["value"].to_pylist() == expected
