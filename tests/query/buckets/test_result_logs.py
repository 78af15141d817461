"""
Result logs as killed queries leave them - results twice, CTIs of other batches, zombies - or that lag, as input of a next query.

Law, level 3 over two stages: the next query gives what it gives over results that an undisturbed query wrote at once; the whole
sequence if it runs without OVER, else that of each substream.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.bucket_oracle import Event
from support.bucket_runs import Channel, Query, Raw, Row, dense, run_bucket
from support.bucket_topics import Line, Topic, decoded_range
from support.query_kinds import INPUT

from ordering.protocol.punctuation import Cti, Roster, Spread
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.keyed import KeyedBucket
from query.buckets.merged import MergedBucket
from query.engine.program import Program
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

FEW = settings(max_examples=max(settings().max_examples // 3, 1))
SEEDS = st.integers(0, 2**32)
KINDS = ("passed_on", "tumbling", "session", "looking_back", "several_windows", "left_joined")
RESULTS, EVENTS = InputSchema("r", is_result=True), InputSchema(INPUT, "t", "k")
IN_ONE_LINE = (
    "SELECT k, LAG(k) OVER (LIMIT DURATION(mcs, 9)) AS before, COUNT(*) OVER (LIMIT DURATION(mcs, 9)) AS nth FROM r",
    "SELECT System.Timestamp() AS at, COLLECT() AS r FROM r GROUP BY TumblingWindow(mcs, 5)",
    f"SELECT r.k AS k, x.v AS v, COUNT(*) OVER (LIMIT DURATION(mcs, 7)) AS nth FROM {INPUT} TIMESTAMP BY t x "
    "LEFT JOIN r ON r.k = x.k AND DATEDIFF(mcs, x, r) BETWEEN -2 AND 4",
)
BY_KEY = (
    "SELECT COLLECT() AS r FROM r TIMESTAMP BY System.Timestamp() OVER k GROUP BY k, SessionWindow(mcs, 3, 12)",
    f"SELECT r.k AS k, x.v AS v FROM {INPUT} TIMESTAMP BY t OVER k x "
    "JOIN r TIMESTAMP BY System.Timestamp() OVER k ON r.k = x.k AND DATEDIFF(mcs, x, r) BETWEEN -2 AND 4",
)


@dataclass
class Attempt:
    """One run of a query: the lines that it writes, from which number on, and how many of them it wrote before it was gone."""

    lines: list[Event | Cti]
    begin: int
    left: int
    at: int = 0


def attempt_of(number: int, channel: Channel, begin: int, dice: random.Random | None) -> Attempt:
    """Return a run that writes a channel's results from one number on, to the end or to somewhere."""
    lines: list[Event | Cti] = []
    for row in range(begin, len(channel.rows) + 1):
        lines += [cti for count, cti in channel.ctis if count == row]
        if row < len(channel.rows):
            system_us, key, value = channel.rows[row]
            lines.append(Event(number, channel.seq[row], system_us, channel.origin[row], key or b"", value))
    return Attempt(lines, begin, len(lines) if dice is None else dice.randint(0, len(lines)))


def killed_log(number: int, runs: Sequence[Channel], seed: int) -> list[Line]:
    """Return the log that runs leave which are killed and begin again where an earlier one had a CTI; some go on as zombies."""
    dice, written, records = random.Random(seed), 0, list[Event | Cti]()
    zombies: list[Attempt] = []
    for last in (*[False] * dice.randint(1, 4), True):
        channel = dice.choice(runs)
        begin = dice.choice([0, *(count for count, _ in channel.ctis if count <= written)])
        attempt = attempt_of(number, channel, begin, None if last else dice)
        while attempt.left:
            each = dice.choice([attempt, *zombies])
            for _ in range(dice.choice([1, 3, 10])):
                if each.left and each.at < len(each.lines):
                    records.append(each.lines[each.at])
                    each.at, each.left = each.at + 1, each.left - 1
        reached = attempt.begin + sum(isinstance(line, Event) for line in attempt.lines[: attempt.at])
        written = max(written, reached)
        attempt.left = dice.choice([0, 5, 40])
        zombies.append(attempt)
    return list(enumerate(records))


def undisturbed_log(number: int, channel: Channel) -> list[Line]:
    """Return the log of a run that nothing happened to."""
    return list(enumerate(attempt_of(number, channel, 0, None).lines))


