"""Exchange: rows split over buckets by the values of keys, every bucket hearing all CTIs, and that it changes no result."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.bucket_oracle import INFINITY, Event, Question, SlowPace, merged, text_of
from support.bucket_runs import BucketOutput, promise_of, raws, run_bucket
from support.bucket_topics import Line, Topic, decoded_range, middle_of, topics
from support.oracle import partition_of
from support.query_kinds import INPUT, KINDS, REFERENCE, plans_of
from support.same_value import key_bytes, text

from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Roster, Spread
from ordering.protocol.reader import Log
from query.buckets.bucket import EACH_CTI, Bucket, BucketConfig, SourceTopic
from query.buckets.exchanged import ExchangedBucket
from query.buckets.merged import MergedBucket
from query.buckets.shared_reads import SharedReads
from query.columns.decoded_range import DecodedRange
from query.columns.events import DECODED_SCHEMA
from query.config import Promise
from query.engine.exchange import Exchange, Router
from query.engine.program import Program
from query.plan.common_keys import common_keys
from query.plan.nodes import Plan
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.spark.shuffle_keys import even_labels, same_task

SOME = settings(max_examples=max(settings().max_examples // 10, 1))
SEEDS = st.integers(0, 2**32)
PACES = st.sampled_from([Pace(), Pace(), Pace(4, None, 2), Pace(None, 9, 0)])


def bound(sql: str, *schemas: InputSchema) -> tuple[Plan, ...]:
    """Bind a script."""
    return bind_outputs(parse_script(sql), schemas, into=None if "INTO" in sql else "out")


def made(
    plans: tuple[Plan, ...],
    topics: Mapping[str, Topic],
    bucket: int | None,
    buckets: int = 1,
    pace: Pace = EACH_CTI,
    since: tuple[int | None, int | None] = (None, None),
    promises: Sequence[Promise] = (),
) -> Bucket:
    """Return one bucket of an exchange over some topics, or (None) the only one of a query that is not spread."""
    sources, first = [], 0
    for name, topic in topics.items():
        count = len(topic.partitions)
        sources.append(SourceTopic(name, count, {first + at: at for at in range(count)}))
        first += count
    # Each bucket has a program of its own.
    program = Program(plans, references={REFERENCE.schema.name: REFERENCE})
    config = BucketConfig(sources, bucket or 0, Roster(1, buckets, Spread.ONE, False), *since, pace=pace, promises=promises)
    if bucket is None:
        return MergedBucket(program, config)
    keys = common_keys(plans)
    assert not isinstance(keys, str)
    return ExchangedBucket(program, config, Router(Exchange(keys, buckets), {}))


def lines_of(topics: Mapping[str, Topic]) -> dict[int, list[Line]]:
    """Return the logs of some topics, numbered as jobs number them."""
    return dict(enumerate(lines for topic in topics.values() for lines in topic.partitions))


def parts_of(
    plans: tuple[Plan, ...], topics: Mapping[str, Topic], data: st.DataObject, buckets: int, pace: Pace = EACH_CTI, *, end: bool = True
) -> list[BucketOutput]:
    """Return what each bucket of an exchange says, cut anywhere."""
    logs = lines_of(topics)
    return [
        run_bucket(lambda at=at: made(plans, topics, at, buckets, pace), logs, cuts=random.Random(data.draw(SEEDS)), end=end)
        for at in range(buckets)
    ]


def check_parts(parts: Sequence[BucketOutput], whole: BucketOutput) -> None:
    """What all buckets give is what one gives, each in its order, and each keeps its promises."""
    for output, rows in enumerate(whole.rows):
        assert Counter(row for part in parts for row in part.rows[output]) == Counter(rows)
        for part in parts:
            rest = iter(rows)
            assert all(row in rest for row in part.rows[output])
    assert Counter(bad for part in parts for bad in part.bad) == Counter(whole.bad)
    for part in parts:
        part.check()


QUESTIONS = [Question(False, size_us, hop_us) for size_us, hop_us in [(7, 7), (9, 4), (30, 2)]]


@SOME
@given(st.data(), topics(over=False) | topics(over=True), st.sampled_from(QUESTIONS), st.integers(1, 4), st.booleans())
def test_each_bucket_says_what_the_events_whose_keys_fall_to_it_say(
    data: st.DataObject, topic: Topic, question: Question, buckets: int, end: bool
) -> None:
    """Level 3: the naive oracle's results, split by Java's partitioner over their keys; whoever wrote the topic, wherever it is cut."""
    until_us = INFINITY if end or topic.ended else topic.frontier(SlowPace())
    expected = merged(question, topic.truth, until_us)
    plans = bound(question.sql, InputSchema("arrivals"))
    for at, said in enumerate(parts_of(plans, {"arrivals": topic}, data, buckets, end=end)):
        event(f"results {any(said.rows)}")
        assert said.rows == [[row for row in expected if partition_of(row[1], buckets) == at]]
        said.check()


EXCHANGED = [kind for kind in KINDS if (keys := common_keys(plans_of(kind, over=False, typed=True))) and not isinstance(keys, str)]


@SOME
@given(st.sampled_from(EXCHANGED), st.data(), st.booleans(), st.integers(2, 4), PACES)
def test_an_exchange_cannot_be_seen(kind: str, data: st.DataObject, over: bool, buckets: int, pace: Pace) -> None:
    """Level 3: for queries of every kind all buckets together give what one gives, each in its order, however they are cut."""
    topic = data.draw(raws(over)).topic(data.draw(SEEDS), data.draw(st.integers(1, 3)), over=over)
    plans = plans_of(kind, over=False, typed=True)
    whole = run_bucket(lambda: made(plans, {INPUT: topic}, None, pace=pace), lines_of({INPUT: topic}))
    parts = parts_of(plans, {INPUT: topic}, data, buckets, pace)
    check_parts(parts, whole)


def test_most_kinds_can_be_exchanged() -> None:
    """And those that meet across keys cannot."""
    assert len(EXCHANGED) >= len(KINDS) // 2
    assert not {"looking_back_at_all", "session_of_all_keys", "joined_across_keys"} & set(EXCHANGED)


TYPED = {"k": "nvarchar(max)", "w": "bigint", "v": "float"}
OTHER_KEYS = [
    "SELECT g, COUNT(*) AS n, COLLECT(k) AS c FROM a TIMESTAMP BY t GROUP BY g, TumblingWindow(mcs, 7)",
    "SELECT v, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY v, SlidingWindow(mcs, 4)",
    "WITH u AS (SELECT g, k FROM a TIMESTAMP BY t UNION SELECT w, k FROM b TIMESTAMP BY t) "
    "SELECT g, COUNT(*) AS n FROM u GROUP BY g, TumblingWindow(mcs, 5)",
    "SELECT x.k, y.k AS l, x.w AS w FROM a TIMESTAMP BY t x LEFT JOIN b TIMESTAMP BY t y "
    "ON DATEDIFF(mcs, x, y) BETWEEN -2 AND 3 AND x.v = y.v AND x.w <= y.w",
    "WITH s AS (SELECT w, UPPER(k) AS u, COUNT(*) AS n FROM b TIMESTAMP BY t GROUP BY w, UPPER(k), TumblingWindow(mcs, 3)) "
    "SELECT x.g, s.n, s.u FROM a TIMESTAMP BY t x JOIN s ON DATEDIFF(mcs, x, s) BETWEEN 0 AND 4 AND x.k = s.u AND x.w = s.w",
    "SELECT g, ISFIRST(mcs, 6) OVER (PARTITION BY PartitionId, g) AS f INTO one FROM a TIMESTAMP BY t; "
    "SELECT g, COUNT(*) AS n INTO two FROM a TIMESTAMP BY t GROUP BY g, TumblingWindow(mcs, 4); "
    "SELECT k, w INTO three FROM b TIMESTAMP BY t WHERE w = 1",
    "SET CASE_INSENSITIVE ON SELECT x.g, y.w FROM a TIMESTAMP BY t x JOIN b TIMESTAMP BY t y "
    "ON DATEDIFF(mcs, x, y) BETWEEN 0 AND 3 AND x.k = y.k",
]


@SOME
@given(st.sampled_from(OTHER_KEYS), st.data(), st.integers(2, 4))
def test_an_exchange_of_several_inputs_cannot_be_seen(sql: str, data: st.DataObject, buckets: int) -> None:
    """Level 3: by values of any kind, by expressions, unions and joins of inputs; inputs that meet nobody are spread too."""
    over = data.draw(st.booleans())
    both = {name: data.draw(raws(over, 2)).topic(data.draw(SEEDS), data.draw(st.integers(1, 2)), over=over) for name in "ab"}
    schemas = [InputSchema(name, "t", fields=TYPED) for name in both]
    plans = bound(sql, *schemas)
    named = {name: topic for name, topic in both.items() if name in {scan.input for plan in plans for scan in plan.scans}}
    whole = run_bucket(lambda: made(plans, named, None), lines_of(named))
    check_parts(parts_of(plans, named, data, buckets), whole)


@SOME
@given(st.sampled_from(EXCHANGED), st.data(), st.sampled_from([0, 3, 1000]))
def test_a_bucket_goes_on_after_its_last_promise(kind: str, data: st.DataObject, back: int) -> None:
    """Level 2: a bucket of an exchange that lost its state writes what is missing in its channels, with its numbers."""
    topic = data.draw(raws(True)).topic(data.draw(SEEDS), 2, over=True, vouched=True)
    plans = plans_of(kind, over=False, typed=True)
    lookback_us = max(plan.lookback_us for plan in plans)
    logs = lines_of({INPUT: topic})
    for at in range(2):
        whole = run_bucket(lambda at=at: made(plans, {INPUT: topic}, at, 2), logs, cuts=random.Random(data.draw(SEEDS)))
        batch = data.draw(st.integers(0, max(len(channel.ctis) for channel in whole.channels) - 1))
        lasts = [channel.ctis[min(batch, len(channel.ctis) - 1)][1] for channel in whole.channels]
        start_us = min(cti.c for cti in lasts)
        if start_us == INFINITY:
            continue
        since, promises = (start_us, start_us - lookback_us), [promise_of(cti) for cti in lasts]
        rest = {log: middle_of(lines, start_us - lookback_us, back) for log, lines in logs.items()}
        said = run_bucket(lambda at=at, since=since, promises=promises: made(plans, {INPUT: topic}, at, 2, EACH_CTI, since, promises), rest)
        for channel, every, cti in zip(said.channels, whole.channels, lasts, strict=True):
            assert channel.rows == every.rows[cti.n :]
            channel.check(every.rows[: cti.n])


def test_counts_of_all_buckets_add_up() -> None:
    """Each event is worked on once; what all buckets see alike is counted by one."""
    lines: list[Line] = [(at, Event(0, at, 5 + at, at, b"", text_of({"k": at, "g": 1}))) for at in range(20)]
    twice = [*lines, *((20 + at, record) for at, record in lines)]
    topic = Topic([twice], [], 1, False, False)
    plans = bound("SELECT k, COUNT(*) AS n FROM arrivals GROUP BY k, TumblingWindow(mcs, 3)", InputSchema("arrivals"))
    buckets = [made(plans, {"arrivals": topic}, at, 3) for at in range(3)]
    for bucket in buckets:
        bucket.accept_records(0, decoded_range(twice))
        bucket.settle()
    assert [bucket.totals["events"] for bucket in buckets] == [
        sum(partition_of(b"%d" % at, 3) == number for at in range(20)) for number in range(3)
    ]
    assert [bucket.duplicates for bucket in buckets] == [20, 0, 0]


VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES |= st.lists(st.integers(0, 3), max_size=3) | st.dictionaries(st.text(max_size=2), st.integers(0, 3), max_size=3)


@given(st.lists(st.tuples(VALUES, VALUES), max_size=12), st.integers(1, 9))
def test_the_bucket_is_the_partition_of_the_key(rows: list[tuple[object, object]], buckets: int) -> None:
    """As Kafka's Java partitioner chooses it for the key of a result; several keys are an array."""
    given = events([{"x": x, "y": y} for x, y in rows])
    for sql, expected in [("x", [key_bytes(x) for x, _ in rows]), ("x, y", [text([x, y]).encode() for x, y in rows])]:
        found = router(f"SELECT COUNT(*) AS n FROM a GROUP BY {sql}, TumblingWindow(second, 1)", buckets).buckets_of("a", given)
        assert found.tolist() == [partition_of(key, buckets) for key in expected]


