"""
Clocks of a simulated run. There is one true time, which only the run moves; all clocks that anybody reads stray from it.

Law: a monotonic clock never goes back, but measures durations too short or too long by its drift. A broker's clock may
step, also back; records are stamped with it in whole milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ordering.ticks import MILLISECOND_US


@dataclass(slots=True)
class TrueTime:
    """The time of the simulated world, microseconds."""

    now_us: int

    def advance(self, duration_us: int) -> None:
        """Let time pass."""
        self.now_us += duration_us


@dataclass(slots=True)
class MonotonicClock:
    """A machine's clock for durations: started anew at *zero_us*, with each *boot*, and wrong by *drift_ppm*."""

    time: TrueTime
    zero_us: int
    drift_ppm: int
    boot: str = ""

    def __call__(self) -> int:
        elapsed_us = self.time.now_us - self.zero_us
        return elapsed_us + elapsed_us * self.drift_ppm // 1_000_000


@dataclass(slots=True)
class BrokerClock:
    """The clock of the brokers that lead each input partition: true but for the steps each has taken."""

    time: TrueTime
    stepped_us: dict[int, int] = field(default_factory=dict)

    def step(self, partition: int, by_us: int) -> None:
        """Put the clock of a partition's leader forward or back."""
        self.stepped_us[partition] = self.stepped_us.get(partition, 0) + by_us

    def stamp_us(self, partition: int) -> int:
        """Return the arrival time a record gets now: whole milliseconds."""
        return (self.time.now_us + self.stepped_us.get(partition, 0)) // MILLISECOND_US * MILLISECOND_US
