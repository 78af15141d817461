"""Columns that nobody reads are neither computed nor retained, unless a row can fail on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.query_oracle import Event
from support.query_runs import SECOND, event_table, finish, program, slices

from query.engine.program import Program
from query.engine.retention import Retention
from query.plan.columns_read import fields_extracted
from query.plan.nodes import Plan
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

STEP = "WITH s AS (SELECT a, b.c AS c, CAST(d AS bigint) AS d, e FROM arrivals WHERE w > 0) "
COUNT_BY = "SELECT COUNT(*) AS n INTO out FROM s GROUP BY TumblingWindow(second, 10)"


def plans(sql: str) -> tuple[Plan, ...]:
    """The plans of a script, which names its outputs if it has several."""
    into = None if ";" in sql else "out"
    return tuple(bind_outputs(parse_script(sql, "q.sql"), (InputSchema("arrivals"), InputSchema("others")), into=into))


def prepared_columns(compiled: Program, payloads: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The columns retained of the only step over events, and why rows failed."""
    events = [Event(0, (number + 1) * SECOND, payload) for number, payload in enumerate(payloads)]
    ((_, rows),), bad = compiled.prepare("arrivals", event_table(events))
    return [name for name in rows.column_names if name.startswith("s") and name[1].isdigit()], bad["reason"].to_pylist()


def results(compiled: Program, payloads: Sequence[Any]) -> list[list[str]]:
    """The results of each output."""
    retention = Retention()
    events = [Event(0, (number + 1) * SECOND, payload) for number, payload in enumerate(payloads)]
    for name, rows in compiled.prepare("arrivals", event_table(events))[0]:
        retention.add(name, rows)
    tables = finish(compiled, retention, slices({0: (0, 2**62)}, "from_us", "to_us"))
    return [[value.decode() for value in table["value"].to_pylist()] for table in tables]


@pytest.mark.parametrize(
    ("use", "fields", "columns"),
    [
        ("SELECT e, SUM(a) AS n INTO out FROM s GROUP BY e, TumblingWindow(second, 10)", "w a d e", ["s0_i", "s2_i", "s3_s"]),
        ("SELECT a INTO out FROM s WHERE c > 0", "w a b.c d", ["s0_i", "s1_i", "s2_i"]),
        (COUNT_BY, "w d", ["s2_i"]),
        ("SELECT LAG(c) OVER (LIMIT DURATION(second, 5)) AS before INTO out FROM s", "w b.c d", ["s1_i", "s2_i"]),
        ("SELECT x.a AS a INTO out FROM s x JOIN s y ON DATEDIFF(second, x, y) = 0 AND x.e = y.e", "w a d e", ["s0_i", "s2_i", "s3_s"]),
        ("SELECT TopOne() OVER (ORDER BY a) AS t INTO out FROM s GROUP BY TumblingWindow(second, 10)", "w a b.c d e", None),
    ],
)
def test_a_step_computes_what_others_read_and_what_can_fail(use: str, fields: str, columns: list[str] | None) -> None:
    """CAST(d) is computed in each case; CASTs fail, fields do not."""
    payload = {"w": 1, "a": 1, "b": {"c": 2}, "d": "3", "e": "x"}
    assert " ".join(map(str, fields_extracted(plans(STEP + use))["arrivals"])) == fields
    kept, failed = prepared_columns(program(STEP + use), [payload])
    assert (kept, failed) == (columns or ["s0_i", "s1_i", "s2_i", "s3_s"], [])


def test_a_column_that_fails_makes_a_dead_letter_though_nobody_reads_it() -> None:
    """The row does not count, as if the column were read."""
    assert prepared_columns(program(STEP + COUNT_BY), [{"w": 1, "d": "x"}])[1] == ["conversion failed: CAST(d AS bigint)"]
    assert results(program(STEP + COUNT_BY), [{"w": 1, "d": "x"}, {"w": 1, "d": "5"}]) == [['{"n":1}']]


