"""
The reader's rule against a reader that hears one record at a time, and against the truth.

The naive reader follows the rule word for word and is compared over any log, sense or nonsense. The truth is what one
undisturbed run of the model wrote: writers that die in mid-write, start again from a checkpoint with other batches, or
go on writing when they should be gone must not change what a reader takes, wherever it starts.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from strategies import logs, policies

from ordering.errors import GapError, ProtocolError
from ordering.oracle import Record
from ordering.policies import Policies
from ordering.punctuation import Cause, Cti, Roster, Spread
from ordering.reader import Log, PartitionReader, unmet
from ordering.step import Model, Step
from ordering.testing import batch_of
from ordering.ticks import INFINITY, NEVER


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
    """What came of a log, with rows replaced by their events so that cuts can be compared."""

    accepted: list[tuple[int, Event]] = field(default_factory=list)
    progress: list[tuple[int, int, int]] = field(default_factory=list)
    frontier: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class NaiveChannel:
    """A channel as the rule describes it."""

    settled: bool
    last: int = -1
    c: int = NEVER
    waiting: list[tuple[int, int]] = field(default_factory=list)
    collected: dict[int, Event] = field(default_factory=dict)


class NaiveReader:
    """The rule, one record at a time."""

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
            self._meet(record.roster)
            channel.waiting.append((record.n, record.c))
            if not channel.settled:
                self._vouch(offset, channel, record)
        elif channel.settled:
            self._take(offset, channel, record)
        elif record.seq > channel.last and record.system_us >= (self.start_us or 0):
            channel.collected.setdefault(record.seq, record)
        self._count_ctis(offset, record.number, channel)
        self._raise_frontier(offset)

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
        counting = max([c for n, c in channel.waiting if n <= channel.last + 1], default=NEVER)
        channel.waiting = [(n, c) for n, c in channel.waiting if n > channel.last + 1]
        if counting > channel.c:
            channel.c = counting
            self.heard.progress.append((offset, number, counting))

    def _meet(self, roster: Roster) -> None:
        if self.roster is None or roster.version > self.roster.version:
            self.roster = roster

    def _raise_frontier(self, offset: int) -> None:
        numbers = self.roster.channels_of(self.partition, self.output_partitions) if self.roster else range(0)
        least = min((self.channels[number].c for number in numbers), default=NEVER)
        if least > self.frontier:
            self.frontier = least
            self.heard.frontier.append((offset, least))


def read_naively(lines: Sequence[Line], partition: int, output_partitions: int, start_us: int | None) -> NaiveReader:
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


def read(
    lines: Sequence[Line],
    partition: int,
    output_partitions: int,
    start_us: int | None,
    cuts: Sequence[int] = (),
    saved: Sequence[bool] = (),
) -> tuple[PartitionReader, Heard]:
    """Read *lines* cut at these line numbers, saving and restoring before the ranges so marked."""
    reader, heard, kept = PartitionReader(partition, output_partitions, start_us), Heard(), list[Event]()
    edges = [0, *sorted(cuts), len(lines)]
    for (low, high), restored in zip(pairwise(edges), [*saved, *[False] * len(edges)], strict=False):
        if restored:
            reader = PartitionReader.restore(reader.save(), partition, output_partitions)
        log, events = log_columns(lines[low:high])
        accepted = reader.accept(log)
        rows = kept + events
        kept = [rows[row] for row in accepted.carried]
        heard.accepted += [(at, rows[row]) for at, row in zip(accepted.position.tolist(), accepted.rows.tolist(), strict=True)]
        heard.progress += accepted.progress
        heard.frontier += accepted.frontier
        assert accepted.finished == reader.finished
    return reader, heard


def cti(number: int, c: int, n: int, version: int = 1, inputs: int = 1, partition: int = 0) -> Cti:
    """Return a CTI with nothing else worth a look."""
    return Cti(number, partition, c, n, 0, 0, 0, 0, Roster(version, inputs, Spread.ALL, True), Cause.EVENT)


_NONSENSE = st.one_of(
    st.builds(Event, st.integers(0, 2), st.integers(0, 9), st.integers(0, 20)),
    st.builds(Event, st.integers(0, 2), st.integers(0, 9), st.integers(0, 20)),
    st.builds(cti, st.integers(0, 2), st.integers(0, 20) | st.just(INFINITY), st.integers(0, 10), st.integers(1, 3), st.integers(1, 3)),
)


@st.composite
def nonsense(draw: st.DrawFn) -> list[Line]:
    """Draw a log that no writer would write; stretches of rising numbers are common all the same."""
    lines: list[Line] = []
    offset = 0
    for record in draw(st.lists(_NONSENSE, max_size=30)):
        run = draw(st.integers(1, 5)) if isinstance(record, Event) else 1
        for ahead in range(run):
            offset += draw(st.integers(1, 3))
            shown = Event(record.number, record.seq + ahead, record.system_us + ahead) if isinstance(record, Event) else record
            lines.append((offset, shown))
    return lines


@given(nonsense(), st.none() | st.integers(0, 20), st.lists(st.integers(0, 60), max_size=6), st.lists(st.booleans(), max_size=8))
def test_any_log_cut_anywhere_reads_like_one_record_at_a_time(
    lines: list[Line], start_us: int | None, cuts: list[int], saved: list[bool]
) -> None:
    """Level 1: whole columns, any cuts, saved and restored, give what the naive reader hears; also over nonsense."""
    naive = read_naively(lines, 0, 1, start_us)
    reader, heard = read(lines, 0, 1, start_us, [min(cut, len(lines)) for cut in cuts], saved)
    assert heard == naive.heard
    assert reader.gaps == naive.gaps
    assert [channel for channel, _, _ in reader.waiting()] == sorted(number for number, each in naive.channels.items() if each.waiting)
    assert reader.frontier == naive.frontier
    whole, _ = read(lines, 0, 1, start_us)
    assert (whole.duplicates, whole.save()) == (reader.duplicates, reader.save())


@dataclass(frozen=True)
class Written:
    """What the ingest jobs of some input partitions left on an ordered topic, and what they should have."""

    partitions: list[list[Line]]
    truth: dict[tuple[int, int], list[Event]]
    rewritten: bool


@dataclass
class Attempt:
    """One run of an ingest job over an input partition, from a checkpoint of an earlier one: what it writes, in order."""

    records: list[tuple[int, Event | Cti]] = field(default_factory=list)
    """(output partition, record)."""
    checkpoints: list[tuple[int, int]] = field(default_factory=list)
    """(how many of its records are written by then, raw position)."""
    parent: int = -1
    after: int = 0
    """How many records of the parent must be in the log before this attempt can begin."""


def events_of(step: Step) -> Iterator[tuple[int, Event]]:
    """Yield the released events with their output partitions, in release order."""
    left = step.released
    for partition, seq, system_us in zip(left.output_partition.tolist(), left.seq.tolist(), left.system_us.tolist(), strict=True):
        yield partition, Event(left.number, seq, system_us)


def attempt_of(model: Model, raw: Sequence[Record], start: int, edges: Sequence[int]) -> Attempt:
    """Return what a job writes that has judged ``raw[:start]`` and takes batches up to *edges*, then the end of the input."""
    state = model.new_state()
    if start:
        model.step(state, batch_of(raw[:start], over=model.over))
    attempt = Attempt(checkpoints=[(0, start)])
    for low, high in pairwise([start, *edges, len(raw), len(raw)]):
        finish = low == len(raw)
        if low == high and not finish:
            continue
        step = model.step(state, batch_of(raw[low:high], over=model.over, end_offset=state.next_offset if finish else None, finish=finish))
        attempt.records += events_of(step)
        attempt.records += [(promise.output_partition, promise) for promise in step.ctis]
        attempt.checkpoints.append((len(attempt.records), high))
        if finish:
            break
    return attempt


def attempts_of(chance: random.Random, model: Model, raw: Sequence[Record], count: int) -> list[Attempt]:
    """Return runs that each start from a checkpoint of some earlier run; the last one reaches the end, others may be torn."""
    attempts: list[Attempt] = []
    for index in range(count):
        parent, (after, start) = -1, (0, 0)
        if index:
            parent = chance.randrange(index)
            reached = [mark for mark in attempts[parent].checkpoints if mark[0] <= len(attempts[parent].records)]
            after, start = chance.choice(reached)
        edges = sorted(chance.choices(range(start, len(raw) + 1), k=chance.randrange(6)))
        attempt = attempt_of(model, raw, start, edges)
        attempt.parent, attempt.after = parent, after
        if index < count - 1:
            del attempt.records[chance.randint(0, len(attempt.records)) :]
        attempts.append(attempt)
    return attempts


def interleaved(chance: random.Random, attempts: Sequence[Attempt], zombies: bool) -> Iterator[tuple[int, Event | Cti]]:
    """Yield what reaches the brokers: an attempt begins after its checkpoint; its parent stops then, unless it is a zombie."""
    written = [0] * len(attempts)
    while True:
        begun: list[int] = []
        for at, each in enumerate(attempts):
            if each.parent < 0 or (each.parent in begun and written[each.parent] >= each.after):
                begun.append(at)
        able = [at for at in begun if written[at] < len(attempts[at].records)]
        if not able:
            return
        chosen = chance.choice(able) if zombies else able[0]
        for _ in range(chance.choice([1, 3, 10])):
            if written[chosen] < len(attempts[chosen].records):
                yield attempts[chosen].records[written[chosen]]
                written[chosen] += 1


def write(seed: int, raws: Sequence[Sequence[Record]], rules: Policies, over: bool, output_partitions: int, zombies: bool) -> Written:
    """Let several ingest runs of each input partition write onto one ordered topic."""
    chance = random.Random(seed)
    truth: dict[tuple[int, int], list[Event]] = defaultdict(list)
    streams, rewritten = [], False
    for number, raw in enumerate(raws):
        model = Model(rules, over, output_partitions, number, inputs=len(raws))
        for partition, record in attempt_of(model, raw, 0, []).records:
            if isinstance(record, Event):
                truth[number, partition].append(record)
        attempts = attempts_of(chance, model, raw, chance.choice([1, 2, 4]))
        rewritten |= len(attempts) > 1
        streams.append(list(interleaved(chance, attempts, zombies)))
    partitions: list[list[Line]] = [[] for _ in range(output_partitions)]
    offset = 0
    while any(streams):
        stream = chance.choice([each for each in streams if each])
        for partition, record in stream[:3]:
            offset += chance.randint(1, 2)
            partitions[partition].append((offset, record))
        del stream[:3]
    return Written(partitions, truth, rewritten)


@st.composite
def written(draw: st.DrawFn, zombies: bool | None = None) -> Written:
    """Draw an ordered topic."""
    over, scale = draw(st.booleans()), draw(st.sampled_from([1, 1_000]))
    raws = draw(st.lists(logs(10**6, scale).filter(bool), min_size=1, max_size=3))
    partitions = draw(st.integers(1, 3))
    zombies = draw(st.booleans()) if zombies is None else zombies
    return write(draw(st.integers(0, 2**32)), raws, draw(policies(over, scale)), over, partitions, zombies)


def middle_of(lines: Sequence[Line], start_us: int, back: int = 0) -> list[Line]:
    """Return the log from the first record whose Kafka timestamp is not below X's millisecond, or *back* records before."""
    for at, (_, record) in enumerate(lines):
        if (record.largest_us if isinstance(record, Cti) else record.system_us) // 1000 >= start_us // 1000:
            return list(lines[max(at - back, 0) :])
    return list(lines[max(len(lines) - back, 0) :])


