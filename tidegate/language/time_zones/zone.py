"""
A zone: what the clocks of a place show at each instant.

An instant has one local time, the *reading* of the clock. A reading has one instant, except where the clock is changed: one that the clock
skips means the instant as far after the change as it lies after the last reading before it; of a reading that comes twice the first instant
is meant. Both follow Java, Python and T-SQL.

Law: a zone carries its data, so everything computed from it is the same in every process, whatever database is installed there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ordering.arrays import Ints
from ordering.ticks import SECOND_US
from tidegate.language.time_zones.tzif import read_changes


@dataclass(frozen=True, slots=True)
class Clock:
    """The changes of a clock: instants, rising, and its offsets from UTC before the first, and after each; in microseconds."""

    changes_us: Ints
    offsets_us: Ints

    def offsets_at(self, instants_us: Ints) -> Ints:
        """Return the offset at each instant; at a change it is the one after it."""
        offsets: Ints = self.offsets_us[np.searchsorted(self.changes_us, instants_us, side="right")]
        return offsets

    def readings(self, instants_us: Ints) -> Ints:
        """Return what the clock shows at each instant, as microseconds since 1970-01-01T00:00 of the same clock."""
        return instants_us + self.offsets_at(instants_us)

    def instants(self, readings_us: Ints) -> Ints:
        """Return the instant of each reading."""
        # Up to the later of the two readings at a change the offset before it counts: of a skipped reading it gives an instant after the
        # change, of one that comes twice the first.
        before, after = self.offsets_us[:-1], self.offsets_us[1:]
        ends = np.maximum.accumulate(self.changes_us + np.maximum(before, after))
        instants: Ints = readings_us - self.offsets_us[np.searchsorted(ends, readings_us, side="right")]
        return instants


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone of the database, by its name, with its data: the bytes of its TZif file."""

    name: str
    data: bytes = field(repr=False)

    @property
    def clock(self) -> Clock:
        return _clock_of(self.data)

    @property
    def digest(self) -> str:
        """Tells the clocks of zones apart. It is of what the clock shows, so another way to write the same changes has the same."""
        clock = self.clock
        return hashlib.sha256(clock.changes_us.tobytes() + clock.offsets_us.tobytes()).hexdigest()[:16]

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=64)
def _clock_of(data: bytes) -> Clock:
    changes = read_changes(data)
    return Clock(changes.instants_s * SECOND_US, changes.offsets_s * SECOND_US)
