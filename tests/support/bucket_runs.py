"""
Taking a bucket with any number of outputs through its logs: at one go, or cut into batches between which it is saved and another
one goes on; and topics whose events every kind of query has something to say about.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from hypothesis import strategies as st
from support.bucket_oracle import parsed, text_of
from support.bucket_topics import KEY_VALUES, Line, Topic, decoded_range, payload_of, topic_of
from support.query_kinds import INPUT, program_of_kind
from support.strategies import KEYS, logs, policies

from ordering.policies import Policies
from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Cti, Roster, Spread
from ordering.testing import Record
from ordering.ticks import INFINITY
from query.buckets.bucket import EACH_CTI, Bucket, BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from query.buckets.substreams import SubstreamBucket
from query.config import Promise
from query.engine.program import Program

Row = tuple[int, bytes, bytes]
"""System.Timestamp in microseconds, key and value of a result."""
Logs = Mapping[int, Sequence[Line]]
"""The lines of each log that a bucket reads."""


@dataclass
class Channel:
    """What a bucket gave for one output: results with their numbers, and each CTI with how many results stood before it."""

    rows: list[Row] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)
    ctis: list[tuple[int, Cti]] = field(default_factory=list)

    def check(self, before: Sequence[Row] = ()) -> None:
        """
        Numbers follow each other; CTIs rise, count what is before and ahead of them, and no later result lies below one.

        Args:
            before: What the channel held when it was gone on with.
        """
        first = len(before)
        assert self.seq == list(range(first, first + len(self.rows)))
        for count, cti in self.ctis:
            assert cti.n == first + count
            assert all(system_us >= cti.c for system_us, _, _ in self.rows[count:])
            written = [system_us for system_us, _, _ in [*before, *self.rows[:count]]]
            assert cti.ahead == sum(system_us >= cti.c for system_us in written)
            assert cti.largest_us == max(written, default=cti.largest_us)
        for (_, before), (_, after) in itertools.pairwise(self.ctis):
            assert after.c >= before.c
            assert (after.c, after.n) > (before.c, before.n)
            assert after.next_offset >= before.next_offset


@dataclass
class BucketOutput:
    """What a bucket gave: a channel for each output, and its dead letters (source, value, reason)."""

    channels: list[Channel]
    bad: list[tuple[int, bytes, str]] = field(default_factory=list)

    @property
    def rows(self) -> list[list[Row]]:
        """The results of each output."""
        return [channel.rows for channel in self.channels]

    def check(self) -> None:
        """Each channel keeps its promises."""
        for channel in self.channels:
            channel.check()


Cuts = random.Random | Sequence[int] | None
"""Where batches end: anywhere, and their ranges in pieces; before each of some offsets; only with the log."""


def run_bucket(make: Callable[[], Bucket], lines: Logs, *, cuts: Cuts = None, end: bool = True) -> BucketOutput:
    """
    Take a bucket through its logs.

    Args:
        make: Returns it before its first record.
        lines: What it reads.
        cuts: Where batches end; each begins with a bucket that is restored.
        end: Whether the run ends there, and closes everything.
    """
    bucket = make()
    output = BucketOutput([Channel() for _ in bucket.next_ctis()])
    at = dict.fromkeys(lines, 0)
    head, chunks = b"", dict[int, bytes]()
    ends = itertools.repeat(cuts) if cuts is None or isinstance(cuts, random.Random) else iter([*cuts, INFINITY])
    while True:
        end_of_batch = next(ends)
        until = {log: _batch_end(lines[log], low, end_of_batch) for log, low in at.items()}
        is_last = all(until[log] == len(lines[log]) for log in lines)
        if head:
            bucket = make()
            bucket.restore(head, chunks)
        for log, high in until.items():
            while at[log] < high:
                stop = min(at[log] + (cuts.choice([1, 7, 100]) if isinstance(cuts, random.Random) else high), high)
                read = lines[log][at[log] : stop]
                for part in bucket.accept_in_parts(log, decoded_range(read)):
                    _collect(output, part)
                at[log] = stop
        _collect_all(output, bucket, bucket.settle())
        if is_last and end:
            _collect_all(output, bucket, bucket.end())
        for channel, cti in zip(output.channels, bucket.next_ctis(), strict=True):
            channel.ctis += [(len(channel.rows), cti)] if cti is not None else []
        output.bad += [(-1 if row.source is None else row.source, row.value or b"", row.reason) for row in bucket.pop_bad_rows()]
        if is_last:
            return output
        if cuts is not None:
            changes = bucket.save()
            head = changes.head
            chunks = {number: octets for number, octets in {**chunks, **changes.put}.items() if number not in changes.delete}


def _batch_end(lines: Sequence[Line], low: int, end: random.Random | int | None) -> int:
    """Return where the batch ends that begins at line *low*: before an offset, anywhere, or with the log."""
    if isinstance(end, int):
        return bisect_left(lines, end, key=itemgetter(0))
    return min(low + (end.choice([0, 1, 3, 10, 40]) if end else len(lines)), len(lines))


def _collect_all(said: BucketOutput, bucket: Bucket, released: Sequence[Any]) -> None:
    _collect(said, released)
    while not bucket.is_settled:
        _collect(said, bucket.settle())


def _collect(said: BucketOutput, released: Sequence[Any]) -> None:
    for channel, each in zip(said.channels, released, strict=True):
        channel.rows += list(zip(each.system_us.tolist(), each.key.tolist(), each.value.tolist(), strict=True))
        channel.seq += each.seq.tolist()
        channel.origin += each.offset.tolist()


@dataclass(frozen=True)
class Query:
    """A kind of query as buckets run it; see ``kind_scripts``."""

    kind: str
    over: bool
    typed: bool = False

    @property
    def lookback_us(self) -> int:
        """How long before an output instant events can still count for it, microseconds."""
        return max(plan.lookback_us for plan in program_of_kind(self.kind, over=self.over, typed=self.typed).plans)

    def bucket(
        self,
        topic: Topic,
        partitions: Sequence[int],
        since: tuple[int | None, int | None] = (None, None),
        *,
        promises: Sequence[Promise] = (),
        until_us: int = INFINITY,
        pace: Pace = EACH_CTI,
        result_bytes_max: Sequence[int | None] = (),
    ) -> Bucket:
        """Return the bucket that reads some partitions of a topic; see :class:`query.buckets.bucket.Bucket`."""
        program = program_of_kind(self.kind, over=self.over, typed=self.typed)
        return bucket_of(
            program,
            topic,
            partitions,
            since,
            over=self.over,
            promises=promises,
            until_us=until_us,
            pace=pace,
            result_bytes_max=result_bytes_max,
        )

    def works(self, topic: Topic) -> list[list[int]]:
        """The partitions that each bucket of it reads."""
        return works_of(topic, over=self.over)


def bucket_of(
    program: Program,
    topic: Topic,
    partitions: Sequence[int],
    since: tuple[int | None, int | None] = (None, None),
    *,
    over: bool,
    promises: Sequence[Promise] = (),
    until_us: int = INFINITY,
    pace: Pace = EACH_CTI,
    result_bytes_max: Sequence[int | None] = (),
) -> Bucket:
    """Return the bucket of a program that reads some partitions of a topic; see :class:`query.buckets.bucket.Bucket`."""
    number = partitions[0] if len(partitions) == 1 else 0
    source = SourceTopic(INPUT, len(topic.partitions), {at: at for at in partitions})
    roster = Roster(1, len(topic.partitions), Spread.ONE, over)
    kind = SubstreamBucket if over else MergedBucket
    config = BucketConfig(
        [source], number, roster, *since, pace=pace, promises=promises, until_us=until_us, result_bytes_max=result_bytes_max
    )
    return kind(program, config)


def works_of(topic: Topic, *, over: bool) -> list[list[int]]:
    """Return the partitions that each bucket of a query reads: one each with OVER, else one bucket all of them."""
    partitions = range(len(topic.partitions))
    return [[at] for at in partitions] if over else [list(partitions)]


def promise_of(cti: Cti) -> Promise:
    """Return what a CTI promises."""
    return Promise(cti.c, cti.n, cti.ahead, cti.largest_us)


@dataclass(frozen=True)
class Raw:
    """Raw logs by input partition, the payloads by offset, and the policies: what decides a topic but for its writers."""

    logs: Sequence[Sequence[Record]]
    payloads: Sequence[dict[int, bytes]]
    rules: Policies
    finish: bool

    def topic(self, writers: int, partitions: int, *, over: bool, vouched: bool = False) -> Topic:
        """Let writers that crash in their own way write it."""
        return topic_of(writers, self.logs, self.rules, over, partitions, self.finish, vouched, self.payloads)


def payload(chance: random.Random, key: bytes) -> bytes:
    """Make up a payload whose ``k`` is the raw key's value, as ingest would have it; mostly it has a list."""
    text = payload_of(chance, key)
    items = chance.choice([[], [1, 2], ["x", None, 1.5], [1, 1, {"a": 1}], None, "no list", {"a": [1]}])
    fields = parsed(text)
    if not isinstance(fields, dict):
        return text
    if "k" in fields:
        fields["k"] = KEY_VALUES[key]
    return text_of({**fields, "list": items})


