"""Aggregates and operators of other packages, under random cuts and against answers worked out row by row."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.repository import ROOT
from support.script_runs import answers_of

from ordering.errors import QueryError
from query import extensions
from query.engine.program import Program
from query.extensions import AggregateFunction, ScalarFunction
from query.plan import operator_extensions as operators
from query.plan.nodes import walk
from query.plan.operator import Operator
from query.plan.operator_extensions import OperatorExtension, RowColumn
from query.plan.parallelism import decide_parallelism
from query.plan.row_tables import BAD_SCHEMA, Retained, only_side
from query.sql.bind import bind_outputs
from tidegate.basics import package_offers
from tidegate.basics.package_offers import Registry
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.functions import column_functions, extension_aggregates
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.expressions.tree import Cast, Field

SECOND = 1_000_000


def span(values: pa.Array, weights: pa.Array, first: Any, last: Any) -> pa.Array:
    """The last value less the first, times the weight of the last; refuses 13."""
    found = []
    for low, high in zip(first.tolist(), last.tolist(), strict=True):
        run = values.slice(low, high - low + 1).to_pylist()
        if 13 in run:
            raise ValueError("unlucky")
        weight = weights[high].as_py()
        found.append(None if None in (run[0], run[-1], weight) else float((run[-1] - run[0]) * weight))
    return pa.array(found, pa.float64())


@pytest.fixture(autouse=True)
def _offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What packages offer is known to these tests alone."""
    monkeypatch.setattr(extension_aggregates, "REGISTERED", Registry())
    monkeypatch.setattr(operators, "REGISTERED", Registry())
    monkeypatch.setattr(column_functions, "REGISTERED", copy.deepcopy(column_functions.REGISTERED))
    extensions.register("Span", AggregateFunction(span, ("bigint", "float"), "float"))
    extensions.register("debounce", _debounce())


def events_of(payloads: Sequence[tuple[int, dict[str, Any]]], sub: int = 0) -> list[Event]:
    """Events at seconds."""
    return [Event(sub, at * SECOND, payload) for at, payload in payloads]


SPANS = """SELECT k, uda.span(v, CAST(w AS float)) AS s, COUNT(*) AS n, System.Timestamp() AS at FROM arrivals
GROUP BY k, {window} HAVING uda.span(v, CAST(w AS float)) > 0 OR COUNT(*) > 0"""


def test_an_aggregate_sees_the_rows_of_each_group_in_order() -> None:
    """NULLs too; a value of another type fails alone, and so does the result in which the aggregate raises."""
    payloads = [
        *((1, {"k": "a", "v": 1}), (2, {"k": "b", "v": 5}), (3, {"k": "a", "v": 4}), (4, {"k": "b", "v": None})),
        *((5, {"k": "a", "v": "text"}), (6, {"k": "c", "v": 13})),
    ]
    sql = "SELECT k, uda.Span(v, 2.0) AS s FROM arrivals GROUP BY k, TumblingWindow(second, 10)"
    answers = answers_of(sql, {"arrivals": events_of(payloads)}, [3 * SECOND])
    assert answers.values() == ['{"k":"a","s":6.0}', '{"k":"b","s":null}']
    assert answers.reasons == ["a bigint is needed, not nvarchar(max): v", "uda.Span failed: ValueError: unlucky: UDA.SPAN(v, 2.0)"]


def test_a_bigint_may_stand_for_a_float() -> None:
    """JSON writes many a float without a point; a text is no number, and NULL stays NULL. Constants too."""
    extensions.register("Half", ScalarFunction(lambda v, by: pc.divide(v, by), ("float", "float"), "float"))
    payloads = [(at, {"k": "a", "v": 1, "w": w}) for at, w in enumerate((3, 2.5, None, "2", 2**53 + 1), start=1)]
    answers = answers_of("SELECT udf.Half(w, 2) AS h FROM arrivals", {"arrivals": events_of(payloads)}, [3 * SECOND])
    assert answers.values() == ['{"h":1.5}', '{"h":1.25}', '{"h":null}', '{"h":4503599627370496.0}']
    assert answers.reasons == ["a float is needed, not nvarchar(max): UDF.HALF(w, 2)"]
    sql = "SELECT uda.Span(v, w) AS s FROM arrivals GROUP BY k, TumblingWindow(second, 10)"
    numbers = events_of([(1, {"k": "a", "v": 1, "w": 1}), (2, {"k": "a", "v": 4, "w": 2})])
    assert answers_of(sql, {"arrivals": numbers}).values() == ['{"s":6.0}']


