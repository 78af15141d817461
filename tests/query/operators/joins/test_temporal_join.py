"""Temporal joins: examples worked by hand, and random events under random cuts against nested loops over all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.query_runs import END_US, event_table, finish, slices
from support.script_runs import Answers, answers_of, program_of

from query.engine.retention import Retention
from tidegate.language.expressions.binding.input_schema import InputSchema

SECOND = 1_000_000
MINUTE = 60 * SECOND
MILLISECOND = 1_000


def at(second: float, **payload: object) -> Event:
    """An event of the only timeline."""
    return Event(0, int(second * SECOND), payload)


def timed_values(answers: Answers, output: str = "out", sub: int = 0) -> list[tuple[float, str]]:
    """The results with their times in seconds."""
    return [(system_us / SECOND, value.decode()) for system_us, _, value in answers.results[output].get(sub, [])]


# By hand


def test_a_pair_comes_at_the_later_of_its_times() -> None:
    """Either side may come first where the bounds allow it; NULL equals nothing."""
    sql = "SELECT x.v AS x, y.v AS y INTO out FROM a x JOIN b y ON DATEDIFF(second, x, y) BETWEEN -1 AND 2 AND x.k = y.k"
    a = [at(1.5, k="p", v=1), at(4, k="p", v=2), at(4, k=None, v=3)]
    b = [at(0.2, k="p", v=10), at(3.9, k="p", v=11), at(4, k=None, v=12), at(4.0, k="q", v=13)]
    assert timed_values(answers_of(sql, {"a": a, "b": b})) == [(1.5, '{"x":1,"y":10}'), (3.9, '{"x":1,"y":11}'), (4, '{"x":2,"y":11}')]


def test_a_left_row_without_a_key_stays_alone() -> None:
    """NULL equals nothing, NULL included; what can match nothing is not left out of a LEFT JOIN."""
    sql = "SELECT x.v AS x, y.v AS y INTO out FROM a x LEFT JOIN b y ON DATEDIFF(second, x, y) = 0 AND x.k = y.k"
    events = {"a": [at(1, k=None, v=1), at(1, k="p", v=2)], "b": [at(1, k=None, v=10), at(1, k="p", v=11)]}
    assert timed_values(answers_of(sql, events)) == [(1, '{"x":2,"y":11}'), (1.999999, '{"x":1,"y":null}')]


def test_datediff_counts_crossed_boundaries() -> None:
    """One microsecond over the minute is a minute; 119 seconds within the next minute are no more than one."""
    sql = "SELECT y.v AS v INTO out FROM a x JOIN b y ON DATEDIFF(minute, x, y) = 1"
    a = [at(59.999999)]
    b = [at(59.999999, v="same"), at(60, v="first"), at(119.999999, v="last"), at(120, v="over")]
    assert answers_of(sql, {"a": a, "b": b}).values() == ['{"v":"first"}', '{"v":"last"}']


@pytest.mark.parametrize(
    ("bound", "is_met"),
    [
        ("< 9223372036854775807", True),
        ("<= 100000000000000", True),
        (">= -9000000000000000000", True),
        ("> -9223372036854775808", True),
        ("> 9223372036854775806", False),
        ("> 9223372036854775807", False),
        ("< -9000000000000000000", False),
    ],
)
def test_a_bound_beyond_all_time_is_met_always_or_never(bound: str, is_met: bool) -> None:
    """Beside one that limits the time; so many seconds have no number of microseconds in 64 bits."""
    events = {"a": [at(1_700_000_000, v=1)], "b": [at(1_700_000_003, v=2)]}
    for join, met, unmet in (("JOIN", ['{"y":2}'], []), ("LEFT JOIN", ['{"y":2}'], ['{"y":null}'])):
        on = f"DATEDIFF(minute, x, y) BETWEEN 0 AND 10 AND DATEDIFF(second, x, y) {bound}"
        answers = answers_of(f"SELECT y.v AS y INTO out FROM a x {join} b y ON {on}", events, [1_700_000_002 * SECOND])
        assert answers.values() == (met if is_met else unmet)


def test_an_impression_without_a_click_comes_once_when_its_hour_is_over() -> None:
    """BETWEEN 0 AND 60 minutes ends with the last tick of the 60th minute after that of the impression."""
    sql = """SELECT i.ad AS ad, c.ad AS clicked INTO out FROM impressions i LEFT JOIN clicks c
             ON i.ad = c.ad AND DATEDIFF(minute, i, c) BETWEEN 0 AND 60"""
    impressions = [at(30, ad="w"), at(30, ad="x"), at(59, ad="y"), at(60, ad="z")]
    clicks = [at(45, ad="w"), at(61 * 60 - 0.5, ad="x"), at(61 * 60, ad="y"), at(61 * 60 + 1, ad="z"), at(61 * 60 + 2, ad="z")]
    expected = [
        # Its click is known until the hour of any impression of the same minute is over.
        (45, '{"ad":"w","clicked":"w"}'),
        (61 * 60 - 0.5, '{"ad":"x","clicked":"x"}'),
        (3659.999999, '{"ad":"y","clicked":null}'),
        (61 * 60 + 1, '{"ad":"z","clicked":"z"}'),
        (61 * 60 + 2, '{"ad":"z","clicked":"z"}'),
    ]
    whole = answers_of(sql, {"impressions": impressions, "clicks": clicks})
    assert timed_values(whole) == expected
    for cut_us in (*(cut * SECOND for cut in (59, 60, 61, 3600, 3659, 3660, 3661, 3662, 9000)), 3660 * SECOND - 1):
        assert answers_of(sql, {"impressions": impressions, "clicks": clicks}, [cut_us, cut_us + 1]) == whole


def test_a_row_that_looks_back_only_stays_alone_at_its_own_time() -> None:
    """No match can come after the row itself, so nothing has to be waited for; with 0 the rest of the minute has."""
    for bounds, certain_us in (
        ("BETWEEN -10 AND -1", 90 * SECOND),
        ("BETWEEN -10 AND 0", 120 * SECOND - 1),
        ("BETWEEN 3 AND 4", 6 * MINUTE - 1),
    ):
        sql = f"SELECT x.v AS v INTO out FROM a x LEFT JOIN b y ON DATEDIFF(minute, x, y) {bounds}"
        assert answers_of(sql, {"a": [at(90, v=1)], "b": []}).times() == [certain_us]


def test_a_row_stays_alone_at_the_last_instant_of_a_match() -> None:
    """Level 3: an unmatched row comes exactly at its bound, in the order of a match that comes at that very instant."""
    sql = "SELECT x.v AS x, y.v AS y INTO out FROM a x LEFT JOIN b y ON DATEDIFF(mcs, x, y) BETWEEN 0 AND 10000000 AND x.k = y.k"
    events = {"a": [at(1, k=1, v=1), at(1, k=2, v=2)], "b": [at(11, k=2, v=3)]}
    expected = [(11, '{"x":2,"y":3}'), (11, '{"x":1,"y":null}')]
    for cuts in ([], [11 * SECOND], [11 * SECOND + 1], [11 * SECOND, 11 * SECOND + 1]):
        assert timed_values(answers_of(sql, events, cuts)) == expected


def test_conditions_of_on_make_matches_and_those_of_where_choose_among_results() -> None:
    """A left row whose matches ON refuses stays alone; WHERE takes results away."""
    on = "FROM a x LEFT JOIN b y ON DATEDIFF(second, x, y) BETWEEN 0 AND 1"
    events = {"a": [at(1, v=1), at(1, v=5)], "b": [at(1, v=3)]}
    sql = f"SELECT x.v AS x, y.v AS y INTO out {on} AND x.v < y.v"
    assert answers_of(sql, events).values() == ['{"x":1,"y":3}', '{"x":5,"y":null}']
    sql = f"SELECT x.v AS x, y.v AS y INTO out {on} AND y.v > 4"
    assert answers_of(sql, events).values() == ['{"x":1,"y":null}', '{"x":5,"y":null}']
    sql = f"SELECT x.v AS x, y.v AS y INTO out {on} AND x.v > 4"
    assert answers_of(sql, events).values() == ['{"x":5,"y":3}', '{"x":1,"y":null}']
    sql = f"SELECT x.v AS x, y.v AS y INTO out {on} WHERE x.v < y.v"
    assert answers_of(sql, events).values() == ['{"x":1,"y":3}']


def test_rows_of_one_instant_stand_in_a_fixed_order() -> None:
    """Pairs by left row, then right row; what stayed alone comes at the last tick at which a match could have come, here before them."""
    sql = "SELECT x.v AS x, y.v AS y INTO out FROM a x LEFT JOIN b y ON DATEDIFF(second, x, y) = 0 AND x.k = y.k"
    a = [at(1, k=0, v="early"), at(2, k=1, v=1), at(2, k=2, v=2), at(2, k=1, v=3)]
    b = [at(2, k=2, v=10), at(2, k=1, v=11), at(2, k=1, v=12)]
    pairs = [(1, 11), (1, 12), (2, 10), (3, 11), (3, 12)]
    values = [json.dumps({"x": x, "y": y}, separators=(",", ":")) for x, y in [("early", None), *pairs]]
    assert answers_of(sql, {"a": a, "b": b}).values() == values


def test_several_conditions_on_time_are_asked_together() -> None:
    """Sides in either order, open ends, and units of different length."""
    a = [at(59), at(61)]
    b = [at(second, v=second) for second in (57, 58, 60, 62, 66, 67)]
    for on in (
        "DATEDIFF(second, x, y) >= -1 AND DATEDIFF(second, x, y) < 6",
        "-1 <= DATEDIFF(second, x, y) AND 5 >= DATEDIFF(second, x, y)",
        "DATEDIFF(second, y, x) BETWEEN -5 AND 1",
        "DATEDIFF(second, y, x) < 2 AND DATEDIFF(second, y, x) > -6",
    ):
        sql = f"SELECT y.v AS v INTO out FROM a x JOIN b y ON {on}"
        assert answers_of(sql, {"a": a, "b": b}).values() == [f'{{"v":{v}}}' for v in (58, 60, 60, 62, 62, 66)]
    sql = "SELECT y.v AS v INTO out FROM a x JOIN b y ON DATEDIFF(second, x, y) BETWEEN -1 AND 5 AND DATEDIFF(minute, x, y) = 0"
    assert answers_of(sql, {"a": a, "b": b}).values() == ['{"v":58}', '{"v":60}', '{"v":62}', '{"v":66}']


def test_three_inputs_are_joined_one_after_the_other() -> None:
    """The third may be near the first or near the second; a row that stayed alone goes on with NULL."""
    events = {"a": [at(1, v="a")], "b": [at(3, v="b")], "c": [at(4, v="near b"), at(2, v="near a")][::-1]}
    near_b = """SELECT a.v AS a, b.v AS b, c.v AS c INTO out FROM a LEFT JOIN b ON DATEDIFF(second, a, b) BETWEEN 0 AND 2
                LEFT JOIN c ON DATEDIFF(second, b, c) = 1"""
    assert timed_values(answers_of(near_b, events)) == [(4, '{"a":"a","b":"b","c":"near b"}')]
    near_a = near_b.replace("second, b, c", "second, a, c")
    assert timed_values(answers_of(near_a, events)) == [(3, '{"a":"a","b":"b","c":"near a"}')]
    assert timed_values(answers_of(near_a, {**events, "b": []})) == [(3.999999, '{"a":"a","b":null,"c":"near a"}')]
    assert timed_values(answers_of(near_b, {**events, "b": []})) == [(3.999999, '{"a":"a","b":null,"c":null}')]


def test_windows_can_be_joined_with_events() -> None:
    """A step is joined at its rows' times; a joined row's time is System.Timestamp(), and windows take it."""
    sql = """WITH counts AS (SELECT k, COUNT(*) AS n FROM a GROUP BY k, TumblingWindow(second, 10)),
                  noted AS (SELECT counts.n AS n, b.v AS v, System.Timestamp() AS at FROM b JOIN counts
                            ON DATEDIFF(second, b, counts) BETWEEN 0 AND 9 AND b.k = counts.k)
             SELECT n, v, at INTO notes FROM noted;
             SELECT SUM(n) AS s INTO sums FROM noted GROUP BY TumblingWindow(second, 20)"""
    a = [at(1, k=1), at(2, k=1), at(3, k=2), at(12, k=1)]
    b = [at(5, k=1, v="x"), at(11, k=1, v="y"), at(11, k=3, v="z")]
    answers = answers_of(sql, {"a": a, "b": b})
    assert answers.values("notes") == [
        '{"n":2,"v":"x","at":"1970-01-01T00:00:10Z"}',
        '{"n":1,"v":"y","at":"1970-01-01T00:00:20Z"}',
    ]
    assert timed_values(answers, "sums") == [(20, '{"s":3}')]


def test_everything_of_a_join_stands_under_the_names_of_its_sides() -> None:
    """An event as its payload is, a step's row as a record of its columns, NULL where there was no match."""
    sql = """WITH s AS (SELECT k, v * 2 AS w FROM b)
             SELECT * INTO out FROM a x LEFT JOIN s ON DATEDIFF(second, x, s) BETWEEN 0 AND 1 AND x.k = s.k"""
    a = [Event(0, SECOND, b'{"k": 1, "deep": {"er": [1, 2]}}'), at(2, k=2)]
    assert answers_of(sql, {"a": a, "b": [at(2, k=1, v=4)]}).values() == [
        '{"x":{"k":1,"deep":{"er":[1,2]}},"s":{"k":1,"w":8}}',
        '{"x":{"k":2},"s":null}',
    ]


