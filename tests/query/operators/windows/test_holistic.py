"""Aggregates that need all rows of a window: by hand, and against a naive reading of every window, however time is cut."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.budgets import budget_of
from support.query_oracle import Event
from support.script_runs import Row, answers_of

from query.operators.windows.holistic import compute_holistic
from query.operators.windows.variance import variances
from tidegate.basics.budget import BUDGET, Budget
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate, Field
from tidegate.language.expressions.variant import Variant

SECOND = 1_000_000
V = Field(("v",))


def one(select: str, *payloads: Any) -> str:
    """The one result of a window over all payloads, which come a second apart."""
    events = [Event(0, (at + 1) * SECOND, payload) for at, payload in enumerate(payloads)]
    (found,) = answers_of(f"SELECT {select} FROM a GROUP BY TumblingWindow(second, 1000)", {"a": events}).values()
    return found


def of(select: str, *values: Any) -> str:
    """The same where each payload has one field v."""
    return one(f"{select} AS r", *({"v": value} for value in values)).removeprefix('{"r":').removesuffix("}")


# By hand


def test_distinct_counts_values_not_events() -> None:
    """NULL does not count; equal numbers are one value whatever their kind, text is never a number."""
    assert of("COUNT(DISTINCT v)", 1, 1, None, 2) == "2"
    assert of("COUNT(DISTINCT v)", 1, 1.0, "1", True, 2**53, 2**53 + 1, 2.0**53, 0.5, 0.5, 1e300) == "7"
    assert of("COUNT(DISTINCT v)", {"a": 1, "b": 2}, {"b": 2, "a": 1}, [1, 2], [2, 1]) == "3"
    assert of("COUNT(DISTINCT v)", None, None) == "0"


def test_deviations_of_a_sample_and_of_a_population() -> None:
    """By the textbook: 2, 4, 4, 4, 5, 5, 7, 9 deviate by 2 from their mean."""
    numbers = 2, 4, None, 4, 4.0, 5, 5, 7, 9
    assert of("STDEVP(v)", *numbers) == "2.0"
    assert of("VARP(v)", *numbers) == "4.0"
    assert of("VAR(v)", *numbers) == repr(32 / 7)
    assert of("STDEV(v)", *numbers) == repr(math.sqrt(32 / 7))


def test_a_sample_of_one_value_has_no_deviation() -> None:
    """It would divide by nothing; a population of one does not deviate; without values there is neither."""
    assert [of(f"{function}(v)", 3, None) for function in ("VAR", "STDEV", "VARP", "STDEVP")] == ["null", "null", "0.0", "0.0"]
    assert [of(f"{function}(v)", None) for function in ("VAR", "STDEV", "VARP", "STDEVP")] == ["null"] * 4


def test_a_variance_survives_what_ruins_sums_of_squares() -> None:
    """Large values that differ little; large bigints; and one beyond all floats is NULL."""
    assert of("VAR(v)", 1e15 + 4, 1e15 + 7, 1e15 + 13, 1e15 + 16) == "30.0"
    assert of("VARP(v)", 2**62, 2**62 + 2) == "1.0"
    assert of("VARP(v)", 1e200, -1e200) == "null"


def test_collected_events_come_in_order() -> None:
    """Whole payloads as compact records, or values; NULL is an element."""
    assert one("COLLECT() AS r", {"b": 1, "a": "x"}, {}, {"c": [1, {"d": None}]}) == '{"r":[{"b":1,"a":"x"},{},{"c":[1,{"d":null}]}]}'
    assert of("COLLECT(v)", 2, "b", None, 1.5, True, {"a": 1}) == '[2,"b",null,1.5,true,{"a":1}]'
    assert of("COLLECT(v + 1)", 2, 1) == "[3,2]"


def test_the_top_of_a_window() -> None:
    """Ranks count from 1; of equals the earlier event comes first."""
    payloads = {"n": "a", "v": 2}, {"n": "b", "v": 5}, {"n": "c", "v": 5}, {"n": "d", "v": 1}
    assert one("TopOne() OVER (ORDER BY v DESC) AS r", *payloads) == '{"r":{"n":"b","v":5}}'
    assert one("TopOne(n) OVER (ORDER BY v DESC, n DESC) AS r", *payloads) == '{"r":"c"}'
    assert one("CollectTop(2) OVER (ORDER BY v) AS r", *payloads) == (
        '{"r":[{"rank":1,"value":{"n":"d","v":1}},{"rank":2,"value":{"n":"a","v":2}}]}'
    )
    found = json.loads(one("CollectTop(9, n) OVER (ORDER BY v DESC) AS r", *payloads))["r"]
    assert [(each["rank"], each["value"]) for each in found] == [(1, "b"), (2, "c"), (3, "a"), (4, "d")]


def test_null_stands_lowest_in_an_order() -> None:
    """First when ascending, last when descending; kinds in the order MIN and MAX have."""
    values = "x", 2, None, 1.5, True
    assert of("CollectTop(5, v) OVER (ORDER BY v)", *values) == (
        "[" + ",".join(f'{{"rank":{at},"value":{each}}}' for at, each in enumerate(("null", "true", "1.5", "2", '"x"'), 1)) + "]"
    )
    assert of("TopOne(v) OVER (ORDER BY v DESC)", *values) == '"x"'
    assert of("TopOne(v) OVER (ORDER BY v DESC)", 2**53, 2.0**53, 2**53 + 1) == str(2**53 + 1)


@pytest.mark.parametrize("bytes_max", [0, BUDGET.repeated_bytes])
def test_texts_are_ordered_by_their_bytes_however_many(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 1: of few bytes their distinct values are sorted, of many the texts as they stand; NULL and equal ones among them."""
    monkeypatch.setattr(Budget, "repeated_bytes", bytes_max)
    texts = "b", "a", "\u00e9", None, "b", "", "a"
    payloads = [{"n": number, "v": text} for number, text in enumerate(texts, 1)]
    found = json.loads(one("CollectTop(9, n) OVER (ORDER BY v, n DESC) AS r", *payloads))["r"]
    assert [first["value"] for first in found] == [4, 6, 7, 2, 5, 1, 3]
    assert one("TopOne(n) OVER (ORDER BY v DESC, n) AS r", *payloads) == '{"r":3}'


