"""
The reader's rule: which records of an ordered partition count, and the partition's frontier.

A log may have a channel's events more than once (a writer failed and wrote again from an earlier number) and CTIs of a stale writer. The
rule (PROTOCOL.md) accepts each event once, in the order of ``seq``: it accepts ``last + 1``, skips events not above ``last``, and
ignores events beyond a gap until they are rewritten. A CTI counts once event ``n - 1`` is accepted, and its list with it; of the CTIs that
count, the largest ``c`` is used. A CTI in several parts counts with its last part (:mod:`ordering.protocol.list_parts`).

Law: which events are accepted, and at which record, depends on the log alone, not on batch boundaries, saving or restoring.

**Start in the middle, at time X.** The caller starts at or before the first offset whose Kafka timestamp is not below X's millisecond. So
every copy of an event with s >= X follows. Copies of earlier events may be missing, even between others, so the rule ``last + 1`` cannot be
applied yet. But a CTI is written only after all events below its ``n``:

- At any CTI of the channel, all events with s >= X and seq < n have been read. So each CTI accepts the distinct collected events below its
  ``n``, in the order of seq, and ``last`` becomes ``n - 1``, even if there are none. An event that it omits has s < X.
- Its ``c`` counts at once: an event with X <= s < c has a number below ``n``, so it has been read.
- Once a CTI has c >= X, every event above ``last`` has s >= X (an event with s < X <= c is numbered below n). All copies of these events
  follow, so the channel is *settled*: the normal rule holds, gaps included, first for the events still collected.

The specification ends the collection at the first CTI with n > x, where x is the first number read. That accepts the same events in the
same order, unless a stale writer's events and CTI come first after the start. Then the events between the stale n and the true writer's
next event are all earlier than X and never come, so the reader would wait for ever at a gap. Waiting for c >= X avoids this.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ordering.arrays import Ints, Mask
from ordering.columns.segments import stable_order
from ordering.errors import GapError, check_saved_version
from ordering.protocol.list_parts import ListAssembler
from ordering.protocol.punctuation import Cti, Roster
from ordering.ticks import INFINITY, NEVER

READER_STATE_VERSION = 1


@dataclass(slots=True)
class Log:
    """
    A contiguous range of one ordered partition in Kafka offset order: its events as columns, and its CTIs as (log offset, CTI). The channel
    of an event is named by ``number``, the roster number of its input partition.
    """

    log_offset: Ints
    number: Ints
    seq: Ints
    system_us: Ints
    ctis: list[tuple[int, Cti]]

    def __len__(self) -> int:
        return len(self.log_offset)


class ChannelRise(NamedTuple):
    """The rise of a channel's ``c``, microseconds, at a record of the log."""

    log_offset: int
    number: int
    c: int


class BlockedChannel(NamedTuple):
    """A channel with a CTI whose events are missing: its least such ``n``, and the number of its last accepted event."""

    number: int
    n: int
    last: int


@dataclass(slots=True)
class Accepted:
    """
    The result of one range of the log. Rows number the carried events first, then the events of this range.

    Args:
        rows: The accepted events, in the order of acceptance.
        position: For each of *rows* the log offset at which it was accepted, never falling: its own, or that of the CTI that confirmed it
            (start in the middle).
        carried: Rows that the reader has collected after a start in the middle and not accepted yet. The caller must put them, in this
            order, before the events of the next range.
        progress: Every rise of a channel's c, in log order, after the event accepted at that offset.
        arrivals_us: For each of *progress* the arrival frontier that its CTI carries, microseconds.
        frontier: (log offset, c): every rise of the partition's frontier, the least c of all channels of the newest roster; none before
            each has a CTI.
        finished: Whether every channel of the roster has ended.
        listed: (log offset, roster number, substream key, w): the lists of CTIs in log order, each at the record with which its CTI counts.
            No event of the substream in this channel accepted later has s < w. An entry may repeat known information. These are plain
            tuples: with lists of a thousand substreams a named one made ``accept`` take 2.7 times as long.
        rosters: (log offset, roster): every rise of the roster's version, in log order.
    """

    rows: Ints
    position: Ints
    carried: Ints
    progress: list[ChannelRise]
    arrivals_us: list[int]
    frontier: list[tuple[int, int]]
    finished: bool
    listed: list[tuple[int, int, bytes, int]]
    rosters: list[tuple[int, Roster]]


