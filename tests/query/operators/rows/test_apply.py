"""APPLY gives a row for each element of an array, or each member of a record; worked examples, and a naive oracle under any cut."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import answers_of

from query.operators.rows import apply
from tidegate.language.expressions.binding.input_schema import InputSchema

SECOND = 1_000_000


def at(second: float, **payload: Any) -> Event:
    """An event of the only timeline."""
    return Event(0, int(second * SECOND), payload)


READINGS = [at(1, id="a", of=[1, {"b": 2}, None]), at(2, id="b", of=[]), at(3, id="c"), at(4, id="d", of=["x"])]


def test_cross_apply_gives_a_row_for_each_element() -> None:
    """In the order of the array, counted from 0, at the row's own time; a row without elements gives none."""
    sql = "SELECT i.id, e.ArrayIndex, e.ArrayValue, e.ArrayValue.b AS b FROM i CROSS APPLY GetArrayElements(i.of) AS e"
    answers = answers_of(sql, {"i": READINGS})
    assert answers.values() == [
        '{"id":"a","ArrayIndex":0,"ArrayValue":1,"b":null}',
        '{"id":"a","ArrayIndex":1,"ArrayValue":{"b":2},"b":2}',
        '{"id":"a","ArrayIndex":2,"ArrayValue":null,"b":null}',
        '{"id":"d","ArrayIndex":0,"ArrayValue":"x","b":null}',
    ]
    assert answers.times() == [SECOND, SECOND, SECOND, 4 * SECOND]


def test_outer_apply_keeps_rows_without_elements() -> None:
    """An empty array, and none, give one row with NULL; WHERE is asked of the rows that APPLY gives."""
    sql = "SELECT id, e.arrayindex AS i, e.ArrayValue AS v FROM i OUTER APPLY GetArrayElements(of) e WHERE id <> 'a'"
    assert answers_of(sql, {"i": READINGS}).values() == [
        '{"id":"b","i":null,"v":null}',
        '{"id":"c","i":null,"v":null}',
        '{"id":"d","i":0,"v":"x"}',
    ]


def test_members_of_a_record_are_applied() -> None:
    """Each with its name and its value, in the order of the record; also of a step's column."""
    sql = """WITH s AS (SELECT id, place FROM i)
             SELECT id, p.PropertyName AS n, p.PropertyValue AS v INTO out FROM s CROSS APPLY GetRecordProperties(s.place) AS p"""
    events = [at(1, id=1, place={"z": 1.0, "a": {"b": [2]}, 'quo"te': None}), at(2, id=2, place={}), at(3, id=3)]
    assert answers_of(sql, {"i": events}).values() == [
        '{"id":1,"n":"z","v":1.0}',
        '{"id":1,"n":"a","v":{"b":[2]}}',
        '{"id":1,"n":"quo\\"te","v":null}',
    ]


def test_applies_stand_one_after_the_other() -> None:
    """An array in an array; what is selected may name every relation, and a star brings each under its name."""
    sql = """SELECT low.ArrayValue.v AS v, high.ArrayIndex AS at FROM i
             CROSS APPLY GetArrayElements(i.of) AS high CROSS APPLY GetArrayElements(high.ArrayValue.of) AS low"""
    events = [at(1, of=[{"of": [{"v": 1}, {"v": 2}]}, {"of": []}, {"of": [{"v": 3}]}])]
    assert answers_of(sql, {"i": events}).values() == ['{"v":1,"at":0}', '{"v":2,"at":0}', '{"v":3,"at":2}']
    star = answers_of("SELECT * FROM i CROSS APPLY GetArrayElements(i.of) e", {"i": [at(1, of=[7])]})
    assert star.values() == ['{"i":{"of":[7]},"e":{"ArrayIndex":0,"ArrayValue":7}}']


