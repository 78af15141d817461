"""
Buckets against a plain walk of the log: what becomes final, by which record, in which order, with which numbers.

A bucket reads its ordered partitions in random batches, is saved and restored between them, and at times runs a batch
twice, as after a crash.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.bucket_oracle import EVERY_CTI, INFINITY, NEVER, Event, Question, Result, SlowPace, Walk, merged
from support.bucket_runs import dense
from support.bucket_topics import Line, Topic, decoded_range, middle_of, settled_start, starts, to_oracle, topics
from support.query_runs import program

from ordering.model.step import Released
from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from query.buckets import substream_table
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from query.buckets.substreams import SubstreamBucket
from query.config import Promise
from query.engine.program import Program
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

SOME = settings(max_examples=max(settings().max_examples // 4, 1))
"""Each example here runs dozens of DuckDB queries."""
SPAN_US = 5
QUESTIONS = [(0, 0), (7, 7), (1, 1), (9, 4), (3, 5), (30, 2)]
"""Window sizes and hops, microseconds; the first is no window."""


PACES = st.just(EVERY_CTI) | st.builds(SlowPace, st.none() | st.integers(1, 8), st.none() | st.integers(1, 12), st.sampled_from([0, 0, 4]))


def questions(over: bool) -> st.SearchStrategy[Question]:
    """Draw a query."""
    return st.sampled_from([Question(over, size_us, hop_us) for size_us, hop_us in QUESTIONS])


@cache
def query_of(question: Question) -> Program:
    """Compile a question."""
    return program(question.sql, InputSchema("arrivals"), InputSchema("keyed", "t", "k"))


@dataclass
class Said:
    """What a bucket gave out: results with their numbers, CTIs with how many results came before, result files, dead letters."""

    results: list[Result] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    ctis: list[tuple[int, Cti]] = field(default_factory=list)
    spans: list[tuple[int, list[Result]]] = field(default_factory=list)
    bad: list[bytes] = field(default_factory=list)

    def add(self, other: Said) -> None:
        """Append what a batch said."""
        self.ctis += [(len(self.results) + count, cti) for count, cti in other.ctis]
        self.results += other.results
        self.seq += other.seq
        self.spans += other.spans
        self.bad += other.bad

    def hear(self, released: Released, bucket: Bucket) -> None:
        """Take the results and dead letters of one call."""
        columns = (released.system_us, released.key, released.value)
        self.results += list(zip(*(column.tolist() for column in columns), strict=True))
        self.seq += released.seq.tolist()
        self.bad += [row.value for row in bucket.pop_bad_rows() if row.value is not None]


class Runner:
    """Takes a bucket through the logs of its partitions as the job does, with saves, restores and batches run twice."""

    def __init__(self, make: Callable[[], Bucket], partitions: dict[int, list[Line]], seed: int) -> None:
        self._make, self._partitions, self._chance = make, partitions, random.Random(seed)
        self._bucket, self._chunks, self._head = make(), dict[int, bytes](), b""
        self._at = dict.fromkeys(partitions, 0)
        self.said = Said()

    def run(self, end: bool) -> Said:
        """Read everything; with *end* close everything too, as a run to the present end does."""
        while any(self._at[partition] < len(lines) for partition, lines in self._partitions.items()):
            until = {
                partition: min(at + self._chance.choice([0, 1, 3, 10, 40]), len(self._partitions[partition]))
                for partition, at in self._at.items()
            }
            self._batch(until, False)
        if end or self._chance.random() < 0.3:
            self._batch(dict(self._at), end)
        return self.said

    def _batch(self, until: dict[int, int], end: bool) -> None:
        said = self._try(until, end)
        if self._chance.random() < 0.2:
            # The process dies before Spark commits: the batch runs again from the stored state.
            self._restore()
            again = self._try(until, end)
            assert (again.results, again.seq, sorted_spans(again), again.bad) == (said.results, said.seq, sorted_spans(said), said.bad)
        self._at = until
        self.said.add(said)
        changes = self._bucket.save()
        self._head = changes.head
        for number in changes.delete:
            del self._chunks[number]
        assert not changes.put.keys() & self._chunks.keys(), "a chunk is written once"
        self._chunks |= changes.put
        if self._chance.random() < 0.4:
            self._restore()

    def _restore(self) -> None:
        self._bucket = self._make()
        if self._head:
            self._bucket.restore(self._head, self._chunks)

    def _try(self, until: dict[int, int], end: bool) -> Said:
        said = Said()
        for partition, high in until.items():
            for low, stop in self._pieces(self._at[partition], high):
                lines = self._partitions[partition][low:stop]
                said.hear(*self._bucket.accept_records(partition, decoded_range(lines)), self._bucket)
        said.hear(*self._bucket.settle(), self._bucket)
        if end:
            said.hear(*self._bucket.end(), self._bucket)
        (cti,) = self._bucket.next_ctis()
        said.ctis += [(len(said.results), cti)] if cti is not None else []
        said.spans += self._bucket.pop_sheets()
        return said

    def _pieces(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        while low < high:
            stop = min(low + self._chance.choice([1, 7, 100]), high)
            yield low, stop
            low = stop


def sorted_spans(said: Said) -> list[tuple[int, list[Result]]]:
    """Result files as a sink writes them: rows sorted."""
    return [(start_us, sorted(rows)) for start_us, rows in said.spans]


Since = tuple[int | None, int | None]
"""Output start time and where reading begins, microseconds."""
ALL: Since = (None, None)


def substream_bucket(topic: Topic, question: Question, partition: int, pace: SlowPace = EVERY_CTI, since: Since = ALL) -> SubstreamBucket:
    """Return the bucket of one ordered partition."""
    roster = Roster(1, len(topic.partitions), Spread.ONE, True)
    alone = SourceTopic(question.input, len(topic.partitions), {partition: partition})
    return SubstreamBucket(query_of(question), BucketConfig([alone], partition, roster, *since, (SPAN_US,), pace_of(pace)))


def merged_bucket(
    topic: Topic, question: Question, pace: SlowPace = EVERY_CTI, since: Since = ALL, until_us: int = INFINITY
) -> MergedBucket:
    """Return the bucket that merges all ordered partitions."""
    everything = SourceTopic(question.input, len(topic.partitions), {at: at for at in range(len(topic.partitions))})
    config = BucketConfig([everything], 0, Roster(1, 1, Spread.ONE, False), *since, (SPAN_US,), pace_of(pace), until_us=until_us)
    return MergedBucket(query_of(question), config)


def pace_of(pace: SlowPace) -> Pace:
    """Return the same pace for the engine."""
    return Pace(pace.every_events, pace.every_us, pace.delay_us)


def check_promises(said: Said, ended: bool) -> None:
    """Numbers follow each other; CTIs only rise, count what is ahead, and are kept; the last one of an ended run is final."""
    assert said.seq == list(range(len(said.results)))
    for count, cti in said.ctis:
        assert cti.n == count
        assert all(system_us >= cti.c for system_us, _, _ in said.results[count:])
        assert cti.ahead == sum(system_us >= cti.c for system_us, _, _ in said.results[:count])
        assert cti.largest_us == max((system_us for system_us, _, _ in said.results[:count]), default=cti.largest_us)
    for (_, before), (_, after) in pairwise(said.ctis):
        assert (after.c, after.n) > (before.c, before.n)
        assert after.c >= before.c
        assert after.n >= before.n
    if ended:
        assert said.ctis[-1][1].c == INFINITY


def check_files(said: Said, ended: bool) -> None:
    """Each result stands in exactly one file, that of its span, and no file is published before its span is over."""
    starts = [start_us for start_us, _ in said.spans]
    assert len(starts) == len(set(starts))
    filed = [row for _, rows in said.spans for row in rows]
    assert all(start_us <= row[0] < start_us + SPAN_US for start_us, rows in said.spans for row in rows)
    reached = max([cti.c for _, cti in said.ctis], default=NEVER)
    due = INFINITY if ended else reached // SPAN_US * SPAN_US
    assert Counter(filed) == Counter(row for row in said.results if row[0] < due)


@SOME
@given(st.data(), topics(over=True), questions(over=True), st.booleans(), st.sampled_from([1, 1024]), PACES)
def test_a_substream_bucket_says_what_a_walk_of_the_log_says(
    data: st.DataObject, topic: Topic, question: Question, end: bool, subs_min: int, pace: SlowPace
) -> None:
    """Level 2: the sequence of results is that of the log heard record by record; forgetting substreams (subs_min) cannot be seen."""
    for partition, lines in enumerate(topic.partitions):
        walk = Walk(question, pace)
        for _, record in lines:
            walk.accept_record(to_oracle(record))
        if end:
            walk.end()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(substream_table, "SUBS_MIN", subs_min)
            runner = Runner(
                lambda at=partition: substream_bucket(topic, question, at, pace), {partition: lines}, data.draw(st.integers(0, 2**32))
            )
            said = runner.run(end)
        assert said.results == walk.results
        event(f"lists {any(isinstance(record, Cti) and record.listed for _, record in lines)}")
        ended = end or (topic.ended and bool(lines))
        check_promises(said, ended)
        check_files(said, ended)
        mine = [each for each in topic.truth if any(record == each for _, record in lines)]
        assert Counter(said.bad) == Counter(each.value for each in mine if question.is_bad(each))


@pytest.mark.parametrize("question", [Question(True), Question(True, 7, 7)])
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"k":123456789012345678901234567890,"w":1}', b"123456789012345678901234567890"),
        ('{"k":-9223372036854775809,"w":1}', b"-9223372036854775809"),
        ('{"k":' + "9" * 5_000 + ',"w":1}', b"9" * 5_000),
        ('{"k":-0.0,"w":1}', b"-0.0"),
        ('{"K":5,"w":1}', b""),
    ],
)
def test_a_result_stands_under_the_key_of_its_substream(question: Question, text: str, key: bytes) -> None:
    """Level 2: also where the query reads the key's value as a float, or by a name in another case, the key is ingest's."""
    topic = Topic([[(0, Event(0, 0, 5, 0, key, text.encode()))]], [], inputs=1, over=True, ended=True)
    bucket = substream_bucket(topic, question, 0)
    said = Said()
    said.hear(*bucket.accept_records(0, decoded_range(topic.partitions[0])), bucket)
    said.hear(*bucket.end(), bucket)
    assert [found for _, found, _ in said.results] == [key]


@SOME
@given(st.data(), topics(over=False) | topics(over=True), questions(over=False), st.booleans(), PACES)
def test_a_merged_bucket_says_what_the_events_alone_say(
    data: st.DataObject, topic: Topic, question: Question, end: bool, pace: SlowPace
) -> None:
    """Level 3: results depend on the events alone, not on channels, their interleaving, writers' crashes, batches, or the pace."""
    ended = end or topic.ended
    expected = merged(question, topic.truth, INFINITY if ended else topic.frontier(pace))
    logs_of = dict(enumerate(topic.partitions))
    said = Runner(lambda: merged_bucket(topic, question, pace), logs_of, data.draw(st.integers(0, 2**32))).run(end)
    assert said.results == expected
    check_promises(said, ended)
    check_files(said, ended)


