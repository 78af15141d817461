"""
Ordered topics to try queries on: made by the very model that ingest runs, over random raw logs, by writers that may be
torn, start again from an older checkpoint, or go on when they should be gone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from support.bucket_oracle import EVERY_CTI, Channel, Event, Promise, SlowPace, key_bytes, text_of
from support.strategies import KEYS, logs, policies

from ordering.model.step import Model
from ordering.policies import Generation, Policies
from ordering.protocol.punctuation import Cti, Roster, Spread
from ordering.protocol.reader import Log
from ordering.testing import Record, batch_of
from query.columns.decoded_range import DecodedRange
from query.columns.events import DECODED_SCHEMA
from query.config import LogStart
from query.start.settling import settle_log

Line = tuple[int, Event | Cti]
"""A record of an ordered partition with its log offset."""
Write = tuple[int, Event | Cti]
"""A record on its way into an output partition."""

KEY_VALUES = dict(zip(KEYS, [None, "a", "b", 1, "1", True], strict=True))
"""What each raw key of the drawn logs stands for in payloads; 1 and "1" are one substream and two groups."""
NUMBERS = [0, 1, -3, 5, 0.1, 0.2, -0.7, 1e16, 2.5, None]
BAD = [b"{", b"[]", b"", b'{"k":"a","w":1,"v":"text"}']


@dataclass(frozen=True)
class Topic:
    """An ordered topic as brokers hold it, and the true events of its channels."""

    partitions: list[list[Line]]
    truth: list[Event]
    inputs: int
    over: bool
    ended: bool

    def frontier(self, pace: SlowPace = EVERY_CTI) -> int:
        """How far the slowest channel has come for a query of some pace."""
        spread = Roster(1, self.inputs, Spread.ALL if self.over else Spread.ONE, self.over)
        reached = []
        for partition, lines in enumerate(self.partitions):
            for number in spread.channels_of(partition, len(self.partitions)):
                channel = Channel(pace)
                for _, record in lines:
                    if record.number == number:
                        channel.accept_record(to_oracle(record))
                reached.append(channel.noticed_c)
        return min(reached)


def to_oracle(record: Event | Cti) -> Event | Promise:
    """Return a record as the oracle takes it."""
    if isinstance(record, Event):
        return record
    rest = replace(record, listed=(), part=0)
    return Promise(record.number, record.c, record.n, record.listed, record.part, record.parts, rest)


def payload_of(chance: random.Random, key: bytes) -> bytes:
    """Make up a payload whose ``k`` is the raw key's value."""
    if chance.random() < 0.1:
        return chance.choice(BAD)
    payload = {"k": KEY_VALUES[key], "w": chance.choice([1, 1, 1, 0]), "v": chance.choice(NUMBERS), "g": chance.choice([1, 1.0, "x", None])}
    for name in chance.sample(["k", "w", "v", "g"], k=chance.choice([0, 0, 1])):
        if name != "k" or KEY_VALUES[key] is None:
            del payload[name]
    return text_of(payload)


def written_by(model: Model, raw: Sequence[Record], values: dict[int, bytes], edges: Sequence[int], finish: bool) -> Iterator[Write | int]:
    """Yield what one ingest run writes: (output partition, record), and after each batch how far it has read."""
    state = model.new_state()
    start = edges[0]
    if start:
        model.step(state, batch_of(raw[:start], over=model.over))
    yield start
    batches = [(low, high, False) for low, high in pairwise(edges) if low < high]
    for low, high, last in [*batches, *([(len(raw), len(raw), True)] if finish else [])]:
        step = model.step(state, batch_of(raw[low:high], over=model.over, end_offset=state.next_offset if last else None, finish=last))
        left = step.released
        columns = (left.output_partition, left.seq, left.system_us, left.offset, left.key)
        for partition, seq, system_us, origin, key in zip(*(column.tolist() for column in columns), strict=True):
            yield partition, Event(left.number, seq, system_us, origin, key, values[origin])
        yield from ((part.output_partition, part) for cti in step.ctis for part in in_parts(cti))
        yield high


