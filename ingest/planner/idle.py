"""
Idle estimates: how far time has certainly moved in an input partition that is silent.

Law (spec section 3): an estimate at position p is at most the arrival of any record that will ever be appended at p or
later, as long as the broker's stamps follow real time. It is the last arrival plus what a clock for durations has measured
since the end of the partition was first *seen* at p, less a margin. That clock is read before the end is asked for, and
the estimate counts only if that end is still p. No wall clock takes part: setting one changes no estimate.

The clock counts from the boot of the machine and goes on while it sleeps. So a silence outlives the planner that measured
it, but not the boot: after that, elapsed time begins again at 0.

If all partitions are stamped by one clock (the brokers', or ingest's own), a record seen to arrive in one of them shows what time
it is for all: later records arrive later. So a partition that was silent before the job started does not stay behind for as long
as the job did not run. Of several such clocks the slowest counts: one broker whose clock runs ahead moves only its own partitions.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ordering.ticks import INFINITY, SECOND_US

Partition = tuple[str, int]

# One part in a thousand of the silence is added to the margin: clocks drift.
_MARGIN_SHARE = 1000
_STRETCH_MAX = 10
_TICKS_MAX = 64
_TICK_AGE_US = 60 * SECOND_US
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime_us() -> int:
    """Return the machine's clock for durations, microseconds since its boot, time asleep included."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1000


@cache
def boot_id() -> str:
    """Return an id of this boot of this machine; if none is known, of this process."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return uuid.uuid4().hex


@dataclass(slots=True)
class _Silence:
    position: int
    since_us: int
    last_arrival_us: int | None = None


class Silences:
    """
    Which partitions are silent, and for how long.

    Args:
        cadence_us: Least time between two estimates.
        margin_us: How far estimates stay behind.
        patience_us: By how much more an estimate may be late if nothing waits for it.
    """

    def __init__(self, cadence_us: int, margin_us: int, patience_us: int = 0) -> None:
        self._cadence_us, self._margin_us = cadence_us, margin_us
        self._longest_us = max(cadence_us, min(_STRETCH_MAX * cadence_us, patience_us))
        self._interval_us, self._due_us = cadence_us, INFINITY
        self._silences: dict[Partition, _Silence] = {}
        self._seen: dict[Partition, dict[int, int]] = {}
        self._ticks: dict[Partition, tuple[int, int]] = {}

    def observe_ends(self, ends: Mapping[Partition, int], seen_us: int) -> None:
        """Note the partitions' ends as they were at *seen_us* (clock for durations, read after the answer came)."""
        for partition, end in ends.items():
            silence = self._silences.get(partition)
            if silence is not None and silence.position != end:
                self._remember(partition, end, seen_us)
            if silence is None or silence.position != end:
                self._silences[partition] = _Silence(end, seen_us)
                self._interval_us, self._due_us = self._cadence_us, min(self._due_us, seen_us + self._cadence_us)

    def observe_stamped(self, until: Mapping[Partition, int], now_us: int) -> None:
        """Note that planning has stamped the records up to these ends by *now_us*: they arrive then, so the silence begins no sooner."""
        for partition, end in until.items():
            self._remember(partition, end, now_us)
            if partition in self._silences:
                self._silences[partition].since_us = now_us

    def _remember(self, partition: Partition, end: int, seen_us: int) -> None:
        seen = self._seen.setdefault(partition, {})
        seen[end] = seen_us
        if len(seen) > _TICKS_MAX:
            del seen[next(iter(seen))]

    def observe_arrival(self, partition: Partition, next_offset: int, arrival_us: int) -> None:
        """Note the arrival of the last record below *next_offset*: it shows what time it was if the end was seen to come there."""
        seen_us = self._seen.get(partition, {}).get(next_offset)
        if seen_us is None:
            return
        tick = self._ticks.get(partition)
        # The sooner it was seen, the more exact; an old one is worth little, as clocks drift.
        if tick is None or seen_us - tick[0] > _TICK_AGE_US or arrival_us - seen_us >= tick[1] - tick[0]:
            self._ticks[partition] = seen_us, arrival_us

    def time_elsewhere(self, now_us: int) -> int | None:
        """Return what time it certainly is by the slowest of the partitions with recent arrivals; None if there is none."""
        newest_us = max((seen_us for seen_us, _ in self._ticks.values()), default=None)
        if newest_us is None:
            return None
        recent_ticks = [tick for tick in self._ticks.values() if newest_us - tick[0] <= _TICK_AGE_US]
        return min(arrival_us + self._gained_us(now_us - seen_us) for seen_us, arrival_us in recent_ticks)

    def select_due(self, positions: Mapping[Partition, int], now_us: int) -> list[Partition]:
        """
        Return the partitions planned to their end for which there may be an estimate at *now_us*: all at the same time, once a cadence.
        """
        if now_us < self._due_us:
            return []
        return [
            partition
            for partition, position in positions.items()
            if (silence := self._silences.get(partition)) is not None
            and silence.position == position
            and now_us - silence.since_us > self._margin_us
        ]

    def schedule_next(self, now_us: int, is_quiet: bool, behind_us: int = 0) -> None:
        """
        Let the next estimates be due a cadence after *now_us*, or later and later while they help nobody.

        Args:
            now_us: When estimates were made.
            is_quiet: Whether no event waits for them in ingest. Windows of a query may wait, which is not known here; so the wait
                is never stretched by more than the patience.
            behind_us: How far estimates must still rise before every event so far is final; 0 or less if it is.
        """
        self._interval_us = min(2 * self._interval_us, self._longest_us) if is_quiet else self._cadence_us
        wait_us = self._interval_us
        if behind_us > 0:
            # What an estimate gains is less than what has passed, by a part in so many.
            final_us = behind_us + 2 * behind_us // _MARGIN_SHARE + 1
            wait_us = min(wait_us, max(self._cadence_us, final_us))
        self._due_us = now_us + wait_us

    def silent_since(self, partition: Partition) -> tuple[int, int]:
        """Return the position of a partition's end, and when it was first seen there."""
        silence = self._silences[partition]
        return silence.position, silence.since_us

    def known_arrival(self, partition: Partition) -> int:
        arrival_us = self._silences[partition].last_arrival_us
        assert arrival_us is not None, "only asked for where it is known"
        return arrival_us

    def needs_last_arrival(self, partition: Partition) -> bool:
        return self._silences[partition].last_arrival_us is None

    def set_last_arrival(self, partition: Partition, arrival_us: int) -> None:
        self._silences[partition].last_arrival_us = arrival_us

    def count_from(self, partition: Partition, arrival_us: int, since_us: int) -> None:
        """Count from *arrival_us* at *since_us*, if the time is known otherwise than by the last record."""
        silence = self._silences[partition]
        silence.last_arrival_us, silence.since_us = arrival_us, since_us

    def estimate(self, partition: Partition, now_us: int) -> int | None:
        """Return the estimate at *now_us*, read before the ends were asked for; None while there is none."""
        silence = self._silences[partition]
        if silence.last_arrival_us is None:
            return None
        gained_us = self._gained_us(now_us - silence.since_us)
        return silence.last_arrival_us + gained_us if gained_us > 0 else None

    def _gained_us(self, elapsed_us: int) -> int:
        return elapsed_us - self._margin_us - elapsed_us // _MARGIN_SHARE