def test_a_payload_that_cannot_be_read_is_found_though_no_column_is_read() -> None:
    """As long as the script names a column of it."""
    step = "WITH s AS (SELECT a, b FROM arrivals) "
    assert results(program(step + COUNT_BY), [b"[1]", {"a": 1}]) == [['{"n":1}']]
    assert results(program(COUNT_BY.replace("FROM s", "FROM arrivals")), [b"[1]", {"a": 1}]) == [['{"n":2}']]


def test_both_sides_of_a_join_keep_what_is_read_above_it() -> None:
    """Keys, the other conditions and the columns that results are computed from; numbers of the right side count from the left side's."""
    sql = (
        "WITH l AS (SELECT k, a, b, c FROM arrivals), r AS (SELECT k, a, b, c FROM others) "
        "SELECT l.a AS a, r.b AS b INTO out FROM l LEFT JOIN r ON l.k = r.k AND DATEDIFF(second, l, r) = 0 AND r.c > l.b"
    )
    found = {name: " ".join(map(str, fields)) for name, fields in fields_extracted(plans(sql)).items()}
    assert found == {"arrivals": "k a b", "others": "k b c"}


def test_a_join_retains_only_what_is_read_of_its_sides() -> None:
    """Not what a step computes because it may fail on it: CAST(d) makes a dead letter when the event comes, and is needed no more."""
    compiled = program(STEP + "SELECT x.a AS a INTO out FROM s x JOIN s y ON DATEDIFF(second, x, y) BETWEEN 0 AND 9 AND x.e = y.e")
    retention = Retention()
    payloads = [{"w": 1, "a": 1, "d": "3", "e": "x"}, {"w": 1, "a": 2, "d": "y", "e": "x"}]
    (step, rows), *_ = compiled.prepare("arrivals", event_table([Event(0, SECOND, payload) for payload in payloads]))[0]
    retention.add(step, rows)
    (found,) = finish(compiled, retention, slices({0: (0, 2 * SECOND)}, "from_us", "to_us"))
    assert found["value"].to_pylist() == [b'{"a":1}']
    retained = {name for side in compiled.retained_names[1:] for table in retention.tables(side) for name in table.column_names}
    assert {name for name in retained if name[1:2].isdigit()} == {"s0_i", "s3_s"}


def test_a_comparison_of_known_kinds_that_nobody_reads_is_not_computed() -> None:
    """It cannot fail, unlike one of values of any kind."""
    step = "WITH s AS (SELECT a, TRY_CAST(b AS bigint) > 2 AS known, c > 2 AS unknown FROM arrivals) "
    kept, _ = prepared_columns(
        program(step + "SELECT SUM(a) AS n INTO out FROM s GROUP BY a, TumblingWindow(second, 10)"), [{"a": 1, "c": 3}]
    )
    assert kept == ["s0_i", "s2_b"]


def test_parts_of_a_union_are_read_alike() -> None:
    """By the places of columns, whatever their names; an output needs all."""
    union = "WITH u AS (SELECT a, b FROM arrivals UNION SELECT c, d FROM others) "
    read = fields_extracted(plans(union + "SELECT b INTO out FROM u"))
    assert {name: list(map(str, fields)) for name, fields in read.items()} == {"arrivals": ["b"], "others": ["d"]}
    read = fields_extracted(plans(union + "SELECT b INTO out FROM u; SELECT * INTO whole FROM u"))
    assert {name: list(map(str, fields)) for name, fields in read.items()} == {"arrivals": ["a", "b"], "others": ["c", "d"]}


def test_a_dead_letter_between_two_steps_shows_the_columns_that_are_computed() -> None:
    """Of a row on which a later step fails nobody has the others."""
    compiled = program("WITH s AS (SELECT a, b, c FROM arrivals) SELECT CAST(b AS bigint) AS b INTO out FROM s WHERE c > 0")
    assert results(compiled, [{"a": 1, "b": "x", "c": 2}]) == [[]]
    assert [value for _, value, _ in compiled.bad] == [b'{"b":"x","c":2}']
