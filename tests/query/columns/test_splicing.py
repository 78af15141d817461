"""A column ``*`` is a record whose members stand in its place; each name once, a column's before a star's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import answers_of

from tidegate.language.expressions.binding.input_schema import InputSchema

SECOND = 1_000_000
PAYLOAD = {"id": "a", "delay": 1, "place": {"lat": 1.5, "ID": 7}, "é": None}


def only(sql: str, payload: Any = PAYLOAD, *schemas: InputSchema) -> str:
    """The one value that a script gives for one event."""
    (value,) = answers_of(sql, {"i": [Event(0, SECOND, payload)]}, schemas=schemas).values()
    return value


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT *, delay * 2 AS twice FROM i", '{"id":"a","delay":1,"place":{"lat":1.5,"ID":7},"é":null,"twice":2}'),
        ("SELECT *, delay * 2 AS DELAY FROM i", '{"id":"a","place":{"lat":1.5,"ID":7},"é":null,"DELAY":2}'),
        ("SELECT delay * 2 AS delay, * FROM i", '{"delay":2,"id":"a","place":{"lat":1.5,"ID":7},"é":null}'),
        ("SELECT i.*, 1 AS É FROM i", '{"id":"a","delay":1,"place":{"lat":1.5,"ID":7},"É":1}'),
        ("SELECT id AS name, place.* FROM i", '{"name":"a","lat":1.5,"ID":7}'),
        ("SELECT place.*, i.* FROM i", '{"lat":1.5,"ID":7,"delay":1,"place":{"lat":1.5,"ID":7},"é":null}'),
        ("SELECT id, nothing.*, id.* FROM i", '{"id":"a"}'),
        ("WITH s AS (SELECT *, 1 AS one FROM i) SELECT one, DELAY, place.lat INTO out FROM s", '{"one":1,"DELAY":1,"lat":1.5}'),
        ("WITH s AS (SELECT id, delay FROM i) SELECT *, 2 AS delay INTO out FROM s", '{"id":"a","delay":2}'),
        ("WITH s AS (SELECT id, delay FROM i) SELECT x.*, x.id AS again INTO out FROM s x", '{"id":"a","delay":1,"again":"a"}'),
    ],
)
def test_a_star_brings_members(sql: str, expected: str) -> None:
    """In the order of SELECT; a member that gives way to a column disappears from its own place."""
    assert only(sql) == expected


def test_a_payload_with_an_odd_spelling_is_read_all_the_same() -> None:
    """An escape in a name does not hide it; numbers and spaces are written anew."""
    assert only("SELECT *, 2 AS delay FROM i", b'{ "\\u0064elay": 1, "a\\"b": 1.50 }') == '{"a\\"b":1.5,"delay":2}'
    assert only("SELECT *, 2 AS delay FROM i", b"{}") == '{"delay":2}'


def test_a_declared_type_holds_through_a_star() -> None:
    """What a step's star brings is converted like the input's field."""
    sql = "WITH s AS (SELECT *, 1 AS one FROM i) SELECT delay + 1 AS d INTO out FROM s"
    assert only(sql, {"delay": "5"}, InputSchema("i", fields={"delay": "bigint"})) == '{"d":6}'


NAMES = st.sampled_from(["a", "A", "b", "c d", "é", 'q"'])
RECORDS = st.dictionaries(NAMES, st.integers(0, 9), max_size=5)


def expected(payload: dict[str, Any]) -> dict[str, Any]:
    """The members of ``SELECT r.*, i.*, 7 AS b, 8 AS [c d]``, by the rule."""
    of_stars = [(0, pair) for pair in (payload["r"] or {}).items()] + [(1, pair) for pair in payload.items()]
    kept = []
    for star, (name, value) in of_stars:
        winners = {other.lower() for number, (other, _) in of_stars if number < star} | {"b", "c d"}
        if name.lower() not in winners:
            kept.append((name, value))
    return dict([*kept, ("b", 7), ("c d", 8)])


@settings(max_examples=60)
@given(st.lists(st.tuples(RECORDS, st.none() | RECORDS), min_size=1, max_size=5))
def test_each_name_stands_once(rows: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> None:
    """Against the rule written out; also the order of members."""
    payloads = [{**outer, "r": inner} for outer, inner in rows]
    events = [Event(0, SECOND, payload) for payload in payloads]
    found = answers_of("SELECT r.*, i.*, 7 AS b, 8 AS [c d] FROM i", {"i": events}).values()
    assert [list(json.loads(value).items()) for value in found] == [list(expected(payload).items()) for payload in payloads]
