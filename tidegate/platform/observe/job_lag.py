"""
How far a job is behind: in seconds, whether that grows, and when it will be over.

Law: the age of a reader's lag is that of the oldest end seen of a partition beyond the reader's position there. It rises while nothing is
read, and is 0 once all is read that was seen. A record's own times do not count: history is old when it comes. A trend is that of the
newest minute; a lag is cleared when that of the slowest partition is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ordering.ticks import INFINITY, NEVER, SECOND_US
from tidegate.platform.observe.recovery_report import Positions
from tidegate.platform.observe.reports import IngestReport

# Of so many ends each second one is forgotten: an age may then be too small by the time between two of them.
_ENDS_MAX = 1_000
_TREND_S = 60.0
# A trend of a shorter time is none.
_SPAN_MIN_S = 2.0


class EventRate:
    """How many events a second a job takes since its first reports, by the counts that its partitions or buckets report."""

    def __init__(self) -> None:
        # When the first reports came, seconds; by partition or bucket, how many events its first report had counted.
        self._began_s: float | None = None
        self._first_counts: dict[int, int] = {}
        self._turns = 0

    def accept(self, counts: Mapping[int, int]) -> None:
        """Take the events counted so far, by partition or bucket, of one turn of reports."""
        self._turns += 1
        if self._began_s is None:
            self._began_s = time.monotonic()
        self._first_counts = {**counts, **self._first_counts}

    def per_second(self, total: int) -> float | None:
        """Return the rate up to now, when *total* events are counted; None before the second reports: the first include a start."""
        if self._began_s is None or self._turns < 2:
            return None
        return (total - sum(self._first_counts.values())) / max(time.monotonic() - self._began_s, 1e-9)


class UnreadAge:
    """Remembers when ends of partitions were seen; *clock_s* is a clock that never goes back, in seconds."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        # By partition, in order: when an end was first seen, and the end.
        self._seen: dict[tuple[str, int], list[tuple[float, int]]] = {}

    def record(self, ends: Positions, read: Mapping[str, Positions]) -> None:
        """Note the newest *ends*; forget those that all readers have, by *read*, the next log offsets of each reader."""
        now_s = self._clock_s()
        for place, end in ends.items():
            seen = self._seen.setdefault(place, [])
            least = min((positions.get(place, 0) for positions in read.values()), default=end)
            seen[:] = [(since_s, known) for since_s, known in seen if known > least]
            if end > least and (not seen or end > seen[-1][1]):
                seen.append((now_s, end))
            if len(seen) > _ENDS_MAX:
                # The oldest stays, since its age is shown.
                del seen[1:-1:2]

    def age_s(self, read: Positions) -> float:
        """Return the age in seconds for a reader that has all records below the log offsets *read*."""
        firsts = [next((since_s for since_s, end in seen if end > read.get(place, 0)), None) for place, seen in self._seen.items()]
        return self._clock_s() - min(known) if (known := [since_s for since_s in firsts if since_s is not None]) else 0.0


class LagTrend:
    """The lag of each partition of one job over the newest minute."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        # When, the lags by partition, and the sum of the positions.
        self._looks: deque[tuple[float, Positions, int]] = deque()

    def record(self, lags: Positions, positions: Positions) -> None:
        now_s = self._clock_s()
        self._looks.append((now_s, dict(lags), sum(positions.values())))
        while self._looks[0][0] < now_s - _TREND_S:
            self._looks.popleft()

    def as_dict(self) -> dict[str, float | None]:
        """
        Return ``events_per_s``, how many records are read a second, ``lag_change``, by how many the lag changes a second, and
        ``cleared_in_s``. None: too few looks to tell; ``cleared_in_s`` also if the lag of a partition does not shrink.
        """
        if not self._looks:
            return {"events_per_s": None, "lag_change": None, "cleared_in_s": None}
        (first_s, first, first_read), (last_s, last, last_read) = self._looks[0], self._looks[-1]
        waiting = {place: lag for place, lag in last.items() if lag}
        span_s = last_s - first_s
        if span_s < _SPAN_MIN_S:
            return {"events_per_s": None, "lag_change": None, "cleared_in_s": None if waiting else 0.0}
        gains = {place: (first.get(place, 0) - lag) / span_s for place, lag in waiting.items()}
        is_clearing = all(gain > 0 for gain in gains.values())
        return {
            "events_per_s": round((last_read - first_read) / span_s, 1),
            "lag_change": round((sum(last.values()) - sum(first.values())) / span_s, 1),
            "cleared_in_s": round(max((lag / gains[place] for place, lag in waiting.items()), default=0.0), 1) if is_clearing else None,
        }


class JobLag:
    """How far one job is behind; what it returns is published in the fields of these names."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._age, self._trend = UnreadAge(clock_s), LagTrend(clock_s)
        self._positions: Positions = {}

    def record(self, ends: Positions, positions: Positions, lags: Positions) -> None:
        """Take the newest ends of the brokers, and the job's positions at this time."""
        self._positions = positions
        self._age.record(ends, {"": positions})
        self._trend.record(lags, positions)

    def as_dict(self) -> dict[str, Any]:
        return {"lag_s": round(self._age.age_s(self._positions), 1), **self._trend.as_dict()}


def seconds_behind(reports: Iterable[IngestReport], ends: Positions, now_us: int) -> float | None:
    """
    Return the seconds since the arrival of the newest record that the slowest partition has judged, if newer ones wait there; 0 if nothing
    waits; None: no partition has reported an arrival.
    """
    known = [report for report in reports if report.arrival_us > NEVER]
    waiting = [report.arrival_us for report in known if ends.get(report.place, 0) > report.next_offset and not report.is_final]
    if not known:
        return None
    return round(max(now_us - min(waiting), 0) / SECOND_US, 1) if waiting else 0.0


def watermark_delay_s(watermark_us: int | None, now_us: int) -> float | None:
    """Return how far a watermark is behind the clock; None: there is none, or it has ended."""
    return None if watermark_us is None or watermark_us == INFINITY else round((now_us - watermark_us) / SECOND_US, 1)
