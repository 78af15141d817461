"""
MATCH_RECOGNIZE against an independent, slow reference: it tries all paths of a pattern one by one, in the order of preference.

With the rows up to some row an attempt is decided if a path ends before any path of more preference has used up the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import answers_of

from ordering.errors import QueryError
from query.operators.patterns import matcher
from query.operators.patterns.matcher import PartitionRows, Rules, find_matches
from query.plan.row_patterns import Choice, Pattern, Repetition, make_automaton
from query.plan.row_patterns import Sequence as Parts
from tidegate.basics.budget import Budget

SECOND = 1_000_000
LIMIT = 6
CUTS = st.lists(st.integers(1, 45 * SECOND), max_size=4)
ATOMS = st.sampled_from([Pattern("A"), Pattern("B"), Pattern("C"), Pattern(".")])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Parts(parts=tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Choice(parts=tuple(parts))),
        st.tuples(inner, st.sampled_from([(0, None), (1, None), (0, 1), (2, None), (1, 3), (2, 2)])).map(
            lambda drawn: Repetition(part=drawn[0], least=drawn[1][0], most=drawn[1][1])
        ),
    ),
    max_leaves=5,
)
# Seconds after the row before, key and value.
ROWS = st.lists(st.tuples(st.sampled_from([0, 1, 1, 2, 4]), st.sampled_from("xy"), st.integers(0, 3)), max_size=14)
PLAIN = "A AS A.v >= 1, B AS v <= 1, C AS C.v = 2"
OF_EARLIER = "A AS A.v >= 1, B AS B.v <> LAST(A.v) AND MAX(B.v) < 3, C AS C.v > MIN(B.v) OR C.v = FIRST(A.v)"


class OutOfRows(Exception):
    """A path goes on behind the last row that is known."""


def plain_fits(name: str, path: Sequence[tuple[str, int]]) -> bool:
    """Tell whether the last row of a path fits the variable, by PLAIN."""
    v = path[-1][1]
    return {"A": v >= 1, "B": v <= 1, "C": v == 2, ".": True}[name]


def fits_of_earlier(name: str, path: Sequence[tuple[str, int]]) -> bool:
    """The same by OF_EARLIER; what compares with NULL is not true."""
    v = path[-1][1]
    of = {variable: [value for label, value in path if label == variable] for variable in "ABC"}
    if name == "B":
        return bool(of["A"]) and v != of["A"][-1] and max(of["B"]) < 3
    if name == "C":
        return (bool(of["B"]) and v > min(of["B"])) or (bool(of["A"]) and v == of["A"][0])
    return name == "." or v >= 1


@dataclass(frozen=True)
class Reference:
    """All paths of a pattern over some rows, the preferred ones first."""

    values: Sequence[int]
    fits: Any

    def paths(self, pattern: Pattern, path: tuple[tuple[str, int], ...]) -> Iterator[tuple[tuple[str, int], ...]]:
        """Yield the paths that go on with a pattern."""
        if isinstance(pattern, Parts):
            first, *rest = pattern.parts
            for longer in self.paths(first, path):
                yield from self.paths(Parts(parts=tuple(rest)), longer) if rest else [longer]
        elif isinstance(pattern, Choice):
            for part in pattern.parts:
                yield from self.paths(part, path)
        elif isinstance(pattern, Repetition):
            yield from self.repeated(pattern, path, 0)
        else:
            if len(path) == len(self.values):
                raise OutOfRows
            longer = (*path, (pattern.name, self.values[len(path)]))
            if self.fits(pattern.name, longer):
                yield longer

    def repeated(self, pattern: Repetition, path: tuple[tuple[str, int], ...], rounds: int) -> Iterator[tuple[tuple[str, int], ...]]:
        """Yield the paths that go on with further rounds of a repetition; a round beyond the least takes a row."""
        if rounds < pattern.least:
            for longer in self.paths(pattern.part, path):
                yield from self.repeated(pattern, longer, rounds + 1)
            return
        if pattern.most is None or rounds < pattern.most:
            for longer in self.paths(pattern.part, path):
                if len(longer) > len(path):
                    yield from self.repeated(pattern, longer, rounds + 1)
        yield path


def preferred(pattern: Pattern, values: Sequence[int], fits: Any) -> tuple[tuple[str, int], ...] | None:
    """Return the preferred path with a row; raise OutOfRows if it depends on more rows."""
    return next((path for path in Reference(values, fits).paths(pattern, ()) if path), None)


def without_end(pattern: Pattern, values: Sequence[int], fits: Any) -> tuple[tuple[str, int], ...] | None:
    """Return the preferred path if no more rows come: none of them fits anything."""
    end = 9
    return preferred(pattern, [*values, *[end] * 200], lambda name, path: path[-1][1] != end and fits(name, path))


def expected_results(pattern: Pattern, rows: Sequence[tuple[int, str, int]], fits: Any) -> list[tuple[int, list[str], int]]:
    """Return the instant, the names and the number of the first row of each match, in seconds."""
    found = []
    for key in "xy":
        own = [(number, at, value) for number, (at, row_key, value) in enumerate(rows) if row_key == key]
        for begin, (first_number, first_at, _) in enumerate(own):
            window = [row for row in own[begin:] if row[1] <= first_at + LIMIT]
            decided, path = first_at + LIMIT, None
            for count in range(1, len(window) + 1):
                try:
                    path = preferred(pattern, [value for _, _, value in window[:count]], fits)
                except OutOfRows:
                    continue
                decided = window[count - 1][1]
                break
            else:
                path = without_end(pattern, [value for _, _, value in window], fits)
            if path:
                found.append((decided, [name for name, _ in path], first_number))
    return sorted(found, key=lambda each: (each[0], each[2]))


def script(pattern: str, define: str, measures: str = "Classifier() AS c, FIRST(n) AS n") -> str:
    """Return the script of a pattern."""
    clauses = f"LIMIT DURATION(second, {LIMIT}) PARTITION BY k MEASURES {measures} AFTER MATCH SKIP TO NEXT ROW"
    return f"SELECT * INTO out FROM a MATCH_RECOGNIZE ({clauses} PATTERN ({pattern}) DEFINE {define}) AS m"


def check(pattern: Pattern, drawn: list[tuple[int, str, int]], cuts: list[int], define: str, fits: Any) -> None:
    """Compare a script with the reference."""
    at, rows = 1, []
    for step, key, value in drawn:
        at += step
        rows.append((at, key, value))
    events = [Event(0, at * SECOND, {"k": key, "v": value, "n": number}) for number, (at, key, value) in enumerate(rows)]
    # DEFINE may name variables of the pattern only: a choice of least preference, which no row fits, holds the others.
    whole = Parts(parts=(pattern, Repetition(part=Choice(parts=(Pattern("A"), Pattern("B"), Pattern("C"))), least=0, most=1)))
    answers = answers_of(script(str(whole), define), {"a": events}, cuts)
    found = [(us // SECOND, json.loads(value)) for us, value in zip(answers.times(), answers.values(), strict=True)]
    assert answers.reasons == []
    assert [(us, value["c"], value["n"]) for us, value in found] == expected_results(whole, rows, fits)


@settings(deadline=None)
@given(PATTERNS, ROWS, CUTS)
def test_matches_are_those_of_the_reference(pattern: Pattern, drawn: list[tuple[int, str, int]], cuts: list[int]) -> None:
    """Level 2: any pattern over any rows, however time is cut: the preferred match of each row, when it is certain."""
    check(pattern, drawn, cuts, PLAIN, plain_fits)


@settings(deadline=None)
@given(PATTERNS, ROWS, CUTS)
def test_matches_with_conditions_over_earlier_rows_are_those_of_the_reference(
    pattern: Pattern, drawn: list[tuple[int, str, int]], cuts: list[int]
) -> None:
    """Level 2: the same with DEFINE over earlier rows."""
    check(pattern, drawn, cuts, OF_EARLIER, fits_of_earlier)


@pytest.mark.parametrize(
    "pattern", [Repetition(part=Repetition(part=Pattern("A"))), Choice(parts=(Pattern("A"), Repetition(part=Pattern("A"))))]
)
def test_a_long_run_takes_steps_in_proportion(pattern: Pattern) -> None:
    """Nested quantifiers do not multiply the paths: a row is a step for each place."""
    count = 3_000
    rules = Rules(make_automaton(Parts(parts=(Repetition(part=pattern), Pattern("B")))), (), {"b": lambda row, _: (row < 0, {})}, 10**9)
    rows = PartitionRows(np.arange(count), np.full(count, count), np.full(count, 10**12))
    found = find_matches(rules, rows, np.array([0]))
    assert found.steps[0] <= 4 * count
    assert found.length[0] == 0


def test_an_attempt_of_too_many_steps_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would take too many steps is one reason at the row that is too much; other rows have their matches."""
    monkeypatch.setattr(matcher, "STEPS_MAX", 100)
    count = 105
    rules = Rules(make_automaton(Repetition(part=Pattern("A"), least=1)), (), {}, 10**9)
    rows = PartitionRows(np.arange(count), np.full(count, count), np.full(count, 10**12))
    found = find_matches(rules, rows, np.array([0, count - 3]))
    assert list(found.reasons) == [0]
    assert found.decided_us[0] == 100
    assert found.length.tolist() == [0, 3]