def check_promises(heard: Heard, least_us: int, truth: dict[int, list[Event]]) -> None:
    """No accepted event breaks a promise that stands before it, and each promise finds its events accepted."""
    for number, events in truth.items():
        rises = [(at, c) for at, channel, c in heard.progress if channel == number]
        for at, accepted in heard.accepted:
            if accepted.number == number:
                standing = [c for risen, c in rises if risen < at]
                assert not standing or accepted.system_us >= standing[-1]
        for risen, c in rises:
            promised = [each for each in events if least_us <= each.system_us < c]
            assert promised == [each for at, each in heard.accepted if each.number == number and at <= risen and each.system_us < c]


def channels_in(topic: Written, partition: int) -> dict[int, list[Event]]:
    """Return the true channels of an output partition."""
    return {number: events for (number, at), events in topic.truth.items() if at == partition}


@given(written(), st.lists(st.integers(0, 200), max_size=6), st.lists(st.booleans(), max_size=8))
def test_torn_writes_rewrites_and_zombies_change_nothing(topic: Written, cuts: list[int], saved: list[bool]) -> None:
    """Level 1: from the beginning a reader takes every channel's true sequence, each event once, and no promise is broken."""
    event(f"rewritten {topic.rewritten}")
    for partition, lines in enumerate(topic.partitions):
        reader, heard = read(lines, partition, len(topic.partitions), None, [min(cut, len(lines)) for cut in cuts], saved)
        truth = channels_in(topic, partition)
        for number, events in truth.items():
            assert [each for _, each in heard.accepted if each.number == number] == events
        assert (reader.gaps, reader.waiting(), reader.missing()) == (0, [], [])
        assert len(heard.accepted) + reader.duplicates == sum(isinstance(record, Event) for _, record in lines)
        assert reader.finished == bool(lines)
        check_promises(heard, 0, truth)