@dataclass(slots=True)
class _EventRun:
    """Some events of one channel: row numbers, seqs, and the log offsets at which they may be accepted."""

    row: Ints
    seq: Ints
    position: Ints

    def __getitem__(self, chosen: slice | Ints) -> _EventRun:
        return _EventRun(self.row[chosen], self.seq[chosen], self.position[chosen])

    def __len__(self) -> int:
        return len(self.row)

    @staticmethod
    def join(parts: list[_EventRun]) -> _EventRun:
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:
            return filled[0] if filled else _no_events()
        return _EventRun(*(np.concatenate([getattr(part, name) for part in filled]) for name in ("row", "seq", "position")))

    def at_offset(self, offset: int) -> _EventRun:
        return _EventRun(self.row, self.seq, np.full(len(self), offset, dtype=np.int64))


_List = tuple[tuple[bytes, int], ...]
# The promise of a CTI in its channel: (log offset, n, c, listed substreams, arrival frontier).
_Promise = tuple[int, int, int, _List, int]


class _Rises(NamedTuple):
    """What rose in one ``accept`` call: channels, their arrival frontiers, the frontier as (log offset, c), (log offset, roster)."""

    progress: list[ChannelRise]
    arrivals_us: list[int]
    frontier: list[tuple[int, int]]
    rosters: list[tuple[int, Roster]]


@dataclass(slots=True)
class _Harvest:
    """The results of one ``accept`` call: accepted events, CTIs that count as (log offset, number, c, arrival frontier), lists, counts."""

    accepted: list[_EventRun] = field(default_factory=list)
    applied: list[tuple[int, int, int, int]] = field(default_factory=list)
    listed: list[tuple[int, int, _List]] = field(default_factory=list)
    duplicates: int = 0
    gaps: int = 0


@dataclass(slots=True)
class _Channel:
    number: int
    # Whether the normal rule holds: from the first record on, or after a start in the middle once a CTI has c >= X.
    is_settled: bool
    # The number of the last accepted event.
    last: int = -1
    c: int = NEVER
    # The promises that do not count yet, since events below their n are missing.
    waiting: list[_Promise] = field(default_factory=list)
    # While not settled: distinct events above ``last``, rising in seq. Only their seqs last beyond a call.
    collected: _EventRun = field(default_factory=lambda: _no_events())

    def accept_in_sequence(self, events: _EventRun, promises: list[_Promise], harvest: _Harvest) -> None:
        before = self.last
        chosen, gaps = _next_in_line(before, events.seq)
        chosen_events = events[chosen]
        self.last += len(chosen_events)
        harvest.accepted.append(chosen_events)
        harvest.gaps += gaps
        harvest.duplicates += len(events) - len(chosen_events) - gaps
        promises, self.waiting = self.waiting + promises, []
        for promise in promises:
            offset, n, c, listed, arrival_us = promise
            if n > self.last + 1:
                self.waiting.append(promise)
                continue
            completed = offset if n <= before + 1 else max(offset, int(chosen_events.position[n - 2 - before]))
            harvest.applied.append((completed, self.number, c, arrival_us))
            if listed:
                harvest.listed.append((completed, self.number, listed))

    def collect(self, events: _EventRun, wanted: Mask, promises: list[_Promise], start_us: int, harvest: _Harvest) -> None:
        """Collect the *wanted* events (s >= X); each CTI accepts those below its n, until one settles the channel."""
        done = 0
        for index, (offset, n, c, listed, arrival_us) in enumerate(promises):
            until = int(np.searchsorted(events.position, offset))
            self._gather(events[done:until], wanted[done:until], harvest)
            done = until
            below = int(np.searchsorted(self.collected.seq, n))
            harvest.accepted.append(self.collected[:below].at_offset(offset))
            harvest.applied.append((offset, self.number, c, arrival_us))
            if listed:
                harvest.listed.append((offset, self.number, listed))
            self.collected, self.last = self.collected[below:], max(self.last, n - 1)
            if c >= start_us:
                left, self.collected, self.is_settled = self.collected.at_offset(offset), self.collected[:0], True
                self.accept_in_sequence(_EventRun.join([left, events[done:]]), promises[index + 1 :], harvest)
                return
        self._gather(events[done:], wanted[done:], harvest)

    def _gather(self, events: _EventRun, wanted: Mask, harvest: _Harvest) -> None:
        together = _EventRun.join([self.collected, events[np.flatnonzero(wanted & (events.seq > self.last))]])
        _, first = np.unique(together.seq, return_index=True)
        harvest.duplicates += len(self.collected) + int(np.count_nonzero(wanted)) - len(first)
        self.collected = together[first]


