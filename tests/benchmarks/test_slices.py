"""The benchmark of small slices measures real work: its queries have results, and cutting does not change them."""

from __future__ import annotations

import pytest

from benchmarks.slices import QUERIES, bucket_of, slices
from query.buckets.bucket import Bucket
from query.columns.decoded_range import DecodedRange

EVENTS = 1_200


def results(bucket: Bucket, pieces: list[DecodedRange]) -> list[tuple[int, bytes, bytes]]:
    """Return time, key and value of each result."""
    found = []
    for piece in pieces:
        for released in [*bucket.accept_in_parts(0, piece), bucket.settle()]:
            found += [row for part in released for row in zip(*(c.tolist() for c in (part.system_us, part.key, part.value)), strict=True)]
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_slices_of_any_size_give_the_same_results(name: str) -> None:
    """Level 3: the bytes are those of one slice with all events, and so is their order but for that between substreams (OVER)."""
    sql, over = QUERIES[name]
    sql = sql.replace("TumblingWindow(second, 1)", "TumblingWindow(ms, 30)")
    in_order = sorted if over else list
    expected = in_order(results(bucket_of(sql, over=over), list(slices(EVENTS, 1, over=over))))
    assert len(expected) > 10
    for size in (8, 100):
        assert in_order(results(bucket_of(sql, over=over), list(slices(size, EVENTS // size, over=over)))) == expected
