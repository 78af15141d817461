"""
Frontiers: the common progress of several streams, and how often a reader uses it.

A *frontier* is a lower bound of later events over several members (channels of a partition, partitions of a topic, inputs of an operator):
the minimum of their CTIs. Law: it never goes back. It is ``NEVER`` until each member has a CTI, and ``INFINITY`` once all have ended; it
does not rise while a joining member is below it.

A :class:`Pace` thins the rises of a stream's CTIs if a reader wants fewer than the writer sends (a query may override its
inputs' settings). Law: the rises that pass are a pure function of the stream's log, independent of batch boundaries, saving and restoring.
Each is a promise of the stream, so omitting or delaying some of them breaks none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ordering.arrays import Ints
from ordering.policies import Cadence
from ordering.protocol.punctuation import shift_cti
from ordering.ticks import INFINITY, NEVER, format_duration

# (log offset, c), both rising; at one offset there may be several.
Rises = list[tuple[int, int]]

Name = TypeVar("Name", bound=Hashable)


class Frontier(Generic[Name]):
    """The least c of all members; it waits for *members* from the start, and more may :meth:`join`."""

    def __init__(self, members: Iterable[Name] = ()) -> None:
        self._c: dict[Name, int] = dict.fromkeys(members, NEVER)
        self._value = NEVER
        self._is_current = True

    def join(self, *members: Name) -> None:
        """Add members; existing members stay as they are."""
        for member in members:
            self._c.setdefault(member, NEVER)

    def rise(self, member: Name, c: int) -> None:
        """Raise *member*, which joins if it is new, to *c* (microseconds); a lower c changes nothing."""
        if c > self._c.get(member, NEVER):
            self._c[member] = c
            self._is_current = False

    def c(self, member: Name) -> int:
        """Return the c of one member, microseconds; ``NEVER`` before its first."""
        return self._c.get(member, NEVER)

    @property
    def value(self) -> int:
        """The frontier, microseconds: no later event of any member lies below it."""
        # Computed when read, because several members may rise between two reads.
        if not self._is_current:
            self._value = max(self._value, min(self._c.values()))
            self._is_current = True
        return self._value

    @property
    def members(self) -> Mapping[Name, int]:
        return dict(self._c)

    def waiting_for(self) -> list[Name]:
        """Return the members without a CTI, in the order in which they joined."""
        return [member for member, c in self._c.items() if c == NEVER]

    @classmethod
    def restore(cls, value: int, members: Mapping[Name, int]) -> Frontier[Name]:
        frontier = cls()
        frontier._c, frontier._value, frontier._is_current = dict(members), value, not members
        return frontier


@dataclass(frozen=True, slots=True)
class Pace(Cadence):
    """
    How often a reader uses a stream's CTIs.

    Without ``every_events`` and ``every_us`` every rise of c passes. With one or both, only rises after that many events or into another
    span of time pass. The final CTI always passes.

    Args:
        every_events: A rise passes after this many accepted events since the last one that passed. A silent stream then passes nothing:
            combine it with ``every_us``.
        every_us: A rise passes if it is the first in its span ``(k * every, (k + 1) * every]`` of time. Spans are aligned to the Unix epoch
            like windows, so all streams with one pace pass together, wherever a run begins, and a window that ends with a span is not
            delayed.
        delay_us: Each rise that passes is lowered to ``c - delay``, which is compared with spans.
    """

    @property
    def is_every_cti(self) -> bool:
        """Whether every rise passes (possibly delayed)."""
        return self.every_events is None and self.every_us is None

    def passes(self, events: int, last_c: int, c: int) -> bool:
        """Return whether a rise to *c* passes; *events* and *last_c* (microseconds) are counted from the last rise that passed."""
        if self.is_every_cti or c == INFINITY:
            return True
        has_events = self.every_events is not None and events >= self.every_events
        # Minus one tick: a span includes its end, as a window does, which is final once c is above its end.
        return has_events or (self.every_us is not None and (c - 1) // self.every_us > (last_c - 1) // self.every_us)

    def __str__(self) -> str:
        events = [] if self.every_events is None else [f"{self.every_events} events"]
        spans = [] if self.every_us is None else [format_duration(self.every_us)]
        delay = f", {format_duration(self.delay_us)} behind" if self.delay_us else ""
        return ("each CTI" if self.is_every_cti else f"every {' or '.join(events + spans)}") + delay


class PacedStream:
    """One stream's CTIs at a reader's pace: ``last_c`` is the last that passed (``NEVER``: none), ``events_since`` counts from it."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.last_c, self.events_since = NEVER, 0

    def thin(self, rises: Rises, accepted: Ints) -> Rises:
        """
        Return those of *rises*, the rises of the stream's c in the next range of its log, that pass, each at its own log offset. *accepted*
        are the log offsets of accepted events, without end edges, never falling; at one offset events precede the rise.
        """
        passed = []
        counted = 0
        below = np.searchsorted(accepted, [offset for offset, _ in rises], side="right").tolist()
        for (offset, c), until in zip(rises, below, strict=True):
            self.events_since, counted = self.events_since + until - counted, until
            delayed = shift_cti(c, -self._pace.delay_us)
            if delayed > self.last_c and self._pace.passes(self.events_since, self.last_c, delayed):
                passed.append((offset, delayed))
                self.last_c, self.events_since = delayed, 0
        self.events_since += len(accepted) - counted
        return passed

    @classmethod
    def restore(cls, pace: Pace, last_c: int, events_since: int) -> PacedStream:
        paced = cls(pace)
        paced.last_c, paced.events_since = last_c, events_since
        return paced
