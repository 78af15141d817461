"""Column functions are computed first, where they are reached, and fail only there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_runs import reasons, values

from tidegate.language.expressions.functions import column_functions
from tidegate.language.expressions.functions.column_functions import ColumnFunction, FailedRows
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant

ASKED: list[list[object]] = []


def _picky(args: Sequence[Variant], length: int) -> tuple[Variant, Sequence[FailedRows]]:
    """Return odd numbers as text and even ones as they are; fail on negative ones. Remembers what it was asked."""
    given_values = args[0].of_kind(Kind.BIGINT)
    numbers = given_values.to_pylist()
    ASKED.append(numbers)
    texts = pa.array([f"#{n}" if n is not None and n >= 0 and n % 2 else None for n in numbers], pa.string())
    whole = pa.array([n if n is not None and n >= 0 and not n % 2 else None for n in numbers], pa.int64())
    failed = np.array([row for row, n in enumerate(numbers) if n is not None and n < 0], dtype=np.int64)
    return Variant.of(length, {Kind.NVARCHAR: texts, Kind.BIGINT: whole}), [FailedRows(failed, "a negative number")] if len(failed) else []


@pytest.fixture(autouse=True)
def picky(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a function as a user would, under a dotted name."""
    monkeypatch.setattr(column_functions, "REGISTERED", dict(column_functions.REGISTERED))
    column_functions.REGISTERED["udf.picky"] = ColumnFunction(1, 1, _picky, argument_kinds=(Kind.BIGINT,))
    ASKED.clear()


def test_a_function_is_called_by_the_name_it_is_registered_under() -> None:
    """Its result is a value like any other, and may differ in kind from row to row."""
    payloads = [{"i": 1}, {"i": 2}, {"i": None}, {}]
    assert values("SELECT udf.picky(i) AS v FROM arrivals", payloads) == ['{"v":"#1"}', '{"v":2}', '{"v":null}', '{"v":null}']
    assert values("SELECT UDF.PICKY(i + 1) + 1 AS v FROM arrivals", [{"i": 1}]) == ['{"v":3}']


def test_what_is_not_reached_is_not_asked_for() -> None:
    """Branches of CASE and IIF, and what stands behind a value of COALESCE."""
    payloads = [{"i": 2, "w": True}, {"i": -1, "w": False}]
    assert values("SELECT CASE WHEN w THEN udf.Picky(i) ELSE 0 END AS v FROM arrivals", payloads) == ['{"v":2}', '{"v":0}']
    assert ASKED == [[2]]
    assert values("SELECT IIF(w, 'x', udf.Picky(-i)) AS v FROM arrivals", payloads) == ['{"v":"x"}', '{"v":"#1"}']
    assert values("SELECT COALESCE(IIF(w, NULL, 'y'), udf.Picky(i)) AS v FROM arrivals", payloads) == ['{"v":2}', '{"v":"y"}']
    assert reasons("SELECT COALESCE(udf.Picky(i), 'y') AS v FROM arrivals", payloads) == [(1, "a negative number: UDF.PICKY(i)")]


def test_a_failure_inside_fails_the_row() -> None:
    """Whatever stands around it; the reason names the function as it was called."""
    sql = "SELECT COALESCE(udf.Picky(i), 'y') AS v FROM arrivals"
    assert reasons(sql, [{"i": 1}, {"i": -1}]) == [(1, "a negative number: UDF.PICKY(i)")]
    assert reasons("SELECT 1 AS v FROM arrivals WHERE udf.Picky(i) = 2", [{"i": -1}]) == [(0, "a negative number: UDF.PICKY(i)")]
    sql = "SELECT udf.Picky(CAST(s AS bigint)) AS v FROM arrivals"
    assert reasons(sql, [{"s": "x"}, {"s": "1"}]) == [(0, "conversion failed: CAST(s AS bigint)")]
    assert reasons("SELECT udf.Picky(s) AS v FROM arrivals", [{"s": "x"}, {"s": 1}]) == [
        (0, "a bigint is needed, not nvarchar(max): UDF.PICKY(s)")
    ]


def test_a_function_that_stands_twice_is_computed_once() -> None:
    """Over the same rows; the columns of one SELECT share what they have in common."""
    assert values("SELECT udf.Picky(i) AS a, udf.Picky(i) AS b FROM arrivals", [{"i": 2}]) == ['{"a":2,"b":2}']
    assert ASKED == [[2]]


NUMBERS = st.lists(st.tuples(st.none() | st.integers(-3, 4), st.booleans()), min_size=1, max_size=8)


@settings(max_examples=40)
@given(NUMBERS)
def test_a_row_is_as_if_it_were_alone(rows: list[tuple[int | None, bool]]) -> None:
    """The law of column functions: neighbours do not show, neither in values nor in failures."""
    sql = "SELECT CASE WHEN w THEN udf.Picky(i) WHEN i > 2 THEN udf.Picky(i - 5) ELSE udf.Picky(0 - i) END AS v FROM arrivals"
    payloads = [{"i": i, "w": w} for i, w in rows]
    alone = [(values(sql, [payload]), [reason for _, reason in reasons(sql, [payload])]) for payload in payloads]
    assert values(sql, payloads) == [value for found, _ in alone for value in found]
    assert reasons(sql, payloads) == [(at, reason) for at, (_, found) in enumerate(alone) for reason in found]
