"""
Ordered topics as ingest jobs leave them that die in mid-write, start again from a checkpoint with other batches, or go
on writing when they should be gone; and what one undisturbed run would have written. Also topics that no writer would write.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from hypothesis import strategies as st
from support.naive_reader import Event, Line
from support.strategies import logs, policies

from ordering.model.step import Model, Step
from ordering.policies import Policies
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.testing import Record, batch_of
from ordering.ticks import INFINITY


def cti(
    number: int,
    c: int,
    n: int,
    version: int = 1,
    inputs: int = 1,
    listed: tuple[tuple[bytes, int], ...] = (),
    part: int = 0,
    parts: int = 1,
) -> Cti:
    """Return a CTI with nothing else worth a look."""
    return Cti(number, 0, c, n, 0, 0, 0, 0, Roster(version, inputs, Spread.ALL, True), Cause.EVENT, listed, part, parts)


_LISTS = st.just(()) | st.lists(st.tuples(st.sampled_from([b"", b"a", b"\xff"]), st.integers(0, 20)), max_size=2).map(tuple)
_PLAIN = st.builds(
    cti, st.integers(0, 2), st.integers(0, 20) | st.just(INFINITY), st.integers(0, 10), st.integers(1, 3), st.integers(1, 3), listed=_LISTS
)


@st.composite
def _parted(draw: st.DrawFn) -> list[Cti]:
    """Draw the parts of one CTI, now and then cut short, doubled or out of turn."""
    whole, parts = draw(_PLAIN), draw(st.integers(2, 4))
    places = draw(st.just(list(range(parts))) | st.lists(st.integers(0, parts - 1), max_size=6))
    return [replace(whole, listed=draw(_LISTS), part=part, parts=parts) for part in places]


_EVENT = st.builds(Event, st.integers(0, 2), st.integers(0, 9), st.integers(0, 20)).map(lambda event: [event])
_NONSENSE = st.one_of(_EVENT, _EVENT, _PLAIN.map(lambda cti: [cti]), _parted())


@st.composite
def nonsense(draw: st.DrawFn) -> list[Line]:
    """Draw a log that no writer would write; stretches of rising numbers are common all the same."""
    lines: list[Line] = []
    offset = 0
    records: list[Event | Cti] = list(chain.from_iterable(draw(st.lists(_NONSENSE, max_size=30))))
    for record in records:
        run = draw(st.integers(1, 5)) if isinstance(record, Event) else 1
        for ahead in range(run):
            offset += draw(st.integers(1, 3))
            shown = Event(record.number, record.seq + ahead, record.system_us + ahead) if isinstance(record, Event) else record
            lines.append((offset, shown))
    return lines


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


STORY: list[Line] = list(
    enumerate(
        [
            Event(0, 0, 100),
            Event(1, 0, 103),
            Event(0, 1, 102),
            cti(0, 101, 2, inputs=2),
            Event(0, 2, 104),
            cti(1, 102, 0, inputs=2),
            Event(0, 3, 105),
            cti(0, 103, 4, inputs=2, listed=((b"k", 104),)),
            # A writer that should be gone: copies of what has been confirmed, with a CTI that confirms less.
            cti(0, 101, 2, inputs=2),
            Event(0, 2, 104),
            Event(0, 3, 105),
            Event(1, 1, 106),
            cti(0, 104, 6, inputs=2, part=0, parts=2, listed=((b"k", 105),)),
            cti(0, 104, 6, inputs=2, part=1, parts=2, listed=((b"l", 106),)),
            Event(0, 5, 107),
            # What the last CTI promises comes only now.
            Event(0, 4, 106),
            Event(0, 5, 107),
            Event(0, 6, 106),
            cti(1, 106, 2, inputs=2),
            cti(0, 106, 7, version=2, inputs=3),
            cti(2, 104, 0, version=2, inputs=3),
            Event(1, 2, 108),
            cti(1, 109, 3, version=2, inputs=3),
            cti(0, 109, 7, version=2, inputs=3),
            cti(2, 109, 0, version=2, inputs=3),
        ]
    )
)
"""One log with all that a reader must remember from one range to the next: every cut of it can be tried, and every start."""
