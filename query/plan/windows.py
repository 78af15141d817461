"""
Windows: which events belong together in time, and the instants at which they give results.

A window is ``(start, end]``: it contains the events with start < s <= end, and its results carry System.Timestamp = end.

- :class:`Window`, of fixed size at fixed ends: the instants e with ``(e - offset) mod hop = 0``, aligned to the Unix epoch;
  start is e - size. A tumbling window is one whose hop is its size. A *pane* is the longest piece of time that no window
  start or end divides; every window is a whole number of panes. A window of one microsecond is a snapshot: the events of
  one instant.
- :class:`Sliding`, of fixed size, ending wherever an event of the group enters or leaves it.
- :class:`Session`, as long as events keep coming (:mod:`query.operators.windows.sessions`).
- :class:`WindowSet`, any of these side by side.

Law: every result that can depend on an event at s lies in :meth:`span` of s, both ends included. So results are computed from
the events whose span meets their instants, and an event expires once its span has passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

import numpy as np
import numpy.typing as npt

from ordering.ticks import TICK_MIN, format_duration

Ticks = npt.NDArray[np.int64]
# For each event the first and the last instant of its results; the last lies before the first if there are none.
Span = tuple[Ticks, Ticks]


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
    def is_tumbling(self) -> bool:
        """Whether every instant belongs to exactly one window."""
        return self.hop_us == self.size_us

    @property
    def reach_us(self) -> int:
        return self.size_us if self.size_us > 1 else 0

    def span(self, system_us: Ticks) -> Span:
        """Return the instants of the results that events can have a part in."""
        return self.first_end(system_us), self.last_end(system_us)

    def can_end_within(self, from_us: int, to_us: int) -> bool:
        """Tell whether a window can end in [from_us, to_us)."""
        # NEVER lies below the first tick; from there on some window ends before any to_us.
        return from_us < TICK_MIN or int(self.first_end(np.array([from_us]))[0]) < to_us

    @property
    def pane_us(self) -> int:
        return gcd(self.size_us, self.hop_us)

    @property
    def windows_per_event(self) -> int:
        """The most windows one event can belong to."""
        return -(-self.size_us // self.hop_us)

    def first_end(self, system_us: Ticks) -> Ticks:
        """Return the first window end at or after each instant; if hops are longer than windows, its window may not contain it."""
        return _next(system_us, self.offset_us, self.hop_us)

    def last_end(self, system_us: Ticks) -> Ticks:
        """Return the last window end at which each event still belongs to the window."""
        # The last end below s + size is one hop before the first end at or above it.
        return _next(system_us, self.offset_us - self.size_us, self.hop_us) + (self.size_us - self.hop_us)

    def pane_end(self, system_us: Ticks) -> Ticks:
        return _next(system_us, self.offset_us, self.pane_us)

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

    At s + size the event has just left. A group that has become empty then gives no result.

    Args:
        size_us: Length, microseconds.
    """

    size_us: int

    @property
    def reach_us(self) -> int:
        return self.size_us

    def span(self, system_us: Ticks) -> Span:
        """Return the instants at which events enter and leave the window."""
        return system_us, system_us + self.size_us

    def __str__(self) -> str:
        return f"sliding {format_duration(self.size_us)}"


@dataclass(frozen=True, slots=True)
class Session:
    """
    A session: it begins with an event and lasts until nothing has come for the timeout, or the maximum duration cuts it.

    Args:
        timeout_us: The longest gap between two of its events, microseconds.
        duration_max_us: The maximum duration, microseconds; checked at each multiple of it since the epoch.
        partition: The numbers of the grouping keys that have sessions of their own; one session serves all values of others.
        titles: The names of these keys.
    """

    timeout_us: int
    duration_max_us: int
    partition: tuple[int, ...] = ()
    titles: tuple[str, ...] = field(default=(), compare=False)

    @property
    def reach_us(self) -> int:
        """How long after an event a result can depend on it, microseconds; :mod:`query.operators.windows.sessions` says why."""
        return 2 * self.duration_max_us + self.timeout_us

    def span(self, system_us: Ticks) -> Span:
        """Return the instants at which a session can end that depends on an event."""
        return system_us, system_us + (self.reach_us - 1)

    def __str__(self) -> str:
        partition = f" of each {', '.join(self.titles)}" if self.titles else ""
        return f"session, timeout {format_duration(self.timeout_us)}, maximum {format_duration(self.duration_max_us)}{partition}"


AnyWindow = Window | Sliding | Session


@dataclass(frozen=True, slots=True)
class WindowSet:
    """
    Several windows side by side; each gives the results it would give alone.

    Args:
        windows: The windows, in the order of the script.
        ids: The values of System.Window().Id in their results; empty: NULL.
    """

    windows: tuple[AnyWindow, ...]
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
    """Return System.Window().Id of the results of one of the windows that *window* consists of."""
    return window.ids[number] if isinstance(window, WindowSet) and window.ids else None


def _next(instants: Ticks, offset_us: int, step_us: int) -> Ticks:
    """Return the first multiple of *step_us*, shifted by *offset_us*, at or after each instant."""
    multiples = np.subtract(offset_us, instants)
    # In place: on millions of instants, fresh memory costs more than arithmetic.
    multiples %= step_us
    multiples += instants
    return multiples
