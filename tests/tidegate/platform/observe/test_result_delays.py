"""Delays of results: counted by stages, summed for Prometheus, and shown over the last minutes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.ticks import SECOND_US
from tidegate.platform.observe.result_delays import BOUNDS_S, RecentDelays, count_delays, histogram, quantile_ms

COUNTS = st.dictionaries(st.integers(0, 10**9), st.integers(1, 10**6), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("delay_ms", "counted_ms"),
    [(-5, 0), (0, 0), (7, 7), (99, 99), (104, 100), (105, 110), (999, 1_000), (1_249, 1_200), (86_399_999, 86_000_000)],
)
def test_a_delay_is_counted_with_two_digits(delay_ms: int, counted_ms: int) -> None:
    """The clock of a broker that is ahead makes no delay negative."""
    now_us = 1_767_600_000 * SECOND_US
    assert count_delays({now_us - delay_ms * 1_000: 3}, now_us) == {counted_ms: 3}


@given(COUNTS, COUNTS)
def test_a_histogram_counts_every_result_once(some: dict[int, int], others: dict[int, int]) -> None:
    """It only rises from bound to bound, ends with all results, and is the sum of those of its parts."""
    both = dict(Counter(some) + Counter(others))
    (buckets, sum_s), parts = histogram(both), [histogram(some), histogram(others)]
    counts = [count for _, count in buckets]
    assert counts == sorted(counts)
    assert [float(bound) for bound, _ in buckets] == [*BOUNDS_S, float("inf")]
    assert counts[-1] == sum(both.values())
    assert counts == [sum(each) for each in zip(*([count for _, count in buckets] for buckets, _ in parts), strict=True)]
    assert sum_s == pytest.approx(sum(part_s for _, part_s in parts))


@given(COUNTS, st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_a_quantile_is_the_delay_of_a_result(delays: dict[int, int], share: float) -> None:
    """That share of the results had it or a shorter one, and fewer had a shorter one."""
    found, count = quantile_ms(delays, share), sum(delays.values())
    assert found in delays
    assert sum(each for delay_ms, each in delays.items() if delay_ms <= found) >= share * count - 1e-6
    assert sum(each for delay_ms, each in delays.items() if delay_ms < found) < share * count


def test_only_the_last_minutes_are_shown() -> None:
    """Each output on its own; after five minutes without results nothing is said of it."""
    clock = [0.0]
    recent = RecentDelays(lambda: clock[0])
    recent.add([("slow", {90_000: 1}), ("fast", {300: 98, 4_200: 2})])
    clock[0] = 200.0
    recent.add([("fast", {300: 100})])
    fast, slow = recent.as_dicts()
    words = "half of the last 200 results came within 300 ms of their raw records' arrival, 99 % within 300 ms"
    assert fast == {"output": "fast", "results": 200, "p50_s": 0.3, "p99_s": 0.3, "in_words": words}
    assert slow["in_words"].endswith("came within 1m30s of their raw records' arrival, 99 % within 1m30s")
    clock[0] = 301.0
    assert [each["results"] for each in recent.as_dicts()] == [100]
    clock[0] = 501.0
    assert recent.as_dicts() == []