def in_parts(cti: Cti) -> list[Cti]:
    """Return a CTI with a list of some length as two records."""
    if len(cti.listed) < 3:
        return [cti]
    half = len(cti.listed) // 2
    return [replace(cti, listed=listed, part=part, parts=2) for part, listed in enumerate((cti.listed[:half], cti.listed[half:]))]


def generation(chance: random.Random, over: bool, vouched: bool) -> Generation:
    """Draw when CTIs are written; mostly, and if all events are to be *vouched* for, at the end of batches."""
    every_events, every_us = (None, None) if vouched else chance.choice([(None, None), (None, None), (2, None), (None, 6), (5, 9)])
    return Generation(every_events, every_us, chance.choice([0, 0, 3]), list_substreams=over and chance.random() < 0.7)


def run_of(
    chance: random.Random, model: Model, raw: Sequence[Record], values: dict[int, bytes], start: int, finish: bool
) -> tuple[list[Write], list[tuple[int, int]]]:
    """Return the records of one ingest run that starts after *start* records, and its checkpoints (records written, position)."""
    edges = [start, *sorted(chance.choices(range(start, len(raw) + 1), k=chance.randrange(7))), len(raw)]
    records, checkpoints = [], []
    for item in written_by(model, raw, values, edges, finish):
        if isinstance(item, int):
            checkpoints.append((len(records), item))
        else:
            records.append(item)
    return records, checkpoints


def with_crashes(chance: random.Random, model: Model, raw: Sequence[Record], values: dict[int, bytes], finish: bool) -> list[Write]:
    """Return what reaches the brokers: runs torn anywhere, begun again from a checkpoint, the old one going on for a while."""
    reached: list[Write] = []
    records, checkpoints = run_of(chance, model, raw, values, 0, finish)
    for _ in range(chance.choice([0, 0, 1, 2])):
        torn = chance.randint(0, len(records))
        _, position = chance.choice([mark for mark in checkpoints if mark[0] <= torn])
        zombie = records[torn : torn + chance.choice([0, 0, 3, 30])]
        reached += records[:torn]
        fresh, marks = run_of(chance, model, raw, values, position, finish)
        if zombie:
            at = sorted(chance.choices(range(len(fresh) + 1), k=len(zombie)))
            for place, record in zip(reversed(at), reversed(zombie), strict=True):
                fresh.insert(place, record)
            # Positions of checkpoints moved; only those before the first zombie record still stand.
            marks = [mark for mark in marks if mark[0] <= at[0]]
        records, checkpoints = fresh, marks
    return reached + records


def topic_of(
    seed: int,
    raws: Sequence[Sequence[Record]],
    rules: Policies,
    over: bool,
    output_partitions: int,
    finish: bool,
    vouched: bool = False,
    payloads: Sequence[dict[int, bytes]] | None = None,
) -> Topic:
    """Let the ingest jobs of some input partitions write onto one ordered topic; *payloads* by offset, else made up."""
    chance = random.Random(seed)
    truth: list[Event] = []
    streams = []
    for number, raw in enumerate(raws):
        values = payloads[number] if payloads else {record.offset: payload_of(chance, record.key) for record in raw}
        keyed = [Record(each.offset, each.arrival_us, each.event_time_us, key_bytes(KEY_VALUES[each.key])) for each in raw]
        model = Model(rules, over, output_partitions, number, inputs=len(raws), generation=generation(chance, over, vouched))
        records = [item for item in written_by(model, keyed, values, [0, len(keyed)], finish) if not isinstance(item, int)]
        truth += [record for _, record in records if isinstance(record, Event)]
        streams.append(with_crashes(chance, model, keyed, values, finish))
    partitions: list[list[Line]] = [[] for _ in range(output_partitions)]
    offset = 0
    while any(streams):
        stream = chance.choice([each for each in streams if each])
        count = chance.choice([1, 2, 10])
        for partition, record in stream[:count]:
            offset += chance.choice([1, 1, 2])
            partitions[partition].append((offset, record))
        del stream[:count]
    return Topic(partitions, truth, len(raws), over, finish)


