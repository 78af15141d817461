"""
Long windows: what is retained but not needed is not looked at, what has passed goes by its bounds, and that rows are packed, put
together, or kept for longer than they need be, cannot be seen in any result.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bucket_runs import BucketOutput, Query, dense, raws, run_bucket
from support.budgets import budget_of
from support.query_kinds import KINDS
from support.query_oracle import Event
from support.query_runs import SECOND, event_table, finish, slices
from support.saved_buckets import merging_everything
from support.script_runs import program_of

from ordering.ticks import INFINITY, NEVER
from query.engine import gathering
from query.engine import program as program_module
from query.engine.gathering import ExpiringRows, find_step_end
from query.engine.program import Program
from query.engine.retention import Piece, Retention
from query.operators.windows.compacting import cell_grid
from query.plan.windows import Session, Window
from tidegate.language.expressions.binding.input_schema import InputSchema

DAY = 86_400 * SECOND
FEW = settings(max_examples=max(settings().max_examples // 75, 1))
BOTH = pytest.mark.parametrize(("kind", "over"), [(kind, over) for kind in KINDS for over in (False, True)])


@contextmanager
def forgetting_nothing() -> Iterator[None]:
    """Never drop a row."""
    with patch.object(Program, "forget", lambda *_: None):
        yield


def same(said: BucketOutput, other: BucketOutput) -> bool:
    """Tell whether two buckets gave the same results and dead letters."""
    return said.rows == other.rows and Counter(said.bad) == Counter(other.bad)


@BOTH
@FEW
@given(data=st.data())
def test_how_rows_are_kept_cannot_be_seen(kind: str, over: bool, data: st.DataObject) -> None:
    """Level 2: merged, packed, put together after every batch, worked on in parts, or never dropped at all: the sequence of one batch."""
    query = Query(kind, over, data.draw(st.booleans()))
    topic = data.draw(raws(over)).topic(data.draw(st.integers(0, 2**32)), data.draw(st.integers(1, 2)), over=over)
    fanout, rows_max = data.draw(st.integers(2, 4)), data.draw(st.sampled_from([20, 10**6]))
    bytes_max = data.draw(st.sampled_from([50, 2_000, 10**9]))
    for work in query.works(topic):
        lines = {at: topic.partitions[at] for at in work}
        whole = run_bucket(lambda work=work: query.bucket(topic, work), lines)
        with merging_everything(fanout, rows_max, bytes_max):
            cut = run_bucket(lambda work=work: query.bucket(topic, work), lines, cuts=random.Random(data.draw(st.integers(0, 2**32))))
        assert same(cut, whole)
        with forgetting_nothing():
            cut = run_bucket(lambda work=work: query.bucket(topic, work), lines, cuts=random.Random(data.draw(st.integers(0, 2**32))))
        assert same(cut, whole)


@BOTH
def test_every_operator_knows_the_span_of_a_row(kind: str, over: bool) -> None:
    """Neither end of a span falls as instants rise, and a row is not kept beyond the end of its span."""
    program = Query(kind, over).bucket(dense(3).topic(1, 1, over=True), [0])._program
    for operator, side in ((step.operator, side) for step in program._steps for side in range(len(step.names))):
        spans = [operator.span_us(instant, side) for instant in range(10**6, 10**6 + 60)]
        assert all(before[0] <= after[0] and before[1] <= after[1] for before, after in pairwise(spans))


# What a finish looks at

SQL = {
    "percentile": "SELECT k, PERCENTILE_CONT(0.5) OVER (ORDER BY v) AS m FROM x GROUP BY k, TumblingWindow(day, 7)",
    "sum": "SELECT k, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo FROM x GROUP BY k, TumblingWindow(day, 7)",
    "hopping": "SELECT k, COLLECT(v) AS c FROM x GROUP BY k, HoppingWindow(day, 7, 1)",
    "several": "SELECT k, AVG(v) AS a FROM x GROUP BY k, Windows(TumblingWindow(day, 7), TumblingWindow(day, 1))",
}
RESULTS = {"percentile": 2, "sum": 2, "hopping": 2 * 13, "several": 2 * 8}
"""How many results the rows of a week give: two keys, in as many windows as begin or end in it."""


class Looked:
    """Counts the rows that anyone looks at."""

    def __init__(self) -> None:
        self.rows = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count from 0 on."""
        self.rows = 0
        real = Piece.rows

        def counted(piece: Piece) -> pa.Table:
            self.rows += piece.num_rows
            return real(piece)

        with patch.object(Piece, "rows", counted):
            yield