@given(
    written(),
    st.integers(-30, 60),
    st.just(0) | st.integers(0, 20),
    st.lists(st.integers(0, 200), max_size=6),
    st.lists(st.booleans(), max_size=8),
)
def test_a_reader_in_the_middle_takes_exactly_the_events_from_x_on(
    topic: Written, ahead: int, back: int, cuts: list[int], saved: list[bool]
) -> None:
    """Level 1: started at time X, a reader takes each true event with s >= X once, in order, and no promise is broken."""
    times = sorted({each.system_us for events in topic.truth.values() for each in events} | {10**6})
    start_us = times[min(max(ahead, 0), len(times) - 1)] + min(ahead, 0)
    for partition, lines in enumerate(topic.partitions):
        rest = middle_of(lines, start_us, back)
        event(f"skipped {len(rest) < len(lines)}")
        reader, heard = read(rest, partition, len(topic.partitions), start_us, [min(cut, len(rest)) for cut in cuts], saved)
        late = {number: [each for each in events if each.system_us >= start_us] for number, events in channels_in(topic, partition).items()}
        for number, events in late.items():
            assert [each for _, each in heard.accepted if each.number == number] == events
        assert (reader.gaps, reader.waiting()) == (0, [])
        check_promises(heard, start_us, late)


def test_a_stale_writer_after_the_start_does_not_open_a_gap_that_never_closes() -> None:
    """Level 1: events 7 to 9 lie before X and before the start; a zombie's 5, 6 and CTI must not make the reader wait for them."""
    lines: list[Line] = [
        (20, Event(1, 0, 100)),
        (21, Event(0, 5, 50)),
        (22, Event(0, 6, 60)),
        (23, cti(0, 61, 7, inputs=2)),
        (24, Event(0, 10, 110)),
        (25, cti(0, 111, 11, inputs=2)),
        (26, Event(0, 11, 120)),
    ]
    reader, heard = read(lines, 0, 1, 100)
    assert heard.accepted == [(25, Event(0, 10, 110)), (26, Event(0, 11, 120))]
    assert (reader.waiting(), reader.missing()) == ([], [1])


