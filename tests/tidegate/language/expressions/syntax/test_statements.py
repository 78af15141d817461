"""Statements need no semicolons; CREATE TABLE types an input; SET lets comparisons ignore case."""

from __future__ import annotations

import pytest
from support.query_runs import values

from ordering.errors import QueryError
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

INPUTS = [InputSchema("i"), InputSchema("typed", fields={"delay": "bigint"})]


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("SELECT a INTO x FROM i SELECT b INTO y FROM i", ["x", "y"]),
        ("SELECT a INTO x FROM i; SELECT b INTO y FROM i;", ["x", "y"]),
        ("WITH s AS (SELECT a FROM i) SELECT a INTO x FROM s\nSELECT a INTO y FROM s WHERE a > 1", ["x", "y"]),
        (
            "WITH s AS (SELECT a FROM i), t AS (SELECT a FROM s) SELECT a INTO x FROM t WITH u AS (SELECT a FROM t)SELECT a INTO y FROM u",
            "xy",
        ),
        ("SELECT a INTO x FROM i UNION SELECT b FROM i SELECT b INTO y FROM i", ["x", "y"]),
        ("SELECT a INTO x FROM i UNION ALL SELECT b FROM i", ["x"]),
        ("-- first\nSELECT a INTO x /* here */ FROM i -- SELECT\n/* SELECT b INTO z FROM i */ SELECT b INTO y FROM i -- end", ["x", "y"]),
        ("SELECT a INTO x FROM i; -- end", ["x"]),
        ("SELECT CASE WHEN a = 1 THEN 2 END AS c INTO x FROM i SELECT [select] INTO y FROM i", ["x", "y"]),
        ("CREATE TABLE i (a bigint) SELECT a INTO x FROM i", ["x"]),
        ("SET CASE_INSENSITIVE ON\nCREATE TABLE i (a bigint);\nWITH s AS (SELECT a FROM i) SELECT a INTO x FROM s", ["x"]),
    ],
)
def test_a_word_that_can_only_begin_a_statement_begins_one(text: str, outputs: list[str]) -> None:
    """UNION goes on, WITH ends in a SELECT, comments and brackets hide words."""
    assert [plan.output for plan in bind_outputs(parse_script(text), INPUTS)] == list(outputs)


def test_errors_have_their_place_in_later_statements() -> None:
    """Lines and columns are those of the whole script."""
    with pytest.raises(QueryError) as caught:
        bind_outputs(parse_script("SELECT a INTO x FROM i\nSELECT SUMM(b) INTO y FROM i", "q.sql"), INPUTS)
    assert caught.value.where == "q.sql:2:8"
    with pytest.raises(QueryError) as caught:
        parse_script("SELECT a INTO x FROM i\nSELECT b INTO y FRM i", "q.sql")
    assert caught.value.where == "q.sql:2:17"


def test_create_table_types_an_input() -> None:
    """Fields and members of records are converted like declared ones; what the configuration declares stays."""
    sql = "CREATE TABLE typed ([at] datetime, place.lat float, [a b] nvarchar(max), tags array, more record, ok bit) "
    sql += "SELECT delay, at, place.lat, [a b], tags, more, OK FROM typed"
    payload = {"delay": "3", "at": "2001-01-01", "place": {"lat": 1}, "a b": 5, "tags": "[1]", "more": {"x": 1}, "ok": 1}
    expected = '{"delay":3,"at":"2001-01-01T00:00:00Z","lat":1.0,"a b":"5","tags":[1],"more":{"x":1},"OK":true}'
    assert values(sql, [payload], INPUTS[1]) == [expected]


def test_comparisons_ignore_case_where_the_script_says_so() -> None:
    """Comparisons, IN, BETWEEN, LIKE, CASE and NULLIF; values come out as they were, and all else compares exactly."""
    what = """s = 'atlanta' AS eq, s < 'b' AS lt, s IN ('ATLANTA') AS i, s BETWEEN 'a' AND 'b' AS bt, s LIKE 'aT[K-M]%' AS lk,
        CASE s WHEN 'ATLANTA' THEN 1 ELSE 0 END AS c, NULLIF(s, 'ATLANTA') AS n, s AS s, CHARINDEX('A', 'ba') AS p, 1 = 1.0 AS one"""
    exact = values(f"SELECT {what} FROM arrivals", [{"s": "Atlanta"}])
    assert exact == ['{"eq":false,"lt":true,"i":false,"bt":false,"lk":false,"c":0,"n":"Atlanta","s":"Atlanta","p":0,"one":true}']
    ignoring = values(f"SET CASE_INSENSITIVE ON SELECT {what} FROM arrivals", [{"s": "Atlanta"}])
    assert ignoring == ['{"eq":true,"lt":true,"i":true,"bt":true,"lk":true,"c":1,"n":null,"s":"Atlanta","p":0,"one":true}']
    assert values(f"SET CASE_INSENSITIVE OFF SELECT {what} FROM arrivals", [{"s": "Atlanta"}]) == exact


def test_texts_are_compared_by_code_points() -> None:
    """Whatever the language of the machine: capitals before small letters, accents after z, and beyond 16 bits last."""
    row = {"s": ["B", "a", "z", "é", "\uffee", "\U0001f600"]}
    for at in range(5):
        sql = f"SELECT GetArrayElement(s, {at}) < GetArrayElement(s, {at + 1}) AS v FROM arrivals"
        assert values(sql, [row]) == ['{"v":true}']
