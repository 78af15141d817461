"""Aggregates and operators of other packages, under random cuts and against answers worked out row by row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_running import answers_of
from query_oracle import Event

from ordering.errors import QueryError
from query import extensions
from query.extensions import AggregateFunction

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
def _offered() -> None:
    extensions.register("Span", AggregateFunction(span, ("bigint", "float"), "float"))


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


def test_a_result_whose_having_fails_is_a_dead_letter_too() -> None:
    """It is neither kept nor silently left out."""
    sql = "SELECT COUNT(*) AS n FROM arrivals GROUP BY TumblingWindow(second, 10) HAVING uda.span(v, 1.0) > 2"
    payloads = [(1, {"v": 1}), (2, {"v": 4}), (11, {"v": 13}), (21, {"v": 1}), (22, {"v": 2})]
    answers = answers_of(sql, {"arrivals": events_of(payloads)})
    assert answers.values() == ['{"n":2}']
    assert answers.reasons == ["uda.Span failed: ValueError: unlucky: UDA.SPAN(v, 1.0)"]


ROWS = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from("ab"), st.sampled_from([None, 1, 2, 5, 13]), st.sampled_from([1, 2, None])), max_size=25
)
CUTS = st.lists(st.integers(0, 60).map(lambda at: at * SECOND), max_size=4)


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
