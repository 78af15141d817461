"""
Checks the promises of a channel's CTIs against the events of the topic itself.

Law: each CTI (c, n) is checked. No event with seq >= n has s < c, wherever it is in the log; the events below n are before the CTI;
``ahead`` and ``largest_us`` are right; its list of substreams holds too. A CTI below an earlier one comes from a writer that was replaced:
it is harmless, but must still be true. Memory is bounded: a CTI of an old writer that is too far behind to be checked is counted as
unproven, unless another promise implies it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.protocol.list_parts import ListAssembler
from ordering.protocol.punctuation import Cti
from ordering.ticks import NEVER, TICK_MIN, format_tick
from tidegate.ordered_topic.events import OrderedEvents

# How many of a channel's newest events are kept to check late CTIs against.
RECENT_EVENTS = 65_536
RECENT_PROMISES = 16_384


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A promise that does not hold: its channel, its log offset, and the contradiction."""

    number: int
    partition: int
    log_offset: int
    description: str

    def as_dict(self, topic: str) -> dict[str, Any]:
        place = {"topic": topic, "number": self.number, "partition": self.partition, "log_offset": self.log_offset}
        return {**place, "what": self.description}


@dataclass(slots=True)
class PromiseCheck:
    """The CTIs of one channel. *is_from_start*: the walk began with the channel's first event; otherwise fewer promises can be checked."""

    number: int
    partition: int
    is_from_start: bool
    # How many CTIs there were, how many were below an earlier one, and how many could not be checked.
    ctis: int = 0
    stale: int = 0
    unproven: int = 0
    # The first promise that does not hold.
    broken: BrokenPromise | None = None
    # Largest c so far.
    c: int = NEVER
    _last_seq: int = -1
    _largest_us: int = TICK_MIN
    # System timestamps of the newest events, and of all events at or above c.
    _recent: deque[Ints] = field(default_factory=deque)
    _recent_count: int = 0
    _above: list[Ints] = field(default_factory=list)
    # n and c of each CTI that raised c.
    _promised_n: list[int] = field(default_factory=list)
    _promised_c: list[int] = field(default_factory=list)
    # Promises about events that have not come yet: (n, c, log offset).
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)
    _list_assembler: ListAssembler = field(default_factory=ListAssembler)
    _substream_promises: dict[bytes, int] = field(default_factory=dict)

    def add_events(self, events: OrderedEvents) -> None:
        """Check the channel's next accepted events."""
        if not len(events):
            return
        earliest_row = int(np.argmin(events.system_us))
        if events.system_us[earliest_row] < self.c:
            self._report_event(events, earliest_row, self.c, "")
        if self._substream_promises:
            self._check_substream_promises(events)
        self._last_seq = int(events.seq[-1])
        self._largest_us = max(self._largest_us, int(events.system_us.max()))
        if self.is_from_start:
            self._above.append(events.system_us)
        self._recent.append(events.system_us)
        self._recent_count += len(events)
        while self._recent_count - len(self._recent[0]) >= RECENT_EVENTS:
            self._recent_count -= len(self._recent.popleft())
        self._apply_waiting()

    def add_cti(self, log_offset: int, cti: Cti) -> None:
        """Check the channel's next CTI, or a part of one; it comes after the events added so far."""
        # A CTI with a long list comes in parts; only the last part completes it.
        self.ctis += cti.part == cti.parts - 1
        listed = self._list_assembler.add_part(cti)
        if listed is None:
            return
        if cti.n > self._last_seq + 1 and self.is_from_start:
            self._report(log_offset, f"it numbers events below {cti.n}, but the last one before it has number {self._last_seq}")
            self._waiting.append((cti.n, cti.c, log_offset))
            return
        self._last_seq = max(self._last_seq, cti.n - 1)
        if cti.n <= self._last_seq:
            self._check_earlier_events(log_offset, cti)
        elif self.is_from_start and cti.c >= self.c:
            self._check_counts(log_offset, cti)
        self.stale += cti.c < self.c
        self._raise_c(cti.n, cti.c)
        for key, w in listed:
            self._substream_promises[key] = max(self._substream_promises.get(key, NEVER), w)
        # A promise at or below c follows from the channel's own promise. Dropping such promises bounds memory.
        if len(self._substream_promises) > RECENT_PROMISES:
            self._substream_promises = {key: w for key, w in self._substream_promises.items() if w > self.c}

    def _raise_c(self, n: int, c: int) -> None:
        if c > self.c:
            self.c = c
            self._promised_n.append(n)
            self._promised_c.append(c)
            if len(self._promised_n) > 2 * RECENT_PROMISES:
                del self._promised_n[:-RECENT_PROMISES], self._promised_c[:-RECENT_PROMISES]

    def _check_counts(self, log_offset: int, cti: Cti) -> None:
        """Check the counts in a CTI: how many events so far are at or above c, and the largest time."""
        above = np.concatenate([np.empty(0, dtype=np.int64), *self._above])
        above = above[above >= cti.c]
        # c only rises, so events below it are not needed again.
        self._above = [above] if len(above) else []
        if len(above) != cti.ahead:
            claim = f"it says that {cti.ahead} events below {cti.n} are at or after {format_tick(cti.c)}"
            self._report(log_offset, f"{claim}; they are {len(above)}")
        if max(cti.largest_us, TICK_MIN) != self._largest_us:
            self._report(
                log_offset, f"it says that the largest time is {format_tick(cti.largest_us)}; it is {format_tick(self._largest_us)}"
            )

    def _check_earlier_events(self, log_offset: int, cti: Cti) -> None:
        """Check a CTI of a channel that already has events from seq n on."""
        # An earlier promise from the same seq or a smaller one, with a c at least as high, implies this one.
        implied = bisect_right(self._promised_n, cti.n) - 1
        if implied >= 0 and self._promised_n[implied] <= cti.n and self._promised_c[implied] >= cti.c:
            return
        count = self._last_seq + 1 - cti.n
        if not self.is_from_start or count > self._recent_count:
            self.unproven += 1
            return
        later = np.concatenate(self._recent)[-count:]
        if int(later.min()) < cti.c:
            seq = cti.n + int(np.argmin(later))
            self._report(log_offset, f"it says that events from number {cti.n} on are not before {format_tick(cti.c)}, but number {seq} is")

    def _apply_waiting(self) -> None:
        for promise in [waiting for waiting in self._waiting if waiting[0] <= self._last_seq + 1]:
            self._waiting.remove(promise)
            self._raise_c(promise[0], promise[1])

    def _check_substream_promises(self, events: OrderedEvents) -> None:
        keys = list(self._substream_promises)
        key_index = pc.index_in(events.key, value_set=pa.array(keys, type=pa.binary()))
        promised_rows = np.flatnonzero(key_index.is_valid().to_numpy(zero_copy_only=False))
        if not len(promised_rows):
            return
        promised = np.array(list(self._substream_promises.values()), dtype=np.int64)[
            key_index.take(pa.array(promised_rows)).to_numpy(zero_copy_only=False)
        ]
        broken_rows = np.flatnonzero(events.system_us[promised_rows] < promised)
        if len(broken_rows):
            row = int(promised_rows[broken_rows[0]])
            self._report_event(events, row, int(promised[broken_rows[0]]), f" of substream {events.key[row].as_py()!r}")

    def _report_event(self, events: OrderedEvents, row: int, c: int, subject: str) -> None:
        seq, system_us = int(events.seq[row]), int(events.system_us[row])
        description = f"time{subject} had come to {format_tick(c)}, but number {seq} at {format_tick(system_us)} follows"
        self._report(int(events.log_offset[row]), description)

    def _report(self, log_offset: int, description: str) -> None:
        self.broken = self.broken or BrokenPromise(self.number, self.partition, log_offset, description)
