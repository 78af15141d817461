"""Analytic functions: what each row sees, worked out by hand, and against a model that looks at every pair of rows."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.query_oracle import Event, iso
from support.query_runs import event_table, finish, slices
from support.script_runs import answers_of, program_of

from ordering.errors import QueryError
from ordering.ticks import DAY_US, SECOND_US
from query.engine.retention import Retention
from query.testing.run_query import run_query
from tidegate.language.expressions.binding.input_schema import InputSchema

SECOND = 1_000_000
KEYED = InputSchema("a", timestamp_by="t", over="k")


def at(second: float, sub: int = 0, **payload: object) -> Event:
    """An event."""
    return Event(sub, int(second * SECOND), payload)


def column(select: str, events: Sequence[Event], rest: str = "") -> list[Any]:
    """The values of one column, in order."""
    return [json.loads(value)["x"] for value in answers_of(f"SELECT {select} AS x FROM a {rest}", {"a": events}).values()]


# LAG and LAST


def test_lag_is_the_value_of_the_row_before() -> None:
    """Offset 1 unless said otherwise; NULL, or the default, where there is no such row."""
    events = [at(1, v=1), at(2, v=2), at(3, v=3)]
    assert column("LAG(v) OVER (LIMIT DURATION(second, 10))", events) == [None, 1, 2]
    assert column("LAG(v, 2) OVER (LIMIT DURATION(second, 10))", events) == [None, None, 1]
    assert column("LAG(v, 2, -1) OVER (LIMIT DURATION(second, 10))", events) == [-1, -1, 1]


def test_a_default_may_be_computed_from_the_row_itself() -> None:
    """It stands for a row that is not there, not for a NULL in one that is."""
    events = [at(1, v=5), at(2), at(3, v=3), at(4, v=4)]
    assert column("LAG(v, 1, v * 10) OVER (LIMIT DURATION(second, 10))", events) == [50, 5, None, 3]


def test_a_row_exactly_as_old_as_the_limit_still_counts() -> None:
    """One microsecond older it does not, however few there are."""
    events = [at(1, v=1), at(11, v=2), at(21.000001, v=3)]
    assert column("LAG(v) OVER (LIMIT DURATION(second, 10))", events) == [None, 1, None]


def test_rows_of_one_instant_see_those_before_them_in_the_fixed_order() -> None:
    """As they arrived, here."""
    events = [at(1, v=1), at(1, v=2), at(1, v=3)]
    assert column("LAG(v) OVER (LIMIT DURATION(second, 10))", events) == [None, 1, 2]
    assert column("COUNT(*) OVER (LIMIT DURATION(second, 10))", events) == [1, 2, 3]


def test_partitions_are_apart_by_kind_and_value() -> None:
    """NULL is a value of its own; 1 and 1.0 are one, '1' is another; members of records may stand in any order."""
    keys = [1, 1.0, "1", None, {"a": 1, "b": 2}, {"b": 2, "a": 1}, 1, None]
    events = [at(second, k=key, v=second) for second, key in enumerate(keys, start=1)]
    found = [None, 1, None, None, None, 5, 2, 4]
    assert column("LAG(v) OVER (PARTITION BY k LIMIT DURATION(minute, 1))", events) == found
    assert column("LAG(v) OVER (PARTITION BY k, 1 LIMIT DURATION(minute, 1))", events) == found


def test_many_keys_of_many_values_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their numbers would grow too large, groups are numbered anew."""
    monkeypatch.setattr("query.operators.rows.row_groups._NUMBERS_MAX", 4)
    rows = [(a, b, c) for a in range(3) for b in "xyz" for c in (None, True, 1.5)] * 2
    events = [at(second, a=a, b=b, c=c, v=second) for second, (a, b, c) in enumerate(rows, start=1)]
    found = column("LAG(v) OVER (PARTITION BY a, b, c LIMIT DURATION(minute, 1))", events)
    assert found == [None] * 27 + list(range(1, 28))


def test_when_says_which_rows_are_seen() -> None:
    """The row itself need not meet it; to LAST a row that does is itself the last."""
    events = [at(1, v=1, ok=1), at(2, v=2, ok=0), at(3, v=3, ok=0), at(4, v=4, ok=1), at(5, v=5)]
    assert column("LAG(v) OVER (LIMIT DURATION(minute, 1) WHEN ok = 1)", events) == [None, 1, 1, 1, 4]
    assert column("LAG(v, 2) OVER (LIMIT DURATION(minute, 1) WHEN ok = 1)", events) == [None, None, None, None, 1]
    assert column("LAST(v) OVER (LIMIT DURATION(minute, 1) WHEN ok = 1)", events) == [1, 1, 1, 4, 4]
    assert column("LAST(v, 0) OVER (LIMIT DURATION(second, 1) WHEN ok = 1)", events) == [1, 1, 0, 4, 4]


