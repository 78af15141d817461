"""What is shifted is known before its time: its results leave at once, and the CTI after them says so: c + d."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bucket_oracle import Event
from support.bucket_runs import bucket_of, raws, run_bucket, works_of
from support.bucket_topics import Line, Topic, decoded_range
from support.query_kinds import INPUT

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread, shift_cti
from ordering.ticks import INFINITY, NEVER
from query.buckets.bucket import Bucket
from query.engine.ahead import ahead_of
from query.engine.program import Program
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

D_US = 5
SCHEMA = InputSchema(INPUT, "t", "k")
STEP = f"WITH s AS (SELECT k, v FROM {INPUT} TIMESTAMP BY t{{over}}) "
UNSHIFTED = STEP + "SELECT k, v FROM s"
LATER = STEP + f"SELECT k, v FROM shift(s, mcs, {D_US})"
SOME = settings(max_examples=max(settings().max_examples // 6, 1))
SEEDS = st.integers(0, 2**32)


def program_of(sql: str, *, over: bool) -> Program:
    """Bind a script."""
    script = parse_script(sql.format(over=" OVER k" if over else ""))
    return Program(bind_outputs(script, [SCHEMA], into=None if "INTO" in sql else "out"))


@pytest.mark.parametrize(
    ("select", "ahead_us"),
    [
        ("SELECT k FROM s", 0),
        ("SELECT k FROM shift(s, mcs, 5) WHERE v = 1", 5),
        ("SELECT k, COUNT(*) AS n FROM shift(s, mcs, 5) GROUP BY k, TumblingWindow(mcs, 3)", 5),
        ("SELECT k, LAG(v) OVER (LIMIT DURATION(mcs, 9)) AS b FROM shift(s, mcs, 5)", 5),
        ("SELECT k FROM shift(s, mcs, 5) UNION SELECT k FROM shift(s, mcs, 3)", 3),
        ("SELECT k FROM shift(s, mcs, 5) UNION SELECT k FROM s", 0),
        ("SELECT a.k FROM shift(s, mcs, 5) a JOIN shift(s, mcs, 4) b ON DATEDIFF(mcs, a, b) = 0", 4),
        ("SELECT k, active FROM active(s, mcs, 5, k)", 0),
    ],
)
def test_a_query_is_ahead_by_the_least_that_all_of_it_is_shifted(select: str, ahead_us: int) -> None:
    """Filters, windows and LAG pass it on, of several inputs the least counts."""
    (plan,) = program_of(STEP + select, over=False).plans
    assert ahead_of(plan.root) == ahead_us


def test_shifts_add_up() -> None:
    """A window between them passes on what it has."""
    sql = STEP + ", w AS (SELECT k, COUNT(*) AS v FROM shift(s, mcs, 5) GROUP BY k, TumblingWindow(mcs, 3)) SELECT k FROM shift(w, mcs, 4)"
    (plan,) = program_of(sql.replace(") , w", "), w"), over=False).plans
    assert ahead_of(plan.root) == 9


def lines_of(*records: tuple[int, str] | int) -> list[Line]:
    """A log of one channel: events (time, key), and CTIs."""
    lines: list[Line] = []
    seq = 0
    for at, record in enumerate(records):
        if isinstance(record, int):
            lines.append((at, Cti(0, 0, record, seq, 0, at, record, 0, Roster(1, 1, Spread.ONE, True), Cause.EVENT)))
        else:
            us, key = record
            lines.append((at, Event(0, seq, us, seq, key.encode(), json.dumps({"k": key, "v": us}).encode())))
            seq += 1
    return lines


def heard(bucket: Bucket, lines: list[Line]) -> tuple[list[tuple[int, bytes]], tuple[int, int, int] | None]:
    """Take a range; return the results (time, key), and of the CTI after them c, n and ahead."""
    released = [*bucket.accept_records(0, decoded_range(lines)), *bucket.settle()]
    (cti,) = bucket.next_ctis()
    rows = [row for each in released for row in zip(each.system_us.tolist(), each.key.tolist(), strict=True)]
    return rows, None if cti is None else (cti.c, cti.n, cti.ahead)


def new(over: bool, sql: str = LATER) -> Bucket:
    """A bucket over one partition."""
    return bucket_of(program_of(sql, over=over), Topic([[]], [], 1, True, False), [0], over=over)


def test_a_shifted_row_leaves_when_its_event_is_final() -> None:
    """An event of 10 is final with the CTI of 12; its row of 15 leaves then, and no later one lies below 17."""
    bucket = new(over=False)
    assert heard(bucket, lines_of(4, (10, "a"), (12, "b"))) == ([], (9, 0, 0))
    assert heard(bucket, [(3, lines_of((10, "a"), (12, "b"), 12)[2][1])]) == ([(15, b"")], (17, 1, 0))


def test_with_over_it_leaves_upon_the_record_that_moves_its_substream() -> None:
    """b moves past 11 before a moves past 10; a moves past 12 too, whose row lies ahead of the CTI, as the next one of b would."""
    bucket = new(over=True)
    lines = lines_of(1, (10, "a"), (11, "b"), (13, "b"), (12, "a"), (14, "a"))
    assert heard(bucket, lines) == ([(16, b"b"), (15, b"a"), (17, b"a")], (6, 3, 3))


@SOME
@given(st.data(), st.booleans())
def test_shifted_rows_leave_as_their_events_do(data: st.DataObject, over: bool) -> None:
    """Law: by the same records, in the same order, with the same numbers, each d later; and so are the CTIs after them."""
    topic = data.draw(raws(True)).topic(data.draw(SEEDS), data.draw(st.integers(1, 2)), over=True)
    seed = data.draw(SEEDS)
    for work in works_of(topic, over=over):
        lines = {at: topic.partitions[at] for at in work}
        own, later = (
            run_bucket(lambda made=made, work=work: bucket_of(made(), topic, work, over=over), lines, cuts=random.Random(seed), end=False)
            for made in (lambda: program_of(UNSHIFTED, over=over), lambda: program_of(LATER, over=over))
        )
        (own_rows,), (later_rows,) = own.rows, later.rows
        assert later_rows == [(us + D_US, key, value) for us, key, value in own_rows]
        assert [(count, cti.c, cti.n, cti.ahead) for count, cti in later.channels[0].ctis] == [
            (count, shift_cti(cti.c, D_US), cti.n, cti.ahead) for count, cti in own.channels[0].ctis
        ]
        later.check()


def test_never_and_infinity_stay() -> None:
    """Who has said nothing says nothing; where no event can come no row can."""
    bucket = new(over=False)
    assert bucket.output_frontier_us(0) == NEVER
    bucket.end()
    assert bucket.output_frontier_us(0) == INFINITY
