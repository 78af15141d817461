"""Joins with reference data: examples worked by hand, and random events under random cuts against nested loops."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from support.budgets import budget_of
from support.query_oracle import Event
from support.script_runs import answers_of, program_of

from ordering.ticks import NEVER
from query.operators.joins import reference_join
from query.reference.tables import ReferenceTable, Version
from tidegate.basics.budget import BUDGET
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.binding.input_schema import InputSchema

SECOND = 1_000_000
Record = dict[str, Any]


def at(second: float, **payload: object) -> Event:
    """An event of the only timeline."""
    return Event(0, int(second * SECOND), payload)


def reference(*versions: tuple[int, list[Record]], name: str = "r", **fields: str) -> ReferenceTable:
    """A table of versions (effective from, records)."""
    values = [Version(begins, pa.array([json.dumps(record).encode() for record in records], pa.binary())) for begins, records in versions]
    return ReferenceTable(InputSchema(name, fields=fields, is_reference=True), tuple(values))


def line(**values: Any) -> str:
    """A result's value."""
    return json.dumps(values, separators=(",", ":"))


# By hand


def test_the_version_that_is_valid_at_the_events_time_counts() -> None:
    """A version begins at its instant and ends where the next one begins; before the first nothing matches."""
    rates = reference((2 * SECOND, [{"k": 1, "rate": 10}, {"k": 2, "rate": 20}]), (4 * SECOND, [{"k": 1, "rate": 11}]))
    events = [at(1.999999, k=1), at(2, k=1), at(3.999999, k=2), at(4, k=1), at(4, k=2)]
    sql = "SELECT a.k AS k, r.rate AS rate INTO out FROM a {} JOIN r ON a.k = r.k"
    assert answers_of(sql.format(""), {"a": events}, references=[rates]).values() == [
        line(k=1, rate=10),
        line(k=2, rate=20),
        line(k=1, rate=11),
    ]
    answers = answers_of(sql.format("LEFT"), {"a": events}, references=[rates])
    assert answers.values() == [line(k=1, rate=None), line(k=1, rate=10), line(k=2, rate=20), line(k=1, rate=11), line(k=2, rate=None)]
    assert answers.times() == [event.system_us for event in events]


def test_conditions_need_not_be_equalities() -> None:
    """A row may match many records, in the order of the file; what ON cannot compute does not match."""
    bands = reference((NEVER, [{"low": 0, "high": 10, "n": "a"}, {"low": 5, "high": 20, "n": "b"}, {"low": "x", "high": 1, "n": "c"}]))
    sql = "SELECT a.v AS v, r.n AS n INTO out FROM a LEFT JOIN r ON a.v >= CAST(r.low AS bigint) AND a.v < r.high"
    answers = answers_of(sql, {"a": [at(1, v=7), at(2, v=30), at(3, v=1)]}, references=[bands])
    assert answers.values() == [line(v=7, n="a"), line(v=7, n="b"), line(v=30, n=None), line(v=1, n="a")]
    assert answers.reasons == []


def test_the_records_of_one_row_come_in_the_order_of_their_file() -> None:
    """However many there are, and whatever kinds of values are equal to the row's."""
    table = reference((NEVER, [{"k": 1 if number % 3 else "1", "n": number} for number in range(300)]))
    answers = answers_of("SELECT r.n AS n INTO out FROM a JOIN r ON a.k = r.k", {"a": [at(1, k=1)]}, references=[table])
    assert answers.values() == [line(n=number) for number in range(300)]


def test_fields_are_read_as_those_of_events_are() -> None:
    """Members of records, declared types, names in another case; everything of a record stands under the table's name."""
    table = reference((NEVER, [{"Code": "1", "deep": {"er": 5}, "from": "2001-02-03"}]), **{"code": "bigint", "from": "datetime"})
    sql = "SELECT r.DEEP.er AS d, r.code AS c, YEAR(r.[from]) AS y INTO out FROM a JOIN r ON r.code = a.k"
    assert answers_of(sql, {"a": [at(1, k=1)]}, references=[table]).values() == [line(d=5, c=1, y=2001)]
    sql = "SELECT * INTO out FROM a x LEFT JOIN r place ON place.code = x.k"
    assert answers_of(sql, {"a": [at(1, k=1), at(2, k=2)]}, references=[table]).values() == [
        '{"x":{"k":1},"place":{"Code":"1","deep":{"er":5},"from":"2001-02-03"}}',
        '{"x":{"k":2},"place":null}',
    ]