def test_a_reader_in_the_middle_waits_for_a_cti_then_follows_the_log() -> None:
    """Level 1: events are collected until a CTI vouches for them; from the first c >= X on each is accepted upon itself."""
    lines: list[Line] = [
        (1, Event(0, 7, 105)),
        (2, Event(0, 6, 103)),
        (3, Event(0, 7, 105)),
        (4, cti(0, 103, 6)),
        (5, Event(0, 8, 104)),
        (6, cti(0, 104, 8)),
        (7, Event(0, 9, 106)),
        (8, Event(0, 9, 106)),
    ]
    reader, heard = read(lines, 0, 1, 104, cuts=[2, 3, 5], saved=[False, True, True, True])
    assert heard.accepted == [(6, Event(0, 7, 105)), (6, Event(0, 8, 104)), (7, Event(0, 9, 106))]
    assert heard.progress == [(4, 0, 103), (6, 0, 104)]
    assert reader.duplicates == 2


def test_nothing_is_final_before_every_channel_of_the_newest_roster_has_spoken() -> None:
    """A partition's frontier waits for each channel, and a longer roster holds it where it is."""
    lines: list[Line] = [
        (1, cti(0, 10, 0, inputs=2)),
        (2, cti(1, 5, 0, inputs=2)),
        (3, cti(1, 20, 0, version=2, inputs=3)),
        (4, cti(0, 30, 0, version=2, inputs=3)),
        (5, cti(2, 25, 0, version=2, inputs=3)),
        (6, cti(1, 40, 0, version=1, inputs=2)),
    ]
    reader, heard = read(lines, 0, 1, None)
    assert heard.frontier == [(2, 5), (5, 20), (6, 25)]
    middle, _ = read(lines[:4], 0, 1, None)
    assert (middle.missing(), middle.frontier, middle.c(1)) == ([2], 5, 20)
    assert reader.roster == Roster(2, 3, Spread.ALL, True)