@dataclass(frozen=True)
class Stages:
    """A first query over a topic, as several runs of it wrote its results, and a second one over them, by its script."""

    first: Query
    topic: Topic
    sql: str
    over: bool

    def runs(self, seed: int, cut: int) -> list[list[Channel]]:
        """Return what each bucket of the first query gives in one batch, and *cut* times in batches cut in other ways."""
        dice, works = random.Random(seed), self.first.works(self.topic)
        return [
            [
                run_bucket(
                    lambda work=work: self.first.bucket(self.topic, work), {at: self.topic.partitions[at] for at in work}, cuts=cuts
                ).channels[0]
                for cuts in (None, *(random.Random(dice.randrange(2**32)) for _ in range(cut)))
            ]
            for work in works
        ]

    @property
    def _reads_events(self) -> bool:
        return INPUT in self.sql

    def bucket(self, partitions: Sequence[int], count: int) -> Bucket:
        """Return a bucket of the second query that reads some of *count* partitions of results."""
        program = Program(bind_outputs(parse_script(self.sql), [RESULTS, EVENTS], into="out"))
        sources = [SourceTopic("r", count, {at: at for at in partitions}, is_result=True)]
        if self._reads_events:
            events = range(len(self.topic.partitions)) if not self.over else partitions
            sources.append(SourceTopic(INPUT, len(self.topic.partitions), {count + at: at for at in events}))
        roster = Roster(1, count, Spread.ONE, self.over)
        config = BucketConfig(sources, partitions[0], roster)
        if not self.over:
            return MergedBucket(program, config)
        overs = {scan.input: scan.over for plan in program.plans for scan in plan.scans}
        return KeyedBucket(program, config, [overs[source.input] for source in sources])

    def logs(self, results: Sequence[list[Line]], partitions: Sequence[int]) -> dict[int, list[Line]]:
        """Return what such a bucket reads."""
        logs = {at: results[at] for at in partitions}
        if self._reads_events:
            events = range(len(self.topic.partitions)) if not self.over else partitions
            logs |= {len(results) + at: self.topic.partitions[at] for at in events}
        return logs

    def rows(self, results: Sequence[list[Line]], cuts: random.Random | None = None) -> list[Row]:
        """Return what the second query gives."""
        return [
            row
            for work in self._works(len(results))
            for row in run_bucket(lambda work=work: self.bucket(work, len(results)), self.logs(results, work), cuts=cuts).rows[0]
        ]

    def lagging_rows(self, results: Sequence[list[Line]], order: Sequence[int]) -> list[Row]:
        """Return what it gives if each log comes only when all before it, by their places in an order, were read to their ends."""
        rows = []
        for work in self._works(len(results)):
            logs = self.logs(results, work)
            rows += run_lagging(lambda work=work: self.bucket(work, len(results)), logs, [sorted(logs)[at % len(logs)] for at in order])
        return rows

    def _works(self, count: int) -> list[list[int]]:
        return [[at] for at in range(count)] if self.over else [list(range(count))]


def run_lagging(make, logs: Mapping[int, Sequence[Line]], order: Sequence[int]) -> list[Row]:  # type: ignore[no-untyped-def]
    """Take a bucket through its logs one after the other, saved and restored between them; return its results."""
    rows: list[Row] = []

    def collect(released) -> None:  # type: ignore[no-untyped-def]
        for each in released:
            rows.extend(zip(each.system_us.tolist(), each.key.tolist(), each.value.tolist(), strict=True))

    head, chunks, read = b"", dict[int, bytes](), set[int]()
    for log in order:
        if log in read:
            continue
        read.add(log)
        bucket = make()
        if head:
            bucket.restore(head, chunks)
        for part in bucket.accept_in_parts(log, decoded_range(logs[log])):
            collect(part)
        collect(bucket.settle())
        while not bucket.is_settled:
            collect(bucket.settle())
        if read == set(logs):
            collect(bucket.end())
            while not bucket.is_settled:
                collect(bucket.settle())
        changes = bucket.save()
        head = changes.head
        chunks = {number: octets for number, octets in {**chunks, **changes.put}.items() if number not in changes.delete}
    return rows


def by_key(rows: Sequence[Row]) -> dict[bytes, list[Row]]:
    """Return the results of each key in their order."""
    return {key: [row for row in rows if row[1] == key] for _, key, _ in rows}


def check_stages(stages: Stages, other: Stages, seed: int) -> int:
    """
    Compare the second query over killed and lagging logs with that over undisturbed ones; return how many results it has.

    Args:
        stages: The killed ones.
        other: The undisturbed ones, over another topic that was made of the same raw logs.
        seed: Draws kills and cuts.
    """
    runs = stages.runs(seed, cut=3)
    dice = random.Random(seed)
    undisturbed = [undisturbed_log(at, each[0]) for at, each in enumerate(other.runs(seed, cut=0))]
    killed = [killed_log(at, each, dice.randrange(2**32)) for at, each in enumerate(runs)]
    expected = other.rows(undisturbed)
    every = list(permutations(range(4)))
    assert any(len(log) > len(plain) for log, plain in zip(killed, undisturbed, strict=True)) or not expected, "something was written again"
    found = [
        stages.rows(killed, dice),
        stages.lagging_rows(killed, dice.choice(every)),
        stages.lagging_rows(undisturbed, dice.choice(every)),
    ]
    for rows in found:
        assert (by_key(rows) == by_key(expected)) if stages.over else (rows == expected)
    return len(expected)


def both_stages(kind: str, sql: str, raw: Raw, writers: int, *, first_over: bool, over: bool) -> tuple[Stages, Stages]:
    """Return the same two queries over two topics of the same raw logs."""
    query = Query(kind, first_over)
    one, other = (Stages(query, raw.topic(each, 2, over=first_over), sql, over) for each in (writers, writers + 1))
    return one, other


@pytest.mark.parametrize("first_over", [True, False])
@pytest.mark.parametrize("sql", IN_ONE_LINE)
def test_a_query_without_over_reads_result_logs_of_killed_queries(sql: str, first_over: bool) -> None:
    """Level 3: and is not silent."""
    assert check_stages(*both_stages("tumbling", sql, dense(5), 1, first_over=first_over, over=False), 11) > 5


@pytest.mark.parametrize("sql", BY_KEY)
def test_a_query_with_over_reads_result_logs_of_killed_queries(sql: str) -> None:
    """Level 3: and is not silent."""
    assert check_stages(*both_stages("tumbling", sql, dense(6, 40), 4, first_over=True, over=True), 12) > 5


@FEW
@given(st.sampled_from(KINDS), st.sampled_from((*IN_ONE_LINE, *BY_KEY)), st.booleans(), SEEDS, SEEDS, SEEDS)
def test_any_two_stages(kind: str, sql: str, first_over: bool, seed: int, writers: int, kills: int) -> None:
    """Level 3: whatever was killed, and whichever log lags."""
    over = sql in BY_KEY
    event(f"results {check_stages(*both_stages(kind, sql, dense(seed, 16), writers, first_over=first_over or over, over=over), kills) > 0}")