def hourly(hour: int, count: int = 10) -> list[Event]:
    """Events of one hour."""
    return [Event(0, (hour * 3600 + at + 1) * SECOND, {"k": "ab"[at % 2], "v": at}) for at in range(count)]


@pytest.mark.parametrize("kind", [kind if kind in ("sum", "hopping") else pytest.param(kind, marks=pytest.mark.deep) for kind in SQL])
def test_a_finish_looks_at_nothing_that_only_later_windows_need(kind: str) -> None:
    """A week of hourly batches: but for the hours in which windows end, each looks at its own rows alone, the last like the first."""
    program, retention, looked, results = program_of(SQL[kind], [InputSchema("x")]), Retention(), Looked(), 0
    others = 0
    for hour in range(24 * 15):
        events = hourly(hour) if hour < 24 * 7 else []
        if events:
            (name, rows), *_ = program.prepare("x", event_table(events, hour * 10))[0]
            retention.add(name, rows)
        with looked.counting():
            until_us = ((hour + 1) * 3600) * SECOND
            (found,) = finish(program, retention, slices({0: (hour * 3600 * SECOND, until_us)}, "from_us", "to_us"))
        results += found.num_rows
        if hour % 24:
            assert looked.rows <= len(events) or hour >= 24 * 7
            others += looked.rows
        retention.save(program.compact_rows)
    assert results == RESULTS[kind]
    # Beside its own hour, a row is at most looked at when half of what it is kept with has passed.
    assert others <= 2 * 10 * 24 * 7
    assert not list(retention.pieces("rows0.0"))


def six_days_of(sql: str) -> tuple[list[int], list[bytes]]:
    """Return at how many rows each of the last 72 hourly batches of 100 events looks, and the last result."""
    program, retention, looked, seen = program_of(sql, [InputSchema("x")]), Retention(), Looked(), list[int]()
    with patch.object(gathering, "BLOCK_ROWS", 50):
        for hour in range(24 * 6):
            (name, rows), *_ = program.prepare("x", event_table(hourly(hour, 100), hour * 100))[0]
            retention.add(name, rows)
            with looked.counting():
                (found,) = finish(program, retention, slices({0: (hour * 3600 * SECOND, (hour + 1) * 3600 * SECOND)}, "from_us", "to_us"))
            seen.append(looked.rows)
            retention.save(program.compact_rows)
    return seen[24 * 3 :], found["value"].to_pylist()[-1:]


def test_a_sliding_window_looks_at_what_enters_and_leaves() -> None:
    """Six days of hourly batches, windows of two: of what all of them hold a batch looks at sums, beside its own rows and the oldest."""
    sql = "SELECT k, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo FROM x GROUP BY k, SlidingWindow(day, 2)"
    settled, last = six_days_of(sql)
    assert last == [b'{"k":"b","n":2400,"s":120000,"lo":1}']
    # All that is retained are 4,800 rows; whole pieces are looked at once, for their sums.
    assert statistics.median(settled) < 600
    assert statistics.mean(settled) < 1_200


def test_a_running_total_looks_at_what_enters_and_leaves() -> None:
    """Six days of hourly batches, totals of two: of what all rows see a batch looks at sums, beside its own rows and the oldest."""
    sql = (
        "SELECT COUNT(*) OVER (PARTITION BY k LIMIT DURATION(day, 2)) AS n, SUM(v) OVER (PARTITION BY k LIMIT DURATION(day, 2) WHEN v > 9) "
        "AS s, MAX(v) OVER (LIMIT DURATION(day, 1)) AS hi FROM x"
    )
    settled, last = six_days_of(sql)
    assert last == [b'{"n":2401,"s":118899,"hi":99}']
    # At two ages rows leave; all that are retained are 4,800.
    assert statistics.median(settled) < 900
    assert statistics.mean(settled) < 1_500


def lasting(instant_us: int) -> tuple[int, int]:
    """The span of a row that counts for ten seconds."""
    return instant_us, instant_us + 10 * SECOND