@SOME
@given(st.data(), topics(over=True, vouched=True), questions(over=True), st.sampled_from([0, 3, 1000]), PACES)
def test_a_substream_bucket_started_in_the_middle_gives_the_rest(
    data: st.DataObject, topic: Topic, question: Question, back: int, pace: SlowPace
) -> None:
    """Level 3: started at S with its look-back, every substream's results from S on are those of a run from the beginning."""
    start_us = data.draw(starts(topic))
    read_from_us = start_us - query_of(question).plans[0].lookback_us
    for partition, lines in enumerate(topic.partitions):
        mine = {record for _, record in lines if isinstance(record, Event)}
        rest = middle_of(lines, read_from_us, back, over=True)
        event(f"skipped {len(rest) < len(lines)}")
        runner = Runner(
            lambda at=partition: substream_bucket(topic, question, at, pace, (start_us, read_from_us)),
            {partition: rest},
            data.draw(st.integers(0, 2**32)),
        )
        said = runner.run(True)
        expected: Counter[Result] = Counter()
        for sub in {(each.number, each.key) for each in mine}:
            events = [each for each in topic.truth if each in mine and (each.number, each.key) == sub]
            expected.update(row for row in merged(question, events, INFINITY) if row[0] >= start_us)
        assert Counter(said.results) == expected
        if topic.inputs == 1:
            for key in {key for _, key, _ in said.results}:
                ends = [system_us for system_us, found, _ in said.results if found == key]
                assert ends == sorted(ends)
        check_promises(said, True)
        check_files(said, True)


