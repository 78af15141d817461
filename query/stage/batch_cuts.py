"""
Cutting: how far each log is read in the next batch, where more lies ahead than one batch reads.

A bucket of several logs works up to the instant that the last of them has come to; what others bring of later times must wait.
So logs are read up to one instant, not so many records of each: while a job catches up, an input with ten times as many events as
another, or a partition with more keys, would else fall behind, and what waits for it grow with the topic. No result depends on where
batches end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Positions = Mapping[int, int]
"""Log -> offset."""

FULL = 0.8
"""A batch this full is not filled further."""
_STEP_MS = 1_000
"""The first step into a topic of which nothing is known."""
_LATEST_MS = 2**53


def shares(here: Positions, ends: Positions, records_max: int) -> dict[int, int]:
    """Return how far each log is read if all are read by as many records; *ends*: where those end that have something left."""
    share = max(records_max // max(len(ends), 1), 1)
    return {log: min(end, here[log] + share) for log, end in ends.items()}


class Cutter:
    """
    Cuts one batch after the other.

    Args:
        offsets_at: Tells of each log the first offset with a record of an instant (milliseconds) or a later one; nothing where there is
            none. As stamps need not rise along a log, earlier ones may follow.
        records_max: Most records of one batch, over all logs.
    """

    def __init__(self, offsets_at: Callable[[int], Positions], records_max: int) -> None:
        self._offsets_at, self._most = offsets_at, records_max
        self._reached_ms, self._step_ms = 0, _STEP_MS

    def cut(self, here: Positions, ends: Positions) -> dict[int, int]:
        """
        Return how far each log is read.

        Args:
            here: Where logs are read on.
            ends: Where those end that have something left.
        """
        if sum(end - here[log] for log, end in ends.items()) <= self._most:
            return dict(ends)
        asked: dict[int, dict[int, int]] = {}

        def there(ms: int) -> dict[int, int]:
            if ms not in asked:
                found = self._offsets_at(ms)
                asked[ms] = {log: max(min(found.get(log, end), end), here[log]) for log, end in ends.items()}
            return asked[ms]

        def count(ms: int) -> int:
            return sum(at - here[log] for log, at in there(ms).items())

        since_ms = self._reached_ms if count(self._reached_ms) <= self._most else 0
        until_ms = self._furthest(count, since_ms)
        self._reached_ms, self._step_ms = until_ms, max(until_ms - since_ms, 1) if since_ms else _STEP_MS
        if count(until_ms):
            return there(until_ms)
        # More records have one stamp than a batch reads.
        return shares(here, ends, self._most)

    def _furthest(self, count: Callable[[int], int], since_ms: int) -> int:
        """Return an instant up to which a batch is not too large, and full if that can be."""
        low_ms, step_ms = since_ms, self._step_ms
        while count(high_ms := min(low_ms + step_ms, _LATEST_MS)) <= self._most and high_ms < _LATEST_MS:
            low_ms, step_ms = high_ms, 2 * step_ms
        while high_ms - low_ms > 1 and count(low_ms) < FULL * self._most:
            middle_ms = (low_ms + high_ms) // 2
            if count(middle_ms) <= self._most:
                low_ms = middle_ms
            else:
                high_ms = middle_ms
        return low_ms
