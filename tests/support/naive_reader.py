"""
A reader that hears one record at a time, written from PROTOCOL.md alone, rule by rule.

It shares no code with ``ordering.protocol.reader``, only the values that go in. Tests compare the two over any log; the reader
stories of the conformance kit are told by this one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.reader import Log
from ordering.ticks import NEVER


@dataclass(frozen=True)
class Event:
    """One event on the ordered topic, as far as a reader looks at it."""

    number: int
    seq: int
    system_us: int


Line = tuple[int, Event | Cti]
"""One record of an ordered partition with its log offset."""


@dataclass
class Heard:
    """What came of a log, each with the log offset of the record upon which it came."""

    accepted: list[tuple[int, Event]] = field(default_factory=list)
    progress: list[tuple[int, int, int]] = field(default_factory=list)
    frontier: list[tuple[int, int]] = field(default_factory=list)
    listed: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    rosters: list[tuple[int, Roster]] = field(default_factory=list)


@dataclass
class NaiveChannel:
    """A channel as the rule describes it."""

    settled: bool
    last: int = -1
    c: int = NEVER
    waiting: list[tuple[Cti, tuple[tuple[bytes, int], ...]]] = field(default_factory=list)
    """The CTIs that do not count yet, with their whole lists."""
    valid: Cti | None = None
    """The CTI with the largest (c, n) of those that count."""
    collected: dict[int, Event] = field(default_factory=dict)
    parts: list[Cti] = field(default_factory=list)


class NaiveReader:
    """The rule, one record at a time; *start_us* is X of a start in the middle."""

    def __init__(self, partition: int, output_partitions: int, start_us: int | None = None) -> None:
        self.partition, self.output_partitions, self.start_us = partition, output_partitions, start_us
        self.channels: defaultdict[int, NaiveChannel] = defaultdict(lambda: NaiveChannel(settled=start_us is None))
        self.roster: Roster | None = None
        self.frontier = NEVER
        self.gaps = 0
        self.heard = Heard()

    def hear(self, offset: int, record: Event | Cti) -> None:
        """Take the next record of the log."""
        channel = self.channels[record.number]
        if isinstance(record, Cti):
            self._hear_cti(offset, channel, record)
        elif channel.settled:
            self._take(offset, channel, record)
        elif record.seq > channel.last and record.system_us >= (self.start_us or 0):
            channel.collected.setdefault(record.seq, record)
        self._count_ctis(offset, record.number, channel)
        self._raise_frontier(offset)

    def _hear_cti(self, offset: int, channel: NaiveChannel, cti: Cti) -> None:
        in_turn = cti.part == len(channel.parts) and all(
            replace(each, listed=(), part=cti.part) == replace(cti, listed=()) for each in channel.parts
        )
        if not in_turn:
            channel.parts = []
        if in_turn or cti.part == 0:
            channel.parts.append(cti)
        if cti.part < cti.parts - 1:
            return
        whole = len(channel.parts) == cti.parts
        listed = tuple(entry for each in channel.parts for entry in each.listed) if whole else ()
        channel.parts = []
        self._meet(offset, cti.roster)
        channel.waiting.append((cti, listed))
        if not channel.settled:
            self._vouch(offset, channel, cti)

    def _take(self, offset: int, channel: NaiveChannel, record: Event) -> None:
        if record.seq == channel.last + 1:
            channel.last += 1
            self.heard.accepted.append((offset, record))
        elif record.seq > channel.last + 1:
            self.gaps += 1

    def _vouch(self, offset: int, channel: NaiveChannel, cti: Cti) -> None:
        for seq in sorted(seq for seq in channel.collected if seq < cti.n):
            self.heard.accepted.append((offset, channel.collected.pop(seq)))
        channel.last = max(channel.last, cti.n - 1)
        if cti.c >= (self.start_us or 0):
            channel.settled = True
            for seq in sorted(channel.collected):
                self._take(offset, channel, channel.collected.pop(seq))

    def _count_ctis(self, offset: int, number: int, channel: NaiveChannel) -> None:
        counting = [(cti, listed) for cti, listed in channel.waiting if cti.n <= channel.last + 1]
        channel.waiting = [(cti, listed) for cti, listed in channel.waiting if cti.n > channel.last + 1]
        self.heard.listed += [(offset, number, key, w) for _, listed in counting for key, w in listed]
        for cti, _ in counting:
            if channel.valid is None or (cti.c, cti.n) > (channel.valid.c, channel.valid.n):
                channel.valid = cti
        if channel.valid is not None and channel.valid.c > channel.c:
            channel.c = channel.valid.c
            self.heard.progress.append((offset, number, channel.c))

    def _meet(self, offset: int, roster: Roster) -> None:
        if self.roster is None or roster.version > self.roster.version:
            self.roster = roster
            self.heard.rosters.append((offset, roster))

    def _raise_frontier(self, offset: int) -> None:
        numbers = self.roster.channels_of(self.partition, self.output_partitions) if self.roster else range(0)
        least = min((self.channels[number].c for number in numbers), default=NEVER)
        if least > self.frontier:
            self.frontier = least
            self.heard.frontier.append((offset, least))


def read_naively(lines: Iterable[Line], partition: int, output_partitions: int, start_us: int | None) -> NaiveReader:
    """Return the naive reader after the whole log."""
    reader = NaiveReader(partition, output_partitions, start_us)
    for offset, record in lines:
        reader.hear(offset, record)
    return reader


def log_columns(lines: Sequence[Line]) -> tuple[Log, list[Event]]:
    """Return lines as the reader wants them, and their events."""
    events = [(offset, record) for offset, record in lines if isinstance(record, Event)]
    columns = np.array([(offset, each.number, each.seq, each.system_us) for offset, each in events], dtype=np.int64).reshape(-1, 4).T
    ctis = [(offset, record) for offset, record in lines if isinstance(record, Cti)]
    return Log(columns[0], columns[1], columns[2], columns[3], ctis), [each for _, each in events]