def test_a_type_of_another_sql_is_told_what_it_is_here() -> None:
    """As in scripts: an int is a bigint."""
    with pytest.raises(QueryError) as caught:
        extensions.register("Odd", ScalarFunction(lambda v: v, ("int",), "bigint"))
    assert caught.value.fix == "write bigint"


def test_a_result_whose_having_fails_is_a_dead_letter_too() -> None:
    """It is neither kept nor silently left out."""
    sql = "SELECT COUNT(*) AS n FROM arrivals GROUP BY TumblingWindow(second, 10) HAVING uda.span(v, 1.0) > 2"
    payloads = [(1, {"v": 1}), (2, {"v": 4}), (11, {"v": 13}), (21, {"v": 1}), (22, {"v": 2})]
    answers = answers_of(sql, {"arrivals": events_of(payloads)})
    assert answers.values() == ['{"n":2}']
    assert answers.reasons == ["uda.Span failed: ValueError: unlucky: UDA.SPAN(v, 1.0)"]


def test_an_aggregate_looks_back() -> None:
    """It is asked for no row that sees nothing, and a row in which it raises is a dead letter."""
    sql = "SELECT v, uda.Span(v, 2.0) OVER (PARTITION BY k LIMIT DURATION(second, 3) WHEN v < 10 OR v = 13) AS s FROM arrivals"
    payloads = [
        *((1, {"k": "a", "v": 1}), (2, {"k": "b", "v": 5}), (3, {"k": "a", "v": 4}), (4, {"k": "a", "v": 11})),
        *((8, {"k": "a", "v": 11}), (9, {"k": "a", "v": 13})),
    ]
    answers = answers_of(sql, {"arrivals": events_of(payloads)}, [2 * SECOND])
    assert answers.values() == ['{"v":1,"s":0.0}', '{"v":5,"s":0.0}', '{"v":4,"s":6.0}', '{"v":11,"s":6.0}', '{"v":11,"s":null}']
    assert answers.reasons == ["uda.Span failed: ValueError: unlucky: UDA.SPAN(v, 2.0)"]


ROWS = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from("ab"), st.sampled_from([None, 1, 2, 5, 13]), st.sampled_from([1, 2, None])), max_size=25
)
CUTS = st.lists(st.integers(0, 60).map(lambda at: at * SECOND), max_size=4)


@settings(max_examples=40)
@given(ROWS, CUTS, st.sampled_from([(10, 10), (20, 5)]))
def test_an_aggregate_is_the_same_however_time_is_cut(rows: list[Any], cuts: list[int], window: tuple[int, int]) -> None:
    """Against every window looked at by itself."""
    size, hop = window
    rows.sort(key=lambda row: row[0])
    events = events_of([(at, {"k": k, "v": v, "w": w}) for at, k, v, w in rows])
    sql = SPANS.format(window=f"HoppingWindow(second, {size}, {hop})")
    expected, failing = [], 0
    for end in range(hop, 80, hop):
        for key in "ab":
            run = [(v, w) for at, k, v, w in rows if k == key and end - size < at <= end]
            if not run:
                continue
            if any(v == 13 for v, _ in run):
                failing += 1
                continue
            ends = run[0][0], run[-1][0], run[-1][1]
            expected.append((end * SECOND, key, None if None in ends else float((ends[1] - ends[0]) * ends[2]), len(run)))
    for chosen in ([], cuts):
        answers = answers_of(sql, {"arrivals": events}, chosen)
        found = [json.loads(value) for value in answers.values()]
        given = [(at, row["k"], row["s"], row["n"]) for at, row in zip(answers.times(), found, strict=True)]
        assert given == expected
        assert len(answers.reasons) == failing
    middle = answers_of(sql, {"arrivals": events}, cuts, start_us=20 * SECOND)
    assert middle.times() == [at for at, *_ in expected if at >= 20 * SECOND]


def test_an_aggregate_that_gives_too_few_values_or_takes_nothing_is_refused() -> None:
    """The first makes dead letters, the second is refused at once."""
    extensions.register("few", AggregateFunction(lambda values, first, last: pa.array([], pa.int64()), ("bigint",), "bigint"))
    sql = "SELECT uda.few(v) AS f FROM arrivals GROUP BY TumblingWindow(second, 10)"
    assert answers_of(sql, {"arrivals": events_of([(1, {"v": 1})])}).reasons == [
        "uda.few failed: ValueError: it gave 0 values for 1 results: UDA.FEW(v)"
    ]
    with pytest.raises(QueryError, match=r"uda\.none takes no argument"):
        extensions.register("none", AggregateFunction(np.add, (), "bigint"))