def test_an_argument_is_computed_only_where_when_is_met() -> None:
    """So it cannot fail anywhere else; where it does, the row is bad and seen by none."""
    events = [at(1, v="1", ok=1), at(2, v="x", ok=0), at(3, v="y", ok=1), at(4, v="4", ok=1)]
    answers = answers_of("SELECT LAG(CAST(v AS bigint)) OVER (LIMIT DURATION(minute, 1) WHEN ok = 1) AS x FROM a", {"a": events})
    assert answers.values() == ['{"x":null}', '{"x":1}', '{"x":1}']
    assert answers.reasons == ["conversion failed: CAST(v AS bigint)"]


def test_the_kind_is_that_of_the_older_value() -> None:
    """Value by value."""
    events = [at(1, v=1), at(2, v=2.5), at(3, v="x"), at(4, v=True), at(5, v={"a": [1]}), at(6)]
    assert column("LAG(v) OVER (LIMIT DURATION(minute, 1))", events) == [None, 1, 2.5, "x", True, {"a": [1]}]


def test_lag_of_the_star_is_the_whole_row() -> None:
    """As a record, of a step its columns."""
    events = [at(1, v=1, deep={"a": "x"}), at(2, v=2)]
    assert column("LAG(*) OVER (LIMIT DURATION(minute, 1))", events) == [None, {"v": 1, "deep": {"a": "x"}}]
    sql = "WITH step AS (SELECT v * 2 AS w FROM a) SELECT LAST(*) OVER (LIMIT DURATION(minute, 1)) AS x INTO out FROM step"
    assert answers_of(sql, {"a": events}).values() == ['{"x":{"w":2}}', '{"x":{"w":4}}']


def test_lag_is_computed_before_where_and_group_by() -> None:
    """Rows that WHERE leaves out are seen; it may ask for what is seen, GROUP BY group by it, aggregates add it up."""
    events = [at(1, v=1), at(2, v=2), at(3, v=4), at(4, v=3), at(5, v=5)]
    lag = "LAG(v) OVER (LIMIT DURATION(minute, 1))"
    assert column(lag, events, "WHERE v > 2") == [2, 4, 3]
    assert column("v", events, f"WHERE {lag} > v") == [3]
    grouped = f"SELECT v > {lag} AS up, COUNT(*) AS n, SUM(v - {lag}) AS d FROM a GROUP BY v > {lag}, TumblingWindow(second, 10)"
    assert answers_of(grouped, {"a": events}).values() == [
        '{"up":null,"n":1,"d":null}',
        '{"up":false,"n":1,"d":-1}',
        '{"up":true,"n":3,"d":5}',
    ]


def test_lag_over_a_step_and_of_a_lag() -> None:
    """A step's rows are rows like any other; what cannot be nested can be done in steps."""
    sql = """WITH step AS (SELECT k, COUNT(*) AS n FROM a GROUP BY k, TumblingWindow(second, 10)),
                  first AS (SELECT k, n, LAG(n) OVER (PARTITION BY k LIMIT DURATION(minute, 1)) AS p FROM step)
             SELECT k, n, p, LAG(p) OVER (PARTITION BY k LIMIT DURATION(minute, 1)) AS pp INTO out FROM first"""
    events = [at(1, k="x"), at(2, k="x"), at(11, k="x"), at(21, k="x"), at(22, k="x"), at(23, k="x")]
    assert answers_of(sql, {"a": events}).values() == [
        '{"k":"x","n":2,"p":null,"pp":null}',
        '{"k":"x","n":1,"p":2,"pp":null}',
        '{"k":"x","n":3,"p":1,"pp":2}',
    ]


def test_a_step_that_passes_events_on_filters_before() -> None:
    """WHERE of a step decides what its readers see."""
    sql = "WITH big AS (SELECT * FROM a WHERE v > 1) SELECT LAG(v) OVER (LIMIT DURATION(minute, 1)) AS x INTO out FROM big"
    assert answers_of(sql, {"a": [at(1, v=2), at(2, v=1), at(3, v=3)]}).values() == ['{"x":null}', '{"x":2}']