def test_what_has_passed_is_dropped_unseen() -> None:
    """Pieces go by their bounds; rows of one that straddles are looked at once half of its time has passed, and not again at once."""
    retention, looked = Retention(), Looked()
    for first in (1, 101):
        retention.add("rows", pa.table({"system_us": [second * SECOND for second in range(first, first + 100)]}))
        retention.save()
    seen = {}
    for to in (11, 12, 61, 62, 63, 80, 110, 111, 112, 140, 211):
        with looked.counting():
            kept = lambda rows, to=to: rows.filter(pc.greater_equal(pc.add(rows["system_us"], 10 * SECOND), to * SECOND))  # noqa: E731
            retention.expire("rows", kept, lasting, to * SECOND, is_one_timeline=True)
        seen[to] = looked.rows, [piece.num_rows for piece in retention.pieces("rows")]
    full = [100, 100]
    assert seen == {
        11: (0, full),
        12: (0, full),
        61: (100, [50, 100]),
        62: (0, [50, 100]),
        63: (0, [50, 100]),
        80: (0, [50, 100]),
        110: (0, [50, 100]),
        111: (0, [100]),
        112: (0, [100]),
        140: (0, [100]),
        211: (0, []),
    }


def test_other_substreams_keep_their_rows() -> None:
    """With OVER a piece does not go by its bounds: it may hold rows of a substream that has not come so far."""
    program, retention = (
        program_of(
            "SELECT k, COUNT(*) AS n FROM x TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(second, 10)", [InputSchema("x", "t", "k")]
        ),
        Retention(),
    )
    events = [Event(at % 2, (at + 1) * SECOND, {"k": at % 2, "t": at}) for at in range(10)]
    ((name, rows),) = program.prepare("x", event_table(events))[0]
    retention.add(name, rows)
    retention.save()
    for _ in range(2):
        program.forget(retention, slices({0: (60 * SECOND,)}, "to_us"))
    assert {sub for rows in retention.tables(name) for sub in rows["sub"].to_pylist()} == {1}


@pytest.mark.parametrize("left", [pytest.param("", marks=pytest.mark.deep), "LEFT "])
def test_a_join_looks_old_rows_up_by_their_keys(left: str) -> None:
    """Orders and the payments a day later: in the tenth day a batch looks at no more rows than in the second."""
    sql = f"SELECT o.id, p.id AS paid FROM orders o {left}JOIN payments p ON o.id = p.of AND DATEDIFF(day, o, p) BETWEEN 0 AND 6"
    program, retention, looked, results = program_of(sql, [InputSchema("orders"), InputSchema("payments")]), Retention(), Looked(), 0
    seen = []
    with patch.object(gathering, "INDEXED_FROM", 8):
        for hour in range(24 * 6):
            for name, first in (("orders", hour * 10), ("payments", (hour - 24) * 10)):
                rows = [Event(0, (hour * 3600 + at + 1) * SECOND, {"id": hour * 10 + at, "of": first + at}) for at in range(10)]
                for kept, prepared in program.prepare(name, event_table(rows, hour * 10))[0]:
                    retention.add(kept, prepared)
            with looked.counting():
                span = hour * 3600 * SECOND, (hour + 1) * 3600 * SECOND
                (found,) = finish(program, retention, slices({0: span}, "from_us", "to_us"))
            results += found.num_rows
            seen.append(looked.rows)
            retention.save(program.compact_rows)
    assert results == (24 * 6 - 24) * 10
    # Merged rows are looked at once more, for the keys by which they are found from then on.
    assert sum(seen[-72:]) <= 72 * 120


def test_new_rows_of_one_side_that_ask_for_nothing_read_no_old_ones() -> None:
    """Orders without payments, then only time: no order is read again, since no payment asks for one."""
    sql = "SELECT o.id, p.id AS paid FROM orders o JOIN payments p ON o.id = p.of AND DATEDIFF(day, o, p) BETWEEN 0 AND 6"
    program, retention, looked = program_of(sql, [InputSchema("orders"), InputSchema("payments")]), Retention(), Looked()
    orders = [Event(0, (at + 1) * SECOND, {"id": at}) for at in range(100)]
    payments = [Event(0, SECOND, {"id": 0, "of": -1})]
    with patch.object(gathering, "INDEXED_FROM", 8):
        for name, events in (("orders", orders), ("payments", payments)):
            for kept, prepared in program.prepare(name, event_table(events))[0]:
                retention.add(kept, prepared)
        finish(program, retention, slices({0: (0, 200 * SECOND)}, "from_us", "to_us"))
        with looked.counting():
            finish(program, retention, slices({0: (200 * SECOND, 300 * SECOND)}, "from_us", "to_us"))
    assert looked.rows <= len(payments)


