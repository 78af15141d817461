"""Members of what TopOne() picks: they are columns where no record is needed, and nobody can tell from results or dead letters."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import Answers, answers_of, program_of

from query.engine import program as engine_program
from query.operators.windows import compacting
from query.plan.nodes import WindowedAggregate, walk
from query.plan.record_members import members_as_columns
from tidegate.language.expressions.binding.input_schema import InputSchema

SECOND = 1_000_000
STEP = """WITH s AS (SELECT TRY_CAST(k AS bigint) AS k, TRY_CAST(n AS bigint) AS n, TRY_CAST(x AS nvarchar(max)) AS [a text], v,
    TRY_CAST(t AS datetime) AS t, TRY_CAST(b AS bit) AS b, TRY_CAST(f AS float) AS f FROM a),
best AS (SELECT k AS owner, TopOne() OVER (ORDER BY n DESC, t) AS r FROM s GROUP BY k, TumblingWindow(second, 10))
"""
ALL = "SELECT owner, r.n AS n, r.[A Text] AS x, r.t AS t, r.b AS b, r.k AS k, System.Timestamp() AS at FROM best"


def columns_of(sql: str) -> list[str]:
    """The columns that the rows of ``best`` have when the query runs."""
    plans = members_as_columns(program_of(STEP + sql, [InputSchema("a")]).plans)
    (best,) = {node for plan in plans for node in walk(plan.root) if isinstance(node, WindowedAggregate) and len(node.keys) == 1}
    return [column.name for column in best.columns]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        (ALL, ["owner", "r.n", "r.[A Text]", "r.t", "r.b", "r.k"]),
        ("SELECT r.k AS k FROM best", ["owner", "r.k"]),
        ("SELECT r.t AS t, r.T AS u FROM best WHERE NOT TRY_CAST(r.n AS bigint) > 3", ["owner", "r.t", "r.n"]),
        ("SELECT r.n AS n INTO x FROM best; SELECT r.t AS t INTO y FROM best", ["owner", "r.n", "r.t"]),
    ],
)
def test_members_that_are_read_are_columns(sql: str, columns: list[str]) -> None:
    """Each once, whoever reads it; the key of the group has one already."""
    assert columns_of(sql) == columns


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT r.n AS n, r AS whole FROM best",
        "SELECT r.n AS n, r.f AS f FROM best",
        "SELECT r.n AS n, r.v AS v FROM best",
        "SELECT r.n AS n, r.v.w AS v FROM best",
        "SELECT r.n AS n, r.missing AS m FROM best",
        "SELECT CAST(r.n AS bigint) AS n FROM best",
        "SELECT r.n AS n FROM best WHERE r.n > 3",
        "SELECT MAX(r.n) AS n FROM best GROUP BY TumblingWindow(second, 20)",
        "SELECT r.n AS n INTO x FROM best; SELECT r.n + 1 AS n INTO y FROM best",
        "SELECT r.n AS n INTO x FROM best; SELECT * INTO y FROM best",
    ],
)
def test_a_record_stays_where_it_may_be_seen(sql: str) -> None:
    """As a value, in a dead letter, or by a member that is not the column's value again."""
    assert columns_of(sql) == ["owner", "r"]


TEXTS = st.text(max_size=5) | st.sampled_from(['"', "\\", "\0", "{}", "nan", "\u2028", "é", "2020-01-01"])
VALUES = {
    "k": st.sampled_from([1, 2, None]),
    "n": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2) | st.none(),
    "x": TEXTS | st.none(),
    "v": st.none(),
    "t": st.sampled_from(["1969-12-31T23:59:59.999999Z", "2020-02-29T01:02:03.5Z", "0001-01-01T00:00:00Z", None]),
    "b": st.booleans() | st.none(),
}


@given(st.lists(st.fixed_dictionaries(VALUES), max_size=12), st.lists(st.integers(1, 40), max_size=3))
def test_results_are_those_of_records(payloads: list[dict[str, Any]], cuts: list[int]) -> None:
    """Whatever the values, and wherever time is cut; also if rows that no window picks are dropped early."""
    events = {"a": [Event(0, (3 * number + 1) * SECOND, payload) for number, payload in enumerate(payloads)]}

    def answers() -> Answers:
        return answers_of(STEP + ALL, events, [cut * SECOND for cut in cuts])

    with patch.object(compacting, "COMPACTED_FROM", 1):
        found = answers()
        with patch.object(engine_program, "members_as_columns", tuple):
            assert answers() == found