def test_how_many_attempts_are_made_at_once_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """In portions, or all together: the same matches, places and reasons."""
    monkeypatch.setattr(matcher, "STEPS_MAX", 20)
    pattern = Parts(parts=(Repetition(part=Choice(parts=(Pattern("A"), Pattern("B"))), least=1), Pattern("C")))
    values = np.array([0, 1, 0, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 0, 2, 2])
    conditions = {name: (lambda row, _, value=value: (values[row] == value, {})) for value, name in enumerate("abc")}
    rules = Rules(make_automaton(pattern), (), conditions, 10**9)
    rows = PartitionRows(np.arange(len(values)), np.full(len(values), len(values)), np.full(len(values), 10**12))
    whole = find_matches(rules, rows, np.arange(len(values)), trace=True)
    assert whole.reasons
    assert whole.length.any()
    for at_once in (1, 40):
        monkeypatch.setattr(Budget, "numbered_rows", at_once)
        parts = find_matches(rules, rows, np.arange(len(values)), trace=True)
        for name in ("start", "decided_us", "length", "steps", "places"):
            assert getattr(parts, name).tolist() == getattr(whole, name).tolist()
        assert parts.reasons == whole.reasons


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PATTERN ((A?){100}) DEFINE A AS v = 1", "more than 2,048 ways"),
        ("PATTERN (A{1,1000000}) DEFINE A AS v = 1", "more than 256 rows"),
        ("PATTERN (A B) DEFINE A AS B.v = 1, B AS v = 1", "B is defined after A"),
        ("PATTERN (A B) DEFINE C AS v = 1", "PATTERN has no C"),
        ("PATTERN (A | ) DEFINE A AS v = 1", "a variable is missing"),
        ("PATTERN (A*?) DEFINE A AS v = 1", "a quantifier stands after another"),
        ("PATTERN (A{3,2}) DEFINE A AS v = 1", "is no quantifier"),
        ("PATTERN (A) DEFINE A AS SUM(A.v) > 1", "SUM in DEFINE is not supported yet"),
        ("PATTERN (A) DEFINE A AS Classifier() = 1", "stands in MEASURES"),
        ("PATTERN (Success) DEFINE Success AS Succes.v = 1", "PATTERN has no Succes"),
        ("ALL ROWS PER MATCH PATTERN (A) DEFINE A AS v = 1", "ALL ROWS PER MATCH is not supported yet"),
        ("ORDER BY t PATTERN (A) DEFINE A AS v = 1", "takes no ORDER BY"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    """A wrong clause is refused with its place and a fix."""
    sql = f"SELECT * INTO out FROM a\nMATCH_RECOGNIZE (LIMIT DURATION(second, 5) MEASURES LAST(v) AS v AFTER MATCH SKIP TO NEXT ROW {text})"
    with pytest.raises(QueryError, match=message) as error:
        answers_of(sql, {"a": []})
    assert "q.sql:2:" in str(error.value)
    assert error.value.fix


def test_measures_are_values_of_the_matched_rows() -> None:
    """Aggregates take the rows of their variable; a variable without rows has NULL, and a count of 0."""
    events = [Event(0, (at + 1) * SECOND, {"k": "x", "v": v}) for at, v in enumerate([1, 2, 4, 9])]
    measures = "FIRST(A.v) AS f, SUM(B.v) AS s, COUNT(C.v) AS n, MAX(C.v) AS hi, LAST(v) - FIRST(v) AS d, COLLECT(B.v) AS b"
    pattern = "A B+ C*"
    answers = answers_of(script(pattern, "A AS v = 1, B AS v > 1 AND v < 9, C AS v = 5", measures), {"a": events})
    assert answers.values() == ['{"f":1,"s":6,"n":0,"hi":null,"d":3,"b":[2,4]}']
    assert answers.times() == [4 * SECOND]


def test_of_two_ways_the_one_that_the_pattern_prefers_counts() -> None:
    """Both end with the same row, and have the same future: the left side of | counts."""
    events = [Event(0, (at + 1) * SECOND, {"k": "x", "v": v, "n": at}) for at, v in enumerate([1, 5, 1])]
    answers = answers_of(script("(A | B) . (B | A)", "A AS v = 1, B AS v = 1"), {"a": events})
    assert answers.values() == ['{"c":["A",".","B"],"n":0}']