def events(payloads: Sequence[object], keys: Sequence[bytes | None] | None = None) -> pa.Table:
    """Return events with some payloads."""
    count = len(payloads)
    ints = np.arange(count)
    value = pa.array([payload if isinstance(payload, bytes) else json.dumps(payload).encode() for payload in payloads], pa.binary())
    key = pa.array([b""] * count if keys is None else list(keys), pa.binary())
    zeros = np.zeros(count, dtype=np.int32)
    columns = [zeros, ints, ints, key, value, zeros.astype(np.uint16), ints]
    return pa.table(dict(zip(DECODED_SCHEMA.names, columns, strict=True)), schema=DECODED_SCHEMA)


def router(sql: str, buckets: int, *schemas: InputSchema) -> Router:
    """Return the router of a script."""
    keys = common_keys(bound(sql, *(schemas or [InputSchema("a")])))
    assert not isinstance(keys, str)
    return Router(Exchange(keys, buckets), {})


def test_what_has_no_key_goes_to_the_first_bucket() -> None:
    """An unreadable payload, and one on which the key fails: they become dead letters there, once."""
    sql = "SELECT COUNT(*) AS n FROM a GROUP BY CAST(x AS bigint), TumblingWindow(second, 1)"
    given = events([b"{", {"x": "no number"}, {"x": "7"}, {"x": 7}])
    seven = partition_of(b"7", 4)
    assert seven > 0
    assert router(sql, 4).buckets_of("a", given).tolist() == [0, 0, seven, seven]


