"""Sizes of values: every function that lengthens a text against Python, and rows that are too large whatever rows stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.budgets import budget_of
from support.query_runs import reasons, values

from tidegate.basics.budget import BUDGET
from tidegate.language.expressions import duckdb_pool
from tidegate.language.expressions.evaluation import evaluate as evaluation
from tidegate.language.expressions.evaluation.value_sizes import VALUE_BYTES_MAX

LIMIT = 60
# Expressions and what Python says of them: the longest text on the way, in bytes.
LONGEST: dict[str, Callable[[Any, Any, int], int]] = {
    "a + b": lambda a, b, n: len(a + b),
    "CONCAT(a, b, a)": lambda a, b, n: len(a + b + a),
    "CONCAT_WS(b, a, a, a)": lambda a, b, n: len(b.join([a, a, a])),
    "REPLACE(a, 'x', b)": lambda a, b, n: len(a.replace("x", b)),
    "REPLACE(REPLACE(a, 'x', 'yy'), 'y', b)": lambda a, b, n: max(len(a.replace("x", "yy")), len(a.replace("x", "yy").replace("y", b))),
    "STUFF(a, 1, 0, b)": lambda a, b, n: len(a + b),
    "LEN(a + b + a)": lambda a, b, n: len(a + b + a),
    "CASE WHEN n > 2 THEN a + b ELSE a END": lambda a, b, n: len(a + b) if n > 2 else 0,
    "COALESCE(NULLIF(a, ''), b + b)": lambda a, b, n: len(b + b) if a == "" else 0,
    "REPLICATE(a, n) + b": lambda a, b, n: len(a * n + b),
    "CAST(n AS nvarchar(max)) + a": lambda a, b, n: len(str(n) + a),
}
TEXTS = st.text("xyz", max_size=30)
ROWS = st.lists(st.fixed_dictionaries({"a": TEXTS, "b": TEXTS, "n": st.integers(0, 5)}), min_size=1, max_size=8)


@contextmanager
def limited(limit: int = LIMIT, at_once: int = BUDGET.bytes) -> Iterator[None]:
    """Evaluate under another limit of texts, and with another number of bytes at once."""
    with patch.object(evaluation, "VALUE_BYTES_MAX", limit), budget_of(bytes=at_once):
        yield


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(LONGEST)), ROWS, st.sampled_from([1, 100, 2**28]))
def test_a_row_fails_by_its_longest_text_alone(expression: str, rows: list[dict[str, Any]], at_once: int) -> None:
    """Against Python; other rows give the values that they give without a limit, however many are computed at once."""
    sql = f"SELECT {expression} AS v INTO out FROM arrivals"
    fits = [LONGEST[expression](row["a"], row["b"], row["n"]) <= LIMIT for row in rows]
    with limited(at_once=at_once):
        found, failed = values(sql, rows), reasons(sql, rows)
    assert [position for position, _ in failed] == [position for position, fit in enumerate(fits) if not fit]
    assert all(reason.startswith(f"value too large: more than {LIMIT} bytes: ") for _, reason in failed)
    assert found == values(sql, [row for row, fit in zip(rows, fits, strict=True) if fit])


@pytest.mark.parametrize(
    ("expression", "payload"),
    [
        ("REPLACE(a, 'x', a)", {"a": "x" * 3_000}),
        ("REPLACE(n, '1', a)", {"a": "y" * 100_000, "n": 1111111111111111}),
        ("TRANSLATE(a, 'x', 'é')", {"a": "x" * 2_000_000}),
        ("CONCAT(a, a, a)", {"a": "x" * 2_000_000}),
        ("CASE WHEN n IS NULL THEN REPLACE(a, 'x', a) END", {"a": "x" * 3_000}),
    ],
)
def test_a_text_beyond_the_limit_fails_its_row_and_no_other(expression: str, payload: dict[str, Any]) -> None:
    """The row before and the row after have their values."""
    sql = f"SELECT {expression} AS v INTO out FROM arrivals"
    small = {"a": "x", "n": 0}
    rows = [small, payload, small]
    assert [(position, reason[:15]) for position, reason in reasons(sql, rows)] == [(1, "value too large")]
    assert len(values(sql, rows)) == 2


def test_the_longest_text_that_fits_is_computed() -> None:
    """Four mebibytes are; one byte more is not."""
    sql = "SELECT LEN(a + b) AS v INTO out FROM arrivals"
    half = "x" * (VALUE_BYTES_MAX // 2)
    assert values(sql, [{"a": half, "b": half}]) == [f'{{"v":{VALUE_BYTES_MAX}}}']
    assert len(reasons(sql, [{"a": half, "b": half + "x"}])) == 1


def test_texts_of_an_event_may_be_longer() -> None:
    """Only what a function lengthens has a limit."""
    long = "x" * (VALUE_BYTES_MAX + 1)
    assert values("SELECT LEN(a) AS n, LEN(UPPER(a)) AS u INTO out FROM arrivals", [{"a": long}]) == [
        f'{{"n":{len(long)},"u":{len(long)}}}'
    ]


def test_rows_that_need_too_much_memory_together_are_computed_apart() -> None:
    """DuckDB refuses all rows at once, then halves of them, until they fit."""
    sizes: list[int] = []

    def refuse_many(sql: str, **tables: pa.Table) -> pa.Table:
        """Run a statement as the pool does, over a few rows only."""
        rows = next(iter(tables.values())).num_rows
        sizes.append(rows)
        if rows > 2:
            duckdb_pool.connection().execute("SET memory_limit = '10MB'")
            try:
                return run("SELECT repeat('x', 100000000) || c0 AS v FROM input", **tables)
            finally:
                duckdb_pool.connection().execute("SET memory_limit = $limit", {"limit": limit})
        return run(sql, **tables)

    run = duckdb_pool.run
    limit = run("SELECT current_setting('memory_limit') AS v")["v"][0].as_py()
    rows: Sequence[dict[str, Any]] = [{"a": str(number)} for number in range(5)]
    with patch.object(evaluation, "run", refuse_many):
        found = values("SELECT UPPER(a) AS v INTO out FROM arrivals", rows)
    assert found == [f'{{"v":"{number}"}}' for number in range(5)]
    assert sizes == [5, 2, 3, 1, 2]


def test_rows_whose_texts_might_be_long_are_computed_together() -> None:
    """The bound of the outermost function is gigabytes for each row; a row by itself would cost milliseconds."""
    statements = 0

    def count(sql: str, **tables: pa.Table) -> pa.Table:
        nonlocal statements
        statements += 1
        return duckdb_pool.run(sql, **tables)

    rows = [{"a": "x" * 200} for _ in range(300)]
    with patch.object(evaluation, "run", count):
        failed = reasons("SELECT LEN(REPLACE(REPLACE(REPLACE(a, 'x', a), 'x', a), 'x', a)) AS v INTO out FROM arrivals", rows)
    assert [position for position, _ in failed] == [*range(300)]
    assert statements < 100