def test_percentiles_as_the_documentation_computes_them() -> None:
    """Its example of PERCENTILE_CONT and of PERCENTILE_DISC, and their ends."""
    values = 0.98, 0.93, None, 0.78, 0.99, 0.89
    assert of("PERCENTILE_CONT(0.95) OVER (ORDER BY v)", *values) == "0.988"
    assert of("PERCENTILE_DISC(0.95) OVER (ORDER BY v)", *values) == "0.99"
    for function in ("PERCENTILE_CONT", "PERCENTILE_DISC"):
        assert [of(f"{function}({part}) OVER (ORDER BY v)", *values) for part in ("0", "1")] == ["0.78", "0.99"]
        assert of(f"{function}(0) OVER (ORDER BY v DESC)", *values) == "0.99"
        assert of(f"{function}(0.5) OVER (ORDER BY v)", None) == "null"


def test_a_percentile_between_values() -> None:
    """CONT is a float between two values, DISC one of them with its kind; a part is what the script writes, not its float."""
    assert of("PERCENTILE_CONT(0.5) OVER (ORDER BY v)", 4, 1, 2, 3) == "2.5"
    assert of("PERCENTILE_DISC(0.5) OVER (ORDER BY v)", 4, 1, 2, 3) == "2"
    assert of("PERCENTILE_DISC(0.5) OVER (ORDER BY v DESC)", 4, 1, 2, 3) == "3"
    assert of("PERCENTILE_CONT(0.57) OVER (ORDER BY v)", *range(101)) == "57.0"
    assert of("PERCENTILE_DISC(0.07) OVER (ORDER BY v)", *range(1, 101)) == "7"
    assert of("PERCENTILE_CONT(0.5) OVER (ORDER BY v)", -1.6e308, 1.6e308) == "0.0"