def test_lag_over_a_union() -> None:
    """Rows of one instant in the order of the parts."""
    sql = """WITH both AS (SELECT v FROM b UNION SELECT v FROM a)
             SELECT v, LAG(v) OVER (LIMIT DURATION(minute, 1)) AS x INTO out FROM both"""
    answers = answers_of(sql, {"a": [at(1, v=1), at(2, v=2)], "b": [at(2, v=3)]})
    assert answers.values() == ['{"v":1,"x":null}', '{"v":3,"x":1}', '{"v":2,"x":3}']


def test_lag_over_a_join() -> None:
    """The pairs are the rows, each at the later of its times; both sides may be named."""
    sql = """SELECT a.v, b.w, LAG(a.v + b.w) OVER (PARTITION BY a.k LIMIT DURATION(minute, 1)) AS x INTO out
             FROM a JOIN b ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 1 WHERE LAG(b.w) OVER (LIMIT DURATION(minute, 1)) > 2"""
    a, b = ([at(second, k=1, **{name: second}) for second in seconds] for name, seconds in (("v", (1, 3, 5)), ("w", (2, 4, 6))))
    answers = answers_of(sql, {"a": a, "b": b})
    assert answers.values() == ['{"v":5,"w":6,"x":7}']
    assert answers.times() == [6 * SECOND]


# ISFIRST


def test_isfirst_is_one_in_the_first_row_of_each_interval() -> None:
    """Intervals are (start, end], aligned to 1970."""
    events = [at(1), at(10), at(10.5), at(20), at(31)]
    assert column("ISFIRST(second, 10)", events) == [1, 0, 1, 0, 1]


def test_isfirst_of_a_partition_and_of_what_meets_when() -> None:
    """A row that does not meet WHEN is not first, and keeps no other from it."""
    events = [at(1, k="x", v=0), at(2, k="x", v=1), at(3, k="y", v=1), at(4, k="x", v=1)]
    assert column("ISFIRST(second, 10) OVER (PARTITION BY k)", events) == [1, 0, 1, 0]
    assert column("ISFIRST(second, 10) OVER (PARTITION BY k WHEN v = 1)", events) == [0, 1, 1, 0]


# Running aggregates


def test_running_aggregates_count_the_row_itself_and_those_young_enough() -> None:
    """NULL is left out, as of windows."""
    events = [at(1, v=1), at(2, v=5), at(3), at(11, v=2), at(12.5, v=1.5)]
    over = "OVER (LIMIT DURATION(second, 10))"
    assert column(f"SUM(v) {over}", events) == [1, 6, 6, 8, 3.5]
    assert column(f"COUNT(v) {over}", events) == [1, 2, 2, 3, 2]
    assert column(f"COUNT(*) {over}", events) == [1, 2, 3, 4, 3]
    assert column(f"AVG(v) {over}", events) == [1.0, 3.0, 3.0, 8 / 3, 1.75]
    assert column(f"MIN(v) {over}", events) == [1, 1, 1, 1, 1.5]
    assert column(f"MAX(v) {over}", events) == [1, 5, 5, 5, 2]


def test_running_aggregates_over_nothing() -> None:
    """COUNT is 0, the others are NULL."""
    over = "OVER (LIMIT DURATION(second, 1) WHEN v > 2)"
    events = [at(1, v=1), at(2, v=3), at(3, v=1), at(4, v=1)]
    assert column(f"COUNT(*) {over}", events) == [0, 1, 1, 0]
    assert column(f"SUM(v) {over}", events) == [None, 3, 3, None]
    assert column(f"MAX(v) {over}", events) == [None, 3, 3, None]
    assert column(f"STDEVP(v) {over}", events) == [None, 0.0, 0.0, None]
    assert column(f"COLLECT(v) {over}", events) == [[], [3], [3], []]


def test_different_values_are_counted_by_the_example_of_the_refusal() -> None:
    """COUNT(DISTINCT x) OVER is refused; the sliding window that the error shows has the same numbers at the times of events."""
    delays = {60: 1, 1860: 2, 3000: 1, 5400: 5}
    rows = [{"at": iso(second * SECOND_US), "origin": "ATL", "delay": delay} for second, delay in delays.items()]
    with pytest.raises(QueryError) as refused:
        run_query("SELECT COUNT(DISTINCT delay) OVER (LIMIT DURATION(hour, 1)) AS n INTO out FROM a TIMESTAMP BY at", {"a": rows})
    assert (refused.value.code, refused.value.where) == ("TG-QUERY-FUNCTION", "query.sql:1:8")
    fixed = refused.value.example.replace("...", ", System.Timestamp() AS t INTO out FROM a TIMESTAMP BY at").replace(" ,", ",")
    counts = {row["t"]: row["n"] for row in run_query(fixed, {"a": rows}).rows}
    assert [counts[row["at"]] for row in rows] == [1, 2, 2, 3]


