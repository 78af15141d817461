"""Scripts that are meant to do harm are refused by what they measure, before anything could drown in them."""

from __future__ import annotations

import time

import pytest
from support.query_runs import values

from ordering.errors import QueryError
from query.sql.bind import bind_outputs
from query.testing.run_query import run_query
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

SCRIPTS = {
    "ten megabytes": "SELECT '" + "a" * 10_000_000 + "' AS x FROM i",
    "many words": "SELECT " + "a," * 100_000 + "a FROM i",
    "many columns": "SELECT " + ",".join(f"c{n}" for n in range(5_000)) + " FROM i",
    "a list of a million": "SELECT a FROM i WHERE a IN (" + ",".join(map(str, range(1_000_000))) + ")",
    "a list of ten thousand": "SELECT a FROM i WHERE a IN (" + ",".join(map(str, range(10_000))) + ")",
    "a deep record": "SELECT " + "CAST(" * 10_000 + "a" + " AS record)" * 10_000 + " AS x FROM i",
    "text that grows": "SELECT " + "STUFF(" * 30 + "a" + ",1,1,'x')" * 30 + " AS x FROM i",
    "macros in macros": "SELECT " + "CAST(CAST(" * 12 + "a" + " AS datetime) AS nvarchar(max))" * 12 + " AS x FROM i",
    "records in records": "SELECT " + "CAST(CAST(" * 12 + "a" + " AS record) AS nvarchar(max))" * 12 + " AS x FROM i",
    "inside a column function": "SELECT GetRecordPropertyValue(a, " + "STUFF(" * 30 + "a" + ",1,1,'x')" * 30 + ") AS x FROM i",
}
CHAIN = ", ".join(f"s{n} AS (SELECT a FROM s{n - 1})" for n in range(1, 900))
DOUBLING = ", ".join(f"s{n} AS (SELECT a FROM s{n - 1} UNION SELECT a FROM s{n - 1})" for n in range(1, 60))
SCRIPTS |= {
    "a chain of steps": f"WITH s0 AS (SELECT a FROM i), {CHAIN} SELECT a FROM s899",
    "steps that double": f"WITH s0 AS (SELECT a FROM i), {DOUBLING} SELECT a FROM s59",
}
CHOICES = [f"WHEN a = {n} THEN 'the text that a column has where a is {n}'" for n in range(1_600)]
SCRIPTS |= {"a choice among 1,600": f"SELECT CASE {' '.join(CHOICES)} END AS x FROM i"}
LONG = "whose_name_says_what_it_is_so_that_the_script_has_a_hundred_kilobytes"
# Scripts of about 100 kB that are taken.
TAKEN = {
    "columns": "SELECT " + ", ".join(f"a + {n} AS c{n}_{LONG}" for n in range(1_000)) + " INTO out FROM i TIMESTAMP BY at",
    "aggregates": "SELECT "
    + ", ".join(f"SUM(a + {n}) AS c{n}_{LONG}" for n in range(1_000))
    + " INTO out FROM i TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)",
    "functions that look back": "SELECT "
    + ", ".join(f"LAG(a, {n % 9 + 1}) OVER (LIMIT DURATION(minute, {n + 1})) AS c{n}_{LONG}" for n in range(800))
    + " INTO out FROM i TIMESTAMP BY at",
    "comments": "-- what somebody thought\n" * 4_000 + "SELECT a INTO out FROM i TIMESTAMP BY at",
}
PATTERNS = {
    "LIKE": "SELECT a FROM i WHERE a LIKE '" + "%a" * 10_000 + "'",
    "REGEXMATCH": "SELECT REGEXMATCH(a, '" + "(a+)+" * 3_000 + "') AS x FROM i",
    "repetitions": "SELECT REGEXMATCH(a, '((((a{100}){100}){100}){100})') AS x FROM i",
    "back references": r"SELECT REGEXMATCH(a, '(a)\1') AS x FROM i",
    "look-ahead": "SELECT REGEXMATCH(a, '(?=a)') AS x FROM i",
    "a bracket too many": "SELECT REGEXMATCH(a, 'a)|(b') AS x FROM i",
}

MATCH = "SELECT * INTO out FROM i MATCH_RECOGNIZE (LIMIT DURATION(minute, 5) MEASURES LAST(v) AS v {} PATTERN ({}) DEFINE A AS {}) AS m"
ROWS = {
    "deep brackets": ("(" * 10_000 + "A" + ")" * 10_000, "A.v > 1", "TG-QUERY-SIZE"),
    "100 kB": ("A " * 50_000, "A.v > 1", "TG-QUERY-SIZE"),
    "quantifiers of quantifiers": ("(((((A{1,9}){1,9}){1,9}){1,9}){1,9})", "A.v > 1", "TG-QUERY-PATTERN"),
    "a number of many digits": ("A{1," + "9" * 5_000 + "}", "A.v > 1", "TG-QUERY-PATTERN"),
    "rows that may all be missing": ("(A?){256}", "A.v > 1", "TG-QUERY-PATTERN"),
    "a condition of many parts": ("A", " OR ".join(f"MAX(A.v) > {n}" for n in range(1_000)), "TG-QUERY-SIZE"),
}


def code_of(script: str) -> str:
    """The code of the error that a script gives."""
    with pytest.raises(QueryError) as caught:
        bind_outputs(parse_script(script), [InputSchema("i")], into="out")
    return caught.value.code


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_what_is_too_big_is_refused_for_its_size(script: str) -> None:
    """Sizes are looked at before trees are built from text, and before statements are built from trees."""
    assert code_of(script) == "TG-QUERY-SIZE"


@pytest.mark.parametrize("script", [SCRIPTS["a choice among 1,600"], f"SELECT a FROM i WHERE CASE {' '.join(CHOICES[:150])} END"])
def test_an_error_does_not_repeat_the_whole_script(script: str) -> None:
    """Its message has a few lines at most, however long the expression is that it is about."""
    with pytest.raises(QueryError) as caught:
        bind_outputs(parse_script(script), [InputSchema("i")], into="out")
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("script", TAKEN.values(), ids=list(TAKEN))
def test_a_script_of_a_hundred_kilobytes_that_is_taken_is_planned_and_runs_in_seconds(script: str) -> None:
    """Of the processor: nothing grows with the square of its length."""
    assert 80_000 < len(script) < 120_000
    began_s = time.process_time()
    run = run_query(script, {"i": [{"at": f"2001-01-01T00:00:0{n}Z", "a": n} for n in range(5)]}, cuts=None)
    assert all(run.results_by_output.values())
    assert time.process_time() - began_s < 30


@pytest.mark.parametrize("script", PATTERNS.values(), ids=list(PATTERNS))
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_refused(script: str) -> None:
    """Patterns are constants; each is tried before anything starts."""
    assert code_of(script) == "TG-QUERY-TYPE"


def test_a_pattern_known_to_explode_does_not() -> None:
    """Nested repetitions over a text that almost matches."""
    assert values("SELECT REGEXMATCH(s, '(a+)+$') AS x FROM arrivals", [{"s": "a" * 100_000 + "b"}]) == ['{"x":0}']


@pytest.mark.parametrize(("pattern", "condition", "code"), ROWS.values(), ids=list(ROWS))
def test_a_pattern_of_rows_that_would_explode_is_refused(pattern: str, condition: str, code: str) -> None:
    """Before its automaton is built, or as soon as it is too large."""
    assert code_of(MATCH.format("AFTER MATCH SKIP TO NEXT ROW", pattern, condition)) == code