def test_rows_of_a_step_are_records_of_its_columns() -> None:
    """In the order of its SELECT; and a following step reads members of what TopOne found."""
    sql = """WITH counts AS (SELECT k, COUNT(*) AS n, System.Timestamp() AS at FROM a GROUP BY k, TumblingWindow(second, 10)),
                  best AS (SELECT TopOne() OVER (ORDER BY n DESC) AS most, COLLECT() AS r FROM counts GROUP BY TumblingWindow(second, 30))
             SELECT most.k AS k, most.n AS n, r INTO out FROM best"""
    events = [Event(0, second * SECOND, {"k": key}) for second, key in ((1, "x"), (2, "y"), (3, "y"))]
    assert answers_of(sql, {"a": events}).values() == [
        '{"k":"y","n":2,"r":[{"k":"x","n":1,"at":"1970-01-01T00:00:10Z"},{"k":"y","n":2,"at":"1970-01-01T00:00:10Z"}]}'
    ]


def test_rows_of_a_join_are_records_of_records() -> None:
    """One for each side, by the names of the sides, as SELECT * gives them; a step that adds to events has their members too."""
    events = [Event(0, second * SECOND, {"v": second}) for second in (1, 2)]
    window = "GROUP BY TumblingWindow(second, 10)"
    sql = f"SELECT COLLECT() AS r FROM a x JOIN a y ON DATEDIFF(second, x, y) BETWEEN 1 AND 1 {window}"
    assert answers_of(sql, {"a": events}).values() == ['{"r":[{"x":{"v":1},"y":{"v":2}}]}']
    lag = "LAG(w) OVER (LIMIT DURATION(hour, 1))"
    sql = f"WITH s AS (SELECT *, v * 2 AS w FROM a) SELECT COLLECT() AS r, COLLECT({lag}) AS l INTO o FROM s {window}"
    assert answers_of(sql, {"a": events}).values("o") == ['{"r":[{"v":1,"w":2},{"v":2,"w":4}],"l":[null,2]}']


def test_the_name_of_an_input_counts_its_events() -> None:
    """As the documentation says; DISTINCT counts different events. A column of that name is a column."""
    events = [{"v": 1}, {"v": 1}, {"v": 2}, {}]
    assert one("COUNT(a) AS n, COUNT(DISTINCT a) AS d, COUNT(a.v) AS v", *events) == '{"n":4,"d":3,"v":3}'
    step = "WITH s AS (SELECT {} FROM a) SELECT COUNT(s) AS n INTO out FROM s GROUP BY TumblingWindow(second, 1000)"
    for column, count in (("v", 4), ("v AS s", 3)):
        assert answers_of(step.format(column), {"a": [Event(0, SECOND, event) for event in events]}).values() == [f'{{"n":{count}}}']


def test_whole_rows_are_taken_after_where() -> None:
    """What is filtered is not collected; a broken payload is a dead letter even where no field of it is named."""
    events = [Event(0, SECOND, {"v": 1}), Event(0, SECOND, {"v": 2}), Event(0, SECOND, b"{")]
    answers = answers_of("SELECT COLLECT() AS r FROM a WHERE v > 1 GROUP BY TumblingWindow(second, 1)", {"a": events})
    assert (answers.values(), answers.reasons) == (['{"r":[{"v":2}]}'], ["payload is not JSON"])
    answers = answers_of("SELECT COLLECT() AS r FROM a GROUP BY TumblingWindow(second, 1)", {"a": events})
    assert (answers.values(), answers.reasons) == (['{"r":[{"v":1},{"v":2}]}'], ["payload is not JSON"])


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("STDEV(v)", "a number is needed, not nvarchar(max): v"),
        ("PERCENTILE_CONT(0.5) OVER (ORDER BY v)", "a number is needed, not nvarchar(max): v"),
        ("TopOne(n) OVER (ORDER BY r)", "values of type record cannot be compared: r"),
    ],
)
def test_a_row_that_cannot_be_ordered_or_added_is_a_dead_letter(select: str, reason: str) -> None:
    """It is left out of its window."""
    events = [Event(0, SECOND, {"v": "x", "r": {}}), Event(0, SECOND, {"v": 1, "r": 1})]
    answers = answers_of(f"SELECT {select} AS x, COUNT(*) AS n FROM a GROUP BY TumblingWindow(second, 1)", {"a": events})
    assert (answers.values()[0][-6:], answers.reasons) == ('"n":1}', [reason])