def test_running_sums_of_floats_are_exact() -> None:
    """What has left the window leaves no trace."""
    events = [at(1, v=1e16), at(2, v=0.1), at(12, v=0.2), at(13, v=0.3)]
    assert column("SUM(v) OVER (LIMIT DURATION(second, 10))", events) == [1e16, 1e16, float(Fraction(0.1) + Fraction(0.2)), 0.5]


def test_an_aggregate_of_windows_may_take_a_running_one() -> None:
    """It is a column like any other."""
    sql = "SELECT MAX(SUM(v) OVER (LIMIT DURATION(second, 2))) AS x FROM a GROUP BY TumblingWindow(second, 10)"
    assert answers_of(sql, {"a": [at(1, v=1), at(2, v=2), at(4, v=3), at(7, v=1)]}).values() == ['{"x":5}']


# Substreams, memory, limits


def test_with_over_each_substream_is_on_its_own() -> None:
    """PARTITION BY need not name its key, GROUP BY must."""
    sql = "SELECT v, LAG(v) OVER (LIMIT DURATION(minute, 1)) AS x FROM a TIMESTAMP BY t OVER k"
    events = [at(1, 1, k="x", v=1), at(2, 2, k="y", v=2), at(3, 1, k="x", v=3)]
    answers = answers_of(sql, {"a": events}, schemas=[KEYED])
    assert answers.values(sub=1) == ['{"v":1,"x":null}', '{"v":3,"x":1}']
    assert answers.values(sub=2) == ['{"v":2,"x":null}']
    grouped = "SELECT SUM(LAG(v) OVER (LIMIT DURATION(minute, 1))) AS x FROM a TIMESTAMP BY t OVER k GROUP BY {}TumblingWindow(second, 9)"
    answers = answers_of(grouped.format("v % 2, k, "), {"a": events}, schemas=[KEYED])
    assert answers.results["out"][1] == [(9 * SECOND, b"x", b'{"x":1}')]
    with pytest.raises(QueryError, match="the grouping keys must include k"):
        program_of(grouped.format(""), [KEYED])


def test_look_back_is_the_duration() -> None:
    """That of windows over it is added."""
    schema = InputSchema("a")
    assert program_of("SELECT LAG(v, 5) OVER (LIMIT DURATION(hour, 3)) AS x FROM a", [schema]).plans[0].lookback_us == DAY_US // 8
    assert program_of("SELECT ISFIRST(day, 2) AS x FROM a", [schema]).plans[0].lookback_us == 2 * DAY_US
    sql = "SELECT MAX(LAG(v) OVER (LIMIT DURATION(hour, 3))) AS x FROM a GROUP BY TumblingWindow(hour, 3)"
    assert program_of(sql, [schema]).plans[0].lookback_us == DAY_US // 4


def kept_rows(sql: str, seconds: int) -> int:
    """How many rows are still kept after an event per second of one group, each finished on its own."""
    program = program_of(sql, [InputSchema("a")])
    retention = Retention()
    for second in range(1, seconds + 1):
        for name, rows in program.prepare("a", event_table([at(second, k="x", v=second)], second))[0]:
            retention.add(name, rows)
        finish(program, retention, slices({0: ((second - 1) * SECOND + 1, second * SECOND + 1)}, "from_us", "to_us"))
        retention.save()
    return sum(part.num_rows for name in program.retained_names for part in retention.tables(name))


def test_of_lag_the_last_rows_of_each_group_are_kept() -> None:
    """However long the duration is; aggregates need all rows within it. Twice as many are kept at most before it is looked again."""
    assert kept_rows("SELECT LAG(v) OVER (PARTITION BY k LIMIT DURATION(day, 1)) AS x FROM a", 100) == 1
    assert kept_rows("SELECT LAG(v, 3) OVER (LIMIT DURATION(day, 1)) AS x, LAST(v) OVER (LIMIT DURATION(day, 1)) AS y FROM a", 100) == 3
    assert kept_rows("SELECT ISFIRST(day, 1) AS x FROM a", 100) == 1
    assert kept_rows("SELECT LAG(v) OVER (LIMIT DURATION(day, 1) WHEN v < 0) AS x FROM a", 100) == 0
    assert 10 <= kept_rows("SELECT SUM(v) OVER (LIMIT DURATION(second, 10)) AS x FROM a", 100) <= 20


