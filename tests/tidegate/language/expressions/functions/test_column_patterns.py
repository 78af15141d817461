"""Patterns that are columns mean what they mean as constants, and a bad one is a failed row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.query_runs import reasons, values

from tidegate.language.expressions.functions.column_patterns import column_pattern_problem
from tidegate.language.expressions.functions.patterns import pattern_problem

CALLS = {"like": "t LIKE {}", "patindex": "PATINDEX({}, t)", "regexmatch": "REGEXMATCH(t, {})"}
PIECES = [
    "a",
    "B",
    "é",
    "ß",
    "K",
    "\n",
    "%",
    "_",
    "[a-c]",
    "[^a]",
    ".",
    ".*",
    "a+",
    "(a|b)",
    "^",
    "$",
    "\\d",
    "{2}",
    "1",
    " ",
    "(?i)x",
    "[]a]",
    "Ā",
]
PATTERNS = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
TEXTS = st.text("aABbckKé\nßx1 Ā😀", max_size=6)


def column(sql: str, rows: list[dict[str, Any]]) -> list[Any]:
    """The only column of SELECT."""
    return [json.loads(value)["x"] for value in values(f"SELECT {sql} AS x FROM arrivals", rows)]


@pytest.mark.parametrize("name", CALLS)
@given(st.lists(TEXTS | st.none(), min_size=1, max_size=5), PATTERNS)
def test_a_column_means_what_a_constant_means(name: str, texts: list[str | None], pattern: str) -> None:
    """The same result, or the same refusal."""
    assert bool(column_pattern_problem(name, pattern)) == bool(pattern_problem(name, pattern))
    if not pattern_problem(name, pattern):
        constant = "'" + pattern.replace("'", "''") + "'"
        rows = [{"t": text, "p": pattern} for text in texts]
        assert column(CALLS[name].format("p"), rows) == column(CALLS[name].format(constant), rows)


def test_each_row_has_a_pattern_of_its_own() -> None:
    """NULL on either side gives NULL; what is matched is read as text."""
    rows = [
        {"t": "abc", "p": "b+"},
        {"t": "abc", "p": "x"},
        {"t": None, "p": "b"},
        {"t": "b"},
        {"t": 1.5, "p": "5"},
        {"t": "ébb", "p": "B"},
    ]
    assert column("REGEXMATCH(t, p)", rows) == [2, 0, None, None, 3, 2]
    assert column("t LIKE CONCAT(p, '%')", [{"t": "abc", "p": "ab"}, {"t": "abc", "p": "b"}]) == [True, False]
    assert column("CASE WHEN t NOT LIKE p THEN 1 ELSE 0 END", [{"t": "abc", "p": "a_c"}, {"t": "abc", "p": "a"}]) == [0, 1]


def test_the_case_of_texts_is_ignored_if_the_script_says_so() -> None:
    """LIKE alone follows it, as with a constant."""
    rows = [{"t": "ABC", "p": "a%"}]
    assert values("SET CASE_INSENSITIVE ON SELECT t LIKE p AS x FROM arrivals", rows) == ['{"x":true}']
    assert values("SELECT t LIKE p AS x FROM arrivals", rows) == ['{"x":false}']


def test_a_bad_pattern_fails_its_row_alone() -> None:
    """With the reason; a pattern of another kind, a long one, and one that unrolls to too much too."""
    rows = [
        {"t": "a", "p": "["},
        {"t": "a", "p": "a"},
        {"t": "a", "p": 7},
        {"t": "a", "p": "x" * 1_001},
        {"t": "a", "p": "(.{0,30}){0,30}"},
    ]
    found = dict(reasons("SELECT REGEXMATCH(t, p) AS x FROM arrivals", rows))
    assert found.keys() == {0, 2, 3, 4}
    assert found[0] == "REGEXMATCH failed: its pattern is not understood: missing ]: [: REGEXMATCH(t, p)"
    assert found[2] == "a nvarchar(max) is needed, not bigint: REGEXMATCH(t, p)"
    assert found[3] == "REGEXMATCH failed: its pattern has 1001 characters, more than 1000: REGEXMATCH(t, p)"
    assert "unroll to 900 parts" in found[4]


def test_a_pattern_that_is_not_reached_cannot_fail() -> None:
    """Behind a condition of CASE it is not even looked at."""
    assert column("CASE WHEN t = 'b' THEN REGEXMATCH(t, p) ELSE -1 END", [{"t": "a", "p": "["}, {"t": "b", "p": "b"}]) == [-1, 1]