def test_a_group_on_which_an_expression_fails_is_a_dead_letter() -> None:
    """Its values, as far as they are known, with the reason; the other groups go on, and so do HAVING and further steps."""
    events = [Event(0, SECOND, {"k": key, "v": value}) for key, value in (("x", "7"), ("y", "seven"), ("z", "8"))]
    sql = "SELECT k, CAST(MAX(v) AS bigint) AS n FROM a GROUP BY k, TumblingWindow(second, 1)"
    answers = answers_of(sql, {"a": events})
    assert (answers.values(), answers.reasons) == (['{"k":"x","n":7}', '{"k":"z","n":8}'], ["conversion failed: CAST(MAX(v) AS bigint)"])
    answers = answers_of("SELECT k FROM a GROUP BY k, TumblingWindow(second, 1) HAVING CAST(MAX(v) AS bigint) > 7", {"a": events})
    assert (answers.values(), len(answers.reasons)) == (['{"k":"z"}'], 1)
    answers = answers_of(f"WITH s AS ({sql}) SELECT SUM(n) AS n INTO out FROM s GROUP BY TumblingWindow(second, 2)", {"a": events})
    assert (answers.values(), len(answers.reasons)) == (['{"n":15}'], 1)
    assert answers_of(sql, {"a": events}, start_us=2 * SECOND).reasons == []


def test_windows_without_rows_and_many_chunks() -> None:
    """Runs may be empty, and it does not matter how many rows are spelled out at once."""
    values = [Variant.of(6, {Kind.BIGINT: pa.array([3, 1, 1, None, 2, 3])})]
    first, last = np.array([0, 2, 3, 1, 3]), np.array([5, 1, 3, 4, 5])
    expected = {
        Aggregate("count", V, distinct=True): [3, 0, 0, 2, 2],
        Aggregate("collect", V): ["[3,1,1,null,2,3]", "[]", "[null]", "[1,1,null,2]", "[null,2,3]"],
        Aggregate("varp", V): [0.8, None, None, 2 / 9, 0.25],
    }
    for aggregate, results in expected.items():
        for rows_max in (1, 3, 100):
            with budget_of(numbered_rows=rows_max):
                (part,) = compute_holistic(aggregate, values, first, last).parts.values()
            assert part.to_pylist() == results


# Against a naive reading


def rank(value: Any) -> int:
    """The place of a value's kind."""
    return 0 if value is None else 1 if isinstance(value, bool) else 2 if isinstance(value, (int, float)) else 3


def compared(left: Any, right: Any) -> int:
    """-1, 0 or 1 as ORDER BY has it; Python compares integers and floats exactly."""
    if rank(left) != rank(right) or left is None:
        return (rank(left) > rank(right)) - (rank(left) < rank(right))
    return int(left > right) - int(left < right)


def ordered(rows: Sequence[Any], *keys: tuple[str, bool]) -> list[Any]:
    """Rows sorted by fields, each perhaps descending; sorting is stable."""

    def order(left: Any, right: Any) -> int:
        for name, descending in keys:
            if found := compared(left.get(name), right.get(name)):
                return -found if descending else found
        return 0

    return sorted(rows, key=cmp_to_key(order))


