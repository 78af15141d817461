"""
Silences: measures since when each input partition is silent, and how far time has certainly advanced there.

Law (docs/operate/time.md#idle-inputs): an estimate at position p is at most the arrival of any record appended at p or later, if the
broker's stamps follow real time. It is the last arrival, plus the time since the partition's end was first *seen* at p, minus a margin. The
clock that measures this is read before the end is asked for, and the estimate counts only if the end is still p. No wall clock takes part:
setting one changes no estimate.

The clock counts from the machine's boot, sleep included. So the measured silence survives the planner, but not a reboot: after that,
elapsed time begins at 0.

If the brokers' or ingest's clock stamps all partitions, a record that arrives in one shows the time for all. So a partition that was silent
before the job started does not stay behind by the job's downtime. Of several such clocks the slowest counts: a broker whose clock runs
ahead moves only its own partitions.
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
# While nothing waits for estimates, the time between them grows to this many cadences at most.
_STRETCH_MAX = 10
# How many seen ends of a partition are remembered.
_TICKS_MAX = 64
# An observed arrival this much older than the newest one no longer shows the time: clocks drift.
_TICK_AGE_US = 60 * SECOND_US
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime_us() -> int:
    """Return the machine's clock for durations: microseconds since its boot, time asleep included."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1000


@cache
def boot_id() -> str:
    """Return the id of this machine's boot; if it is unknown, one of this process."""
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
    The silences of all partitions. Estimates are at least *cadence_us* apart and stay *margin_us* behind; if no held event waits for one,
    it may come up to *patience_us* later.
    """

    def __init__(self, cadence_us: int, margin_us: int, patience_us: int = 0) -> None:
        self._cadence_us, self._margin_us = cadence_us, margin_us
        self._longest_us = max(cadence_us, min(_STRETCH_MAX * cadence_us, patience_us))
        self._interval_us, self._due_us = cadence_us, INFINITY
        self._silences: dict[Partition, _Silence] = {}
        self._seen: dict[Partition, dict[int, int]] = {}
        self._ticks: dict[Partition, tuple[int, int]] = {}

    def observe_ends(self, ends: Mapping[Partition, int], seen_us: int) -> None:
        """Note the partitions' ends at *seen_us* (clock for durations, read after the answer came)."""
        for partition, end in ends.items():
            silence = self._silences.get(partition)
            if silence is not None and silence.position != end:
                self._remember(partition, end, seen_us)
            if silence is None or silence.position != end:
                self._silences[partition] = _Silence(end, seen_us)
                self._interval_us, self._due_us = self._cadence_us, min(self._due_us, seen_us + self._cadence_us)

    def observe_stamped(self, until: Mapping[Partition, int], now_us: int) -> None:
        """Note that the records up to these ends were stamped by *now_us*: the silence begins no sooner."""
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
        """Note the arrival of the last record below *next_offset*. If that end was seen, the arrival shows the brokers' time then."""
        seen_us = self._seen.get(partition, {}).get(next_offset)
        if seen_us is not None:
            self.observe_tick(partition, arrival_us, seen_us)

    def observe_tick(self, partition: Partition, arrival_us: int, seen_us: int) -> None:
        """Note that a record with this arrival was there at *seen_us*."""
        tick = self._ticks.get(partition)
        # The observation is the more exact the sooner the record was seen after its arrival. An old one is replaced: clocks drift.
        if tick is None or seen_us - tick[0] > _TICK_AGE_US or arrival_us - seen_us >= tick[1] - tick[0]:
            self._ticks[partition] = seen_us, arrival_us

    def time_elsewhere(self, now_us: int) -> int | None:
        """Return the time by the slowest clock of the partitions with recent arrivals; None if there is none."""
        newest_us = max((seen_us for seen_us, _ in self._ticks.values()), default=None)
        if newest_us is None:
            return None
        recent_ticks = [tick for tick in self._ticks.values() if newest_us - tick[0] <= _TICK_AGE_US]
        return min(arrival_us + self._gain_us(now_us - seen_us) for seen_us, arrival_us in recent_ticks)

    def select_due(self, positions: Mapping[Partition, int], now_us: int) -> list[Partition]:
        """Return the partitions planned to their end that may get an estimate at *now_us*; they come due together, once a cadence."""
        if now_us < self._due_us:
            return []
        return [
            partition
            for partition, position in positions.items()
            if (silence := self._silences.get(partition)) is not None
            and silence.position == position
            and now_us - silence.since_us > self._margin_us
        ]

    @property
    def due_us(self) -> int:
        """When the next estimates come due, by the clock for durations."""
        return self._due_us

    def schedule_next(self, now_us: int, is_quiet: bool, behind_us: int = 0) -> None:
        """
        Schedule the next estimates a cadence after *now_us*, or later and later if *is_quiet*: no event waits for them in ingest.
        *behind_us* is how far they must still rise before every event so far is final.
        """
        # Windows of a query may wait, and ingest does not know of them: so the interval grows no further than the patience.
        self._interval_us = min(2 * self._interval_us, self._longest_us) if is_quiet else self._cadence_us
        wait_us = self._interval_us
        if behind_us > 0:
            # An estimate gains slightly less than the time that passes (_MARGIN_SHARE), so the wait is slightly longer.
            final_us = behind_us + 2 * behind_us // _MARGIN_SHARE + 1
            wait_us = min(wait_us, max(self._cadence_us, final_us))
        self._due_us = now_us + wait_us

    def silent_since(self, partition: Partition) -> tuple[int, int]:
        silence = self._silences[partition]
        return silence.position, silence.since_us

    def known_arrival(self, partition: Partition) -> int:
        arrival_us = self._silences[partition].last_arrival_us
        assert arrival_us is not None, "a silence is journaled only with its last arrival"
        return arrival_us

    def needs_last_arrival(self, partition: Partition) -> bool:
        return self._silences[partition].last_arrival_us is None

    def set_last_arrival(self, partition: Partition, arrival_us: int) -> None:
        self._silences[partition].last_arrival_us = arrival_us

    def count_from(self, partition: Partition, arrival_us: int, since_us: int) -> None:
        """Count from *arrival_us* at *since_us*, if the time is known from another source than the last record."""
        silence = self._silences[partition]
        silence.last_arrival_us, silence.since_us = arrival_us, since_us

    def estimate(self, partition: Partition, now_us: int) -> int | None:
        """Return the estimate at *now_us*, which was read before the ends; None if there is none yet."""
        silence = self._silences[partition]
        if silence.last_arrival_us is None:
            return None
        gained_us = self._gain_us(now_us - silence.since_us)
        return silence.last_arrival_us + gained_us if gained_us > 0 else None

    def _gain_us(self, elapsed_us: int) -> int:
        return elapsed_us - self._margin_us - elapsed_us // _MARGIN_SHARE