def test_a_channel_alone_in_its_partition_asks_for_no_other() -> None:
    """Without OVER each partition hears only the input partitions that write into it."""
    promise = Cti(1, 1, 50, 0, 0, 0, 0, 0, Roster(1, 2, Spread.ONE, False), Cause.EVENT)
    _, heard = read([(9, promise)], 1, 2, None)
    assert heard.frontier == [(9, 50)]


def test_a_cti_counts_upon_the_event_that_completes_it_and_a_stale_one_never() -> None:
    """Level 1: a promise about events still missing waits, and one that says less than what is known is ignored."""
    lines: list[Line] = [
        (1, Event(0, 0, 1)),
        (2, cti(0, 9, 3)),
        (3, Event(0, 2, 3)),
        (4, Event(0, 1, 2)),
        (5, Event(0, 2, 3)),
        (6, cti(0, 4, 1)),
    ]
    reader, heard = read(lines, 0, 1, None)
    assert heard.progress == [(5, 0, 9)]
    assert [at for at, _ in heard.accepted] == [1, 4, 5]
    assert (reader.gaps, reader.duplicates) == (1, 0)


def test_a_gap_that_stays_is_named() -> None:
    """A CTI whose events never come is listed until they do, and its error says which events are missing where."""
    reader, _ = read([(1, Event(0, 0, 1)), (2, cti(0, 9, 3)), (3, cti(0, 12, 5))], 0, 1, None)
    assert reader.waiting() == [(0, 3, 0)]
    error = unmet("rides.ordered", 4, *reader.waiting()[0])
    assert isinstance(error, GapError)
    assert (error.code, error.where) == ("TG-PROTOCOL-GAP", "rides.ordered-4")


def test_a_finished_channel_finishes_the_reader() -> None:
    """The final CTI of every channel ends the partition, also where it carries no event at all."""
    lines: list[Line] = [(1, cti(0, INFINITY, 0, inputs=2)), (2, Event(1, 0, 5)), (3, cti(1, INFINITY, 1, inputs=2))]
    assert [read(lines[:upto], 0, 1, None)[0].finished for upto in range(4)] == [False, False, False, True]


def test_a_state_of_another_version_is_refused() -> None:
    """A saved state that this program does not know is an error, never a guess."""
    saved = PartitionReader(0, 1).save().replace(b'"version":1', b'"version":99')
    with pytest.raises(ProtocolError):
        PartitionReader.restore(saved, 0, 1)
