"""The spans that a sample verifies."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ordering.ticks import DAY_US, MINUTE_US
from tidegate.tools.verify.sampling import draw_spans


@given(st.integers(0, 2**50), st.integers(1, 5_000 * DAY_US), st.integers(1, 50), st.integers())
def test_spans_lie_in_the_history_and_apart(from_us: int, length_us: int, count: int, seed: int) -> None:
    """Not more than wanted, in order, without overlap, the same for one seed."""
    spans = draw_spans(from_us, from_us + length_us, count, seed)
    assert 0 < len(spans) <= count
    assert spans == draw_spans(from_us, from_us + length_us, count, seed)
    for (_, until_us), (since_us, _) in pairwise(spans):
        assert until_us <= since_us + 1_000, "whole milliseconds"
    assert all(until_us - since_us >= MINUTE_US for since_us, until_us in spans)
    assert spans[0][0] >= from_us - 1_000


def test_other_seeds_draw_other_spans() -> None:
    """Whoever has forged a part cannot know which are looked at."""
    drawn = {tuple(draw_spans(0, 365 * DAY_US, 10, seed)) for seed in range(20)}
    assert len(drawn) == 20