@SOME
@given(st.data(), st.integers(0, 2**32), st.integers(1, 2))
def test_a_start_at_an_instant_keeps_the_order_between_keys(data: st.DataObject, seed: int, partitions: int) -> None:
    """Level 2: started at S the sequence over all keys is that of a run from the beginning, stale CTIs or not."""
    question = Question(True, *data.draw(st.sampled_from([(7_000, 7_000), (9_000, 4_000), (0, 0)])))
    topic = dense(seed, tick_us=1_000).topic(seed, partitions, over=True)
    start_us = data.draw(st.sampled_from(sorted({each.system_us for each in topic.truth})))
    needed_us = start_us - query_of(question).plans[0].lookback_us
    for partition, lines in enumerate(topic.partitions):
        begin = settled_start(lines, needed_us, partition, partitions)
        event(f"whole {begin.read_from_us is None}")
        runs = []
        for since, read in ((ALL, lines), ((start_us, begin.read_from_us), [line for line in lines if line[0] >= begin.offset])):
            make = partial(substream_bucket, topic, question, partition, EVERY_CTI, since)
            runs.append(Runner(make, {partition: read}, data.draw(st.integers(0, 2**32))).run(True).results)
        assert runs[1] == [row for row in runs[0] if row[0] >= start_us]


def test_a_run_that_goes_on_writes_no_part_of_a_file_again() -> None:
    """Level 3: the files of two outputs have other spans; what the one needs begins in the middle of a file that the other has written."""
    script = "SELECT v INTO one FROM a TIMESTAMP BY t; SELECT v INTO two FROM a TIMESTAMP BY t"
    plans = bind_outputs(parse_script(script), [InputSchema("a", "t")])
    roster, spans_us = Roster(1, 1, Spread.ONE, False), [100, 60]

    def bucket(since: tuple[int | None, int | None] = (None, None), promises: Sequence[Promise] = ()) -> MergedBucket:
        return MergedBucket(Program(plans), BucketConfig([SourceTopic("a", 1, {0: 0})], 0, roster, *since, spans_us, promises=promises))

    events = [(seq, Event(0, seq, us, seq, b"k", b'{"v":%d}' % seq)) for seq, us in enumerate((185, 210, 245))]
    lines: list[Line] = [*events, (3, Cti(0, 0, 250, 3, 0, 0, 250, 245, roster, Cause.EVENT))]
    lost = bucket()
    lost.accept_records(0, decoded_range(lines))
    lost.settle()
    assert [start_us for start_us, _ in lost.pop_sheets(1)] == [180]
    promises = [Promise(cti.c, cti.n, cti.ahead, cti.largest_us) for cti in lost.next_ctis() if cti is not None]
    again = bucket((200, 200), promises)
    end: list[Line] = [(4, Event(0, 3, 400, 3, b"k", b'{"v":3}')), (5, Cti(0, 0, 500, 4, 0, 0, 500, 400, roster, Cause.EVENT))]
    again.accept_records(0, decoded_range([*lines, *end]))
    again.settle()
    written = [[(start_us, [value for _, _, value in rows]) for start_us, rows in again.pop_sheets(output)] for output in range(2)]
    assert written == [[(200, [b'{"v":1}', b'{"v":2}']), (400, [b'{"v":3}'])], [(240, [b'{"v":2}']), (360, [b'{"v":3}'])]]


