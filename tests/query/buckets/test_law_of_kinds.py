"""
The law, for queries of every kind: their results are the same bytes however time is cut, whoever wrote the topic, wherever a run
begins and ends, and into however many buckets the work is spread.

The scripts are those of ``kind_scripts``. No oracle is asked what is right - each operator has its own for that - only
whether a bucket says the same again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.bucket_oracle import Event, parsed, text_of
from support.bucket_runs import Query, Raw, Row, bucket_of, dense, promise_of, raws, run_bucket, works_of
from support.bucket_topics import Line, Topic, decoded_range, middle_of, starts
from support.composed_scripts import compose_scripts
from support.query_kinds import INPUT, KINDS, REFERENCE, plans_of, read_kinds, schema_of

from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY
from query.config import Promise, Substream
from query.engine.program import Program
from query.plan.parallelism import decide_parallelism
from query.sql.bind import bind_outputs
from query.start.resumed_results import count_ahead_by_substream
from tidegate.language.expressions.binding.names import InputNames
from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.expressions.syntax.parse import parse_script

FEW = settings(max_examples=max(settings().max_examples // 75, 1))
"""So often each kind is tried; an example takes buckets through whole topics."""
SOME = settings(max_examples=max(settings().max_examples // 6, 1))
"""So often kinds are drawn."""
SEEDS = st.integers(0, 2**32)
PACES = st.sampled_from([Pace(), Pace(), Pace(4, None, 2), Pace(None, 9, 0)])
KIND = st.sampled_from(sorted(KINDS))
Drawn = st.DataObject


def drawn_topic(data: Drawn, *, over: bool, vouched: bool = False) -> tuple[Raw, Topic]:
    """Draw an ordered topic, and what it was written from."""
    raw = data.draw(raws(over))
    return raw, raw.topic(data.draw(SEEDS), data.draw(st.integers(1, 3)), over=over, vouched=vouched)


def logs_of(topic: Topic, work: Iterable[int]) -> dict[int, list[Line]]:
    """Return the logs of some partitions."""
    return {at: topic.partitions[at] for at in work}


def by_key(rows: Sequence[Row]) -> dict[bytes, list[Row]]:
    """Return the results of each key in their order."""
    found: dict[bytes, list[Row]] = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    return found


def is_part(rows: Sequence[Row], whole: Sequence[Row]) -> bool:
    """Tell whether rows stand in *whole* in their order."""
    rest = iter(whole)
    return all(row in rest for row in rows)


BOTH = pytest.mark.parametrize(("kind", "over"), [(kind, over) for kind in KINDS for over in (False, True)])


@BOTH
def test_every_kind_says_something(kind: str, over: bool) -> None:
    """The laws are not kept by silence: of a topic of some size there are results in each output."""
    query, topic = Query(kind, over), dense(7).topic(7, 2, over=True)
    said = [run_bucket(lambda work=work: query.bucket(topic, work), logs_of(topic, work)) for work in query.works(topic)]
    assert all(sum(len(each.rows[output]) for each in said) > 9 for output in range(len(said[0].rows)))


@BOTH
@FEW
@given(data=st.data())
def test_cuts_cannot_be_seen(kind: str, over: bool, data: Drawn) -> None:
    """Level 2: any batches, with the state saved and restored between them, give the sequence of one batch, and keep their CTIs."""
    query = Query(kind, over, data.draw(st.booleans()))
    _, topic = drawn_topic(data, over=over or data.draw(st.booleans()))
    end, pace = data.draw(st.booleans()), data.draw(PACES)
    for work in query.works(topic):
        lines = logs_of(topic, work)
        whole = run_bucket(lambda work=work: query.bucket(topic, work, pace=pace), lines, end=end)
        cut = run_bucket(lambda work=work: query.bucket(topic, work, pace=pace), lines, cuts=random.Random(data.draw(SEEDS)), end=end)
        event(f"results {any(whole.rows)}")
        assert cut.rows == whole.rows
        assert Counter(cut.bad) == Counter(whole.bad)
        whole.check()
        cut.check()


@SOME
@given(KIND, st.data())
def test_the_events_alone_decide(kind: str, data: Drawn) -> None:
    """Level 3: without OVER, whoever wrote the topic, however often it crashed, into however many partitions: the same sequence."""
    over, query = data.draw(st.booleans()), Query(kind, False, data.draw(st.booleans()))
    raw, topic = drawn_topic(data, over=over)
    other = raw.topic(data.draw(SEEDS), data.draw(st.integers(1, 4)), over=over)
    said = [
        run_bucket(lambda each=each: query.bucket(each, query.works(each)[0]), dict(enumerate(each.partitions))) for each in (topic, other)
    ]
    assert said[0].rows == said[1].rows
    assert Counter(said[0].bad) == Counter(said[1].bad)


@SOME
@given(KIND, st.data())
def test_the_events_of_a_substream_alone_decide(kind: str, data: Drawn) -> None:
    """Level 3: with OVER, whoever wrote the topic: the same rows, and those of a substream in the same order."""
    query = Query(kind, True, data.draw(st.booleans()))
    raw, topic = drawn_topic(data, over=True)
    other = raw.topic(data.draw(SEEDS), data.draw(st.integers(1, 3)), over=True)
    runs: list[list[list[Row]]] = []
    for each in (topic, other):
        works = [run_bucket(lambda each=each, work=work: query.bucket(each, work), logs_of(each, work)) for work in query.works(each)]
        runs.append([[row for work in works for row in work.rows[output]] for output in range(len(works[0].rows))])
    for rows, again in zip(*runs, strict=True):
        assert Counter(rows) == Counter(again)
        if topic.inputs == 1:
            assert by_key(rows) == by_key(again)


@SOME
@given(KIND, st.booleans(), st.data(), st.sampled_from([0, 3, 1000]))
def test_a_start_in_the_middle_gives_the_rest(kind: str, over: bool, data: Drawn, back: int) -> None:
    """Level 3: begun at S with its look-back a run gives the results from S on of one from the beginning."""
    query = Query(kind, over, data.draw(st.booleans()))
    _, topic = drawn_topic(data, over=over, vouched=True)
    start_us = data.draw(starts(topic))
    for work in query.works(topic):
        lines = logs_of(topic, work)
        whole = run_bucket(lambda work=work: query.bucket(topic, work), lines)
        read_from_us = start_us - query.lookback_us
        lines = {at: middle_of(topic.partitions[at], read_from_us, back, over=over) for at in work}
        since = start_us, read_from_us
        rest = run_bucket(lambda work=work, since=since: query.bucket(topic, work, since), lines)
        for rows, every in zip(rest.rows, whole.rows, strict=True):
            expected = [row for row in every if row[0] >= start_us]
            assert rows == expected if not over else Counter(rows) == Counter(expected)
            if topic.inputs == 1:
                assert by_key(rows) == by_key(expected)


@SOME
@given(KIND, st.booleans(), st.data())
def test_a_run_stops_where_it_is_told(kind: str, over: bool, data: Drawn) -> None:
    """Level 2: with an end E the results are those below it, in their order, whatever comes after; and the last CTI says so."""
    query = Query(kind, over, data.draw(st.booleans()))
    _, topic = drawn_topic(data, over=over)
    until_us = data.draw(starts(topic))
    for work in query.works(topic):
        lines = logs_of(topic, work)
        whole = run_bucket(lambda work=work: query.bucket(topic, work), lines)
        cut = run_bucket(lambda work=work: query.bucket(topic, work, until_us=until_us), lines, cuts=random.Random(data.draw(SEEDS)))
        assert cut.rows == [[row for row in rows if row[0] < until_us] for rows in whole.rows]
        cut.check()
        assert all(channel.ctis[-1][1].c == until_us for channel in cut.channels)


@SOME
@given(KIND, st.booleans(), st.data(), st.sampled_from([0, 3, 1000]))
def test_a_run_goes_on_after_its_last_promise(kind: str, over: bool, data: Drawn, back: int) -> None:
    """Level 2: what lost its state goes on from the last CTI of each channel, and writes what is missing, with its numbers."""
    _, topic = drawn_topic(data, over=over, vouched=True)
    check_going_on(Query(kind, over, data.draw(st.booleans())), topic, data, back)


def check_going_on(query: Query, topic: Topic, data: Drawn, back: int) -> None:
    """Run a query, take its state away after a drawn batch, and look at what it then writes."""
    for work in query.works(topic):
        lines = logs_of(topic, work)
        whole = run_bucket(lambda work=work: query.bucket(topic, work), lines, cuts=random.Random(data.draw(SEEDS)))
        batch = data.draw(st.integers(0, max(len(channel.ctis) for channel in whole.channels) - 1))
        lasts = [channel.ctis[min(batch, len(channel.ctis) - 1)][1] for channel in whole.channels]
        start_us = min(cti.c for cti in lasts)
        if start_us == INFINITY:
            continue
        event(f"ahead {any(cti.ahead for cti in lasts)}")
        since, promises = (start_us, start_us - query.lookback_us), [promise_of(cti) for cti in lasts]
        rest = {at: middle_of(topic.partitions[at], start_us - query.lookback_us, back, over=query.over) for at in work}
        event(f"skipped {rest != lines}")
        make = lambda work=work, since=since, promises=promises: query.bucket(topic, work, since, promises=promises)  # noqa: E731
        said = run_bucket(make, rest, cuts=random.Random(data.draw(SEEDS)))
        for channel, every, cti in zip(said.channels, whole.channels, lasts, strict=True):
            assert channel.rows == every.rows[cti.n :]
            channel.check(every.rows[: cti.n])


def test_a_run_goes_on_upon_the_records_of_the_lost_one() -> None:
    """
    Level 2: the CTI that let events count with their own records comes before all that the time index leads to.

    A reader that did not meet it would accept everything with the next CTI, in another order than what is written already.
    """
    start_us = 10**9
    after_us = [-9_000, 1_000_000, 990_000, 1_001_000, 991_000, 1_002_000, 992_000]
    events = [
        Event(0, seq, start_us + us, seq, key, text_of({"k": key.decode(), "v": seq, "w": 1}))
        for seq, (us, key) in enumerate(zip(after_us, [b"a", *[b"a", b"b"] * 3], strict=True))
    ]
    roster = Roster(1, 1, Spread.ONE, True)
    first, second = (
        Cti(0, 0, start_us + us, n, 0, 0, start_us + us, start_us + largest, roster, Cause.EVENT)
        for us, n, largest in ((0, 1, -9_000), (20_000, 5, 1_001_000))
    )
    lines: list[Line] = list(enumerate([events[0], first, *events[1:5], second, *events[5:]]))
    topic, query = Topic([lines], [], 1, True, False), Query("star", True)
    lost = query.bucket(topic, [0])
    (before,) = lost.accept_records(0, decoded_range(lines[:5]))
    (cti,) = lost.next_ctis()
    assert cti is not None
    (after,) = lost.accept_records(0, decoded_range(lines[5:]))
    assert (cti.c, len(before), len(after)) == (start_us, 2, 3)
    rest = middle_of(lines, cti.c, 0, over=True)
    assert middle_of(lines, cti.c, 0) == lines[2:] == rest[1:]
    again = query.bucket(topic, [0], (cti.c, cti.c), promises=[promise_of(cti)])
    (found,) = again.accept_records(0, decoded_range(rest))
    assert list(zip(found.seq, found.system_us, found.key.to_pylist(), strict=True)) == [
        (len(before) + at, us, key) for at, (us, key) in enumerate(zip(after.system_us, after.key.to_pylist(), strict=True))
    ]


def test_a_key_of_two_input_partitions_goes_on_in_each_of_them() -> None:
    """
    Level 3: a pace that counts events lets other CTIs pass if it counts from another record on, so the two come in another order.

    The lost run has written the key's result of partition 1, and its successor finds that of partition 0 first.
    """
    roster = Roster(1, 2, Spread.ONE, True)
    told = "0j10 1j10 0:11 1:11 0j12 0:13 1j12 1:13 0k20 0:21 1m14 1k20 1:21 0m22 0:23 1m22 1m22 1:23"
    counts, lines = [0, 0], list[Line]()
    for offset, (number, what, us) in enumerate((int(word[0]), word[1], int(word[2:])) for word in told.split()):
        value = text_of({"k": what, "w": 1, "p": number})
        event = Event(number, counts[number], us, counts[number], what.encode(), value)
        cti = Cti(number, 0, us, counts[number], 0, 0, us, us - 1, roster, Cause.EVENT)
        lines.append((offset, cti if what == ":" else event))
        counts[number] += what != ":"
    topic, query, pace = Topic([lines], [], 2, True, False), Query("star", True), Pace(2)
    whole = run_bucket(lambda: query.bucket(topic, [0], pace=pace), {0: lines}, cuts=[8]).channels[0]
    (count, cti), (start_us, written) = whole.ctis[0], (13, 6)
    assert (cti.c, count) == (start_us, 4)
    substreams = [Substream(parsed(value)["p"], key) for _, key, value in whole.rows[:written]]
    promise = count_ahead_by_substream(promise_of(cti), {seq: (whole.rows[seq][0], name) for seq, name in enumerate(substreams)})
    assert promise is not None
    again = run_bucket(lambda: query.bucket(topic, [0], (start_us, 11), promises=[promise], pace=pace), {0: lines[2:]})
    assert Counter([*whole.rows[:written], *again.rows[0]]) == Counter(whole.rows)
    assert again.rows[0] != whole.rows[written:]


def test_a_run_that_goes_on_counts_what_it_still_finds_written() -> None:
    """
    Level 2: of two results that stood above the last CTI the second one is found again only in a later batch.

    A CTI between them counts both: whoever lost his state twice would write the second one twice.
    """
    rows = enumerate([(10, b"a"), (20, b"b"), (11, b"a"), (21, b"b")])
    events = [Event(0, seq, us, seq, key, b'{"v":1}') for seq, (us, key) in rows]
    ctis = [Cti(0, 0, c, n, 0, 0, c, 20, Roster(1, 1, Spread.ONE, True), Cause.EVENT) for n, c in ((0, 5), (3, 6))]
    lines: list[Line] = list(enumerate([ctis[0], *events[:3], ctis[1], events[3]]))
    plans = bind_outputs(parse_script(f"SELECT v FROM {INPUT} TIMESTAMP BY t OVER k"), [schema_of(typed=False)], into="out")
    topic = Topic([lines], [], 1, True, False)
    bucket = bucket_of(Program(plans), topic, [0], (5, 5), over=True, promises=[Promise(5, 2, 2, 20)])
    bucket.accept_records(0, decoded_range(lines[:5]))
    (cti,) = bucket.next_ctis()
    assert cti is not None
    assert (cti.c, cti.n, cti.ahead) == (6, 2, 2)
    bucket.accept_records(0, decoded_range(lines[5:]))
    assert [len(each) for each in bucket.settle()] == [0]


def test_what_is_ahead_of_a_cti_is_written_once() -> None:
    """Level 2: while one input partition is silent all results of the other lie ahead; the head of the state tells none of them again."""
    roster = Roster(1, 2, Spread.ONE, True)
    events = [Event(0, seq, seq + 10, seq, b"k", b'{"v":1}') for seq in range(1_000)]
    cti = Cti(0, 0, 5, 0, 0, 0, 5, 0, roster, Cause.EVENT)
    lines: list[Line] = list(enumerate([cti, *events]))
    plans = bind_outputs(parse_script(f"SELECT v FROM {INPUT} TIMESTAMP BY t OVER k"), [schema_of(typed=False)], into="out")
    bucket = bucket_of(Program(plans), Topic([lines], [], 2, True, False), [0], over=True)
    heads, put = [], []
    for first in range(0, len(lines), 100):
        read = lines[first : first + 100]
        bucket.accept_records(0, decoded_range(read))
        changes = bucket.save()
        head = changes.head
        heads.append(len(head))
        put.append(sum(map(len, changes.put.values())))
    bucket.accept_records(0, decoded_range([(1_001, replace(cti, c=500, n=1_000)), (1_002, replace(cti, number=1, c=600, n=0))]))
    (last,) = bucket.next_ctis()
    assert last is not None
    assert (last.c, last.n, last.ahead) == (500, 999, 509)
    assert heads[-1] - heads[1] < 100
    assert put[8] < 3 * put[1]


@SOME
@given(st.data(), st.booleans())
def test_what_else_a_job_computes_cannot_be_seen(data: Drawn, over: bool) -> None:
    """Level 2: many queries in one job, cut anywhere, each give what they give alone, though they share what they read."""
    kinds = data.draw(st.lists(KIND, min_size=2, max_size=6, unique=True))
    _, topic = drawn_topic(data, over=over or data.draw(st.booleans()))
    plans = bind_outputs(read_kinds(compose_scripts(kinds, over=over), "many.sql"), [schema_of(typed=False), REFERENCE.schema])
    for work in works_of(topic, over=over):
        lines = logs_of(topic, work)
        alone = [run_bucket(lambda kind=kind, work=work: Query(kind, over).bucket(topic, work), lines) for kind in kinds]
        make = lambda work=work: bucket_of(Program(plans, references={"r": REFERENCE}), topic, work, over=over)  # noqa: E731
        whole, cut = run_bucket(make, lines), run_bucket(make, lines, cuts=random.Random(data.draw(SEEDS)))
        assert cut.rows == whole.rows == [rows for said in alone for rows in said.rows]
        assert Counter(cut.bad) == Counter(whole.bad)
        # An event that fails in several of them is a dead letter once, with one of their reasons.
        reasons = {bad for said in alone for bad in said.bad}
        assert set(whole.bad) <= reasons
        assert {(source, value) for source, value, _ in whole.bad} == {(source, value) for source, value, _ in reasons}
        cut.check()


SPREAD = [
    kind
    for kind in KINDS
    if decide_parallelism(
        plans_of(kind, over=False, typed=True), {INPUT: InputNames(Source(""), schema_of(typed=True)).field(("k",))}, {INPUT: 3}
    ).is_by_partition
]


@SOME
@given(st.sampled_from(SPREAD), st.data())
def test_spreading_cannot_be_seen(kind: str, data: Drawn) -> None:
    """Level 3: where a query may be spread, the buckets of all partitions give what one gives, each in its order."""
    query = Query(kind, False, True)
    _, topic = drawn_topic(data, over=True)
    every = list(range(len(topic.partitions)))
    whole = run_bucket(lambda: query.bucket(topic, every), logs_of(topic, every))
    parts = [run_bucket(lambda at=at: query.bucket(topic, [at]), logs_of(topic, [at])) for at in every]
    event(f"buckets {len(every)}")
    for output, rows in enumerate(whole.rows):
        assert Counter(row for part in parts for row in part.rows[output]) == Counter(rows)
        assert all(is_part(part.rows[output], rows) for part in parts)


def test_most_kinds_are_spread() -> None:
    """Level 3: rows of different keys meet only where a script puts them together."""
    assert len(SPREAD) >= len(KINDS) // 2
    assert "joined_across_keys" not in SPREAD
