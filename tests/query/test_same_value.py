"""The same value means one thing: every construct that compares values, over values of all kinds, against a naive ``same(a, b)``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.query_oracle import Event
from support.query_runs import SECOND, event_table, values
from support.same_value import form, key_bytes, same, text
from support.script_runs import answers_of

from ordering.protocol.keys import key_bytes as over_key
from ordering.ticks import NEVER
from query.engine.exchange import Exchange, Router
from query.plan.common_keys import common_keys
from query.reference.tables import ReferenceTable, Version
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

EDGES = [2**53, 2.0**53, 2**53 + 1, 2**63 - 1, 2.0**63, -(2**63), -(2.0**63), 10**20, 1e20, 2**53 - 1, 1e-5, 0.1, 1e16, 10**16]
NUMBERS = [0, 0.0, -0.0, 1, 1.0, -1, -1.0, 1.5, *EDGES]
OTHERS = [
    None,
    "",
    "null",
    "0",
    "1",
    "1.0",
    "true",
    True,
    False,
    [1],
    [1.0],
    [],
    {},
    {"a": 1, "b": None},
    {"b": None, "a": 1.0},
    {"a": [-0.0]},
]
NUMBER = st.sampled_from(NUMBERS) | st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9).map(float)
VALUE = NUMBER | st.sampled_from([*OTHERS, {"a": [0]}])
CUTS = st.lists(st.integers(1, 14), max_size=3)
WINDOWS = ["TumblingWindow(second, 60)", "SessionWindow(second, 60, 60) OVER (PARTITION BY k)", "HoppingWindow(second, 60, 60)"]


def events_of(drawn: Sequence[Any]) -> list[Event]:
    """An event each second, with its number as n."""
    return [Event(0, (at + 1) * SECOND, {"k": value, "n": at}) for at, value in enumerate(drawn)]


def classes(drawn: Sequence[Any]) -> list[list[int]]:
    """The places of the same values, in the order in which they come."""
    found: list[list[int]] = []
    for at, value in enumerate(drawn):
        mine = next((members for members in found if same(drawn[members[0]], value)), None)
        if mine is None:
            found.append([at])
        else:
            mine.append(at)
    return found


def column(sql: str, drawn: Sequence[Any], cuts: Sequence[int], **settings: Any) -> list[Any]:
    """The only column of the results; nothing fails."""
    answers = answers_of(sql, {"a": events_of(drawn)}, [cut * SECOND for cut in cuts], **settings)
    assert answers.reasons == []
    return [next(iter(json.loads(value).values())) for value in answers.values()]


@given(st.lists(VALUE, max_size=12), CUTS, st.sampled_from(WINDOWS))
@example([1, 1.0], [2], WINDOWS[0])
@example([0, -0.0, None, ""], [], WINDOWS[0])
@example([{"a": 1}, {"a": 1.0}], [1], WINDOWS[0])
def test_groups_are_classes_of_the_same_value(drawn: list[Any], cuts: list[int], window: str) -> None:
    """Level 3: in windows and sessions, shown and keyed in the form of the value, whichever row came first, whatever is saved between."""
    events = events_of(drawn)
    answers = answers_of(f"SELECT k, COLLECT(n) AS c FROM a GROUP BY k, {window}", {"a": events}, [cut * SECOND for cut in cuts])
    expected = [
        (key_bytes(drawn[members[0]]), f'{{"k":{text(drawn[members[0]])},"c":{members}}}'.replace(" ", "")) for members in classes(drawn)
    ]
    found = [(key, value.decode().replace(" ", "")) for _, key, value in answers.results["out"].get(0, [])]
    assert sorted(found) == sorted((key, json.loads(json.dumps(value))) for key, value in expected)


@given(st.lists(VALUE, max_size=12), CUTS)
@example([1, 1.0, "1"], [2])
def test_looking_back_sees_the_same_value(drawn: list[Any], cuts: list[int]) -> None:
    """Level 3: LAG, LAST, ISFIRST, running aggregates and ``active`` look at the rows of the same value."""
    over = "OVER (PARTITION BY k LIMIT DURATION(minute, 1)"
    before = [[at for at in range(place) if same(drawn[at], value)] for place, value in enumerate(drawn)]
    assert column(f"SELECT LAG(n) {over}) AS x FROM a", drawn, cuts) == [earlier[-1] if earlier else None for earlier in before]
    assert column(f"SELECT LAST(n) {over} WHEN n >= 0) AS x FROM a", drawn, cuts) == list(range(len(drawn)))
    assert column(f"SELECT COUNT(*) {over}) AS x FROM a", drawn, cuts) == [len(earlier) + 1 for earlier in before]
    assert column("SELECT ISFIRST(minute, 1) OVER (PARTITION BY k) AS x FROM a", drawn, cuts) == [int(not earlier) for earlier in before]
    living = "WITH s AS (SELECT k FROM a) SELECT active AS x FROM active(s, hour, 1, k) WHERE System.Timestamp() < '1970-01-01T00:01:00Z'"
    assert column(living, drawn, cuts) == [len(earlier) + 1 for earlier in before]


@given(st.lists(VALUE, max_size=12), CUTS)
def test_distinct_counts_classes_of_the_same_value(drawn: list[Any], cuts: list[int]) -> None:
    """Level 3: NULL does not count."""
    found = column("SELECT COUNT(DISTINCT k) AS x FROM a GROUP BY TumblingWindow(second, 60)", drawn, cuts)
    assert found == ([len([members for members in classes(drawn) if drawn[members[0]] is not None])] if drawn else [])


@given(st.lists(VALUE, min_size=2, max_size=12), st.integers(2, 64))
def test_the_same_value_goes_to_the_same_bucket(drawn: list[Any], buckets: int) -> None:
    """Level 3: an exchange routes the same values alike, as one key and as one of several, whatever their columns are declared as."""
    for keys in ("k", "k, k2"):
        sql = f"SELECT COUNT(*) AS n FROM a GROUP BY {keys}, TumblingWindow(second, 1)"
        common = common_keys(bind_outputs(parse_script(sql, "q.sql"), [InputSchema("a")], into="out"))
        assert not isinstance(common, str)
        found = Router(Exchange(common, buckets), {}).buckets_of("a", decoded(drawn)).tolist()
        for members in classes(drawn):
            assert len({found[at] for at in members}) == 1


def decoded(drawn: Sequence[Any]) -> pa.Table:
    """Events as they come from a topic, with the value as k and k2."""
    table = event_table([Event(0, SECOND, {"k": value, "k2": value}) for value in drawn])
    return table.append_column("key", pa.array([b""] * len(drawn), pa.binary()))


@given(st.lists(NUMBER, min_size=1, max_size=8), st.lists(NUMBER, min_size=1, max_size=8))
@example([2**53], [2.0**53, 2**53 + 1])
@example([2**63 - 1], [2.0**63])
def test_joins_find_the_same_number(left: list[float], right: list[float]) -> None:
    """Level 3: of streams, and of a stream with a table; each key may be declared as what it is or not at all."""
    records = pa.array([json.dumps({"k": value, "n": at}).encode() for at, value in enumerate(right)], pa.binary())
    table = ReferenceTable(InputSchema("r", is_reference=True), (Version(NEVER, records),))
    pairs = [[at, other] for at, value in enumerate(left) for other, number in enumerate(right) if same(value, number)]
    sql = "SELECT a.n AS n, {0}.n AS m FROM a JOIN {0} ON {1} a.k = {0}.k"
    found = answers_of(sql.format("r", ""), {"a": events_of(left)}, references=[table])
    assert [list(json.loads(value).values()) for value in found.values()] == pairs
    found = answers_of(sql.format("b", "DATEDIFF(second, a, b) BETWEEN -20 AND 20 AND"), {"a": events_of(left), "b": events_of(right)})
    assert sorted(list(json.loads(value).values()) for value in found.values()) == pairs


@given(st.lists(VALUE, min_size=1, max_size=12))
def test_the_key_of_a_result_is_what_ingest_would_write_for_it(drawn: list[Any]) -> None:
    """So a topic ordered over k keeps the groups of k in one partition each, and can be joined with results by partition."""
    answers = answers_of("SELECT k, COLLECT(n) AS c FROM a GROUP BY k, TumblingWindow(second, 60)", {"a": events_of(drawn)})
    for _, key, value in answers.results["out"][0]:
        for at in json.loads(value)["c"]:
            assert over_key(json.dumps(drawn[at], separators=(",", ":"), ensure_ascii=False)) == key


ORDERS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "x = y": lambda x, y: x == y,
    "x <> y": lambda x, y: x != y,
    "x < y": lambda x, y: x < y,
    "x <= y": lambda x, y: x <= y,
    "x > y": lambda x, y: x > y,
    "x >= y": lambda x, y: x >= y,
    "x IN (7, y)": lambda x, y: x in (7, y),
    "x NOT IN (y, 7.5)": lambda x, y: x not in (y, Fraction(15, 2)),
    "x BETWEEN y AND y": lambda x, y: x == y,
    "CASE x WHEN y THEN CAST('true' AS bit) ELSE CAST('false' AS bit) END": lambda x, y: x == y,
    "NULLIF(x, y) IS NULL": lambda x, y: x == y,
    "x = 9007199254740992.0": lambda x, _: x == 2**53,
    "x >= 9007199254740993": lambda x, _: x >= 2**53 + 1,
    "x IN (9007199254740993, 0.5)": lambda x, _: x == 2**53 + 1 or x == Fraction(1, 2),
    "x < 1e19": lambda x, _: x < 10**19,
    "x = 1.0": lambda x, _: x == 1,
}


@given(st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=10))
@example([(2**53, 2.0**53), (2**53 + 1, 2.0**53), (2.0**63, 2**63 - 1), (-(2**63), -(2.0**63)), (2**53 + 1, 2**53 + 1)])
def test_numbers_are_compared_by_what_they_are_worth(pairs: list[tuple[float, float]]) -> None:
    """Exactly, a bigint with a float too, so that equality is transitive and agrees with keys."""
    exact = [tuple(Fraction(float(value)) if abs(value) > 2**63 else Fraction(value) for value in pair) for pair in pairs]
    columns = ", ".join(f"{sql} AS c{at}" for at, sql in enumerate(f"CASE WHEN {sql} THEN 1 ELSE 0 END" for sql in ORDERS))
    found = [list(json.loads(row).values()) for row in values(f"SELECT {columns} FROM arrivals", [{"x": x, "y": y} for x, y in pairs])]
    assert found == [[int(holds(x, y)) for holds in ORDERS.values()] for x, y in exact]


@pytest.mark.parametrize(("declared", "shown"), [("float", ["0.0", "1.0", "1.5"]), ("bigint", ["0", "1", "2"]), (None, ["0", "1", "1.5"])])
def test_a_declared_column_keeps_its_type(declared: str | None, shown: list[str]) -> None:
    """Keys of results have one form whatever the type is; values are shown as their column is declared."""
    schema = InputSchema("a", fields={} if declared is None else {"k": declared})
    drawn = [0, -0.0, 1, 1.0, 2 if declared == "bigint" else 1.5]
    answers = answers_of("SELECT k, COUNT(*) AS n FROM a GROUP BY k, TumblingWindow(second, 60)", {"a": events_of(drawn)}, schemas=[schema])
    assert [json.loads(value, parse_float=str, parse_int=str)["k"] for value in answers.values()] == shown
    assert [key for _, key, _ in answers.results["out"][0]] == [key_bytes(form(json.loads(value))) for value in shown]


def test_the_oracle_knows_what_the_same_is() -> None:
    """Numbers of all spellings are one, and kinds are apart; values that are the same have one form."""
    for one in [*NUMBERS, *OTHERS]:
        for other in [*NUMBERS, *OTHERS]:
            assert same(one, other) == same(other, one) == (text(one) == text(other))
    assert same({"a": [1, None]}, {"a": [1.0, None]})
    assert not any(same(one, other) for one, other in [(1, True), (1, "1"), (None, ""), (True, "true"), (None, "null")])