@SOME
@given(st.data(), topics(over=False), questions(over=False))
def test_a_run_that_is_told_where_to_stop_files_all_its_results(data: st.DataObject, topic: Topic, question: Question) -> None:
    """Level 3: its files have the results below E, those of the span that E cuts too; whatever comes after E changes none of them."""
    until_us = data.draw(starts(topic))
    logs_of = dict(enumerate(topic.partitions))
    said = Runner(lambda: merged_bucket(topic, question, until_us=until_us), logs_of, data.draw(st.integers(0, 2**32))).run(end=True)
    assert Counter(said.results) == Counter(row for row in merged(question, topic.truth, INFINITY) if row[0] < until_us)
    starts_us = [start_us for start_us, _ in said.spans]
    assert len(starts_us) == len(set(starts_us)), "a file is published once"
    assert Counter(row for _, rows in said.spans for row in rows) == Counter(said.results)


@SOME
@given(st.data(), topics(over=False, vouched=True), questions(over=False), st.sampled_from([0, 3, 1000]), PACES)
def test_a_merged_bucket_started_in_the_middle_gives_the_rest(
    data: st.DataObject, topic: Topic, question: Question, back: int, pace: SlowPace
) -> None:
    """Level 3: started at S with its look-back, the results are those of a run from the beginning with s >= S, in their order."""
    start_us = data.draw(starts(topic))
    read_from_us = start_us - query_of(question).plans[0].lookback_us
    rest = {partition: middle_of(lines, read_from_us, back) for partition, lines in enumerate(topic.partitions)}
    since = start_us, read_from_us
    runner = Runner(lambda: merged_bucket(topic, question, pace, since), rest, data.draw(st.integers(0, 2**32)))
    said = runner.run(True)
    assert said.results == [row for row in merged(question, topic.truth, INFINITY) if row[0] >= start_us]
    check_promises(said, True)
    check_files(said, True)
