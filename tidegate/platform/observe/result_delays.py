"""
The delay of results: from the append of the raw records that made a result final to the append of the result, through any chain of queries.

Each stage counts the results of a batch by their delay when the brokers have acknowledged them. Law: counts add up, over batches, buckets
and processes; a delay is rounded to two digits, so there are at most ninety of them between a second and ten, and each is right to 5 %.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ordering.ticks import MILLISECOND_US
from tidegate.platform.observe.recovery_report import duration_in_words

# For each delay, milliseconds, how many results had it.
Delays = Mapping[int, int]

# The upper bounds of the histogram's buckets, seconds.
BOUNDS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
# Status shows the delays of this long, in slots that leave it together.
WINDOW_S, _SLOT_S = 300.0, 10.0


def count_delays(by_arrival: Mapping[int, int], now_us: int) -> dict[int, int]:
    """Return the delays of results that were appended at *now_us*, by the arrival frontier that each follows from, microseconds."""
    delays: Counter[int] = Counter()
    for arrival_us, count in by_arrival.items():
        # Brokers' clocks may be ahead of the worker's.
        delays[_round(max(now_us - arrival_us, 0) // MILLISECOND_US)] += count
    return dict(sorted(delays.items()))


def _round(delay_ms: int) -> int:
    unit = int(10 ** max(len(str(delay_ms)) - 2, 0))
    return (delay_ms + unit // 2) // unit * unit


def quantile_ms(delays: Delays, share: float) -> int:
    """Return the least delay that is at least as long as that of this *share* of the results, which are not none."""
    rest = share * sum(delays.values())
    for delay_ms, count in sorted(delays.items()):
        rest -= count
        if rest <= 1e-9:
            return delay_ms
    return max(delays)


def histogram(delays: Delays) -> tuple[list[tuple[str, int]], float]:
    """Return the buckets as Prometheus wants them - upper bound, results up to it -, and the sum of all delays, seconds."""
    up_to = [(str(float(bound_s)), sum(count for delay_ms, count in delays.items() if delay_ms <= bound_s * 1_000)) for bound_s in BOUNDS_S]
    return [*up_to, ("+Inf", sum(delays.values()))], sum(delay_ms * count for delay_ms, count in delays.items()) / 1_000


class RecentDelays:
    """The delays of the last five minutes, by output; *now_s* is a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        # When each slot began, seconds, and its delays by output; the newest is the last.
        self._slots: deque[tuple[float, dict[str, Counter[int]]]] = deque()

    def add(self, by_output: Iterable[tuple[str, Delays]]) -> None:
        now_s = self._now_s()
        if not self._slots or now_s - self._slots[-1][0] >= _SLOT_S:
            self._slots.append((now_s, {}))
        for output, delays in by_output:
            self._slots[-1][1].setdefault(output, Counter()).update(delays)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return for each output with recent results how many there are, and the median and the 99th percentile of their delays."""
        while self._slots and self._now_s() - self._slots[0][0] >= WINDOW_S:
            self._slots.popleft()
        merged: dict[str, Counter[int]] = {}
        for _, by_output in self._slots:
            for output, delays in by_output.items():
                merged.setdefault(output, Counter()).update(delays)
        return [_summarize(output, delays) for output, delays in sorted(merged.items()) if delays]


def _summarize(output: str, delays: Delays) -> dict[str, Any]:
    p50_ms, p99_ms = quantile_ms(delays, 0.5), quantile_ms(delays, 0.99)
    results = sum(delays.values())
    p50, p99 = (_in_words(delay_ms) for delay_ms in (p50_ms, p99_ms))
    in_words = f"half of the last {results:,} results came within {p50} of their raw records' arrival, 99 % within {p99}"
    return {"output": output, "results": results, "p50_s": p50_ms / 1_000, "p99_s": p99_ms / 1_000, "in_words": in_words}


def _in_words(delay_ms: int) -> str:
    if delay_ms < 1_000:
        return f"{delay_ms} ms"
    return f"{delay_ms / 1_000:.1f} s" if delay_ms < 10_000 else duration_in_words(delay_ms / 1_000)