def test_tables_stream_and_windows_can_be_joined_together() -> None:
    """A row keeps its time when it looks a record up, so it can be joined by time before and afterwards."""
    names = reference((NEVER, [{"k": 1, "name": "one"}, {"k": 2, "name": "two"}]), name="names")
    rates = reference((NEVER, [{"name": "one", "rate": 2}]), name="rates")
    sql = """WITH counts AS (SELECT k, COUNT(*) AS n FROM a GROUP BY k, TumblingWindow(second, 10))
             SELECT n.name AS name, c.n * r.rate AS v, b.v AS w INTO out
             FROM counts c JOIN names n ON n.k = c.k JOIN b ON DATEDIFF(second, c, b) BETWEEN 0 AND 1
                  LEFT JOIN rates r ON r.name = n.name"""
    events = {"a": [at(1, k=1), at(2, k=1), at(3, k=2), at(3, k=3)], "b": [at(11, v="b")]}
    answers = answers_of(sql, events, references=[names, rates])
    assert answers.values() == [line(name="one", v=4, w="b"), line(name="two", v=None, w="b")]
    assert answers.times() == [11 * SECOND] * 2
    assert program_of(sql, [InputSchema("a"), InputSchema("b")], [names, rates]).plans[0].references == ("rates", "names")


# Geometries

CORNERS = st.tuples(st.integers(-3, 3), st.integers(-3, 3))
PLACES = st.lists(
    st.fixed_dictionaries(
        {"k": st.integers(1, 2), "place": st.one_of(st.none(), st.just("nowhere"), CORNERS.map("POINT({0[0]} {0[1]})".format))}
    ),
    max_size=12,
)
AREAS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(1, 2),
            "area": st.one_of(
                st.none(),
                CORNERS.map(lambda at: f"POLYGON(({at[0]} {at[1]}, {at[0] + 2} {at[1]}, {at[0] + 2} {at[1] + 3}, {at[0]} {at[1]}))"),
                CORNERS.map("POINT({0[0]} {0[1]})".format),
            ),
        }
    ),
    min_size=1,
    max_size=6,
)
ASKED = (
    "ST_WITHIN(x.place, y.area) = 1",
    "1 = ST_INTERSECTS(y.area, x.place)",
    "ST_DISTANCE(x.place, y.area) < 250000",
    "ST_WITHIN(x.place, y.area) = 0",
)


@settings(max_examples=60, deadline=None)
@given(
    PLACES, AREAS, AREAS, st.sampled_from(ASKED), st.booleans(), st.booleans(), st.integers(1, 8), st.lists(st.integers(1, 14), max_size=3)
)
def test_a_tree_of_geometries_changes_no_row(
    places: list[Record], first: list[Record], second: list[Record], asked: str, outer: bool, has_key: bool, pairs_max: int, cuts: list[int]
) -> None:
    """Of two versions, with a key and without, beyond the limit of pairs too; level 2, whatever the cuts."""
    numbered = [[{**record, "n": number} for number, record in enumerate(records)] for records in (first, second)]
    table = reference((NEVER, numbered[0]), (6, numbered[1]))
    events = [Event(0, number + 1, {**place, "n": number}) for number, place in enumerate(places)]
    on = f"{'x.k = y.k AND ' if has_key else ''}{asked} AND x.n + y.n <> 3"
    sql = f"SELECT x.n AS x, y.n AS y INTO out FROM a TIMESTAMP BY t x {'LEFT' if outer else ''} JOIN r y ON {on}"
    schemas = [InputSchema("a", is_free=True)]
    with patch.object(reference_join, "_FEW_RECORDS", 10**9):
        due = answers_of(sql, {"a": events}, schemas=schemas, references=[table], join_pairs_max=pairs_max)
    for rows_at_once in (2, 10_000):
        pairs_of_row = BUDGET.asked_pairs // rows_at_once
        with patch.object(reference_join, "_FEW_RECORDS", 0), patch.object(reference_join, "_PAIRS_OF_GEOMETRY", pairs_of_row):
            assert answers_of(sql, {"a": events}, cuts, schemas=schemas, references=[table], join_pairs_max=pairs_max) == due


