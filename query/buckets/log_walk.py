"""
The walk of a query with OVER over several logs: the order in which their records count.

Each log has its own order; the order between logs is chance, made by brokers and batches. So every record has a *clock*: the largest time
in its log up to the record. The time of an event is the lesser of its System.Timestamp and its arrival, that of a CTI is its c, and that of
the last final CTI, which ends the log, is infinity. Records count in the order (clock, log, offset), and only once every log has passed
their clock. Law: the walk follows from the logs alone, whatever is read when. So a result of several inputs becomes final only once each
input has come that far. A single log is walked as it is read.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.protocol.punctuation import Roster
from ordering.protocol.reader import Accepted
from ordering.ticks import INFINITY, NEVER


@dataclass(frozen=True, slots=True)
class CtiEntry:
    """One statement of a CTI: the instant that its channel promises, the watermark of the substream with this *key*, or a new roster."""

    # The clock of its record, microseconds.
    clock: int
    # The log offset of the record with which it counts.
    offset: int
    # The input partition, -1 for a roster.
    number: int
    # The c or the watermark, microseconds.
    us: int
    # The substream's key, None for a channel.
    key: bytes | None = None
    # The roster that holds from this record on.
    roster: Roster | None = None

    @property
    def is_rise(self) -> bool:
        return self.key is None and self.roster is None

    def save(self) -> list[Any]:
        key = None if self.key is None else b64encode(self.key).decode()
        return [self.clock, self.offset, self.number, self.us, key, self.roster and self.roster.save()]

    @classmethod
    def restore(cls, saved: Sequence[Any]) -> CtiEntry:
        clock, offset, number, us, key, roster = saved
        return cls(clock, offset, number, us, None if key is None else b64decode(key), roster and Roster.restore(roster))


@dataclass(slots=True)
class WalkedLog:
    """One log of a walk."""

    # The clock of its last record, microseconds.
    clock: int = NEVER
    # The entries of its CTIs that have not been walked yet.
    pending: list[CtiEntry] = field(default_factory=list)
    # All records up to this offset have been walked.
    walked_offset: int = -1

    def accept_range(self, events: pa.Table, accepted: Accepted) -> Ints:
        """Accept a range of the log; return the clock of each accepted event."""
        # Their clocks are computed below, together with those of the events.
        entries = [CtiEntry(NEVER, offset, number, c) for offset, number, c in accepted.progress]
        entries += [CtiEntry(NEVER, offset, number, w, key) for offset, number, key, w in accepted.listed]
        entries += [CtiEntry(NEVER, offset, -1, NEVER, roster=roster) for offset, roster in accepted.rosters]
        offset = np.concatenate([accepted.position, np.array([entry.offset for entry in entries], dtype=np.int64)])
        # A watermark of one substream moves no clock, nor does the end of one channel; the end of the last one ends the log.
        time_us = np.array([entry.us if entry.key is None and entry.us < INFINITY else NEVER for entry in entries], dtype=np.int64)
        ends = [index for index, entry in enumerate(entries) if entry.us == INFINITY and entry.key is None]
        if accepted.finished and ends:
            time_us[ends[-1]] = INFINITY
        event_us = np.minimum(events["system_us"].to_numpy(), events["arrival_us"].to_numpy())
        if not len(offset):
            return np.empty(0, dtype=np.int64)
        order = np.argsort(offset, kind="stable")
        rising = np.maximum(np.maximum.accumulate(np.concatenate([event_us, time_us])[order]), self.clock)
        clock: Ints = rising[np.searchsorted(offset[order], offset, side="right") - 1]
        self.clock = int(rising[-1])
        count = len(accepted.position)
        self.pending += [replace(entry, clock=us) for us, entry in zip(clock[count:].tolist(), entries, strict=True)]
        return clock[:count]

    def pop_due(self, until: int) -> list[CtiEntry]:
        """Remove and return the entries that count if all logs have come to *until*."""
        due = [entry for entry in self.pending if is_due(entry.clock, until)]
        self.pending = [entry for entry in self.pending if not is_due(entry.clock, until)]
        return due

    def save(self) -> list[Any]:
        return [self.clock, [entry.save() for entry in self.pending], self.walked_offset]

    @classmethod
    def restore(cls, saved: Sequence[Any]) -> WalkedLog:
        clock, pending, walked_offset = saved
        return cls(clock, [CtiEntry.restore(entry) for entry in pending], walked_offset)


def is_due(clock: Any, until: int) -> Any:
    """Return which clocks count if all logs have come to *until*: those below it, and at the end all."""
    return (clock < until) | (until == INFINITY)


def walk_places(clock: Ints, log: Ints, offset: Ints) -> Ints:
    """Return the place of each record in the walk; all parts of one record have one place."""
    order = np.lexsort((offset, log, clock))
    same = np.ones(len(order), dtype=np.bool_)
    same[:1] = False
    for column in (clock, log, offset):
        sorted_column = column[order]
        same[1:] &= sorted_column[1:] == sorted_column[:-1]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(~same) - 1
    return place
