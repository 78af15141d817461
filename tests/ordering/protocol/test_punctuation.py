"""What CTIs become when timestamps are moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ordering.protocol.punctuation import shift_cti
from ordering.ticks import INFINITY, NEVER


@given(st.integers(NEVER, INFINITY), st.integers(-(2**63), 2**63 - 1))
def test_a_shift_stays_inside_int64_and_ends_no_stream(c: int, by_us: int) -> None:
    """Level 3: what would overflow becomes the nearest time that is neither NEVER nor INFINITY; those two stay."""
    out = shift_cti(c, by_us)
    if c in (NEVER, INFINITY):
        assert out == c
    else:
        assert NEVER < out < INFINITY
        assert out == c + by_us or out in (NEVER + 1, INFINITY - 1)