class PartitionReader:
    """
    The reader of one partition of an ordered topic.

    *start_us* is X of a start in the middle, microseconds: exactly the events with s >= X are accepted. None: the reader starts with the
    topic's first record and accepts every event. ``duplicates`` counts the events skipped because they, or a copy, had been read before,
    ``gaps`` those ignored because an earlier one was missing.

    A writer wrote events 0 and 1, failed, and wrote 1 again. Its CTI says: of the events from number 2 on, none is below 30.

    >>> from dataclasses import replace
    >>> from ordering.protocol.punctuation import Cause, Spread
    >>> events = [np.array(column) for column in ([0, 1, 2], [0, 0, 0], [0, 1, 1], [10, 20, 20])]  # log offset, channel, seq, s
    >>> roster = Roster(1, 1, Spread.ONE, substreams=False)
    >>> cti = Cti(0, 0, 30, 2, ahead=0, next_offset=2, arrival_us=25, largest_us=20, roster=roster, cause=Cause.EVENT)  # c = 30, n = 2
    >>> reader = PartitionReader(partition=0, output_partitions=1)
    >>> accepted = reader.accept(Log(*events, ctis=[(3, cti)]))
    >>> accepted.rows.tolist(), reader.duplicates
    ([0, 1], 1)
    >>> accepted.progress
    [ChannelRise(log_offset=3, number=0, c=30)]
    >>> reader.frontier
    30

    The next CTI counts event 2, which has not come. So time stays, and the reader says what it waits for.

    >>> nothing = [column[:0] for column in events]
    >>> reader.accept(Log(*nothing, ctis=[(4, replace(cti, c=50, n=3))])).progress, reader.frontier
    ([], 30)
    >>> reader.blocked_channels()
    [BlockedChannel(number=0, n=3, last=1)]
    """

    def __init__(self, partition: int, output_partitions: int, start_us: int | None = None) -> None:
        self.partition, self.output_partitions, self.start_us = partition, output_partitions, start_us
        self.duplicates = self.gaps = 0
        self._roster: Roster | None = None
        self._frontier = NEVER
        self._channels: dict[int, _Channel] = {}
        self._list_assembler = ListAssembler()

    @property
    def frontier(self) -> int:
        """No event accepted later has s below this, microseconds; ``NEVER`` until every channel of the roster has a CTI."""
        return self._frontier

    @property
    def roster(self) -> Roster | None:
        return self._roster

    @property
    def finished(self) -> bool:
        return self._frontier == INFINITY

    def c(self, number: int) -> int:
        """Return the c of a channel, microseconds; ``NEVER`` before its first CTI."""
        return self._channels[number].c if number in self._channels else NEVER

    def last(self, number: int) -> int:
        """Return the number of a channel's last accepted event, or n - 1 of a CTI (start in the middle); -1 before the first."""
        return self._channels[number].last if number in self._channels else -1

    def missing(self) -> list[int]:
        """Return the channels of the newest roster without a CTI: each of them blocks the frontier."""
        return [number for number in self._roster_numbers() if self.c(number) == NEVER]

    def blocked_channels(self) -> list[BlockedChannel]:
        """Return each channel with a CTI whose events are missing."""
        behind = [channel for _, channel in sorted(self._channels.items()) if channel.waiting]
        return [BlockedChannel(channel.number, min(promise[1] for promise in channel.waiting), channel.last) for channel in behind]

    def accept(self, log: Log) -> Accepted:
        """Apply the rule to *log*, which starts where the last one ended."""
        harvest = _Harvest()
        first_row = self._number_collected()
        rows_of = _rows_by_channel(log.number)
        promises = self._promises(log)
        all_settled = True
        for number in sorted(rows_of.keys() | promises.keys()):
            rows = rows_of.get(number, slice(0, 0))
            channel = self._channels.setdefault(number, _Channel(number, is_settled=self.start_us is None))
            all_settled &= channel.is_settled
            if self.start_us is not None and not channel.is_settled:
                wanted = log.system_us[rows] >= self.start_us
                channel.collect(_event_run(log, rows, first_row), wanted, promises.get(number, []), self.start_us, harvest)
            else:
                channel.accept_in_sequence(_event_run(log, rows, first_row), promises.get(number, []), harvest)
        self.duplicates += harvest.duplicates
        self.gaps += harvest.gaps
        rows, position = _in_log_order(harvest.accepted, log if all_settled else None, first_row)
        rises = self._advance(log, harvest.applied)
        # In the order in which their CTIs count.
        lists = sorted(harvest.listed, key=lambda entry: entry[0])
        listed = [(offset, number, key, w) for offset, number, entries in lists for key, w in entries]
        carried, progress, arrivals_us = self._carried_rows(), rises.progress, rises.arrivals_us
        return Accepted(rows, position, carried, progress, arrivals_us, rises.frontier, self.finished, listed, rises.rosters)

    def _promises(self, log: Log) -> dict[int, list[_Promise]]:
        """Return the CTIs of each channel in log order; a CTI in several parts is at its last part."""
        promises: dict[int, list[_Promise]] = {}
        incomplete = self._list_assembler.incomplete
        for offset, cti in log.ctis:
            listed: _List | None = cti.listed
            if incomplete or cti.parts > 1:
                listed = self._list_assembler.add_part(cti)
            if listed is not None:
                promises.setdefault(cti.number, []).append((offset, cti.n, cti.c, listed, cti.arrival_us))
        return promises

    def _number_collected(self) -> int:
        """Renumber the carried rows in the order in which the last call returned them; return their number."""
        count = 0
        for channel in self._collecting_channels():
            channel.collected.row = np.arange(count, count + len(channel.collected), dtype=np.int64)
            count += len(channel.collected)
        return count

    def _collecting_channels(self) -> list[_Channel]:
        return [channel for _, channel in sorted(self._channels.items()) if len(channel.collected)]

    def _carried_rows(self) -> Ints:
        collecting = self._collecting_channels()
        return np.concatenate([channel.collected.row for channel in collecting]) if collecting else np.empty(0, dtype=np.int64)

    def _roster_numbers(self) -> Sequence[int]:
        return self._roster.channels_of(self.partition, self.output_partitions) if self._roster else range(0)

    def _advance(self, log: Log, applied: list[tuple[int, int, int, int]]) -> _Rises:
        """Raise channels, frontier and roster; return their rises. At one offset the roster is applied first, then the largest c."""
        version = self._roster.version if self._roster else -1
        rosters_met = [(offset, cti.roster) for offset, cti in log.ctis if cti.roster.version > version and cti.part == cti.parts - 1]
        rosters: list[tuple[int, Roster]] = []
        progress: list[ChannelRise] = []
        arrivals_us: list[int] = []
        frontier: list[tuple[int, int]] = []
        for offset, number, c, arrival_us in sorted(applied, key=lambda promise: (promise[0], -promise[2])):
            while rosters_met and rosters_met[0][0] <= offset:
                self._apply_roster(*rosters_met.pop(0), rosters, frontier)
            channel = self._channels[number]
            if c > channel.c:
                # A channel that was above the frontier already does not raise it.
                may_raise = channel.c <= self._frontier
                channel.c = c
                progress.append(ChannelRise(offset, number, c))
                arrivals_us.append(arrival_us)
                if may_raise:
                    self._raise_frontier(offset, frontier)
        for offset, roster in rosters_met:
            self._apply_roster(offset, roster, rosters, frontier)
        return _Rises(progress, arrivals_us, frontier, rosters)

    def _apply_roster(self, offset: int, roster: Roster, rosters: list[tuple[int, Roster]], frontier: list[tuple[int, int]]) -> None:
        if self._roster is None or roster.version > self._roster.version:
            self._roster = roster
            rosters.append((offset, roster))
            self._raise_frontier(offset, frontier)

    def _raise_frontier(self, offset: int, frontier: list[tuple[int, int]]) -> None:
        least = min((self.c(number) for number in self._roster_numbers()), default=NEVER)
        if least > self._frontier:
            self._frontier = least
            # At most one rise a record, though a record may have both a newer roster and a larger c.
            if frontier and frontier[-1][0] == offset:
                frontier.pop()
            frontier.append((offset, least))

    def save(self) -> bytes:
        """Return the state for :meth:`restore`: a small document, unless many events are collected after a start in the middle."""
        fields = {
            "version": READER_STATE_VERSION,
            "start_us": self.start_us,
            "duplicates": self.duplicates,
            "gaps": self.gaps,
            "frontier": self._frontier,
            "roster": None if self._roster is None else self._roster.save(),
            "channels": [
                [channel.number, channel.is_settled, channel.last, channel.c, _save_promises(channel.waiting), _runs(channel.collected.seq)]
                for _, channel in sorted(self._channels.items())
            ],
            "parts": self._list_assembler.save(),
            # A member of its own: a reader of an earlier version passes it over.
            "arrivals": [[promise[-1] for promise in channel.waiting] for _, channel in sorted(self._channels.items())],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def in_channel(cls, partition: int, output_partitions: int, number: int, last: int) -> PartitionReader:
        """Return a reader that has accepted one channel's events up to seq *last* and has no other state."""
        reader = cls(partition, output_partitions)
        reader._channels[number] = _Channel(number, is_settled=True, last=last)
        return reader

    @classmethod
    def restore(cls, data: bytes, partition: int, output_partitions: int) -> PartitionReader:
        """Return the reader that was saved as *data*; ProtocolError if another version saved it."""
        fields = json.loads(data)
        check_saved_version("a reader's saved state", fields["version"], READER_STATE_VERSION)
        reader = cls(partition, output_partitions, fields["start_us"])
        reader.duplicates, reader.gaps, reader._frontier = fields["duplicates"], fields["gaps"], fields["frontier"]
        reader._roster = fields["roster"] and Roster.restore(fields["roster"])
        arrivals = fields.get("arrivals", [[NEVER] * len(channel[4]) for channel in fields["channels"]])
        for (number, settled, last, c, waiting, runs), arrivals_us in zip(fields["channels"], arrivals, strict=True):
            seq = np.concatenate([np.empty(0, dtype=np.int64), *(np.arange(first, past, dtype=np.int64) for first, past in runs)])
            # Only the seqs of collected events are saved: rows and offsets are assigned again at the next call.
            collected = _EventRun(seq, seq, seq)
            reader._channels[number] = _Channel(number, settled, last, c, _restore_promises(waiting, arrivals_us), collected)
        reader._list_assembler = ListAssembler.restore(fields["parts"], partition)
        return reader


def gap_error(topic: str, partition: int, number: int, n: int, last: int) -> GapError:
    """Return the error for a CTI that :meth:`PartitionReader.blocked_channels` returns for too long (60 s, a setting)."""
    what = f"a CTI of channel {number} promises the events numbered below {n}, but after number {last} none follows"
    fix = "the topic has lost records: look for unclean leader election, deletion or a foreign writer, then rebuild it"
    return GapError(what, where=f"{topic}-{partition}", fix=fix)


def _rows_by_channel(number: Ints) -> dict[int, slice | Ints]:
    if not len(number):
        return {}
    least, largest = int(number.min()), int(number.max())
    if least == largest:
        return {least: slice(None)}
    order = stable_order(number, largest + 1)
    grouped = number[order]
    starts = np.flatnonzero(np.concatenate([[True], grouped[1:] != grouped[:-1]]))
    return {int(grouped[start]): rows for start, rows in zip(starts, np.split(order, starts[1:]), strict=True)}


def _event_run(log: Log, rows: slice | Ints, first_row: int) -> _EventRun:
    row = np.arange(first_row, first_row + len(log), dtype=np.int64) if isinstance(rows, slice) else rows + first_row
    return _EventRun(row[rows] if isinstance(rows, slice) else row, log.seq[rows], log.log_offset[rows])


def _next_in_line(last: int, seq: Ints) -> tuple[slice | Ints, int]:
    """Return which entries the normal rule accepts after *last*, and how many are beyond a gap."""
    # The usual case: no repetition and no gap.
    if not len(seq) or (seq[0] == last + 1 and (seq[1:] - seq[:-1] == 1).all()):
        return slice(None), 0
    # If each new largest seq is one above the last one, nothing is missing, and exactly these events are accepted.
    before = np.maximum.accumulate(np.concatenate([[last], seq[:-1]]))
    new = np.flatnonzero(seq > before)
    if (seq[new] == before[new] + 1).all():
        return new, 0
    return _next_in_line_over_gaps(last, seq)


def _next_in_line_over_gaps(last: int, seq: Ints) -> tuple[Ints, int]:
    starts = np.flatnonzero(np.concatenate([[True], seq[1:] - seq[:-1] != 1]))
    lengths = np.diff(starts, append=len(seq))
    chosen, gaps = [np.empty(0, dtype=np.int64)], 0
    for start, length, first in zip(starts.tolist(), lengths.tolist(), seq[starts].tolist(), strict=True):
        if first > last + 1:
            gaps += length
        elif first + length > last + 1:
            chosen.append(np.arange(start + last + 1 - first, start + length))
            last = first + length - 1
    return np.concatenate(chosen), gaps


def _in_log_order(accepted: list[_EventRun], settled_log: Log | None, first_row: int) -> tuple[Ints, Ints]:
    """Return rows and positions in the order of acceptance; *settled_log* is the log if all its channels were settled before it."""
    # Almost always all events are accepted, each at its own record.
    if settled_log is not None and sum(map(len, accepted)) == len(settled_log):
        return np.arange(first_row, first_row + len(settled_log), dtype=np.int64), settled_log.log_offset
    together = _EventRun.join(accepted)
    # At one record only events of its own channel are accepted, already in order: a stable sort keeps that order.
    order = np.argsort(together.position, kind="stable")
    return together.row[order], together.position[order]


def _save_promises(waiting: list[_Promise]) -> list[tuple[Any, ...]]:
    return [(offset, n, c, [(key.hex(), w) for key, w in listed]) for offset, n, c, listed, _ in waiting]


def _restore_promises(waiting: list[list[Any]], arrivals_us: list[int]) -> list[_Promise]:
    pairs = zip(waiting, arrivals_us, strict=True)
    return [(offset, n, c, tuple((bytes.fromhex(key), w) for key, w in listed), us) for (offset, n, c, listed), us in pairs]


def _no_events() -> _EventRun:
    return _EventRun(*(np.empty(0, dtype=np.int64) for _ in range(3)))


def _runs(seq: Ints) -> list[list[int]]:
    """Return rising numbers as runs [first, last + 1]."""
    if not len(seq):
        return []
    breaks = np.flatnonzero(seq[1:] - seq[:-1] != 1) + 1
    return [[int(run[0]), int(run[-1]) + 1] for run in np.split(seq, breaks)]