def test_what_meets_nobody_is_spread_by_its_record() -> None:
    """An input of which no rows meet."""
    sql = "SELECT COUNT(*) AS n INTO one FROM a GROUP BY x, TumblingWindow(second, 1); SELECT y INTO two FROM b"
    found = router(sql, 5, InputSchema("a"), InputSchema("b")).buckets_of("b", events([{}, {}, {}], [b"p", b"q", None]))
    assert found.tolist() == [partition_of(key, 5) for key in (b"p", b"q", b"")]


@pytest.mark.parametrize("tasks", [1, 2, 3, 8])
def test_siblings_are_what_spark_gives_to_one_task(tasks: int) -> None:
    """Buckets are dealt out in turn."""
    assert len(even_labels(5, tasks)) == 5
    assert [list(same_task(at, 5, tasks)) for at in range(5)] == [
        [each for each in range(5) if each % tasks == at % tasks] for at in range(5)
    ]


def test_siblings_read_a_range_once() -> None:
    """Each of them finds what the first has read; who asks again, for something else, or after a failure, reads for itself."""
    reads, shared = list[int](), SharedReads()

    def read() -> Iterator[DecodedRange]:
        reads.append(1)
        yield DecodedRange(Log(*[np.empty(0, dtype=np.int64)] * 4, []), events([]), 7)

    def asked(bucket: int, end: int = 7, siblings: range = range(0, 6, 2)) -> int:
        assert [piece.next_offset for piece in shared.share(3, 0, end, bucket, siblings, 0, read)] == [7]
        return len(reads)

    assert [asked(0), asked(2), asked(4)] == [1, 1, 1]
    assert [asked(0), asked(2), asked(2)] == [2, 2, 3]
    assert [asked(0, 8), asked(2), asked(4), asked(0)] == [4, 5, 5, 5]
    assert asked(0) == 6
    shared.forget()
    assert asked(2) == 7
    shared.forget()
    assert [asked(0, siblings=range(0)), asked(0, siblings=range(0))] == [8, 9]


def test_siblings_keep_no_more_for_each_other_than_there_is_room_for() -> None:
    """Over all ranges of the job; what has no room each of them reads, and it gets the same."""
    reads, shared = list[int](), SharedReads()
    pieces = [DecodedRange(Log(*[np.empty(0, dtype=np.int64)] * 4, []), events([{"x": "y" * 100}] * 10), end) for end in (10, 20)]

    def read() -> Iterator[DecodedRange]:
        reads.append(1)
        yield from pieces

    def asked(log: int, bucket: int, room: int) -> int:
        assert list(shared.share(log, 0, 20, bucket, range(2), room, read)) == pieces
        return len(reads)

    size = sum(piece.nbytes for piece in pieces)
    assert [asked(3, 0, size), asked(4, 0, size), asked(4, 1, size), asked(3, 1, size)] == [1, 2, 3, 3]
    assert [asked(3, 0, size - 1), asked(3, 1, size - 1)] == [4, 5]
