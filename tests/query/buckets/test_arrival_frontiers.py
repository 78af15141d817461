"""Arrival frontiers: the CTIs of results say which raw records had arrived, and results are counted by it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bucket_oracle import Event, text_of
from support.bucket_runs import Query, raws, run_bucket
from support.bucket_topics import Line, Topic, decoded_range

from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.reader import PartitionReader
from ordering.ticks import INFINITY, NEVER
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.keyed import KeyedBucket
from query.engine.program import Program
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

SOME = settings(max_examples=max(settings().max_examples // 6, 1))
SEEDS = st.integers(0, 2**32)
# Their results have the instants of their events, so each CTI has the c that it follows from.
KIND = st.sampled_from(["passed_on", "looking_back", "joined"])
UNITED = "SELECT k, w FROM a TIMESTAMP BY t OVER k UNION SELECT k, w FROM b TIMESTAMP BY t OVER k"
ALL, EACH = Roster(1, 2, Spread.ONE, False), Roster(1, 1, Spread.ONE, True)

Rises = list[tuple[int, int]]


def rises_of(logs: Sequence[Sequence[Line]]) -> list[Rises]:
    """Return the rises of each channel as (c, arrival frontier), by one reader of each whole log."""
    by_channel: dict[tuple[int, int], Rises] = {}
    for log, lines in enumerate(logs):
        accepted = PartitionReader(log, len(logs)).accept(decoded_range(lines).log)
        for (_, number, c), arrival_us in zip(accepted.progress, accepted.arrivals_us, strict=True):
            by_channel.setdefault((log, number), []).append((c, arrival_us))
    return list(by_channel.values())


def arrival_of(c: int, channels: Sequence[Rises]) -> int:
    """Return the least arrival frontier with which a channel came to an instant, by looking at every CTI."""
    known = [next(arrival_us for reached, arrival_us in rises if reached >= c) for rises in channels]
    return min((arrival_us for arrival_us in known if NEVER < arrival_us < INFINITY), default=NEVER)


@SOME
@given(KIND, st.booleans(), st.data())
def test_what_a_cti_says_of_arrivals_follows_from_the_logs(kind: str, over: bool, data: st.DataObject) -> None:
    """Level 2: wherever batches are cut and states are restored, a CTI that follows from one instant has one arrival frontier."""
    topic = data.draw(raws(over)).topic(data.draw(SEEDS), data.draw(st.integers(1, 3)), over=over)
    query = Query(kind, over)
    for work in query.works(topic):
        channels = rises_of([topic.partitions[at] for at in work])
        lines = {at: topic.partitions[at] for at in work}
        for _ in range(2):
            cuts = random.Random(data.draw(SEEDS))
            (written,) = run_bucket(lambda work=work: query.bucket(topic, work), lines, cuts=cuts, end=False).channels
            assert all(cti.arrival_us == arrival_of(cti.c, channels) for _, cti in written.ctis)


@SOME
@given(st.booleans(), st.sampled_from([Pace(4, None, 2), Pace(None, 9, 0)]), st.data())
def test_a_pace_gives_one_arrival_frontier_too(over: bool, pace: Pace, data: st.DataObject) -> None:
    """Level 2: two runs that are cut differently say the same of one instant."""
    topic = data.draw(raws(over)).topic(data.draw(SEEDS), data.draw(st.integers(1, 3)), over=over)
    query = Query("passed_on", over)
    for work in query.works(topic):
        lines = {at: topic.partitions[at] for at in work}
        said: dict[int, int] = {}
        for _ in range(2):
            cuts = random.Random(data.draw(SEEDS))
            (written,) = run_bucket(lambda work=work: query.bucket(topic, work, pace=pace), lines, cuts=cuts, end=False).channels
            assert all(said.setdefault(cti.c, cti.arrival_us) == cti.arrival_us for _, cti in written.ctis)


@SOME
@given(st.data())
def test_several_inputs_give_one_arrival_frontier_too(data: st.DataObject) -> None:
    """Level 2: the order between logs is chance, and how far each has been read; neither shows."""
    topics = [data.draw(raws(True, 2)).topic(data.draw(SEEDS), 1, over=True) for _ in "ab"]
    plans = bind_outputs(parse_script(UNITED), [InputSchema(name, "t", "k") for name in "ab"], into="out")

    def make() -> Bucket:
        sources = [SourceTopic(name, 1, {at: 0}) for at, name in enumerate("ab")]
        return KeyedBucket(Program(plans), BucketConfig(sources, 0, EACH), [None, None])

    lines = {at: topic.partitions[0] for at, topic in enumerate(topics)}
    channels = [rises for log in lines.values() for rises in rises_of([log])]
    (written,) = run_bucket(make, lines, cuts=random.Random(data.draw(SEEDS)), end=False).channels
    assert all(cti.arrival_us == arrival_of(cti.c, channels) for _, cti in written.ctis)


def cti(number: int, c: int, arrival_us: int, n: int = 0) -> Cti:
    """Return the CTI of one of two channels without OVER."""
    return Cti(number, number, c, n, 0, 0, arrival_us, max(c, 1_000), ALL, Cause.EVENT)


def merged(*partitions: list[Line]) -> tuple[Bucket, Topic]:
    """Return a bucket of events as they are, and its topic."""
    topic = Topic(list(partitions), [], 2, False, False)
    return Query("passed_on", over=False).bucket(topic, [0, 1]), topic


def test_a_channel_that_is_ahead_counts_with_the_cti_that_was_enough() -> None:
    """One partition is read a minute ahead of the other; that changes nothing for the instants that both have reached."""
    bucket, _ = merged([], [])
    bucket.accept_records(0, decoded_range([(0, cti(0, 100, 1_000_100)), (1, cti(0, 160, 1_000_160)), (2, cti(0, 900, 61_000_000))]))
    bucket.accept_records(1, decoded_range([(0, cti(1, 150, 1_000_300))]))
    bucket.settle()
    (written,) = bucket.next_ctis()
    assert written is not None
    assert (written.c, written.arrival_us) == (150, 1_000_160)
    changes, (bucket, _) = bucket.save(), merged([], [])
    bucket.restore(changes.head, changes.put)
    bucket.accept_records(1, decoded_range([(1, cti(1, 500, 1_000_500))]))
    bucket.settle()
    (written,) = bucket.next_ctis()
    assert written is not None
    assert (written.c, written.arrival_us) == (500, 1_000_500)


def test_results_are_counted_by_the_record_that_made_them_final() -> None:
    """Three events become final in one batch, by two CTIs; the one at the first CTI's instant waits for the second."""
    events = [Event(0, seq, us, seq, b"a", text_of({"k": "a", "w": 1})) for seq, us in enumerate((20, 100, 110))]
    lines: list[Line] = list(enumerate([*events, cti(0, 100, 1_000, 3), cti(0, 200, 5_000, 3)]))
    bucket, _ = merged(lines, [])
    bucket.accept_records(0, decoded_range(lines))
    bucket.accept_records(1, decoded_range([(0, cti(1, 300, 7_000))]))
    (results,) = bucket.settle()
    assert bucket.count_by_arrival(0, results) == [(1_000, 1), (5_000, 2)]