def test_a_pair_on_which_a_condition_fails_does_not_match() -> None:
    """A key that fails makes its row a dead letter, SELECT the joined row; a condition on both sides refuses the pair."""
    on = "FROM a x LEFT JOIN b y ON DATEDIFF(second, x, y) BETWEEN 0 AND 1"
    events = {"a": [at(1, v="7"), at(1, v="x")], "b": [at(1, w=7)]}
    answers = answers_of(f"SELECT x.v AS v, y.w AS w INTO out {on} AND CAST(x.v AS bigint) = y.w + 0", events)
    assert answers.reasons == ["conversion failed: CAST(x.v AS bigint)"]
    assert answers.values() == ['{"v":"7","w":7}']
    answers = answers_of(f"SELECT x.v AS v, y.w AS w INTO out {on} AND CAST(x.v AS bigint) + 1 > y.w", events)
    assert answers.values() == ['{"v":"7","w":7}', '{"v":"x","w":null}']
    answers = answers_of(f"SELECT CAST(x.v AS bigint) AS v INTO out {on}", events)
    assert (answers.values(), answers.reasons) == (['{"v":7}'], ["conversion failed: CAST(x.v AS bigint)"])


def test_debits_and_credits_are_in_balance_at_every_instant() -> None:
    """A bank: each transfer is a debit and a credit of the same id; joined, they never sum to anything but 0."""
    sql = """WITH debits AS (SELECT id, account, amount FROM transfers WHERE amount < 0),
                  credits AS (SELECT id, account, amount FROM transfers WHERE amount > 0),
                  booked AS (SELECT d.amount AS d, c.amount AS c, d.account AS giver, c.account AS taker
                             FROM debits d JOIN credits c ON DATEDIFF(second, d, c) BETWEEN -2 AND 2 AND d.id = c.id),
                  moves AS (SELECT giver AS account, d AS amount FROM booked UNION SELECT taker, c FROM booked)
             SELECT SUM(amount) AS total, COUNT(*) AS moves INTO balance FROM moves GROUP BY HoppingWindow(second, 5, 1);
             SELECT account, SUM(amount) AS total INTO accounts FROM moves GROUP BY account, TumblingWindow(minute, 1)"""
    transfers = []
    for number in range(200):
        second, amount = 0.1 * number, 100 + number * 37 % 91
        transfers.append(at(second, id=number, account=number % 7, amount=-amount))
        transfers.append(at(second + number * 13 % 20 / 10, id=number, account=(number * 3 + 1) % 7, amount=amount))
    transfers.sort(key=lambda event: event.system_us)
    whole = answers_of(sql, {"transfers": transfers})
    balances = [json.loads(value) for value in whole.values("balance")]
    assert {balance["total"] for balance in balances} == {0}
    assert sum(balance["moves"] for balance in balances) == 5 * 2 * 200
    assert sum(json.loads(value)["total"] for value in whole.values("accounts")) == 0
    assert answers_of(sql, {"transfers": transfers}, range(0, 25 * SECOND, SECOND // 3)) == whole


# Against nested loops

KEYS: tuple[Any, ...] = (None, 1, 2, 1.0, "1", "x", True)
Condition = Callable[[Any, Any], bool]


def equal(left: Any, right: Any) -> bool:
    """What ``=`` says of two JSON values, conversions included."""
    if left is None or right is None:
        return False
    texts = [value for value in (left, right) if isinstance(value, str)]
    if len(texts) != 1:
        return bool(left == right)
    other = right if isinstance(left, str) else left
    if isinstance(other, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(texts[0]) is other
    return re.fullmatch(r"[0-9]+", texts[0]) is not None and float(texts[0]) == other


def line(**values: Any) -> str:
    """A result's value."""
    return json.dumps(values, separators=(",", ":"))


def nested_loops(
    left: Sequence[Event], right: Sequence[Event], unit_us: int, low: int, high: int, outer: bool, condition: Condition
) -> dict[int, list[tuple[int, str]]]:
    """(system_us, value) of each substream in order, by looking at every pair."""
    found: dict[int, list[tuple[tuple[int, ...], str]]] = {}
    for i, x in enumerate(left):
        had_match = False
        for j, y in enumerate(right):
            crossed = y.system_us // unit_us - x.system_us // unit_us
            if x.sub == y.sub and low <= crossed <= high and condition(x.payload, y.payload):
                had_match = True
                order = (max(x.system_us, y.system_us), 0, i, j)
                found.setdefault(x.sub, []).append((order, line(x=x.payload["v"], y=y.payload["v"])))
        if outer and not had_match:
            certain_us = max(x.system_us, (x.system_us // unit_us + high + 1) * unit_us - 1)
            found.setdefault(x.sub, []).append(((certain_us, 1, i, 0), line(x=x.payload["v"], y=None)))
    return {sub: [(order[0], value) for order, value in sorted(rows)] for sub, rows in found.items()}


def events_of(keys: Sequence[Any] = KEYS, subs: int = 1) -> st.SearchStrategy[list[Event]]:
    """Events of several instants, many of them equal, in order of time."""
    payloads = st.fixed_dictionaries({"k": st.sampled_from(keys), "v": st.integers(0, 5)})
    event = st.builds(
        lambda sub, quarter, payload: Event(sub, quarter * 250, payload), st.integers(0, subs - 1), st.integers(1, 60), payloads
    )
    return st.lists(event, max_size=14).map(lambda events: sorted(events, key=lambda event: event.system_us))


# Most cuts are where bounds begin and end: at a quarter of a millisecond, or one microsecond later.
CUTS = st.lists(st.builds(lambda quarter, more: quarter * 250 + more, st.integers(1, 100), st.sampled_from((0, 0, 1, 100))), max_size=6)
CONDITIONS: dict[str, Condition] = {
    "": lambda x, y: True,
    " AND x.k = y.k": lambda x, y: equal(x["k"], y["k"]),
    " AND x.k = y.k AND x.v = y.v": lambda x, y: equal(x["k"], y["k"]) and x["v"] == y["v"],
    " AND x.v < y.v": lambda x, y: x["v"] < y["v"],
    " AND x.k = y.k AND x.v <= y.v AND y.v > 1": lambda x, y: equal(x["k"], y["k"]) and 1 < y["v"] >= x["v"],
    " AND x.v > 1 AND x.v + 1 = y.v": lambda x, y: 1 < x["v"] == y["v"] - 1,
}


@settings(max_examples=60, deadline=None)
@given(
    st.data(),
    st.sampled_from(sorted(CONDITIONS)),
    st.booleans(),
    st.integers(-4, 4),
    st.integers(0, 4),
    CUTS,
    st.integers(0, 20_000),
)
def test_a_join_is_what_nested_loops_give(
    data: st.DataObject, on: str, outer: bool, low: int, width: int, cuts: list[int], start_us: int
) -> None:
    """Every result, its time and its order; whatever the cuts; and from any start on."""
    left, right = data.draw(events_of()), data.draw(events_of())
    join = "LEFT JOIN" if outer else "JOIN"
    sql = f"SELECT x.v AS x, y.v AS y INTO out FROM a x {join} b y ON DATEDIFF(ms, x, y) BETWEEN {low} AND {low + width}{on}"
    expected = nested_loops(left, right, MILLISECOND, low, low + width, outer, CONDITIONS[on])
    _holds(sql, {"a": left, "b": right}, expected, cuts, start_us)


@settings(max_examples=30, deadline=None)
@given(events_of((1, 2), subs=3), st.booleans(), CUTS, st.integers(0, 20_000))
def test_an_input_over_substreams_is_joined_with_itself(events: list[Event], outer: bool, cuts: list[int], start_us: int) -> None:
    """Rows of different substreams never match."""
    schema = InputSchema("a", is_free=True)
    over = "a TIMESTAMP BY t OVER sub"
    joined = f"{over} x {'LEFT' if outer else 'INNER'} JOIN {over} y"
    sql = f"SELECT x.v AS x, y.v AS y INTO out FROM {joined} ON DATEDIFF(ms, x, y) BETWEEN 0 AND 2 AND x.k = y.k AND x.sub = y.sub"
    events = [Event(event.sub, event.system_us, {**event.payload, "sub": event.sub}) for event in events]
    expected = nested_loops(events, events, MILLISECOND, 0, 2, outer, CONDITIONS[" AND x.k = y.k"])
    _holds(sql, {"a": events}, expected, cuts, start_us, [schema])


@settings(max_examples=30, deadline=None)
@given(events_of((1, 2), subs=3), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 25_000)), max_size=12))
def test_each_substream_advances_on_its_own(events: list[Event], moves: list[tuple[int, int]]) -> None:
    """One moves, the others stand still; each gives its own sequence."""
    over = "a TIMESTAMP BY t OVER sub"
    on = "DATEDIFF(ms, x, y) BETWEEN -1 AND 2 AND x.k = y.k AND x.sub = y.sub"
    sql = f"SELECT x.v AS x, y.v AS y INTO out FROM {over} x LEFT JOIN {over} y ON {on}"
    events = [Event(event.sub, event.system_us, {**event.payload, "sub": event.sub}) for event in events]
    program, retention = program_of(sql, [InputSchema("a", is_free=True)]), Retention()
    for name, rows in program.prepare("a", event_table(events))[0]:
        retention.add(name, rows)
    done = dict.fromkeys(range(3), 0)
    found: dict[int, list[tuple[int, str]]] = {}
    for sub, to_us in [*moves, *((sub, END_US) for sub in done)]:
        (results,) = finish(program, retention, slices({sub: (done[sub], max(done[sub], to_us))}, "from_us", "to_us"))
        done[sub] = max(done[sub], to_us)
        for row in results.to_pylist():
            found.setdefault(row["sub"], []).append((row["system_us"], row["value"].decode()))
    assert found == nested_loops(events, events, MILLISECOND, -1, 2, True, CONDITIONS[" AND x.k = y.k"])


def _holds(
    sql: str,
    events: dict[str, list[Event]],
    expected: dict[int, list[tuple[int, str]]],
    cuts: list[int],
    start_us: int,
    schemas: Sequence[InputSchema] = (),
) -> None:
    whole = answers_of(sql, events, schemas=schemas)
    found = {sub: [(system_us, value.decode()) for system_us, _, value in rows] for sub, rows in whole.results["out"].items() if rows}
    assert found == expected
    assert answers_of(sql, events, cuts, schemas=schemas) == whole
    begun = answers_of(sql, events, cuts, start_us=start_us, schemas=schemas)
    late = {sub: [row for row in rows if row[0] >= start_us] for sub, rows in whole.results["out"].items()}
    assert {sub: rows for sub, rows in begun.results["out"].items() if rows} == {sub: rows for sub, rows in late.items() if rows}


@settings(max_examples=30, deadline=None)
@given(events_of((1, 2)), events_of((1, 2)), events_of((1, 2)), st.booleans(), st.booleans(), st.sampled_from("ab"), CUTS)
def test_three_inputs_are_what_three_loops_give(
    a: list[Event], b: list[Event], c: list[Event], first_outer: bool, second_outer: bool, near: str, cuts: list[int]
) -> None:
    """The joined row's time decides when it comes, the time of the side that ON names decides what it matches."""
    sql = f"""SELECT a.v AS a, b.v AS b, c.v AS c INTO out
              FROM a {"LEFT" if first_outer else ""} JOIN b ON DATEDIFF(ms, a, b) BETWEEN -1 AND 3 AND a.k = b.k
              {"LEFT" if second_outer else ""} JOIN c ON DATEDIFF(ms, {near}, c) BETWEEN -2 AND 1 AND c.k = a.k"""
    pairs: list[tuple[tuple[int, ...], Event, Event | None]] = []
    for i, x in enumerate(a):
        matches = [(j, y) for j, y in enumerate(b) if _near(x, y, -1, 3)]
        pairs += [((max(x.system_us, y.system_us), 0, i, j), x, y) for j, y in matches]
        if first_outer and not matches:
            pairs.append(((max(x.system_us, (x.system_us // MILLISECOND + 4) * MILLISECOND - 1), 1, i, 0), x, None))
    pairs.sort(key=lambda pair: pair[0])
    rows: list[tuple[tuple[int, ...], str]] = []
    for i, (order, x, y) in enumerate(pairs):
        side = x if near == "a" else y
        found = [(j, z) for j, z in enumerate(c) if side is not None and _near(side, z, -2, 1) and z.payload["k"] == x.payload["k"]]
        values = {"a": x.payload["v"], "b": None if y is None else y.payload["v"]}
        rows += [((max(order[0], z.system_us), 0, i, j), line(**values, c=z.payload["v"])) for j, z in found]
        if second_outer and not found:
            until_us = 0 if side is None else (side.system_us // MILLISECOND + 2) * MILLISECOND - 1
            rows.append(((max(order[0], until_us), 1, i, 0), line(**values, c=None)))
    expected = {0: [(order[0], value) for order, value in sorted(rows)]} if rows else {}
    _holds(sql, {"a": a, "b": b, "c": c}, expected, cuts, 7_000)


def _near(x: Event, y: Event, low: int, high: int) -> bool:
    return x.payload["k"] == y.payload["k"] and low <= y.system_us // MILLISECOND - x.system_us // MILLISECOND <= high


@pytest.mark.parametrize("sides", [("a", "b"), ("b", "a")])
def test_many_equal_keys_cost_only_what_lies_near_in_time(sides: tuple[str, str]) -> None:
    """60,000 rows of one key, each near to three others: no product of all with all."""
    sql = f"SELECT x.v AS x, y.v AS y INTO out FROM {sides[0]} x JOIN {sides[1]} y ON DATEDIFF(mcs, x, y) BETWEEN -1 AND 1 AND x.k = y.k"
    events = [Event(0, number, {"k": "same", "v": number}) for number in range(1, 60_001)]
    assert len(answers_of(sql, {"a": events, "b": events}, [30_000]).values()) == 3 * 60_000 - 2
