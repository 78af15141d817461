"""
Frontiers: the common progress of several streams, and how often a reader notices it.

A *frontier* is a lower bound on what may still come over several members (channels of a partition, partitions of a topic, inputs of an
operator): the minimum of their CTIs. Law: it never goes back; it is ``NEVER`` until each member has a CTI and ``INFINITY`` once all have
ended; it stands still while a member that joins is behind it.

A :class:`Pace` thins the rises of a stream's CTIs if a reader asks for fewer than the writer sends (spec section 4: a query may override
its inputs' settings). Law: which rises pass is a pure function of the stream's log; cuts into batches, and saving and restoring between
them, change nothing. Every rise that passes is a promise that the stream has given, so leaving some out, or delaying them, breaks none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ordering.errors import SettingError
from ordering.protocol.punctuation import shift_cti
from ordering.ticks import INFINITY, NEVER, format_duration

Ints = NDArray[np.int64]
# (log offset, c), both rising; at one offset there may be several.
Rises = list[tuple[int, int]]

Name = TypeVar("Name", bound=Hashable)


class Frontier(Generic[Name]):
    """
    The least c of all members.

    Args:
        members: Those it waits for from the start; more may :meth:`join`.
    """

    def __init__(self, members: Iterable[Name] = ()) -> None:
        self._c: dict[Name, int] = dict.fromkeys(members, NEVER)
        self._value = NEVER
        self._is_current = True

    def join(self, *members: Name) -> None:
        """Wait for these members too; members it has already stay as they are."""
        for member in members:
            self._c.setdefault(member, NEVER)

    def rise(self, member: Name, c: int) -> None:
        """Raise *member*, which joins if it is new, to *c* (microseconds); a lower c than before changes nothing."""
        if c > self._c.get(member, NEVER):
            self._c[member] = c
            self._is_current = False

    def c(self, member: Name) -> int:
        """Return the c of one member, microseconds; ``NEVER`` before its first."""
        return self._c.get(member, NEVER)

    @property
    def value(self) -> int:
        """The frontier, microseconds: nothing still to come over any member lies below it."""
        if not self._is_current:
            self._value = max(self._value, min(self._c.values()))
            self._is_current = True
        return self._value

    @property
    def members(self) -> Mapping[Name, int]:
        """The c of each member, microseconds."""
        return dict(self._c)

    def waiting_for(self) -> list[Name]:
        """Return the members without a CTI, in the order in which they joined: each holds the frontier at ``NEVER``."""
        return [member for member, c in self._c.items() if c == NEVER]

    @classmethod
    def restore(cls, value: int, members: Mapping[Name, int]) -> Frontier[Name]:
        """Return the frontier that had this :attr:`value` and these :attr:`members`."""
        frontier = cls()
        frontier._c, frontier._value, frontier._is_current = dict(members), value, not members
        return frontier


@dataclass(frozen=True, slots=True)
class Pace:
    """
    How often a reader notices a stream's CTIs. Durations are microseconds.

    Without ``every_events`` and ``every_us`` each rise of c passes. With one or both of them only those that come after so many events, or
    into another span of time; the final CTI always passes.

    Args:
        every_events: A rise passes once this many events were accepted since the last one that passed. Silence then passes nothing on:
            combine it with ``every_us``.
        every_us: A rise passes when it is the first in its span ``(k * every, (k + 1) * every]`` of time. Spans are aligned to the Unix
            epoch like windows, so all streams read at one pace pass together, where a run begins does not matter, and windows that end with
            a span wait for nothing.
        delay_us: How far each rise that passes stays behind the stream: ``c - delay``, which is compared with spans.

    Raises:
        SettingError: A number is not positive, or the delay is negative.
    """

    every_events: int | None = None
    every_us: int | None = None
    delay_us: int = 0

    def __post_init__(self) -> None:
        for name, value in (("cti_every_events", self.every_events), ("cti_every", self.every_us)):
            if value is not None and value <= 0:
                raise SettingError(f"{name} must be positive", where=name, fix="give a number above zero, or leave it out")
        if self.delay_us < 0:
            raise SettingError("cti_delay must not be negative", where="cti_delay", fix="give 0s or more")

    @property
    def is_every_cti(self) -> bool:
        """Whether each rise passes, though perhaps delayed."""
        return self.every_events is None and self.every_us is None

    def passes(self, events: int, last_c: int, c: int) -> bool:
        """Return whether a rise to *c* passes, *events* events after the last that did, to *last_c* (microseconds)."""
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
    """
    One stream's CTIs at a reader's pace.

    Args:
        pace: The pace.

    Attributes:
        last_c: The last c that passed, microseconds; ``NEVER`` before the first.
        events_since: How many events were accepted since then.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.last_c, self.events_since = NEVER, 0

    def thin(self, rises: Rises, accepted: Ints) -> Rises:
        """
        Return which rises of the next range of the stream's log pass, each at its own log offset.

        Args:
            rises: Every rise of the stream's c in that range.
            accepted: The log offset of each event accepted in it that counts, never falling; one at the offset of a rise comes before it.
                End edges do not count.
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
        """Return the one whose attributes were saved."""
        paced = cls(pace)
        paced.last_c, paced.events_since = last_c, events_since
        return paced