@st.composite
def raws(draw: st.DrawFn, over: bool, inputs: int = 3) -> Raw:
    """Draw raw logs that hold something."""
    drawn = draw(st.lists(logs(10**6).filter(bool), min_size=1, max_size=inputs))
    chance = random.Random(draw(st.integers(0, 2**32)))
    payloads = [{record.offset: payload(chance, record.key) for record in log} for log in drawn]
    return Raw(drawn, payloads, draw(policies(over)), draw(st.booleans()))


def dense(seed: int, count: int = 60, *, start_us: int = 10**6, tick_us: int = 1) -> Raw:
    """
    Return raw logs of some size with all that can be in one.

    Args:
        seed: Draws them.
        count: Records of each of the two input partitions.
        start_us: Arrival of the first, microseconds.
        tick_us: What times are multiples of.
    """
    dice = random.Random(seed)
    drawn = []
    for _ in range(2):
        arrival_us, log = start_us, []
        for offset in range(count):
            arrival_us += dice.choice([0, 1, 1, 2, 5]) * tick_us
            log.append(Record(offset, arrival_us, arrival_us - dice.randrange(-3, 12) * tick_us, dice.choice(KEYS)))
        drawn.append(log)
    payloads = [{record.offset: payload(dice, record.key) for record in log} for log in drawn]
    return Raw(drawn, payloads, Policies(early_us=None, late_us=9 * tick_us, reorder_us=4 * tick_us), finish=True)
