"""
Windows: which events belong together in time, and the instants at which they give results.

A window is ``(start, end]``: it contains the events with start < s <= end, and its results have System.Timestamp = end.

- :class:`Window` has a fixed size and fixed ends: the instants e with ``(e - offset) mod hop = 0``, aligned to the Unix epoch; start is e -
  size. If hop is size, it is tumbling. A *pane* is the longest piece of time that no window start or end divides; every window is a whole
  number of panes. A window of one microsecond is a snapshot: the events of one instant.
  :class:`query.plan.local_windows.LocalWindow` is the same by the clock of a place.
- :class:`Sliding` has a fixed size and ends wherever an event of the group enters or leaves it.
- :class:`Session` lasts as long as events keep coming (:mod:`query.operators.windows.sessions`).
- :class:`WindowSet` is any of these side by side.

Law: every result that can depend on an event at s lies in :meth:`span` of s, both ends included. So a slice's results are computed from the
events whose span overlaps it, and an event expires when its span has passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

import numpy as np

from ordering.ticks import TICK_MIN, format_duration
from query.plan.row_tables import Ticks

# For each event the first and the last instant of its results; the last lies before the first if there are none.
Span = tuple[Ticks, Ticks]


@dataclass(frozen=True, slots=True)
class Window:
    """A tumbling or hopping window; *hop_us* is the distance between two ends, *offset_us* the shift of all ends against the epoch."""

    size_us: int
    hop_us: int
    offset_us: int = 0

    @property
    def is_tumbling(self) -> bool:
        return self.hop_us == self.size_us

    @property
    def reach_us(self) -> int:
        return self.size_us if self.size_us > 1 else 0

    def span(self, system_us: Ticks) -> Span:
        """Return the first and the last instant of the results that can depend on each event."""
        return self.first_end(system_us), self.last_end(system_us)

    def can_end_within(self, from_us: int, to_us: int) -> bool:
        """Return whether a window can end in [from_us, to_us)."""
        # From NEVER, which lies below the first tick, some window ends before any to_us.
        return from_us < TICK_MIN or int(self.first_end(np.array([from_us]))[0]) < to_us

    @property
    def pane_us(self) -> int:
        return gcd(self.size_us, self.hop_us)

    @property
    def windows_per_event(self) -> int:
        """The largest number of windows that one event can belong to."""
        return -(-self.size_us // self.hop_us)

    def first_end(self, system_us: Ticks) -> Ticks:
        """Return the first window end at or after each instant; if hop > size, that window may not contain the instant."""
        return _first_multiple(system_us, self.offset_us, self.hop_us)

    def last_end(self, system_us: Ticks) -> Ticks:
        """Return the last window end at which each event still belongs to the window."""
        # The last end below s + size is one hop before the first end at or above it.
        return _first_multiple(system_us, self.offset_us - self.size_us, self.hop_us) + (self.size_us - self.hop_us)

    def pane_end(self, system_us: Ticks) -> Ticks:
        return _first_multiple(system_us, self.offset_us, self.pane_us)

    # The windows by number, in the order of time.

    def number_of(self, instants_us: Ticks) -> Ticks:
        """Return the number of the first window that ends at or after each instant."""
        return (self.first_end(instants_us) - self.offset_us) // self.hop_us

    def end_of(self, numbers: Ticks) -> Ticks:
        """Return the end of each window."""
        return numbers * self.hop_us + self.offset_us

    def start_of(self, numbers: Ticks) -> Ticks:
        """Return the start of each window."""
        return self.end_of(numbers) - self.size_us

    def __str__(self) -> str:
        offset = f", offset {format_duration(self.offset_us)}" if self.offset_us else ""
        if self.is_tumbling and self.size_us == 1:
            return "snapshot"
        if self.is_tumbling:
            return f"tumbling {format_duration(self.size_us)}{offset}"
        return f"hopping {format_duration(self.size_us)} by {format_duration(self.hop_us)}{offset}"


# The events of one instant.
SNAPSHOT = Window(1, 1)


@dataclass(frozen=True, slots=True)
class Sliding:
    """
    A sliding window ``(end - size, end]``: it ends at s and at s + size of each event of its group.

    At s + size the event has just left. If the group is empty then, it gives no result.
    """

    size_us: int

    @property
    def reach_us(self) -> int:
        return self.size_us

    def span(self, system_us: Ticks) -> Span:
        return system_us, system_us + self.size_us

    def __str__(self) -> str:
        return f"sliding {format_duration(self.size_us)}"


@dataclass(frozen=True, slots=True)
class Session:
    """A session begins with an event and lasts until no event has come for the timeout, or until the maximum duration cuts it."""

    # The longest gap between two of its events.
    timeout_us: int
    # The maximum duration; checked at each multiple of it since the epoch.
    duration_max_us: int
    # The numbers of the grouping keys that have sessions of their own; one session serves all values of the other keys.
    partition: tuple[int, ...] = ()
    # The names of these keys.
    titles: tuple[str, ...] = field(default=(), compare=False)

    @property
    def reach_us(self) -> int:
        """How long after an event a result can depend on it; :mod:`query.operators.windows.sessions` gives the proof."""
        return 2 * self.duration_max_us + self.timeout_us

    def span(self, system_us: Ticks) -> Span:
        """Return the first and the last instant at which a session that depends on an event can end."""
        return system_us, system_us + (self.reach_us - 1)

    def __str__(self) -> str:
        partition = f" of each {', '.join(self.titles)}" if self.titles else ""
        return f"session, timeout {format_duration(self.timeout_us)}, maximum {format_duration(self.duration_max_us)}{partition}"


AnyWindow = Window | Sliding | Session


@dataclass(frozen=True, slots=True)
class WindowSet:
    """Several windows side by side, in the order of the script; each gives the results that it would give alone."""

    windows: tuple[AnyWindow, ...]
    # The values of System.Window().Id in their results; empty: NULL.
    ids: tuple[str, ...] = ()

    @property
    def reach_us(self) -> int:
        return max(window.reach_us for window in self.windows)

    def __str__(self) -> str:
        ids = [f"{name}: " for name in self.ids] or [""] * len(self.windows)
        return f"windows ({'; '.join(f'{name}{window}' for name, window in zip(ids, self.windows, strict=True))})"


def windows_of(window: AnyWindow | WindowSet) -> tuple[AnyWindow, ...]:
    """Return the windows that *window* consists of."""
    return window.windows if isinstance(window, WindowSet) else (window,)


def window_id(window: AnyWindow | WindowSet, number: int) -> str | None:
    """Return System.Window().Id of the results of window *number* of *window*."""
    return window.ids[number] if isinstance(window, WindowSet) and window.ids else None


def _first_multiple(instants: Ticks, offset_us: int, step_us: int) -> Ticks:
    """Return the first multiple of *step_us*, shifted by *offset_us*, at or after each instant."""
    multiples = np.subtract(offset_us, instants)
    # In place: on millions of instants, fresh memory costs more than arithmetic.
    multiples %= step_us
    multiples += instants
    return multiples