@pytest.mark.parametrize(
    ("call", "code", "what"),
    [
        ("uda.span(v)", "FUNCTION", "uda.span takes 2 arguments, not 1"),
        ("uda.span(*, 1.0)", "FUNCTION", "uda.span takes values, not *"),
        ("uda.span('far', 1.0)", "TYPE", "a bigint is needed, not nvarchar(max): 'far'"),
        ("uda.span(uda.span(v, 1.0), 1.0)", "GROUP", "UDA.SPAN cannot stand inside an aggregate"),
        ("uda.spam(v, 1.0)", "FUNCTION", "there is no function uda.spam()"),
    ],
)
def test_a_wrong_call_of_an_aggregate_is_refused(call: str, code: str, what: str) -> None:
    """When the script is bound."""
    with pytest.raises(QueryError) as caught:
        answers_of(f"SELECT {call} AS s FROM arrivals GROUP BY TumblingWindow(hour, 1)", {"arrivals": []})
    assert (caught.value.code, caught.value.what) == (f"TG-QUERY-{code}", what)


# Operators


PLUGIN = ROOT / "examples" / "plugin" / "debounce.py"


def _debounce() -> OperatorExtension:
    spec = importlib.util.spec_from_file_location("debounce", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = module.debounce
    assert isinstance(found, OperatorExtension)
    return found


COMINGS = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40), st.sampled_from(["a", "b", None, 1]), st.integers(0, 3)), max_size=25)


def comings_of(rows: Sequence[Any]) -> list[Event]:
    """Events of two substreams, in order of time."""
    return [Event(sub, at * SECOND, {"k": k, "v": v, "n": number}) for number, (sub, at, k, v) in enumerate(rows)]