def variance(numbers: Sequence[Any], divisor: int) -> float | None:
    """The variance by its definition, in fractions."""
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact) / len(exact) if exact else Fraction(0)
    return float(sum((each - mean) ** 2 for each in exact) / divisor) if divisor > 0 else None


def between(numbers: Sequence[Any], part: Fraction) -> float | None:
    """PERCENTILE_CONT of sorted numbers, in floats as the contract says."""
    if not numbers:
        return None
    place = part * (len(numbers) - 1)
    low, share = float(numbers[int(place)]), float(place - int(place))
    return low + share * (float(numbers[math.ceil(place)]) - low)


def expected(rows: list[dict[str, Any]]) -> str:
    """What SELECT gives for the events of one window."""
    numbers = [row["x"] for row in rows if row.get("x") is not None]
    ascending = [row["x"] for row in ordered([row for row in rows if row.get("x") is not None], ("x", False))]
    descending = [row["x"] for row in ordered([row for row in rows if row.get("x") is not None], ("x", True))]
    values = [row["v"] for row in rows if row.get("v") is not None]
    different = [value for at, value in enumerate(values) if all(compared(value, other) for other in values[:at])]
    deviation = variance(numbers, len(numbers) - 1)
    found = {
        "k": rows[0]["k"],
        "d": len(different),
        "c": [row.get("v") for row in rows],
        "whole": rows,
        "top": ordered(rows, ("v", True), ("x", False))[0],
        "two": [{"rank": at, "value": row.get("x")} for at, row in enumerate(ordered(rows, ("v", False))[:2], 1)],
        "cont": between(descending, Fraction(1, 4)),
        "disc": ascending[max(math.ceil(Fraction(7, 10) * len(ascending)) - 1, 0)] if ascending else None,
        "deviation": None if deviation is None else statistics.stdev(map(Fraction, numbers)),
        "varp": variance(numbers, len(numbers)),
    }
    return json.dumps(found, separators=(",", ":"))


SELECT = """SELECT k, COUNT(DISTINCT v) AS d, COLLECT(v) AS c, COLLECT() AS whole, TopOne() OVER (ORDER BY v DESC, x) AS [top],
    CollectTop(2, x) OVER (ORDER BY v) AS two, PERCENTILE_CONT(0.25) OVER (ORDER BY x DESC) AS cont,
    PERCENTILE_DISC(0.7) OVER (ORDER BY x) AS disc, STDEV(x) AS deviation, VARP(x) AS varp"""
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([1.0, 2.0, -0.5, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, -(2**63), 0.1]),
    # Inside of records floats are written without exponents alike by every writer of JSON; elsewhere tests have all of them.
    st.floats(-1e6, 1e6).map(lambda number: round(number, 3) + 0.0),
)
VALUES = st.one_of(st.none(), NUMBERS, st.booleans(), st.sampled_from(["", "a", "b", "B"]))
PAYLOADS = st.fixed_dictionaries({"k": st.sampled_from("xyz")}, optional={"v": VALUES, "x": st.one_of(st.none(), NUMBERS)})
EVENTS = st.lists(st.tuples(st.integers(1, 40), PAYLOADS), max_size=14).map(lambda pairs: sorted(pairs, key=lambda pair: pair[0]))
CUTS = st.lists(st.integers(0, 60), max_size=5)
WINDOWS = st.sampled_from(
    [
        ("TumblingWindow(mcs, 7)", 7, 7),
        ("HoppingWindow(mcs, 12, 5)", 12, 5),
        ("HoppingWindow(mcs, 3, 5)", 3, 5),
        ("SlidingWindow(mcs, 9)", 9, 0),
    ]
)