@pytest.mark.parametrize("unknown_us", [NEVER, INFINITY])
def test_an_unknown_arrival_is_never_invented(unknown_us: int) -> None:
    """A partition that never had a record follows imported CTIs; the other one is known. If none is, the CTI says so."""
    for known_us, expected in ((4_000, 4_000), (unknown_us, NEVER)):
        bucket, _ = merged([], [])
        bucket.accept_records(0, decoded_range([(0, cti(0, 100, known_us))]))
        bucket.accept_records(1, decoded_range([(0, cti(1, 100, unknown_us))]))
        bucket.settle()
        (written,) = bucket.next_ctis()
        assert written is not None
        assert written.arrival_us == expected


def test_the_state_stays_small_while_a_channel_holds_time() -> None:
    """A thousand CTIs that wait for a silent partition are written once each; the head does not grow with them."""
    bucket, _ = merged([], [])
    bucket.accept_records(1, decoded_range([(0, cti(1, 100, 9_000))]))
    heads, put = [], []
    for batch in range(10):
        first = batch * 100
        bucket.accept_records(0, decoded_range([(at, cti(0, 200 + at, 2_000 + at)) for at in range(first, first + 100)]))
        bucket.settle()
        bucket.next_ctis()
        changes = bucket.save()
        heads.append(len(changes.head))
        put.append(sum(map(len, changes.put.values())))
    assert heads[-1] - heads[1] < 100
    assert put[6] < 2 * put[1]
    least, index = bucket._pacing[0].arrivals.of_instants(np.array([700]), bucket._retention)
    assert int(least[index[0]]) == 2_500
