"""Queries written in Python are the scripts they say they are; functions of other packages are called by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ordering.errors import QueryError
from query import extensions
from query.api import avg, call, column, count, hopping, lag, literal, session, stream, sum_, tumbling, window_end
from query.extensions import ScalarFunction
from query.sql.bind import bind_outputs, bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.testing import run_query

FLIGHTS = InputSchema("flights", timestamp_by="scheduled", over="origin")
ARRIVALS = InputSchema("arrivals")


def plan_of(sql: str) -> str:
    """The plan of a script, as it prints itself."""
    return bind_script(parse_script(sql), [FLIGHTS, ARRIVALS]).explain()


def test_a_query_in_python_is_the_script_it_says() -> None:
    """The same plan as the text that a person would write."""
    flights = stream("flights", timestamp_by="scheduled", over="origin")
    query = (
        flights.where((column("distance") > 100) & ~column("note", "text").is_null())
        .group_by("origin", tumbling("1h"))
        .having(count() > 1)
        .select(origin="origin", window_end=window_end(), departures=count(), mean=avg(column("delay") * 2))
        .into("departures")
    )
    written = """SELECT origin, System.Timestamp() AS window_end, COUNT(*) AS departures, AVG(delay * 2) AS mean INTO departures
        FROM flights TIMESTAMP BY scheduled OVER origin WHERE distance > 100 AND NOT note.text IS NULL
        GROUP BY origin, TumblingWindow(hour, 1) HAVING COUNT(*) > 1"""
    assert plan_of(query.sql) == plan_of(written)


def test_streams_built_on_others_are_steps() -> None:
    """A step that two outputs share is named once; UNION keeps the order."""
    arrivals = stream("arrivals")
    busy = (
        arrivals.select(k="k", v="v")
        .union(arrivals.where(column("v").between(3, 9)).select(k=literal("it's"), v="-v"))
        .named("both")
        .group_by("k", hopping("30s", "10s"))
        .select(k="k", total=sum_("v"))
        .named("busy")
    )
    query = busy.where(column("total") > 1).into("many") + busy.select(k="k").into("keys")
    results = run_query(query, {"arrivals": [{"k": "a", "v": 4}]}).results_by_output
    assert list(results) == ["many", "keys"]
    assert results["many"][0].row == {"k": "a", "total": 4}
    assert [result.value for result in results["keys"][:2]] == [b'{"k":"a"}', b'{"k":"it\'s"}']


def test_two_steps_of_one_name_are_refused() -> None:
    """A name means one thing."""
    one, other = (stream("arrivals").select(v=text).named("same") for text in ("v", "w"))
    with pytest.raises(ValueError, match="two steps are named same"):
        _ = (one.into("a") + other.into("b")).sql


def test_conditions_are_not_joined_by_pythons_words() -> None:
    """``and`` would silently drop one of them."""
    with pytest.raises(TypeError, match="join conditions by & and"):
        _ = column("a") > 1 and column("b") > 1


def test_a_number_of_numpy_is_a_constant() -> None:
    """Its repr is the call of a function that the language has not."""
    assert [literal(value).sql for value in (np.float64(1e-7), np.float64(1.5))] == ["1e-07", "1.5"]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_float_that_the_language_has_not_is_refused(value: float) -> None:
    """As text it would be the name of a field."""
    with pytest.raises(ValueError, match="no infinity and no NaN"):
        literal(value)
    with pytest.raises(ValueError, match="no infinity and no NaN"):
        column("delay") > value  # noqa: B015


def test_windows_and_durations_are_written_in_whole_units() -> None:
    """A duration that no unit says in a whole number is written in a smaller one."""
    assert tumbling("90s").sql == "TumblingWindow(Duration(second, 90))"
    assert hopping("1h", "15m", offset="1m30s").sql == "HoppingWindow(Duration(hour, 1), Hop(minute, 15), Offset(second, 90))"
    assert tumbling("1h", offset="-1us").sql == "TumblingWindow(Duration(hour, 1), Offset(microsecond, -1))"
    assert hopping("1h", "15m", offset="-90s").sql == "HoppingWindow(Duration(hour, 1), Hop(minute, 15), Offset(second, -90))"
    assert session("30s", "2m", partition_by=("k",)).sql == "SessionWindow(second, 30, 120) OVER (PARTITION BY k)"
    assert sum_("v").over("1h", when="v > 0").sql == "SUM(v) OVER (LIMIT DURATION(hour, 1) WHEN v > 0)"
    assert lag("v", "5m", partition_by=("k",), when=column("v") > 0).sql == (
        "LAG(v, 1) OVER (PARTITION BY k LIMIT DURATION(minute, 5) WHEN ([v] > 0))"
    )


def test_operators_stand_after_from() -> None:
    """Over an input, whose TIMESTAMP BY follows the call, and over a step."""
    flights = stream("flights", timestamp_by="scheduled", over="origin")
    far = flights.where(column("distance") > 100).select(origin="origin").named("far")
    query = flights.shifted("90s").select(delay="delay").into("late") + far.active("5m", "origin").where("active > 3").into("busy")
    written = """WITH far AS (SELECT origin FROM flights TIMESTAMP BY scheduled OVER origin WHERE distance > 100)
        SELECT delay INTO late FROM shift(flights, second, 90) TIMESTAMP BY scheduled OVER origin;
        SELECT * INTO busy FROM active(far, minute, 5, origin) WHERE active > 3"""
    plans = [[plan.explain() for plan in bind_outputs(parse_script(sql), [FLIGHTS])] for sql in (query.sql, written)]
    assert plans[0] == plans[1]
    flying = flights.active("1h", "origin", edge="landed", span="flight").into("flying")
    assert "active([flights], hour, 1, edge = [landed], span = [flight], [origin])" in flying.sql
    bind_outputs(parse_script(flying.sql), [FLIGHTS])
    with pytest.raises(ValueError, match="shift takes all rows of a stream"):
        flights.where("delay > 1").shifted("5m")


def squares(values: pa.Array) -> pa.Array:
    """Square numbers; refuses 13."""
    if 13 in values.to_pylist():
        raise ValueError("unlucky")
    return pc.multiply_checked(values, values)


def test_a_function_of_ones_own_is_called_by_name() -> None:
    """It sees whole columns; a row that it refuses, or whose argument has another type, fails alone."""
    query = stream("arrivals").select(s=call("udf.squares", "v") + 1).into("out")
    rows = [{"v": v} for v in (2, None, 13, "text", 5)]
    run = run_query(query, {"arrivals": rows}, functions={"squares": ScalarFunction(squares, ("bigint",), "bigint")})
    assert [result.value for result in run.results] == [b'{"s":5}', b'{"s":null}', b'{"s":26}']
    assert sorted(run.dead) == [
        "a bigint is needed, not nvarchar(max): UDF.SQUARES(v)",
        "udf.squares failed: ValueError: unlucky: UDF.SQUARES(v)",
    ]


def test_a_function_of_a_wrong_type_is_refused() -> None:
    """With the nearest type there is."""
    with pytest.raises(QueryError, match="there is not") as caught:
        extensions.register("wrong", ScalarFunction(squares, ("bigin",), "bigint"))
    assert caught.value.fix == "did you mean bigint?"


def test_a_query_that_nobody_offers_is_refused() -> None:
    """No file and no entry point."""
    with pytest.raises(QueryError, match="no installed package offers a query of that name"):
        extensions.find_query("nothing")