def test_a_row_whose_value_is_no_array_fails() -> None:
    """It goes to the dead letters, and the others go on."""
    answers = answers_of("SELECT e.ArrayValue AS v FROM i CROSS APPLY GetArrayElements(i.of) e", {"i": [at(1, of="x"), at(2, of=[1])]})
    assert answers.values() == ['{"v":1}']
    assert answers.reasons == ["an array is needed, not nvarchar(max): i.of"]


def test_elements_are_grouped_substream_by_substream() -> None:
    """With OVER each substream's elements count for it alone."""
    sql = """SELECT k, SUM(e.ArrayValue) AS s FROM i TIMESTAMP BY t OVER k CROSS APPLY GetArrayElements(i.of) e
             GROUP BY k, TumblingWindow(second, 10)"""
    events = [Event(sub, second * SECOND, {"k": "ab"[sub], "of": [second, 1]}) for second in (1, 2, 11) for sub in (0, 1)]
    answers = answers_of(sql, {"i": events}, [2 * SECOND, 11 * SECOND], schemas=[InputSchema("i", "t", "k")])
    assert answers.values(sub=0) == ['{"k":"a","s":5}', '{"k":"a","s":12}']
    assert answers.values(sub=1) == ['{"k":"b","s":5}', '{"k":"b","s":12}']


# The law

VALUES = st.none() | st.integers(-3, 3) | st.sampled_from(["x", "é"]) | st.lists(st.integers(0, 2), max_size=2)
ARRAYS = st.none() | st.lists(VALUES, max_size=4)
EVENTS = st.lists(
    st.builds(lambda at, k, of: Event(0, at, {"k": k, "of": of}), st.integers(1, 40), st.integers(0, 2), ARRAYS), max_size=15
).map(lambda events: sorted(events, key=lambda event: event.system_us))


def expected(events: list[Event], outer: bool, start_us: int) -> list[tuple[int, str]]:
    """What the documentation of APPLY says, row by row."""
    found = []
    for event in events:
        elements: list[tuple[Any, Any]] = list(enumerate(event.payload["of"] or []))
        for index, value in elements or ([(None, None)] if outer else []):
            if event.system_us >= start_us:
                row = {"k": event.payload["k"], "i": index, "v": value}
                found.append((event.system_us, json.dumps(row, separators=(",", ":"), ensure_ascii=False)))
    return found


@settings(max_examples=60)
@given(EVENTS, st.booleans(), st.booleans(), st.lists(st.integers(1, 45), max_size=5), st.integers(0, 40))
def test_any_cut_and_start_gives_what_the_rows_say(events: list[Event], outer: bool, step: bool, cuts: list[int], start_us: int) -> None:
    """Level 2 of the law, operators alone: cuts of time, and a start in the middle, show in no result."""
    apply = f"{'OUTER' if outer else 'CROSS'} APPLY GetArrayElements(i.of) AS e"
    sql = f"SELECT k, e.ArrayIndex AS i, e.ArrayValue AS v INTO out FROM {'s i' if step else 'i'} {apply}"
    sql = f"WITH s AS (SELECT k, of FROM i) {sql}" if step else sql
    answers = answers_of(sql, {"i": events}, cuts, start_us=start_us)
    assert list(zip(answers.times(), answers.values(), strict=True)) == expected(events, outer, start_us)


def test_a_row_that_needs_too_much_memory_with_its_elements_fails_alone() -> None:
    """Its long text beside each of many elements; the rows before and after have theirs."""
    sql = "SELECT a.note AS note, e.ArrayValue AS e INTO out FROM a CROSS APPLY GetArrayElements(a.list) AS e"
    small, large = {"note": "s", "list": [1, 2]}, {"note": "l" * 1_000, "list": [1] * 20}
    with patch.object(apply, "RETURNED_BYTES_MAX", 10_000):
        answers = answers_of(sql, {"a": [at(1, **small), at(2, **large), at(3, **small)]})
    assert answers.values() == ['{"note":"s","e":1}', '{"note":"s","e":2}'] * 2
    assert [reason.partition(": ")[0] for reason in answers.reasons] == ["value too large"]
