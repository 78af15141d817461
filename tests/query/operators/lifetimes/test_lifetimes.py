"""Rows that live until an end they say themselves, or until an edge: how many are alive, and which lives overlap."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event, iso
from support.script_runs import answers_of, program_of

from tidegate.language.expressions.binding.input_schema import InputSchema

SECOND = 1_000_000
KEYS = (1, "a", "b", None)
CUTS = st.lists(st.integers(0, 60).map(lambda second: second * SECOND), max_size=5)
ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 40), st.sampled_from(KEYS), st.none() | st.integers(0, 50), st.integers(0, 2)),
    max_size=25,
).map(lambda rows: sorted(rows, key=lambda row: row[1]))
"""Substream, time in seconds, key, end in seconds or None, and which span."""
Row = tuple[int, int, Any, int | None, int]
Life = tuple[int, int]


def event(row: Row) -> Event:
    """A row as an event."""
    sub, at, k, end, trip = row
    return Event(sub, at * SECOND, {"k": k, "trip": trip, **({} if end is None else {"until": iso(end * SECOND)})})


def found_of(sql: str, events: dict[str, list[Event]], cuts: Sequence[int] = (), start_us: int = 0) -> dict[int, list[Any]]:
    """The results of each substream: time in seconds, then the values."""
    answers = answers_of(sql, events, cuts, start_us=start_us)
    assert answers.reasons == []
    return {
        sub: [(at // SECOND, *json.loads(value).values()) for at, _, value in results]
        for sub, results in answers.results["out"].items()
        if results
    }


def agree(sql: str, events: dict[str, list[Event]], cuts: list[int], expected: dict[int, list[Any]], back: int) -> None:
    """Whole, cut, from the middle on, and from the middle on without what lies more than *back* seconds before it."""
    assert found_of(sql, events) == expected
    assert found_of(sql, events, cuts) == expected
    late = {sub: rows for sub, given in expected.items() if (rows := [row for row in given if row[0] >= 20])}
    assert found_of(sql, events, cuts, start_us=20 * SECOND) == late
    recent = {name: [each for each in those if each.system_us >= (20 - back) * SECOND] for name, those in events.items()}
    assert found_of(sql, recent, cuts, start_us=20 * SECOND) == late


def counted(rows: Sequence[Row], life: Callable[[Row, Sequence[Row]], Life | None]) -> dict[int, list[Any]]:
    """Every instant at which a life begins or ends, its lives counted one by one."""
    expected: dict[int, list[Any]] = {}
    for sub in (0, 1):
        for at in range(70):
            for k in KEYS:
                group = [row for row in rows if row[0] == sub and row[2] == k]
                lives = [found for row in group if (found := life(row, group)) is not None]
                if any(at in each for each in lives):
                    expected.setdefault(sub, []).append((at, k, sum(begins <= at < ends for begins, ends in lives)))
    return expected


# Ends that rows say


def test_rows_live_until_the_end_they_say() -> None:
    """The second ends before the first; the third says too much, the fourth nothing, the fifth has ended before it began."""
    rows: list[Row] = [(0, 1, "a", 6, 0), (0, 2, "a", 4, 0), (0, 8, "a", 50, 0), (0, 9, "a", None, 0), (0, 10, "a", 10, 0)]
    found = found_of("SELECT active FROM active(trips, second, 10, ends = until, k)", {"trips": [event(row) for row in rows]})
    assert found == {0: [(1, 1), (2, 2), (4, 1), (6, 0), (8, 1), (9, 2), (18, 1), (19, 0)]}


@settings(max_examples=30)
@given(ROWS, CUTS, st.integers(1, 12))
def test_ends_are_the_same_however_time_is_cut(rows: list[Row], cuts: list[int], longest: int) -> None:
    """Against lives that are counted one by one."""

    def life(row: Row, _: Sequence[Row]) -> Life | None:
        ends = row[1] + longest if row[3] is None else min(row[3], row[1] + longest)
        return (row[1], ends) if ends > row[1] else None

    sql = f"SELECT k, active FROM active(trips, second, {longest}, ends = until, k)"
    agree(sql, {"trips": [event(row) for row in rows]}, cuts, counted(rows, life), longest)


def test_an_end_that_is_no_datetime_is_a_dead_letter() -> None:
    """With the name of the column."""
    events = [Event(0, SECOND, {"until": 7}), Event(0, 2 * SECOND, {"until": "1970-01-01T00:00:03Z"})]
    answers = answers_of("SELECT active FROM active(trips, second, 10, ends = until)", {"trips": events})
    assert answers.values() == ['{"active":1}', '{"active":0}']
    assert answers.reasons == ["bigint cannot be converted to datetime: CAST(until AS datetime)"]


def test_ends_may_be_computed_in_a_step() -> None:
    """A column of a step, beside a member of a record of an input."""
    events = {"trips": [Event(0, SECOND, {"m": 3, "r": {"end": "1970-01-01T00:00:03Z"}})]}
    sql = "WITH t AS (SELECT DATEADD(second, m, System.Timestamp()) AS until FROM trips) "
    assert found_of(sql + "SELECT active FROM active(t, second, 10, ends = until)", events) == {0: [(1, 1), (4, 0)]}
    assert found_of("SELECT active FROM active(trips, second, 10, Ends = r.[end])", events) == {0: [(1, 1), (3, 0)]}


# Edges


def test_rows_live_until_their_edge() -> None:
    """Trip 0 from 1 to 4; 1 from 2 for the most it may; at 6 trip 2 begins and trip 0, which begins again at 5, ends; an edge of none."""
    rows: list[Row] = [(0, 1, "a", None, 0), (0, 2, "a", None, 1), (0, 4, "a", 4, 0), (0, 5, "a", None, 0), (0, 6, "a", 6, 0)]
    rows += [(0, 6, "a", None, 2), (0, 7, "a", 7, 3)]
    events = {"trips": [event(row) for row in rows]}
    found = found_of("SELECT active FROM active(trips, second, 10, edge = until, span = trip, k)", events)
    assert found == {0: [(1, 1), (2, 2), (4, 1), (5, 2), (6, 2), (12, 1), (16, 0)]}


def test_without_span_an_edge_ends_all_of_its_group() -> None:
    """Two begin and one edge ends both; what begins at the edge's own instant lives on."""
    rows: list[Row] = [(0, 1, "a", None, 0), (0, 1, "b", None, 0), (0, 2, "a", None, 1), (0, 4, "a", 4, 0), (0, 4, "a", None, 0)]
    events = {"trips": [event(row) for row in rows]}
    found = found_of("SELECT k, active FROM active(trips, second, 10, k, edge = until)", events)
    assert found == {0: [(1, "a", 1), (1, "b", 1), (2, "a", 2), (4, "a", 1), (11, "b", 0), (14, "a", 0)]}