@st.composite
def topics(draw: st.DrawFn, over: bool, vouched: bool = False) -> Topic:
    """Draw an ordered topic; if *vouched*, a CTI follows each of its events, as a reader needs who starts in the middle."""
    raws = draw(st.lists(logs(10**6).filter(bool), min_size=1, max_size=3))
    partitions = draw(st.integers(1, 3)) if over else draw(st.integers(1, 4))
    rules = draw(policies(over))
    return topic_of(draw(st.integers(0, 2**32)), raws, rules, over, partitions, draw(st.booleans()), vouched)


def decoded_range(lines: Sequence[Line]) -> DecodedRange:
    """Return lines as buckets accept them."""
    found = [(offset, record) for offset, record in lines if isinstance(record, Event)]
    ints = [(offset, each.number, each.seq, each.system_us, each.origin) for offset, each in found]
    offset, number, seq, system_us, origin = np.array(ints, dtype=np.int64).reshape(-1, 5).T
    ctis = [(at, record) for at, record in lines if isinstance(record, Cti)]
    columns = {
        "partition_id": number.astype(np.int32),
        "offset": origin,
        "system_us": system_us,
        "key": pa.array([each.key for _, each in found], pa.binary()),
        "value": pa.array([each.value for _, each in found], pa.binary()),
        "flags": np.zeros(len(found), dtype=np.uint16),
        "arrival_us": system_us,
    }
    next_offset = lines[-1][0] + 1 if lines else 0
    return DecodedRange(Log(offset, number, seq, system_us, ctis), pa.table(columns, schema=DECODED_SCHEMA), next_offset)


def middle_of(lines: Sequence[Line], read_from_us: int, back: int, *, over: bool = False) -> list[Line]:
    """
    Return the log from where a job begins that needs all from X on.

    From the first record whose Kafka timestamp is not below X's millisecond, or *back* records before; with OVER from the last
    CTI of each channel before that record whose c is X or more.
    """
    stamps_us = [record.largest_us if isinstance(record, Cti) else record.system_us for _, record in lines]
    first = next((at for at, stamp_us in enumerate(stamps_us) if stamp_us // 1000 >= read_from_us // 1000), len(lines))
    begin = max(first - back, 0)
    if over:
        for number in {record.number for _, record in lines}:
            whole = [(at, record.parts) for at, record in enumerate_ctis(lines[:first], number) if record.c >= read_from_us]
            begin = min([begin, *(at - parts + 1 for at, parts in whole[-1:])])
    return list(lines[begin:])


def settled_start(lines: Sequence[Line], needed_us: int, partition: int, partitions: int) -> LogStart:
    """Return where a query with OVER begins to read that needs all from an instant on; the first step back is a millisecond."""

    def first_offset(time_us: int) -> int:
        stamps_us = ((offset, record.largest_us if isinstance(record, Cti) else record.system_us) for offset, record in lines)
        return next((offset for offset, us in stamps_us if us // 1000 >= time_us // 1000), lines[-1][0] + 1 if lines else 0)

    def read(first: int, end: int) -> Iterator[tuple[int, Cti]]:
        return ((offset, record) for offset, record in lines if first <= offset < end and isinstance(record, Cti))

    return settle_log(needed_us, first_offset, read, partition, partitions, step_us=1000)


def enumerate_ctis(lines: Sequence[Line], number: int) -> Iterator[tuple[int, Cti]]:
    """Yield the place of each CTI of a channel that has all its parts, which stand side by side: that of the last one."""
    for at, (_, record) in enumerate(lines):
        if isinstance(record, Cti) and record.number == number and record.part == record.parts - 1:
            yield at, record


def starts(topic: Topic) -> st.SearchStrategy[int]:
    """Draw an output start time."""
    return st.sampled_from(sorted({each.system_us for each in topic.truth} | {10**6})).flatmap(lambda near: st.integers(near - 5, near + 5))