# Against a model


@dataclass(frozen=True)
class Model:
    """
    A function of a query, and what a row at *now* sees.

    Args:
        sql: The function.
        value: Computes it from the rows seen before, oldest first, as far as they count for age and condition, and the row.
        limit_us: How much older rows may be; of ISFIRST the interval.
        partition: The payload's members that rows have in common.
        when: The condition, as the model sees it.
    """

    sql: str
    value: Callable[[list[Event], Event, bool], Any]
    limit_us: int
    partition: tuple[str, ...] = ()
    when: Callable[[dict[str, Any]], bool] = lambda payload: True


def lag(offset: int, default: Any = None) -> Callable[[list[Event], Event, bool], Any]:
    """LAG of v: the candidate *offset* before the row."""
    return lambda before, now, meets: before[-offset].payload["v"] if len(before) >= offset else default


def last(before: list[Event], now: Event, meets: bool) -> Any:
    """LAST of v."""
    seen = [*before, now] if meets else before
    return seen[-1].payload["v"] if seen else None


def first(interval_us: int) -> Callable[[list[Event], Event, bool], int]:
    """ISFIRST."""
    return lambda before, now, meets: int(
        meets and not any(-(-row.system_us // interval_us) == -(-now.system_us // interval_us) for row in before)
    )


def over_numbers(compute: Callable[[list[Any]], Any]) -> Callable[[list[Event], Event, bool], Any]:
    """An aggregate of the values of v that are there."""
    return lambda before, now, meets: compute(
        [row.payload["v"] for row in ([*before, now] if meets else before) if row.payload["v"] is not None]
    )


def exact(values: list[Any]) -> Any:
    """The sum: of integers one, with a float the nearest float."""
    if not values:
        return None
    total = sum(map(Fraction, values))
    return float(total) if any(isinstance(value, float) for value in values) else int(total)


def variance(fewer: int, root: bool = False) -> Callable[[list[Any]], float | None]:
    """The float nearest to the variance, or its root."""

    def compute(values: list[Any]) -> float | None:
        if len(values) <= fewer:
            return None
        if root:
            return (statistics.pstdev, statistics.stdev)[fewer](map(Fraction, values))
        mean = sum(map(Fraction, values)) / len(values)
        return float(sum((Fraction(value) - mean) ** 2 for value in values) / (len(values) - fewer))

    return compute


def middle(values: list[Any]) -> Any:
    """PERCENTILE_DISC(0.5): the first value at which half of all have been counted."""
    return sorted(values)[(len(values) + 1) // 2 - 1] if values else None


def all_seen(before: list[Event], now: Event, meets: bool) -> list[Any]:
    """COLLECT of v."""
    return [row.payload["v"] for row in ([*before, now] if meets else before)]


def largest(before: list[Event], now: Event, meets: bool) -> Any:
    """TopOne of v, the largest first: NULL is lowest, of equals the first one comes first."""
    return max(all_seen(before, now, meets), key=lambda v: (v is not None, v or 0), default=None)


MODELS = (
    Model("LAG(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 9))", lag(1), 9, ("k",)),
    Model("LAG(v, 3, 0) OVER (LIMIT DURATION(mcs, 20) WHEN w = 1)", lag(3, 0), 20, (), lambda payload: payload["w"] == 1),
    Model(
        "LAST(v) OVER (PARTITION BY k, w LIMIT DURATION(mcs, 15) WHEN v IS NOT NULL)",
        last,
        15,
        ("k", "w"),
        lambda row: row["v"] is not None,
    ),
    Model("ISFIRST(mcs, 7) OVER (PARTITION BY k WHEN w = 1)", first(7), 7, ("k",), lambda payload: payload["w"] == 1),
    Model("SUM(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 6))", over_numbers(exact), 6, ("k",)),
    Model("COUNT(v) OVER (LIMIT DURATION(mcs, 4) WHEN w = 1)", over_numbers(len), 4, (), lambda payload: payload["w"] == 1),
    Model(
        "MIN(v) OVER (LIMIT DURATION(mcs, 11))", over_numbers(lambda v: min(v, key=lambda x: (x, isinstance(x, float)), default=None)), 11
    ),
    Model(
        "MAX(v) OVER (PARTITION BY w LIMIT DURATION(mcs, 30))",
        over_numbers(lambda v: max(v, key=lambda x: (x, isinstance(x, int)), default=None)),
        30,
        ("w",),
    ),
    Model("AVG(v) OVER (LIMIT DURATION(mcs, 8))", over_numbers(lambda v: float(sum(map(Fraction, v)) / len(v)) if v else None), 8),
    Model("VARP(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 9))", over_numbers(variance(0)), 9, ("k",)),
    Model("STDEV(v) OVER (LIMIT DURATION(mcs, 7) WHEN w = 0)", over_numbers(variance(1, root=True)), 7, (), lambda row: row["w"] == 0),
    Model("PERCENTILE_DISC(0.5) OVER (PARTITION BY w ORDER BY v LIMIT DURATION(mcs, 10))", over_numbers(middle), 10, ("w",)),
    Model("COLLECT(v) OVER (PARTITION BY k LIMIT DURATION(mcs, 5) WHEN w = 1)", all_seen, 5, ("k",), lambda payload: payload["w"] == 1),
    Model("TopOne(v) OVER (PARTITION BY k ORDER BY v DESC LIMIT DURATION(mcs, 14))", largest, 14, ("k",)),
)


def expected(models: Sequence[Model], events: Sequence[Event]) -> dict[int, list[str]]:
    """The values of each substream, looking from each row at all before it."""
    found: dict[int, list[str]] = {}
    for number, now in enumerate(events):
        row: dict[str, Any] = {}
        for at_column, model in enumerate(models):
            before = [
                other
                for other in events[:number]
                if other.sub == now.sub
                and all(other.payload[name] == now.payload[name] for name in model.partition)
                and model.when(other.payload)
            ]
            seen = [other for other in before if now.system_us - other.system_us <= model.limit_us]
            row[f"x{at_column}"] = model.value(seen, now, model.when(now.payload))
        found.setdefault(now.sub, []).append(json.dumps(row, separators=(",", ":")))
    return found


def script(models: Sequence[Model], source: str) -> str:
    """All functions side by side."""
    return "SELECT " + ", ".join(f"{model.sql} AS x{number}" for number, model in enumerate(models)) + f" FROM {source}"


PAYLOADS = st.fixed_dictionaries(
    {"k": st.sampled_from(["a", "b", None]), "w": st.sampled_from([0, 1]), "v": st.sampled_from([None, 1, 2, -3, 0.1, 2.5, 1e16])}
)
EVENTS = st.lists(st.builds(Event, st.just(0), st.integers(1, 50), PAYLOADS), max_size=25).map(
    lambda events: sorted(events, key=lambda event: event.system_us)
)
CUTS = st.lists(st.integers(1, 60), max_size=8)


@settings(max_examples=60)
@given(EVENTS, CUTS, st.integers(0, 60))
def test_any_cut_and_any_start_gives_what_the_model_gives(events: list[Event], cuts: list[int], start_us: int) -> None:
    """Level 2 of the law."""
    sql = script(MODELS, "a")
    answers = answers_of(sql, {"a": events}, cuts)
    assert answers.values() == expected(MODELS, events).get(0, [])
    assert answers.times() == [event.system_us for event in events]
    # What lies before the look-back need not be read.
    from_us = start_us - program_of(sql, [InputSchema("a")]).plans[0].lookback_us
    read = [event for event in events if event.system_us >= from_us]
    begun = answers_of(sql, {"a": read}, cuts, start_us=start_us)
    assert begun.results["out"].get(0, []) == [row for row in answers.results["out"].get(0, []) if row[0] >= start_us]


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(lambda sub, us, payload: Event(sub, us, {**payload, "k": "abc"[sub]}), st.integers(0, 2), st.integers(1, 50), PAYLOADS),
        max_size=25,
    ).map(lambda events: sorted(events, key=lambda event: event.system_us)),
    CUTS,
)
@example([], [])
def test_substreams_see_nothing_of_each_other(events: list[Event], cuts: list[int]) -> None:
    """The group includes the substream."""
    answers = answers_of(script(MODELS, "a TIMESTAMP BY t OVER k"), {"a": events}, cuts, schemas=[KEYED])
    found = expected(MODELS, events)
    assert {sub: answers.values(sub=sub) for sub in found} == found