def naive(events: Sequence[Event], size: int, hop: int) -> list[Row]:
    """Every window of every key, in order; without a hop at each instant at which an event of the key enters or leaves."""
    found = []
    for end in range(60):
        for key in "xyz":
            instants = {event.system_us + after for event in events for after in (0, size) if event.payload["k"] == key}
            if end % hop if hop else end not in instants:
                continue
            rows = [event.payload for event in events if end - size < event.system_us <= end and event.payload["k"] == key]
            if rows:
                found.append((end, key.encode(), expected(rows).encode()))
    return found


@settings(max_examples=60, deadline=None)
@given(EVENTS, WINDOWS, CUTS, st.integers(0, 50))
def test_every_window_whatever_the_cuts_and_the_start(pairs: Any, window: tuple[str, int, int], cuts: list[int], start_us: int) -> None:
    """One timeline."""
    call, size, hop = window
    events = [Event(0, at, payload) for at, payload in pairs]
    rows = naive(events, size, hop)
    sql = f"{SELECT} FROM a GROUP BY k, {call}"
    assert answers_of(sql, {"a": events}, cuts).results["out"].get(0, []) == rows
    later = answers_of(sql, {"a": events}, cuts, start_us=start_us).results["out"].get(0, [])
    assert later == [row for row in rows if row[0] >= start_us]


@settings(max_examples=30, deadline=None)
@given(EVENTS, WINDOWS, CUTS)
def test_every_substream_on_its_own(pairs: Any, window: tuple[str, int, int], cuts: list[int]) -> None:
    """OVER: the events of each key have a substream."""
    call, size, hop = window
    events = [Event("zxy".index(payload["k"]), at, payload) for at, payload in pairs]
    answers = answers_of(
        f"{SELECT} FROM a TIMESTAMP BY t OVER k GROUP BY k, {call}", {"a": events}, cuts, schemas=[InputSchema("a", "t", "k")]
    )
    for sub, key in enumerate("zxy"):
        assert answers.results["out"].get(sub, []) == [row for row in naive(events, size, hop) if row[1] == key.encode()]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150).map(lambda number: number + 0.0),
        ),
        max_size=6,
    ),
    st.booleans(),
)
def test_a_variance_is_the_float_nearest_to_the_true_one(values: list[Any], sample: bool) -> None:
    """Whatever the values: of any size, subnormal, bigints no float can hold."""
    whole = pa.array([value if isinstance(value, int) else None for value in values], pa.int64())
    real = pa.array([value if isinstance(value, float) else None for value in values], pa.float64())
    column = Variant.of(len(values), {Kind.BIGINT: whole, Kind.FLOAT: real})
    (found,) = variances(column, np.array([0]), np.array([len(values) - 1]), sample=sample).to_pylist()
    numbers = [value for value in values if value is not None]
    assert found == variance(numbers, len(numbers) - int(sample))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from("abcd"), st.integers(-3, 3)), max_size=40), st.integers(1, 3))
def test_top_chooses_from_the_rows_of_each_window(drawn: list[tuple[int, str, int]], count: int) -> None:
    """Level 3: they are the rows that come without TOP, chosen and in order as a naive sort of each window has them."""
    select = "k, COUNT(*) AS n, SUM(v) * 0.5 AS half, MAX(v) > 0 AS rising, System.Timestamp() AS t"
    source = "FROM a GROUP BY k, HoppingWindow(second, 4, 2)"
    events = {"a": [Event(0, (at + 1) * SECOND, {"k": k, "v": v}) for at, k, v in sorted(drawn)]}
    rows = answers_of(f"SELECT {select} {source}", events).values()
    by_window: dict[str, list[str]] = {}
    for row in rows:
        by_window.setdefault(json.loads(row)["t"], []).append(row)

    def place(row: str) -> tuple[float, str]:
        return -json.loads(row)["half"], json.loads(row)["k"]

    wanted = [row for window in by_window.values() for row in sorted(window, key=place)[:count]]
    assert answers_of(f"SELECT TOP {count} {select} {source} ORDER BY half DESC, k", events).values() == wanted
