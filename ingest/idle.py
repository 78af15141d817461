"""
Idle estimates: how far time has certainly moved in an input partition that is silent.

Law (spec section 3): an estimate at position p is at most the arrival of any record that will ever be appended at p or
later, as long as clocks run alike: it is the last arrival plus what a monotonic clock has measured since the end of the
partition was first *seen* at p, less a margin. The clock is read before the end is asked for, and the estimate counts
only if that end is still p.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Partition = tuple[str, int]

_MARGIN_SHARE = 1000
"""One part in a thousand of the silence is added to the margin: clocks drift."""


@dataclass(slots=True)
class _Silence:
    position: int
    since_us: int
    last_arrival_us: int | None = None


class Silences:
    """
    Watches which partitions are silent, and for how long.

    Args:
        cadence_us: Least time between two estimates of a partition.
        margin_us: How far estimates stay behind.
    """

    def __init__(self, cadence_us: int, margin_us: int) -> None:
        self._cadence_us, self._margin_us = cadence_us, margin_us
        self._silences: dict[Partition, _Silence] = {}
        self._due_us: dict[Partition, int] = {}

    def observe(self, ends: Mapping[Partition, int], seen_us: int) -> None:
        """Take the partitions' ends as they were at *seen_us* (monotonic clock, read after the answer came)."""
        for partition, end in ends.items():
            known = self._silences.get(partition)
            if known is None or known.position != end:
                self._silences[partition] = _Silence(end, seen_us)

    def due(self, planned: Mapping[Partition, int], now_us: int) -> list[Partition]:
        """Return the partitions planned to their end whose next estimate is due at *now_us* (monotonic)."""
        return [
            partition
            for partition, position in planned.items()
            if (silence := self._silences.get(partition)) is not None
            and silence.position == position
            and now_us >= self._due_us.get(partition, silence.since_us + self._cadence_us)
        ]

    def needs_last_arrival(self, partition: Partition) -> bool:
        """Return whether the last arrival of this silence is still unknown."""
        return self._silences[partition].last_arrival_us is None

    def last_arrival(self, partition: Partition, arrival_us: int) -> None:
        """Set the arrival of the last record before the silence (or, without any record, the partition's base)."""
        self._silences[partition].last_arrival_us = arrival_us

    def count_from(self, partition: Partition, arrival_us: int, now_us: int) -> None:
        """Count on from *arrival_us* at *now_us* (monotonic) if that is more than what was counted so far."""
        silence = self._silences[partition]
        if silence.last_arrival_us is None or arrival_us > silence.last_arrival_us + now_us - silence.since_us:
            silence.last_arrival_us, silence.since_us = arrival_us, now_us

    def estimate(self, partition: Partition, now_us: int) -> int | None:
        """Return the estimate at *now_us*, read before the ends were asked for; None while it cannot be told."""
        silence = self._silences[partition]
        self._due_us[partition] = now_us + self._cadence_us
        if silence.last_arrival_us is None:
            return None
        elapsed_us = now_us - silence.since_us
        gained_us = elapsed_us - self._margin_us - elapsed_us // _MARGIN_SHARE
        return silence.last_arrival_us + gained_us if gained_us > 0 else None