def found_of(sql: str, rows: Sequence[Any], cuts: Sequence[int], **settings: Any) -> dict[int, list[Any]]:
    """The results of each substream: time in seconds, then the values."""
    answers = answers_of(sql, {"arrivals": comings_of(rows)}, cuts, **settings)
    assert answers.reasons == []
    return {
        sub: [(at // SECOND, *json.loads(value).values()) for at, _, value in results]
        for sub, results in answers.results["out"].items()
        if results
    }


def agree(sql: str, rows: Sequence[Any], cuts: Sequence[int], expected: dict[int, list[Any]]) -> None:
    """Whole, cut, and from the middle on."""
    assert found_of(sql, rows, []) == expected
    assert found_of(sql, rows, cuts) == expected
    late = {sub: [row for row in given if row[0] >= 20] for sub, given in expected.items()}
    assert found_of(sql, rows, cuts, start_us=20 * SECOND) == {sub: given for sub, given in late.items() if given}


STEP = "WITH few AS (SELECT k, n FROM arrivals WHERE v > 0) "


@settings(max_examples=40)
@given(COMINGS, CUTS, st.integers(1, 8))
def test_debounce_is_the_same_however_time_is_cut(rows: list[Any], cuts: list[int], seconds: int) -> None:
    """Each row against all before it; over a step, whose rows are some of the events."""
    rows.sort(key=lambda row: row[1])
    for step, sql in (
        (False, "SELECT n FROM debounce(arrivals, k, second, {})"),
        (True, STEP + "SELECT n FROM debounce(few, k, second, {})"),
    ):
        expected: dict[int, list[Any]] = {}
        for number, (sub, at, k, v) in enumerate(rows):
            before = [row for row in rows[:number] if row[0] == sub and row[2] == k and (not step or row[3]) and at - row[1] <= seconds]
            if not before and (not step or v):
                expected.setdefault(sub, []).append((at, number))
        agree(sql.format(seconds), rows, cuts, expected)


@settings(max_examples=40)
@given(COMINGS, CUTS, st.integers(1, 30))
def test_shift_is_the_same_however_time_is_cut(rows: list[Any], cuts: list[int], seconds: int) -> None:
    """Every row, later."""
    rows.sort(key=lambda row: row[1])
    expected: dict[int, list[Any]] = {}
    for number, (sub, at, k, v) in enumerate(rows):
        if v:
            expected.setdefault(sub, []).append((at + seconds, k, number))
    agree(f"{STEP}SELECT k, n FROM shift(few, second, {seconds}) AS later", rows, cuts, expected)
    agree(f"SELECT l.k, n FROM shift(arrivals, second, {seconds}) AS l WHERE v > 0", rows, cuts, expected)


@settings(max_examples=40)
@given(COMINGS, CUTS, st.integers(1, 12))
def test_active_is_the_same_however_time_is_cut(rows: list[Any], cuts: list[int], seconds: int) -> None:
    """Every instant at which something begins or ends, counted by itself."""
    rows.sort(key=lambda row: row[1])
    expected: dict[int, list[Any]] = {}
    for sub in (0, 1):
        own_rows = [row for row in rows if row[0] == sub]
        for at in range(60):
            for k in (1, "a", "b", None):
                times = [row[1] for row in own_rows if row[2] == k]
                if any(at in (time, time + seconds) for time in times):
                    expected.setdefault(sub, []).append((at, k, sum(time <= at < time + seconds for time in times)))
    agree(f"SELECT k, active FROM active(arrivals, second, {seconds}, k)", rows, cuts, expected)


def test_rows_that_are_moved_join_with_those_of_now() -> None:
    """What happened five seconds ago beside what happens now; System.Timestamp is the moved time."""
    rows = [(0, 1, "a", 1), (0, 6, "a", 2), (0, 7, "a", 3)]
    sql = """SELECT now.v AS v, b.v AS old, System.Timestamp() AS at FROM arrivals now
    JOIN shift(arrivals, second, 5) AS b ON DATEDIFF(second, now, b) = 0 AND now.k = b.k"""
    assert found_of(sql, rows, [6 * SECOND]) == {0: [(6, 2, 1, "1970-01-01T00:00:06Z")]}


def test_calls_stand_on_calls_through_steps() -> None:
    """And a star goes through with what is known of it."""
    schema = InputSchema("arrivals", fields={"v": "nvarchar(max)"})
    sql = "WITH l AS (SELECT * FROM shift(arrivals, second, 5)) SELECT v, n FROM debounce(l, k, second, 1) AS d WHERE v = '1'"
    answers = answers_of(sql, {"arrivals": comings_of([(0, 1, "a", 1), (0, 2, "a", 1)])}, schemas=[schema])
    assert answers.values() == ['{"v":"1","n":0}']


class Stray(Operator):
    """An operator that gives rows at the wrong time."""

    sides, reach_us, keeps_columns = 1, 10 * SECOND, False

    def __init__(self, moved_us: int) -> None:
        self._moved_us = moved_us

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Keep them."""
        return below, BAD_SCHEMA.empty_table()

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Ignore what is asked for."""
        rows = only_side(retained).drop_columns(["position"])
        return rows.set_column(1, "system_us", pc.add(rows["system_us"], self._moved_us))

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Keep them."""
        return retained


def test_rows_outside_of_the_slice_stop_the_query() -> None:
    """They could not be final."""
    extensions.register("stray", OperatorExtension(lambda columns, arguments: (columns, Stray(0)), "stray(x)"))
    with pytest.raises(QueryError, match="the operator stray gave rows outside of the slice") as caught:
        answers_of("SELECT k FROM stray(arrivals) AS s", {"arrivals": comings_of([(0, 1, "a", 1), (0, 9, "a", 1)])}, [5 * SECOND])
    assert caught.value.code == "TG-QUERY-EXTENSION"


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda columns, arguments: ([], Stray(0)), "it says that it gives no columns"),
        (lambda columns, arguments: ([RowColumn("a", "int")], Stray(0)), "it says that it gives a int"),
        (lambda columns, arguments: 1 / 0, "making it raised ZeroDivisionError: division by zero"),
        (lambda columns, arguments: ([RowColumn("a")], _with(reach_us=-1)), "it says reach_us -1 and sides 1"),
        (lambda columns, arguments: ([RowColumn("a")], _with(keeps_columns=True)), "it says that it passes columns on, and does not begin"),
        (lambda columns, arguments: (columns, _with(reach_us=10**15)), "bad looks 11574d1h46m40s back, longer than 7d"),
    ],
)
def test_an_operator_that_cannot_be_used_is_refused(make: Any, what: str) -> None:
    """When the script is bound, at its place."""
    extensions.register("bad", OperatorExtension(make, "bad(x)"))
    with pytest.raises(QueryError) as caught:
        answers_of("SELECT a FROM bad(arrivals) AS b", {"arrivals": []})
    assert what in caught.value.what
    assert caught.value.where == "q.sql:1:15"


def _with(**attributes: Any) -> Stray:
    stray = Stray(0)
    for name, value in attributes.items():
        setattr(stray, name, value)
    return stray


def test_our_own_names_are_not_taken() -> None:
    """A script means the same wherever it runs."""
    with pytest.raises(QueryError, match="there is an operator Shift already"):
        extensions.register("Shift", OperatorExtension(lambda columns, arguments: (columns, Stray(0)), "shift(x)"))


USES = {
    extensions.FUNCTIONS: "SELECT udf.Distance(v) AS d FROM arrivals",
    extensions.AGGREGATES: "SELECT uda.Distance(v) AS d FROM arrivals GROUP BY TumblingWindow(second, 10)",
    extensions.OPERATORS: "SELECT v FROM Distance(arrivals) AS d",
}
ONE = {"arrivals": [Event(0, SECOND, {"v": 7})]}


@pytest.mark.parametrize("group", USES)
@pytest.mark.parametrize(
    ("place", "why"), [("no_such_module:distance", "ModuleNotFoundError: No module named 'no_such_module'"), ("json:loads", "a function")]
)
def test_what_cannot_be_used_is_refused_where_it_is_used(group: str, place: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extension; scripts that do not name it run as if it were not there, and a near miss is told its name."""
    monkeypatch.setattr(package_offers, "installed_offers", lambda group: {of.group: [of]}.get(group, []))
    of = EntryPoint("distance", place, group)
    extensions.load.__wrapped__()
    assert answers_of("SELECT v FROM arrivals", ONE).values() == ['{"v":7}']
    with pytest.raises(QueryError, match="distance") as typo:
        answers_of(USES[group].replace("Distance", "Distanc"), ONE)
    assert typo.value.code == "TG-QUERY-FUNCTION"
    for _ in range(2):
        with pytest.raises(QueryError, match=rf"the extension distance \({place}\) cannot be used: .*{why}") as caught:
            answers_of(USES[group], ONE)
        assert (caught.value.code, caught.value.where) == ("TG-QUERY-EXTENSION", f"{group}: distance")


@pytest.mark.parametrize("group", [*USES, extensions.QUERIES])
def test_a_name_that_two_packages_offer_is_refused(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them counts would depend on the order of installation. One package that is found twice is one."""
    of_north, of_south = EntryPoint("distance", "north.geo:distance", group), EntryPoint("distance", "south.maps:distance", group)
    offered = {group: [of_north, of_south]}
    monkeypatch.setattr(package_offers, "installed_offers", lambda group: offered.get(group, []))
    monkeypatch.setattr(extensions, "load_offer", lambda entry, fail: lambda: entry.value)
    with pytest.raises(
        QueryError, match=r"distance is offered more than once: by .*\(north.geo:distance\) and .*\(south.maps:distance\)"
    ) as caught:
        extensions.load.__wrapped__()
        answers_of(USES[group], ONE) if group in USES else extensions.find_query("distance")
    assert (caught.value.code, caught.value.where) == ("TG-QUERY-EXTENSION", f"{group}: distance")
    offered[extensions.QUERIES] = [of_north, of_north]
    assert extensions.find_query("distance") == "north.geo:distance"


def test_a_plan_with_an_operator_goes_to_workers() -> None:
    """Pickled; and two calls that are given the same are computed once."""
    sql = "SELECT k INTO one FROM shift(arrivals, second, 5); SELECT k, n INTO two FROM shift(arrivals, second, 5)"
    plans = bind_outputs(parse_script(sql), [InputSchema("arrivals")])
    assert pickle.loads(pickle.dumps(plans)) == plans
    assert len(Program(plans).retained_names) == len([*walk(plans[0].root)])


def test_work_is_spread_where_rows_of_different_keys_never_meet() -> None:
    """shift keeps all rows apart, debounce those that differ in its column; active gives other columns."""
    schema = InputSchema("flights", timestamp_by="at", over="origin", fields={"origin": "nvarchar(max)"})
    for sql, by_partition in {
        "SELECT d INTO o FROM shift(flights, second, 5) TIMESTAMP BY at": True,
        "SELECT d INTO o FROM debounce(flights, origin, second, 5) TIMESTAMP BY at": True,
        "SELECT d INTO o FROM debounce(flights, d, second, 5) TIMESTAMP BY at": False,
        "SELECT origin, active INTO o FROM active(flights, second, 5, origin) TIMESTAMP BY at": True,
        "SELECT active INTO o FROM active(flights, second, 5) TIMESTAMP BY at": False,
        "SELECT COUNT(*) AS n INTO o FROM debounce(flights, origin, second, 5) TIMESTAMP BY at GROUP BY d, TumblingWindow(hour, 1)": False,
    }.items():
        plans = bind_outputs(parse_script(sql), [schema])
        overs = {"flights": Cast(Field(("origin",)), Kind.NVARCHAR, declared=True)}
        assert decide_parallelism(plans, overs, {"flights": 4}).is_by_partition is by_partition, sql
