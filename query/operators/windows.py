"""
Windows of fixed size: which window ends an event belongs to.

A window is ``(start, end]``: it holds the events with start < s <= end, and its results carry System.Timestamp = end.
Ends are the instants e with ``(e - offset) mod hop = 0``, aligned to the Unix epoch; start is e - size. A tumbling
window is one whose hop is its size. A *pane* is the longest piece of time that no window start or end divides; every
window is a whole number of panes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from ordering.ticks import format_duration

Ticks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """
    A tumbling or hopping window. All lengths are microseconds.

    Args:
        size_us: Length of a window.
        hop_us: Distance between two ends.
        offset_us: Shift of all ends against the epoch.
    """

    size_us: int
    hop_us: int
    offset_us: int = 0

    @property
    def tumbling(self) -> bool:
        """Tell whether every instant belongs to exactly one window."""
        return self.hop_us == self.size_us

    @property
    def pane_us(self) -> int:
        """Length of a pane."""
        return gcd(self.size_us, self.hop_us)

    @property
    def hops(self) -> int:
        """The most windows one event can belong to."""
        return -(-self.size_us // self.hop_us)

    def first_end(self, system_us: Ticks) -> Ticks:
        """Return the first window end at or after each instant; with a hop beyond the size its window need not hold it."""
        return _next(system_us, self.offset_us, self.hop_us)

    def last_end(self, system_us: Ticks) -> Ticks:
        """Return the last window end at which each event still belongs to the window."""
        # The last end below s + size is one hop before the first end at or above it.
        return _next(system_us, self.offset_us - self.size_us, self.hop_us) + (self.size_us - self.hop_us)

    def pane_end(self, system_us: Ticks) -> Ticks:
        """Return the end of the pane that holds each event."""
        return _next(system_us, self.offset_us, self.pane_us)

    def __str__(self) -> str:
        offset = f", offset {format_duration(self.offset_us)}" if self.offset_us else ""
        if self.tumbling:
            return f"tumbling {format_duration(self.size_us)}{offset}"
        return f"hopping {format_duration(self.size_us)} by {format_duration(self.hop_us)}{offset}"


def _next(instants: Ticks, offset_us: int, step_us: int) -> Ticks:
    """Return the first multiple of *step_us*, shifted by *offset_us*, at or after each instant."""
    found = np.subtract(offset_us, instants)
    # In place: on millions of instants, fresh memory costs more than arithmetic.
    found %= step_us
    found += instants
    return found
