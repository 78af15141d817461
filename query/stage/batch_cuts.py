"""
Cutting batches: how far each log is read in the next batch, if more lies ahead than one batch may read. A bucket of several logs advances
to the instant that all of them have reached; later records of the others wait. So logs are read up to one instant, not by equal numbers of
records: else, during a catch-up, an input with ten times as many events as another would fall behind, and the other's waiting events would
grow with the topic. No result depends on where batches end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

# Log -> offset.
Positions = Mapping[int, int]

# A batch this full is not filled further.
FULL = 0.8
# The first step into a topic of which nothing is known.
_STEP_MS = 1_000
_LATEST_MS = 2**53


def even_shares(positions: Positions, ends: Positions, records_max: int) -> dict[int, int]:
    """Return how far each log is read if each gets the same number of records; *ends*: of the logs with records left."""
    share = max(records_max // max(len(ends), 1), 1)
    return {log: min(end, positions[log] + share) for log, end in ends.items()}


class BatchCutter:
    """
    Cuts batches of a limited number of records over all logs. *offsets_at* returns each log's first offset with a timestamp of an instant
    (milliseconds) or later, if any; earlier timestamps may follow it.
    """

    def __init__(self, offsets_at: Callable[[int], Positions]) -> None:
        self._offsets_at = offsets_at
        self._cut_ms, self._step_ms = 0, _STEP_MS

    def cut(self, positions: Positions, ends: Positions, records_max: int) -> dict[int, int]:
        """Return how far each log is read from *positions* on, at most *records_max* records; *ends*: of the logs with records left."""
        if sum(end - positions[log] for log, end in ends.items()) <= records_max:
            return dict(ends)
        offsets_by_ms: dict[int, dict[int, int]] = {}

        def offsets_until(ms: int) -> dict[int, int]:
            if ms not in offsets_by_ms:
                offsets = self._offsets_at(ms)
                offsets_by_ms[ms] = {log: max(min(offsets.get(log, end), end), positions[log]) for log, end in ends.items()}
            return offsets_by_ms[ms]

        def count(ms: int) -> int:
            return sum(offset - positions[log] for log, offset in offsets_until(ms).items())

        since_ms = self._cut_ms if count(self._cut_ms) <= records_max else 0
        until_ms = self._find_cut(count, since_ms, records_max)
        self._cut_ms, self._step_ms = until_ms, max(until_ms - since_ms, 1) if since_ms else _STEP_MS
        if count(until_ms):
            return offsets_until(until_ms)
        # More records share one timestamp than a batch may read.
        return even_shares(positions, ends, records_max)

    def _find_cut(self, count: Callable[[int], int], since_ms: int, records_max: int) -> int:
        low_ms, step_ms = since_ms, self._step_ms
        while count(high_ms := min(low_ms + step_ms, _LATEST_MS)) <= records_max and high_ms < _LATEST_MS:
            low_ms, step_ms = high_ms, 2 * step_ms
        while high_ms - low_ms > 1 and count(low_ms) < FULL * records_max:
            middle_ms = (low_ms + high_ms) // 2
            if count(middle_ms) <= records_max:
                low_ms = middle_ms
            else:
                high_ms = middle_ms
        return low_ms
