"""
OVER over several inputs and over results, against a plain walk: what became final, by which record, in which order.

The oracle hears the records of all logs one by one in the order of their clocks, keeps every timeline in a dictionary, and
answers its question by looking at every window and every event of a key. It shares no code with readers, buckets or the engine.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.bucket_oracle import INFINITY, NEVER, Channel, Event, Result, iso, parsed, text_of
from support.bucket_runs import BucketOutput, promise_of, raws, run_bucket
from support.bucket_runs import Channel as Written
from support.bucket_topics import Line, Topic, decoded_range, middle_of, to_oracle

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from query.buckets import substream_table
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.keyed import KeyedBucket
from query.config import Promise as Left
from query.config import Substream
from query.engine.program import Program
from query.plan.nodes import Plan
from query.sql.bind import bind_outputs
from query.start.resumed_results import count_ahead_by_substream
from tidegate.basics.budget import Budget
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.expressions.tree import Expr

SOME = settings(max_examples=max(settings().max_examples // 10, 1))
SEEDS = st.integers(0, 2**32)
A, B = (InputSchema(name, "t", "k", {"v": "float"}) for name in "ab")
SIZE_US = 6
UNITED = (
    "WITH u AS (SELECT k, w FROM a TIMESTAMP BY t OVER k UNION SELECT k, w FROM b TIMESTAMP BY t OVER k) "
    f"SELECT System.Timestamp() AS at, COUNT(*) AS n, COLLECT(w) AS w FROM u GROUP BY k, TumblingWindow(mcs, {SIZE_US})"
)


def bound(sql: str, *schemas: InputSchema) -> tuple[Plan, ...]:
    """Bind a script."""
    return bind_outputs(parse_script(sql), schemas, into=None if "INTO" in sql else "out")


def made(
    plans: tuple[Plan, ...],
    topics: Mapping[str, Topic],
    partition: int,
    overs: Sequence[Expr | None] = (),
    since: tuple[int | None, int | None] = (None, None),
    promises: Sequence[Left] = (),
) -> Bucket:
    """Return the bucket of one partition of some topics."""
    sources = [SourceTopic(name, len(topic.partitions), {at: partition}) for at, (name, topic) in enumerate(topics.items())]
    count = len(next(iter(topics.values())).partitions)
    program = Program(plans)
    roster = Roster(1, count, Spread.ONE, True)
    return KeyedBucket(program, BucketConfig(sources, partition, roster, *since, promises=promises), overs or [None] * len(sources))


def lines_of(topics: Mapping[str, Topic], partition: int) -> dict[int, list[Line]]:
    """Return the logs of one bucket."""
    return {at: topic.partitions[partition] for at, topic in enumerate(topics.values())}


@dataclass
class Walk:
    """What is known of one bucket while its records are heard in the order of the walk."""

    channels: dict[tuple[int, int], Channel] = field(default_factory=dict)
    rosters: dict[int, Roster] = field(default_factory=dict)
    own: dict[tuple[int, int, bytes], int] = field(default_factory=dict)
    events: dict[bytes, list[tuple[int, Event]]] = field(default_factory=dict)
    reached: dict[bytes, int] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    def hear(self, log: int, record: Event | Cti) -> None:
        """Take the next record of a log."""
        if isinstance(record, Cti) and record.part == record.parts - 1:
            self.rosters.setdefault(log, record.roster)
        channel = self.channels.setdefault((log, record.number), Channel())
        accepted, listed = channel.accept_record(to_oracle(record))
        if accepted and isinstance(record, Event):
            self.events.setdefault(record.key, []).append((log, record))
            self._own(log, record.number, record.key, record.system_us)
        for key, w in listed:
            self._own(log, record.number, key, w)
        final: list[Result] = []
        for key in self.events:
            before = self.reached.get(key, NEVER)
            self.reached[key] = max(before, self._until(key))
            final += united(key, self.events[key], before, self.reached[key])
        self.results += sorted(final, key=lambda result: result[:2])

    def _own(self, log: int, number: int, key: bytes, us: int) -> None:
        self.own[log, number, key] = max(self.own.get((log, number, key), NEVER), us)

    def _until(self, key: bytes) -> int:
        """The last of a key's timelines, in every channel of every log."""
        every = [
            max(self.channels[log, number].noticed_c if (log, number) in self.channels else NEVER, self.own.get((log, number, key), NEVER))
            for log in (0, 1)
            for number in (range(self.rosters[log].inputs) if log in self.rosters else [])
        ]
        return min(every) if len(self.rosters) == 2 else NEVER