JUMPS = {
    "sliding": ("SELECT k, COUNT(*) AS n FROM x GROUP BY k, SlidingWindow(day, 2)", 999),
    "inner": ("SELECT a.v, b.v AS w FROM x a JOIN x b ON a.v = b.no AND DATEDIFF(minute, a, b) BETWEEN 0 AND 1440", 0),
    "outer": ("SELECT a.v, b.v AS w FROM x a LEFT JOIN x b ON a.v = b.no AND DATEDIFF(minute, a, b) BETWEEN 0 AND 1440", 1_000),
}
"""Queries, and how many results a thousand rows give when time has jumped beyond them."""


@pytest.mark.parametrize("kind", JUMPS)
def test_a_jump_of_time_is_finished_in_steps(kind: str) -> None:
    """A thousand rows have their last results one by one in a day without events: no step makes many of them final."""
    sql, results = JUMPS[kind]
    program, retention = program_of(sql, [InputSchema("x")]), Retention()
    for at in range(0, 1_000, 100):
        rows = [Event(0, (at + row + 1) * 60 * SECOND, {"k": "a", "v": at + row}) for row in range(100)]
        for name, kept in program.prepare("x", event_table(rows, at))[0]:
            retention.add(name, kept)
        finish(program, retention, slices({0: ((at + 1) * 60 * SECOND, (at + 101) * 60 * SECOND)}, "from_us", "to_us"))
        retention.save(program.compact_rows)
    from_us, given = 1_001 * 60 * SECOND, []
    with budget_of(rows=150):
        while from_us < 10 * DAY:
            until_us = program.find_step_end(retention, from_us, 10 * DAY)
            (found,) = finish(program, retention, slices({0: (from_us, until_us)}, "from_us", "to_us"))
            given.append(found.num_rows)
            from_us = until_us
    assert sum(given) == results
    assert max(given) <= 200
    assert len(given) < 20


@pytest.mark.parametrize("kind", ["sliding", "hopping", "tumbling"])
def test_with_over_too_a_jump_is_finished_in_steps(kind: str) -> None:
    """One batch brings all of a log and its end: few results are computed at a time, and they leave in the same order."""
    query, topic = Query(kind, over=True), dense(3, 200).topic(1, 1, over=True)

    def run_at_once(rows_max: int) -> tuple[BucketOutput, int]:
        counts, compute = [0], program_module.compute_rows

        def counted(*asked: Any) -> Iterator[pa.Table]:
            for table in compute(*asked):
                counts.append(table.num_rows)
                yield table

        ways = [patch.object(module, "compute_rows", counted) for module in (program_module, gathering)]
        with ways[0], ways[1], budget_of(rows=rows_max):
            said = run_bucket(lambda: query.bucket(topic, [0]), {0: topic.partitions[0]})
        return said, max(counts)

    (whole, all_results), (cut, some) = run_at_once(10**6), run_at_once(30)
    assert same(cut, whole)
    assert some < all_results / 3


LEAVING = st.lists(st.tuples(st.integers(-20, 90), st.integers(0, 30), st.integers(1, 60)), max_size=8)


@given(LEAVING, st.integers(1, 100), st.sampled_from([NEVER, 0]), st.sampled_from([60, INFINITY]))
def test_steps_of_time_lead_to_the_end(drawn: list[tuple[int, int, int]], most: int, from_us: int, to_us: int) -> None:
    """Each step is later than the one before, and but for a single instant, in none do more rows leave than may, if they lie evenly."""
    rows = [ExpiringRows(first_us, first_us + length_us, count) for first_us, length_us, count in drawn]
    steps = [from_us]
    with budget_of(rows=most):
        while steps[-1] < to_us:
            steps.append(find_step_end(rows, steps[-1], to_us))
            assert len(steps) < 200

    def left(until_us: int) -> Fraction:
        shares = (Fraction(min(max(until_us - each.first_us, 0), length := each.last_us + 1 - each.first_us), length) for each in rows)
        return sum((share * each.rows for share, each in zip(shares, rows, strict=True)), Fraction(0))

    for first, last in pairwise(steps):
        assert first < last <= to_us
        assert last - first == 1 or left(last) - left(first) <= most + Fraction(1, 1_000)