@settings(max_examples=30)
@given(ROWS, CUTS, st.integers(1, 12), st.booleans())
def test_edges_are_the_same_however_time_is_cut(rows: list[Row], cuts: list[int], longest: int, by_span: bool) -> None:
    """Against lives that are counted one by one, each looking for its edge."""

    def life(row: Row, group: Sequence[Row]) -> Life | None:
        edges = [other[1] for other in group if other[3] is not None and other[1] > row[1] and (not by_span or other[4] == row[4])]
        return (row[1], min([*edges, row[1] + longest])) if row[3] is None else None

    span = ", span = trip" if by_span else ""
    sql = f"SELECT k, active FROM active(trips, second, {longest}, edge = until{span}, k)"
    agree(sql, {"trips": [event(row) for row in rows]}, cuts, counted(rows, life), longest)


# Both


@pytest.mark.parametrize("words", ["ends = until", "edge = until", "edge = until, span = trip"])
def test_a_plan_shows_what_ends_a_life(words: str) -> None:
    """As the script writes it."""
    (plan,) = program_of(f"SELECT k, active FROM active(trips, second, 5, {words}, k)", [InputSchema("trips")]).plans
    assert f"active(5s, k, {words})" in plan.explain()


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from("xy"), st.integers(0, 2)), max_size=15), CUTS)
def test_the_key_of_a_count_does_not_depend_on_cuts(rows: list[Any], cuts: list[int]) -> None:
    """It is that of the columns counted by; the rows of a group may have others."""
    events = {"a": [Event(0, at * SECOND, {"o": o, "d": d}) for at, o, d in sorted(rows)]}
    step = "WITH s AS (SELECT o, d, COUNT(*) AS n FROM a GROUP BY o, d, TumblingWindow(second, 2)) "
    sql = step + "SELECT o, active FROM active(s, second, 3, o)"
    whole = answers_of(sql, events).results
    assert whole == answers_of(sql, events, cuts).results
    assert all(key.decode() == json.loads(value)["o"] for _, key, value in whole["out"].get(0, []))


# Overlaps

SPANS = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40), st.sampled_from([1, "a", None]), st.integers(0, 12)), max_size=14).map(
    lambda rows: sorted(rows, key=lambda row: row[1])
)
"""Substream, time in seconds, key, and how long."""


def spans_of(rows: Sequence[Any]) -> list[Event]:
    """Events that say when they end."""
    return [
        Event(sub, at * SECOND, {"k": k, "n": number, "ends": iso((at + length) * SECOND)})
        for number, (sub, at, k, length) in enumerate(rows)
    ]


@settings(max_examples=30)
@given(SPANS, SPANS, CUTS, st.booleans())
def test_overlaps_are_found_however_time_is_cut(lefts: list[Any], rights: list[Any], cuts: list[int], outer: bool) -> None:
    """
    Against all pairs, one by one; starts are at most 9 s apart.

    DATEDIFF allows 9 s, so a left row stays alone a tick before 10 s after its second began: within the 9th second, in whole ones.
    """
    expected: dict[int, list[Any]] = {}
    for sub in (0, 1):
        found = []
        for a, (sub_a, at_a, k_a, long_a) in enumerate(lefts):
            matched = False
            for b, (sub_b, at_b, k_b, long_b) in enumerate(rights):
                is_pair = (sub_a, sub_b) == (sub, sub) and k_a == k_b is not None and abs(at_a - at_b) <= 9
                if is_pair and at_a < at_b + long_b and at_b < at_a + long_a:
                    found.append((max(at_a, at_b), False, a, b))
                    matched = True
            if outer and not matched and sub_a == sub:
                found.append((at_a + 9, True, a, None))
        if found:
            expected[sub] = [(at, a, b) for at, _, a, b in sorted(found)]
    sql = f"""SELECT a.n AS a, b.n AS b FROM lefts AS a {"LEFT JOIN" if outer else "JOIN"} rights AS b
    ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN -9 AND 9 AND a < b.ends AND b < a.ends"""
    agree(sql, {"lefts": spans_of(lefts), "rights": spans_of(rights)}, cuts, expected, 20)