# Against nested loops

RECORDS = st.lists(st.fixed_dictionaries({"k": st.sampled_from([None, 1, 2, "x", "1"]), "v": st.integers(0, 3)}), max_size=4)
TABLE = st.lists(st.tuples(st.integers(0, 30), RECORDS), max_size=3, unique_by=lambda version: version[0]).map(sorted)
EVENTS = st.lists(
    st.builds(
        lambda sub, at, k, v: Event(sub, at, {"sub": sub, "k": k, "v": v}),
        st.integers(0, 1),
        st.integers(1, 40),
        st.sampled_from([None, 1, 2.0, "x", "1"]),
        st.integers(0, 3),
    ),
    max_size=14,
).map(lambda events: sorted(events, key=lambda event: event.system_us))


LIMITS = [(pairs_max, at_once, at_once_bytes) for pairs_max in (1, 2, 100) for at_once in (2, 100) for at_once_bytes in (3, 10**6)]
"""Most pairs of a row; most pairs and bytes made at once."""


def equal(left: Any, right: Any) -> bool:
    """What ``=`` says of two of the keys above."""
    if left is None or right is None:
        return False
    return bool(left == right) or {json.dumps(left), json.dumps(right)} == {'"1"', "1"}


@settings(max_examples=60, deadline=None)
@given(TABLE, EVENTS, st.booleans(), st.booleans(), st.lists(st.integers(1, 50), max_size=5), st.integers(0, 45), st.sampled_from(LIMITS))
def test_a_join_is_what_nested_loops_give(
    versions: list[tuple[int, list[Record]]],
    events: list[Event],
    outer: bool,
    residual: bool,
    cuts: list[int],
    start_us: int,
    limits: tuple[int, int, int],
) -> None:
    """Over substreams, whatever the cuts, from any start on, up to the limit, and however many pairs and bytes are made at once."""
    table = reference(*versions) if versions else reference((50, []))
    joined = f"a TIMESTAMP BY t OVER sub x {'LEFT' if outer else ''} JOIN r y ON x.k = y.k{' AND x.v < y.v' if residual else ''}"
    sql = f"SELECT x.v AS x, y.v AS y INTO out FROM {joined}"
    pairs_max, at_once, at_once_bytes = limits
    expected: dict[int, list[tuple[int, str]]] = {}
    reasons: list[str] = []
    for event in events:
        valid = [records for begins, records in versions if begins <= event.system_us]
        equals = [record["v"] for record in (valid[-1] if valid else []) if equal(event.payload["k"], record["k"])]
        fitting = [not residual or event.payload["v"] < value for value in equals]
        found = [value for value, is_fitting in zip(equals[:pairs_max], fitting, strict=False) if is_fitting]
        if len(equals) > pairs_max:
            reasons.append(QueryReason.JOIN_TOO_LARGE.text(pairs_max, len(equals) - pairs_max))
        for value in found or ([None] if outer and not any(fitting) else []):
            expected.setdefault(event.sub, []).append((event.system_us, line(x=event.payload["v"], y=value)))
    schemas = [InputSchema("a", is_free=True)]
    whole = answers_of(sql, {"a": events}, schemas=schemas, references=[table], join_pairs_max=pairs_max)
    found_rows = {sub: [(us, value.decode()) for us, _, value in rows] for sub, rows in whole.results["out"].items()}
    assert found_rows == expected
    assert whole.reasons == sorted(reasons)
    with budget_of(pairs=at_once, bytes=at_once_bytes):
        assert answers_of(sql, {"a": events}, cuts, schemas=schemas, references=[table], join_pairs_max=pairs_max) == whole
    begun = answers_of(sql, {"a": events}, cuts, start_us=start_us, schemas=schemas, references=[table], join_pairs_max=pairs_max)
    late = {sub: [row for row in rows if row[0] >= start_us] for sub, rows in whole.results["out"].items()}
    assert begun.results["out"] == {sub: rows for sub, rows in late.items() if rows}