def united(key: bytes, events: Sequence[tuple[int, Event]], since: int, until: int) -> list[Result]:
    """The results of ``UNITED`` for one key with since <= System.Timestamp < until."""
    groups: dict[tuple[int, str], list[tuple[int, int, int, int, object]]] = {}
    for log, each in events:
        payload = parsed(each.value)
        if isinstance(payload, dict):
            end = -(-each.system_us // SIZE_US) * SIZE_US
            k = payload.get("k")
            groups.setdefault((end, text_of(k).decode()), []).append((each.system_us, log, each.number, each.origin, payload.get("w")))
    rows = []
    for (end, kind), group in groups.items():
        if since <= end < until:
            w = [entry[-1] for entry in sorted(group, key=lambda entry: entry[:4])]
            rows.append((end, key, kind, text_of({"at": iso(end), "n": len(group), "w": w})))
    # 1 and "1" are one substream and two groups: numbers come first.
    return [(end, name, value) for end, name, _, value in sorted(rows, key=lambda row: (row[0], row[2].startswith('"')))]


def in_order(logs: Mapping[int, Sequence[Line]]) -> list[tuple[int, Event | Cti]]:
    """The records of all logs by their clocks, as far as each log has come past them."""
    stamped = []
    ends = []
    for log, lines in logs.items():
        clock, channels, inputs = NEVER, dict[int, Channel](), 0
        for offset, record in lines:
            channel = channels.setdefault(record.number, Channel())
            inputs = record.roster.inputs if isinstance(record, Cti) and record.part == record.parts - 1 else inputs
            before = channel.noticed_c
            accepted, _ = channel.accept_record(to_oracle(record))
            if accepted and isinstance(record, Event):
                clock = max(clock, record.system_us)
            if before < channel.noticed_c < INFINITY:
                clock = max(clock, channel.noticed_c)
            if inputs and all(number in channels and channels[number].noticed_c == INFINITY for number in range(inputs)):
                clock = INFINITY
            stamped.append((clock, log, offset, record))
        ends.append(clock)
    until = min(ends)
    every = sorted(stamped, key=lambda each: each[:3])
    return [(log, record) for clock, log, _, record in every if clock < until or until == INFINITY]


def both_of(data: st.DataObject, partitions: int) -> dict[str, Topic]:
    """Draw two topics that are spread alike."""
    return {name: data.draw(raws(True, 2)).topic(data.draw(SEEDS), partitions, over=True) for name in "ab"}


@SOME
@given(st.data(), st.integers(1, 2))
def test_results_come_upon_the_record_of_the_walk_that_made_them_final(data: st.DataObject, partitions: int) -> None:
    """Level 2: the sequence is that of the plain walk, wherever batches are cut and however far each log has been read in them."""
    topics, plans = both_of(data, partitions), bound(UNITED, A, B)
    for partition in range(partitions):
        lines = lines_of(topics, partition)
        plain = Walk()
        for log, record in in_order(lines):
            plain.hear(log, record)
        said = run_bucket(lambda at=partition: made(plans, topics, at), lines, cuts=random.Random(data.draw(SEEDS)), end=False)
        event(f"results {bool(plain.results)}")
        assert said.rows == [plain.results]
        said.check()


KINDS = [
    UNITED,
    "SELECT x.k, x.v, y.v AS u FROM a TIMESTAMP BY t OVER k x JOIN b TIMESTAMP BY t OVER k y "
    "ON DATEDIFF(mcs, x, y) BETWEEN -3 AND 4 AND x.k = y.k AND x.w = y.w",
    "SELECT x.k, x.v, y.v AS u FROM a TIMESTAMP BY t OVER k x LEFT JOIN b TIMESTAMP BY t OVER k y "
    "ON x.k = y.k AND DATEDIFF(mcs, x, y) BETWEEN 0 AND 4",
    "WITH s AS (SELECT k, COUNT(*) AS n FROM b TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(mcs, 4)) "
    "SELECT x.v, s.n, LAG(s.n) OVER (LIMIT DURATION(mcs, 9)) AS m FROM a TIMESTAMP BY t OVER k x "
    "JOIN s ON x.k = s.k AND DATEDIFF(mcs, x, s) BETWEEN 0 AND 4",
    "WITH u AS (SELECT k, v FROM a TIMESTAMP BY t OVER k UNION SELECT k, w AS v FROM b TIMESTAMP BY t OVER k) "
    "SELECT k, COUNT(*) AS n INTO one FROM shift(u, mcs, 4) GROUP BY k, TumblingWindow(mcs, 3); SELECT k, v INTO two FROM u",
    "SELECT k, SUM(v) AS s INTO one FROM a TIMESTAMP BY t OVER k GROUP BY k, SlidingWindow(mcs, 5); "
    "SELECT k, ISFIRST(mcs, 6) AS f INTO two FROM b TIMESTAMP BY t OVER k",
]


@SOME
@given(st.sampled_from(KINDS), st.data(), st.integers(1, 2), st.booleans(), st.sampled_from([1, substream_table.SUBS_MIN]), st.booleans())
def test_cuts_cannot_be_seen(sql: str, data: st.DataObject, partitions: int, end: bool, subs_min: int, in_steps: bool) -> None:
    """
    Level 2: any batches, with the state saved and restored between them, give the sequence of one batch, and keep their CTIs.

    Forgetting substreams (subs_min) cannot be seen either, nor the smallest steps in which what is final is closed.
    """
    topics, plans = both_of(data, partitions), bound(sql, A, B)
    for partition in range(partitions):
        lines = lines_of(topics, partition)
        whole = run_bucket(lambda at=partition: made(plans, topics, at), lines, end=end)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(substream_table, "SUBS_MIN", subs_min)
            if in_steps:
                for share in ("rows", "pairs", "repeated_bytes", "released_bytes"):
                    patch.setattr(Budget, share, 1)
            cut = run_bucket(lambda at=partition: made(plans, topics, at), lines, cuts=random.Random(data.draw(SEEDS)), end=end)
        assert cut.rows == whole.rows
        assert Counter(cut.bad) == Counter(whole.bad)
        whole.check()
        cut.check()


def by_key(every: Sequence[BucketOutput], output: int) -> dict[bytes, list[Result]]:
    """The results of each key in their order."""
    found: dict[bytes, list[Result]] = {}
    for said in every:
        for row in said.rows[output]:
            found.setdefault(row[1], []).append(row)
    return found


@SOME
@given(st.sampled_from(KINDS), st.data())
def test_the_events_of_a_substream_alone_decide(sql: str, data: st.DataObject) -> None:
    """Level 3: whoever wrote the topics, into however many partitions: the same rows of each substream, in the same order."""
    drawn, plans = [data.draw(raws(True, 2)) for _ in "ab"], bound(sql, A, B)
    runs = []
    for _ in range(2):
        partitions = data.draw(st.integers(1, 3))
        topics = {name: raw.topic(data.draw(SEEDS), partitions, over=True) for name, raw in zip("ab", drawn, strict=True)}
        runs.append([run_bucket(lambda at=at, topics=topics: made(plans, topics, at), lines_of(topics, at)) for at in range(partitions)])
    for output in range(len(plans)):
        assert by_key(runs[0], output) == by_key(runs[1], output)


RESULTS = InputSchema("b", is_result=True)
OF_RESULTS = "SELECT k, COUNT(*) AS n FROM b TIMESTAMP BY System.Timestamp() OVER k GROUP BY k, TumblingWindow(mcs, 5)"


def results_of(number: int, rows: Sequence[tuple[int, bytes, bytes]], *, substreams: bool, c: int, first: int = 0) -> list[Line]:
    """Results (System.Timestamp, key, value) as a query writes them into a partition of their topic, and the CTI after them."""
    lines: list[Line] = [(at, Event(number, first + at, us, first + at, key, value)) for at, (us, key, value) in enumerate(rows)]
    roster = Roster(1, 1, Spread.ONE, substreams)
    cti = Cti(
        number, number, c, first + len(rows), sum(us >= c for us, _, _ in rows), 0, c, max(us for us, _, _ in rows), roster, Cause.EVENT
    )
    first_cti = replace(cti, c=1, n=first, ahead=0)
    return [(0, first_cti), *((1 + at, record) for at, record in lines), (len(lines) + 1, cti)]


def heard_of(lines: list[Line], sql: str = OF_RESULTS) -> tuple[Bucket, list[Result]]:
    """Take a bucket over results through their log; return it, and what it gave."""
    plans = bound(sql, A, RESULTS)
    bucket = made(plans, {"b": Topic([lines], [], 1, True, False)}, 0, [scan.over for scan in plans[0].scans])
    bucket.accept_records(0, decoded_range(lines))
    (released,) = bucket.settle()
    return bucket, list(zip(released.system_us.tolist(), released.key.tolist(), released.value.tolist(), strict=True))


def test_results_in_the_order_of_time_move_their_key() -> None:
    """Of a query without OVER: what lies before a result is there, so windows of its key are final."""
    rows = [(3, b"p", b'{"k":"p"}'), (6, b"q", b'{"k":"q"}'), (11, b"p", b'{"k":"p"}')]
    _, given = heard_of(results_of(0, rows, substreams=False, c=5))
    assert given == [(5, b"p", b'{"k":"p","n":1}')]


def test_results_of_a_query_with_over_move_nothing_alone() -> None:
    """A key in two input partitions is two substreams there, and their results stand in any order: only CTIs say what is final."""
    rows = [(11, b"p", b'{"k":"p"}'), (3, b"p", b'{"k":"p"}')]
    assert heard_of(results_of(0, rows, substreams=True, c=5))[1] == []
    assert heard_of(results_of(0, rows, substreams=True, c=6))[1] == [(5, b"p", b'{"k":"p","n":1}')]


def cut_before(sql: str, logs: Mapping[int, list[Line]], offset: int, *, are_results: bool = True) -> list[Result]:
    """Take a bucket through its logs, saved and restored before an offset; return what it gave."""
    plans = bound(sql, *([RESULTS] if are_results else [A, B]))
    topics = {name: Topic([lines], [], 1, True, False) for name, lines in zip("b" if are_results else "ab", logs.values(), strict=True)}
    overs = [scan.over for scan in plans[0].scans] if are_results else []
    (rows,) = run_bucket(lambda: made(plans, topics, 0, overs), logs, cuts=[offset], end=False).rows
    return rows


@pytest.mark.parametrize("substreams", [True, False])
def test_a_restored_bucket_knows_whether_results_move_their_key(substreams: bool) -> None:
    """Those of a query without OVER do; of one with OVER, a row that lies before may still come."""
    rows = [(3, b"p", b'{"k":"p"}'), (11, b"p", b'{"k":"p"}')]
    assert len(cut_before(OF_RESULTS, {0: results_of(0, rows, substreams=substreams, c=3)}, 1)) == (0 if substreams else 1)


def test_a_key_that_stands_at_the_end_of_its_window_has_not_passed_it() -> None:
    """Level 2: the record that takes it past the end makes its result final, after that of another key, wherever the log is cut."""
    rows = [(5, b"p", b'{"k":"p"}'), (5, b"q", b'{"k":"q"}'), (6, b"q", b'{"k":"q"}'), (7, b"p", b'{"k":"p"}')]
    lines = results_of(0, rows, substreams=False, c=5)
    assert [[key for _, key, _ in cut_before(OF_RESULTS, {0: lines}, cut)] for cut in range(1, 6)] == [[b"q", b"p"]] * 5


def test_how_far_a_key_has_come_in_each_input_is_saved() -> None:
    """Level 2: what its events in one input have passed, another one need not wait for that input's CTI to make final."""
    first = Cti(0, 0, 1, 0, 0, 0, 1, 1, Roster(1, 1, Spread.ONE, True), Cause.EVENT)
    a, b = (
        [Event(0, seq, us, seq, key, b'{"k":"%s","w":1}' % key) for seq, (key, us) in enumerate(rows)]
        for rows in ([(b"p", 3), (b"p", 11), (b"q", 20)], [(b"r", 12), (b"r", 15)])
    )
    logs: dict[int, list[Line]] = {
        0: [(0, first), (1, a[0]), (2, a[1]), (3, a[2])],
        1: [(0, first), (4, b[0]), (5, replace(first, c=12, n=1)), (6, b[1])],
    }
    for cut in range(1, 7):
        assert [row[0] for row in cut_before(UNITED, logs, cut, are_results=False)] == [SIZE_US], cut


@pytest.mark.parametrize("substreams", [True, False])
def test_results_before_the_first_cti_move_what_later_ones_move(substreams: bool) -> None:
    """That CTI says whether the query has OVER. If it has, rows of another input partition may follow for a window that looks closed."""
    lines = results_of(0, [(3, b"p", b'{"k":"p"}'), (11, b"p", b'{"k":"p"}')], substreams=substreams, c=5)
    assert len(heard_of(lines[1:])[1]) == (0 if substreams else 1)


BOTH_RESULTS = [InputSchema(name, is_result=True) for name in "ab"]
UNITED_RESULTS = (
    "WITH u AS (SELECT k FROM a TIMESTAMP BY System.Timestamp() OVER k "
    "UNION SELECT k FROM b TIMESTAMP BY System.Timestamp() OVER k) "
    "SELECT k, COUNT(*) AS n FROM u GROUP BY k, TumblingWindow(mcs, 6)"
)


def keys_in_order(logs: Sequence[list[Line]], pieces: Sequence[tuple[int, list[Line]]]) -> list[bytes]:
    """Take a bucket of ``UNITED_RESULTS`` through pieces of its two logs; return the keys of what it gave."""
    plans, topics = (
        bound(UNITED_RESULTS, *BOTH_RESULTS),
        {name: Topic([log], [], 1, True, False) for name, log in zip("ab", logs, strict=True)},
    )
    bucket, found = made(plans, topics, 0, [scan.over for scan in plans[0].scans]), list[bytes]()
    for log, lines in pieces:
        bucket.accept_records(log, decoded_range(lines))
        found += [key for released in bucket.settle() for key in released.key.tolist()]
    return found


def test_a_record_waits_for_all_of_its_clock() -> None:
    """Level 2: another log may still bring one of the same clock which comes before it."""
    p, q = (b"p", b'{"k":"p"}'), (b"q", b'{"k":"q"}')
    a = results_of(0, [(3, *p), (7, *p), (7, *q)], substreams=False, c=9)
    b = results_of(0, [(3, *q), (7, *q), (7, *p)], substreams=False, c=9)
    assert keys_in_order([a, b], [(0, a), (1, b)]) == [b"q", b"p"]
    assert keys_in_order([a, b], [(0, a[:3]), (1, b[:4]), (0, a[3:]), (1, b[4:])]) == [b"q", b"p"]


def test_a_result_under_another_key_is_a_dead_letter() -> None:
    """OVER must name the key under which results stand: values of records, numbers and NULL, too."""
    rows = [
        (3, b"p", b'{"k":"q"}'),
        (3, b"7", b'{"k":7}'),
        (3, b"", b'{"k":null}'),
        (3, b'{"a":1,"b":2}', b'{"k":{"b":2,"a":1}}'),
        (4, b"p", b"{"),
    ]
    bucket, given = heard_of(results_of(0, rows, substreams=False, c=6))
    assert [key for _, key, _ in given] == [b"", b"7", b'{"a":1,"b":2}']
    assert [(row.value, row.reason) for row in bucket.pop_bad_rows()] == [
        (b'{"k":"q"}', "the result's key is not k, which OVER names"),
        (b"{", "the result's key is not k, which OVER names"),
    ]
    assert bucket.totals["bad_rows"] == 2


def test_substreams_are_forgotten() -> None:
    """A key without rows whose timelines are no further than their channels is not kept, and comes again like a new one; others stay."""
    rows = [(at + 1, b"k%d" % at, b'{"k":"k%d"}' % at) for at in range(3_000)] + [(4_000, b"open", b'{"k":"open"}')]
    plans = bound(OF_RESULTS, RESULTS)
    lines = results_of(0, rows, substreams=False, c=4_000)
    bucket = made(plans, {"b": Topic([lines], [], 1, True, False)}, 0, [None])
    assert isinstance(bucket, KeyedBucket)
    bucket.accept_records(0, decoded_range(lines))
    (released,) = bucket.settle()
    assert len(released) == 3_000
    bucket._program.forget(bucket._retention, pa.table({"sub": range(3_001), "to_us": [4_000] * 3_001}))
    bucket.save()
    assert bucket._subs.names == [b"open"]
    again: list[Line] = [
        (9_999, Event(0, 3_001, 4_003, 3_001, b"k7", b'{"k":"k7"}')),
        (10_000, Event(0, 3_002, 4_006, 3_002, b"open", b'{"k":"open"}')),
        (10_001, Event(0, 3_003, 4_006, 3_003, b"k7", b'{"k":"k7"}')),
    ]
    bucket.accept_records(0, decoded_range(again))
    (released,) = bucket.settle()
    assert list(zip(released.system_us.tolist(), released.key.tolist(), strict=True)) == [(4_000, b"open"), (4_005, b"k7")]


def test_a_channel_that_joins_takes_no_progress_back() -> None:
    """Level 2: what the channels of before had made final is not given again by a bucket that is restored after another one joined."""
    sql = "SELECT k, COUNT(*) AS n FROM b TIMESTAMP BY System.Timestamp() OVER k GROUP BY k, HoppingWindow(mcs, 20, 5)"
    event = Event(0, 0, 60, 0, b"p", b'{"k":"p"}')
    one, two = (Roster(version, version, Spread.ONE, False) for version in (1, 2))

    def cti(number: int, c: int, n: int, roster: Roster) -> Cti:
        return Cti(number, number, c, n, 0, 0, c, 60, roster, Cause.EVENT)

    batches: list[list[Line]] = [
        [(0, cti(0, 1, 0, one)), (1, event)],
        [(2, cti(0, 70, 1, one))],
        [(3, cti(0, 70, 1, two)), (4, cti(1, 62, 0, two))],
        [(5, cti(0, 100, 1, two)), (6, cti(1, 100, 0, two))],
    ]
    plans, topics = bound(sql, A, RESULTS), {"b": Topic([[*chain(*batches)]], [], 1, True, False)}
    given, head, chunks = list[tuple[int, bytes]](), b"", dict[int, bytes]()
    for lines in batches:
        bucket = made(plans, topics, 0, [None])
        if head:
            bucket.restore(head, chunks)
        bucket.accept_records(0, decoded_range(lines))
        (released,) = bucket.settle()
        given += zip(released.system_us.tolist(), released.value.tolist(), strict=True)
        changes = bucket.save()
        head, chunks = (
            changes.head,
            {number: octets for number, octets in {**chunks, **changes.put}.items() if number not in changes.delete},
        )
    assert given == [(end, b'{"k":"p","n":1}') for end in (60, 65, 70, 75)]


@SOME
@given(st.sampled_from(KINDS), st.data(), st.sampled_from([0, 3, 1000]))
def test_a_start_in_the_middle_gives_the_rest(sql: str, data: st.DataObject, back: int) -> None:
    """Level 3: begun at S with its look-back a run gives, of each substream, the results from S on, in their order."""
    topics = {name: data.draw(raws(True, 2)).topic(data.draw(SEEDS), 1, over=True, vouched=True) for name in "ab"}
    plans, lines = bound(sql, A, B), lines_of(topics, 0)
    start_us = data.draw(st.sampled_from(sorted({each.system_us for topic in topics.values() for each in topic.truth} | {10**6})))
    read_from_us = start_us - max(plan.lookback_us for plan in plans)
    whole = run_bucket(lambda: made(plans, topics, 0), lines)
    rest = {log: middle_of(every, read_from_us, back, over=True) for log, every in lines.items()}
    said = run_bucket(lambda: made(plans, topics, 0, (), (start_us, read_from_us)), rest, cuts=random.Random(data.draw(SEEDS)))
    for output in range(len(plans)):
        expected = {key: late for key, rows in by_key([whole], output).items() if (late := [row for row in rows if row[0] >= start_us])}
        assert by_key([said], output) == expected


@SOME
@given(st.sampled_from(KINDS), st.data(), st.sampled_from([0, 3, 1000]))
def test_a_run_goes_on_after_its_last_promise(sql: str, data: st.DataObject, back: int) -> None:
    """
    Level 3: what lost its state goes on from the last CTI of each channel, and writes of each key what is missing, in its order.

    Results that were written after that CTI stand there too, as many as there happen to be.
    """
    topics = {name: data.draw(raws(True, 2)).topic(data.draw(SEEDS), 1, over=True, vouched=True) for name in "ab"}
    plans, lines = bound(sql, A, B), lines_of(topics, 0)
    whole = run_bucket(lambda: made(plans, topics, 0), lines, cuts=random.Random(data.draw(SEEDS)))
    batch = data.draw(st.integers(0, max(len(channel.ctis) for channel in whole.channels) - 1))
    ctis = [channel.ctis[min(batch, len(channel.ctis) - 1)][1] for channel in whole.channels]
    start_us = min(cti.c for cti in ctis)
    if start_us == INFINITY:
        return
    counts = [data.draw(st.integers(cti.n, len(channel.rows))) for cti, channel in zip(ctis, whole.channels, strict=True)]
    promises = []
    for cti, channel, count in zip(ctis, whole.channels, counts, strict=True):
        found = count_ahead_by_substream(
            promise_of(cti),
            {seq: (us, Substream(0, key)) for seq, (us, key, _) in enumerate(channel.rows[:count]) if us >= cti.c or seq % 2},
        )
        assert found is not None
        promises.append(Left.restore(json.loads(json.dumps(found.save()))))
    event(f"ahead {any(each.ahead for each in promises)}")
    read_from_us = start_us - max(plan.lookback_us for plan in plans)
    rest = {log: middle_of(every, read_from_us, back, over=True) for log, every in lines.items()}
    cuts = random.Random(data.draw(SEEDS))
    said = run_bucket(lambda: made(plans, topics, 0, (), (start_us, read_from_us), promises), rest, cuts=cuts)
    for output, (channel, every, count) in enumerate(zip(said.channels, whole.channels, counts, strict=True)):
        channel.check(every.rows[:count])
        joined = BucketOutput([Written([*every.rows[:count], *channel.rows])])
        assert by_key([joined], 0) == by_key([whole], output)


def test_what_retention_has_deleted_of_a_channel_is_missed() -> None:
    """Of two results above the last CTI one is gone: nobody could tell which one."""
    promise = Left(10, 4, 2, 12)
    a, b, other = Substream(1, b"a"), Substream(0, b"b"), Substream(0, b"a")
    there = {2: (11, a), 3: (12, b), 4: (10, a), 5: (12, other), 7: (13, other)}
    assert count_ahead_by_substream(promise, there) == Left(10, 6, 4, 12, {a: [11, 10], b: [12], other: [12]})
    assert count_ahead_by_substream(promise, {seq: row for seq, row in there.items() if seq > 2}) is None


def test_names_of_substreams_without_a_number_are_read() -> None:
    """Runs that were resumed by an earlier program have them in their folder and in their state: each key was one substream."""
    assert Left.restore([5, 9, 3, 40, {"6b": [7]}]).by_substream == {Substream(0, b"k"): [7]}
    assert Substream.of_text(Substream(3, b"").text) == (3, b"")


def test_keys_that_a_changed_query_does_not_give_again_still_count() -> None:
    """What stands above a CTI is counted by it until time has come there, whether or not it is found again."""
    rows = [(3, b"p", b'{"k":"p"}'), (8, b"q", b'{"k":"q"}')]
    lines = results_of(0, rows, substreams=True, c=6)
    plans = bound(OF_RESULTS, A, RESULTS)
    promise = Left(5, 9, 3, 40, {Substream(0, b"gone"): [7, 40], Substream(0, b"p"): [5]})
    bucket = made(plans, {"b": Topic([lines], [], 1, True, False)}, 0, [scan.over for scan in plans[0].scans], (5, 0), [promise])
    bucket.accept_records(0, decoded_range(lines))
    assert [len(each) for each in bucket.settle()] == [0]
    (cti,) = bucket.next_ctis()
    assert cti is not None
    assert (cti.c, cti.n, cti.ahead) == (6, 9, 2)


@pytest.mark.parametrize(("keys", "apart_us"), [(1, 1), (1, 0), (16, 1), (16, 0)])
def test_pairs_leave_in_steps(keys: int, apart_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Level 2: one key or many, made final by event after event, or all of one instant by one CTI: no call returns more than a few times the
    pairs that are made at once, or twice the rows, and all together are those of one call.
    """
    rows = [(1_000 + at // keys * apart_us, b"k%d" % (at % keys), b'{"k":"k%d","v":%d}' % (at % keys, at)) for at in range(192)]
    logs = [results_of(0, rows, substreams=True, c=5_000) for _ in "ab"]
    for lines in logs:
        offset, last = lines[-1]
        assert isinstance(last, Cti)
        lines.append((offset + 1, replace(last, c=6_000)))
    on = "ON DATEDIFF(mcs, x, y) BETWEEN -999 AND 999 AND x.k = y.k"
    sql = f"SELECT x.v, y.v AS w FROM a TIMESTAMP BY t OVER k x JOIN b TIMESTAMP BY t OVER k y {on}"
    topics = {name: Topic([lines], [], 1, True, False) for name, lines in zip("ab", logs, strict=True)}

    def given() -> list[list[Result]]:
        bucket, calls = made(bound(sql, A, B), topics, 0), []
        for log, lines in enumerate(logs):
            bucket.accept_records(log, decoded_range(lines))
        while not calls or not bucket.is_settled:
            (released,) = bucket.settle()
            calls.append(list(zip(released.system_us.tolist(), released.key.tolist(), released.value.tolist(), strict=True)))
        return calls

    (whole,) = given()
    assert len(whole) == 192 * 192 // keys
    monkeypatch.setattr(Budget, "pairs", 200)
    monkeypatch.setattr(Budget, "released_bytes", 1)
    calls = given()
    assert [row for call in calls for row in call] == whole
    assert max(map(len, calls)) <= 2 * 2 * 192 < len(whole)