# What is kept


def test_rows_of_a_long_window_become_one_a_group() -> None:
    """Where states make all aggregates a week of rows takes as much room as its groups; else every row is there, once."""
    rows = {}
    for kind in ("sum", "percentile"):
        program, retention = program_of(SQL[kind], [InputSchema("x")]), Retention()
        with merging_everything(8):
            for hour in range(64):
                ((name, kept),) = program.prepare("x", event_table(hourly(hour), hour * 10))[0]
                retention.add(name, kept)
                retention.save(program.compact_rows)
        rows[kind] = [piece.num_rows for piece in retention.pieces(name)]
    assert rows == {"sum": [2], "percentile": [640]}


@pytest.mark.parametrize(
    ("windows", "step_us"),
    [
        ([Window(7, 7)], 7),
        ([Window(60, 10)], 10),
        ([Window(60, 25)], 5),
        ([Window(60, 60), Window(40, 40, 10)], 10),
        ([Window(60, 60), Session(3, 10)], None),
        ([Window(7, 3)], None),
    ],
)
def test_cells_divide_all_windows(windows: list[Window], step_us: int | None) -> None:
    """No window starts or ends within a cell, and cells are as long as that allows; without fixed ends there are none."""
    grid = cell_grid(windows)
    assert (grid and grid.size_us) == step_us


def test_only_what_states_make_is_put_together() -> None:
    """An aggregate that needs all of its rows keeps them."""
    program = program_of(SQL["percentile"], [InputSchema("x")])
    ((_, rows),) = program.prepare("x", event_table(hourly(0)))[0]
    (step,) = program._steps
    with merging_everything():
        assert step.operator.compact(rows) is rows


TOPS = (
    "SELECT k, TopOne(i) OVER (ORDER BY v DESC) AS best, CollectTop(2, i) OVER (ORDER BY w, v DESC) AS two, "
    "TopOne(i) OVER (ORDER BY w) AS low FROM x GROUP BY k, {}"
)
TWO_WINDOWS = "Windows(TumblingWindow(second, 6), TumblingWindow(second, 4))"
VALUES = st.one_of(st.none(), st.integers(0, 2), st.just(1.0), st.just("x"))


@given(
    st.sampled_from(["TumblingWindow(second, 6)", "HoppingWindow(second, 6, 2)", TWO_WINDOWS]),
    st.lists(st.tuples(st.sampled_from("ab"), VALUES, VALUES), min_size=10, max_size=30),
    st.integers(0, 2**32),
)
def test_only_the_first_rows_of_a_cell_are_kept_for_tops(window: str, rows: list[tuple[Any, ...]], seed: int) -> None:
    """Level 3: whichever rows are dropped when, with ties and values of several kinds; at most four rows of a group and cell are left."""
    events = [Event(0, at // 2 * SECOND, {"k": k, "v": v, "w": w, "i": at}) for at, (k, v, w) in enumerate(rows)]
    cells = {-(-event.system_us // (2 * SECOND)) for event in events}
    found = []
    for cuts in (None, random.Random(seed)):
        program, retention = program_of(TOPS.format(window), [InputSchema("x")]), Retention()
        with merging_everything():
            for at, event in enumerate(events):
                ((name, prepared),), _ = program.prepare("x", event_table([event], at))
                retention.add(name, prepared)
                if cuts is not None and cuts.random() < 0.5:
                    retention.save(program.compact_rows)
            kept = retention.rows(name)
            assert kept is not None
            assert program.compact_rows(name, kept).num_rows <= 4 * 2 * len(cells)
            (table,) = finish(program, retention, slices({0: (0, 10**12)}, "from_us", "to_us"))
        found.append(table["value"].to_pylist())
    assert found[0] == found[1]
