"""
The walk of a query with OVER over several logs: in which order their records count.

Each log has its own order; between logs there is none but what brokers and batches happen to make of it. So every record has
a *clock*, the largest time its log has told up to it: of an event the lesser of its System.Timestamp and its arrival, of a CTI
its c; that of the last final CTI, which ends the log, is infinite. Records count in the order (clock, log, offset), and only once
every log has come past their clock. Law: the walk follows from the logs alone, whatever is read when. Its price is small: a
result that needs several inputs cannot be certain before each of them has come that far. One log alone is walked as it is read.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordering.protocol.punctuation import Roster, Spread
from ordering.protocol.reader import Accepted
from ordering.ticks import INFINITY, NEVER
from query.columns.decode import Events

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CtiEntry:
    """
    What a CTI told beside events.

    Args:
        clock: The clock of its record, microseconds.
        offset: The log offset of the record with which it counts.
        number: The input partition, -1 for a roster.
        us: How far it has come, microseconds: the channel, or with a *key* one substream of it.
        key: The substream's key, None for a channel.
        roster: Who writes into the topic from this record on.
    """

    clock: int
    offset: int
    number: int
    us: int
    key: bytes | None = None
    roster: Roster | None = None

    def save(self) -> list[Any]:
        """Return what :meth:`restore` needs, fit for JSON."""
        roster = self.roster and [self.roster.version, self.roster.inputs, self.roster.spread.value, self.roster.substreams]
        return [self.clock, self.offset, self.number, self.us, None if self.key is None else b64encode(self.key).decode(), roster]

    @classmethod
    def restore(cls, saved: Sequence[Any]) -> CtiEntry:
        """Return what was saved."""
        clock, offset, number, us, key, roster = saved
        found = roster and Roster(roster[0], roster[1], Spread(roster[2]), roster[3])
        return cls(clock, offset, number, us, None if key is None else b64decode(key), found)


_Item = tuple[int, int, int, bytes | None, Roster | None]
"""A :class:`Told` whose clock is not known yet."""


@dataclass(slots=True)
class WalkedLog:
    """One log of a walk: how far its clock has come, what was told and is still to count, and up to which offset all has counted."""

    clock: int = NEVER
    pending: list[CtiEntry] = field(default_factory=list)
    walked_offset: int = -1

    def accept_range(self, events: Events, accepted: Accepted) -> Ints:
        """Take what a range brought; return the clock of each accepted event."""
        told: list[_Item] = [(offset, number, c, None, None) for offset, number, c in accepted.progress]
        told += [(offset, number, w, key, None) for offset, number, key, w in accepted.listed]
        told += [(offset, -1, NEVER, None, roster) for offset, roster in accepted.rosters]
        offset = np.concatenate([accepted.position, np.array([each[0] for each in told], dtype=np.int64)])
        ends = [at for at, (_, _, us, key, _) in enumerate(told) if us == INFINITY and key is None]
        # What a list says of one substream tells nothing of the log, nor does the end of one of its channels.
        said = np.array([us if key is None and us < INFINITY else NEVER for _, _, us, key, _ in told], dtype=np.int64)
        if accepted.finished and ends:
            said[ends[-1]] = INFINITY
        time = np.concatenate([np.minimum(events.system_us, events.arrival_us), said])
        if not len(offset):
            return np.empty(0, dtype=np.int64)
        order = np.argsort(offset, kind="stable")
        rising = np.maximum(np.maximum.accumulate(time[order]), self.clock)
        clock: Ints = rising[np.searchsorted(offset[order], offset, side="right") - 1]
        self.clock = int(rising[-1])
        count = len(accepted.position)
        self.pending += [CtiEntry(at, *each) for at, each in zip(clock[count:].tolist(), told, strict=True)]
        return clock[:count]

    def pop_due(self, until: int) -> list[CtiEntry]:
        """Return what was told and counts now; it counts no more."""
        due = [each for each in self.pending if is_due(each.clock, until)]
        self.pending = [each for each in self.pending if not is_due(each.clock, until)]
        return due

    def save(self) -> list[Any]:
        """Return what :meth:`restore` needs, fit for JSON."""
        return [self.clock, [each.save() for each in self.pending], self.walked_offset]

    @classmethod
    def restore(cls, saved: Sequence[Any]) -> WalkedLog:
        """Return the line that was saved."""
        clock, told, walked = saved
        return cls(clock, [CtiEntry.restore(each) for each in told], walked)


def is_due(clock: Any, until: int) -> Any:
    """Tell what counts when all logs have come to *until*: what lies below it, and at the end everything."""
    return (clock < until) | (until == INFINITY)


def walk_places(clock: Ints, log: Ints, offset: Ints) -> Ints:
    """Return the place of each record in the walk; what is of one record has one place."""
    order = np.lexsort((offset, log, clock))
    same = np.ones(len(order), dtype=np.bool_)
    same[:1] = False
    for column in (clock, log, offset):
        sorted_column = column[order]
        same[1:] &= sorted_column[1:] == sorted_column[:-1]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(~same) - 1
    return place
