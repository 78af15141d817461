"""Fields come out of payloads value by value, whatever stands beside them in the block."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.language.expressions.field_columns import NO_PAYLOAD, NOT_UTF8
from tidegate.language.expressions.json_members import NOT_JSON, NOT_OBJECT, extract
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field


def taken(payloads: Sequence[bytes | None], path: str) -> list[tuple[str, object] | None]:
    """Kind letter and value of one field in each payload."""
    field = Field(tuple(path.split(".")))
    column = extract(pa.array(payloads, pa.binary()), [field]).columns[field]
    found: list[tuple[str, object] | None] = [None] * len(payloads)
    for kind, part in column.parts.items():
        for row, value in enumerate(part.to_pylist()):
            if value is not None:
                assert found[row] is None
                found[row] = (kind.value, value)
    return found


def one(payload: str, path: str = "a") -> tuple[str, object] | None:
    """One field of one payload."""
    return taken([payload.encode()], path)[0]


def test_every_kind_of_value() -> None:
    """JSON's kinds are the query's kinds."""
    assert one('{"a": 5}') == ("i", 5)
    assert one('{"a": -0}') == ("i", 0)
    assert one('{"a": 5.0}') == ("f", 5.0)
    assert one('{"a": 5e0}') == ("f", 5.0)
    assert one('{"a": -0.0}') == ("f", 0.0)
    assert one('{"a": true}') == ("b", True)
    assert one('{"a": "x\\n\\u00e9\\"\\ud83d\\ude00"}') == ("s", 'x\né"😀')
    assert one('{"a": ""}') == ("s", "")
    assert one('{"a": {"b": [1, "x"]}}') == ("r", '{"b":[1,"x"]}')
    assert one('{"a": [1, 2]}') == ("a", "[1,2]")
    assert one('{"a": null}') is None
    assert one("{}") is None


def test_a_number_too_big_for_bigint_is_a_float() -> None:
    """64 bits are the limit; a float that is not finite is NULL."""
    assert one('{"a": 9223372036854775807}') == ("i", 2**63 - 1)
    assert one('{"a": -9223372036854775808}') == ("i", -(2**63))
    assert one('{"a": 9223372036854775808}') == ("f", 2.0**63)
    assert one('{"a": 1e400}') is None


def test_a_number_of_thousands_of_digits_stops_nothing() -> None:
    """Neither alone, nor as one of many, nor with a point beside it."""
    huge = b'{"a":' + b"9" * 5_000 + b"}"
    assert taken([huge], "a") == [None]
    for others in ([b'{"a":1}'], [b'{"a":1.5}'], [b'{"a":1}'] * 100, [b'{"a":1.5}'] * 100):
        found = taken([*others, huge], "a")
        assert (found[0], found[-1]) == (("i", 1) if others[0] == b'{"a":1}' else ("f", 1.5), None)


def test_names_are_found_ignoring_case() -> None:
    """The exact spelling comes first, else the first that matches."""
    assert one('{"A": 1, "a": 2}') == ("i", 2)
    assert one('{"Ab": 1, "aB": 2}', "ab") == ("i", 1)
    assert one('{"\\u0041": 7}') == ("i", 7)
    assert one('{"X": {"y": 1}, "x": 5}', "x.Y") is None
    assert one('{"X": {"y": 1}}', "x.Y") == ("i", 1)
    assert one('{"b": {"A": 1}}') is None
    assert one('{"a b": 1}', "a b") == ("i", 1)
    assert one('{"a": 1, "a": 2}') == ("i", 1)


def test_bad_payloads_are_flagged_and_hurt_nobody() -> None:
    """Each bad row has its reason; its neighbours keep their values."""
    payloads = [b'{"a":1}', None, b"\xff{", b"{", b"[1]", b"7", b"", b' {"a":2} ', b'{"a":1}{"a":2}']
    field = Field(("a",))
    found = extract(pa.array(payloads, pa.binary()), [field])
    assert found.bad_rows.tolist() == [1, 2, 3, 4, 5, 6, 8]
    assert found.reasons == [NO_PAYLOAD, NOT_UTF8, NOT_JSON, NOT_OBJECT, NOT_OBJECT, NOT_JSON, NOT_JSON]
    assert found.columns[field].of_kind(Kind.BIGINT).to_pylist() == [1, None, None, None, None, None, None, 2, None]


@pytest.mark.parametrize("ascii_before", range(8))
def test_an_error_that_quotes_half_a_character_is_one_like_any_other(ascii_before: int) -> None:
    """DuckDB's message is cut after so many bytes, wherever they end: it once was an exception that no caller knew."""
    broken = '{"a":' + " " * ascii_before + "\N{NO-BREAK SPACE}" * 40 + "9"
    found = extract(pa.array([b'{"a":1}', broken.encode(), b'{"a":2}']), [Field(("a",))])
    assert (found.bad_rows.tolist(), found.reasons) == ([1], [NOT_JSON])
    column = found.columns[Field(("a",))]
    assert column.of_kind(Kind.BIGINT).to_pylist() == [1, None, 2]


def test_without_fields_nothing_is_parsed() -> None:
    """COUNT(*) needs no payload."""
    found = extract(pa.array([b"{", None], pa.binary()), [])
    assert (found.columns, found.bad_rows.tolist()) == ({}, [])


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4)
OBJECTS = st.dictionaries(
    st.sampled_from(["a", "A", "b", "B", "ab", 'q"', "\\"]),
    SCALARS | st.dictionaries(st.sampled_from(["a", "B", "b"]), SCALARS, max_size=2),
    max_size=4,
)


@settings(max_examples=100)
@given(st.lists(OBJECTS, max_size=8), st.sampled_from(["a", "b", "A.b", "b.B"]))
def test_a_field_depends_on_its_payload_alone(objects: list[dict[str, object]], path: str) -> None:
    """Level 3: a block gives what its payloads give one by one, and that is what Python's reader sees."""
    payloads = [json.dumps(value).encode() for value in objects]
    together = taken(payloads, path)
    assert together == [taken([payload], path)[0] for payload in payloads]
    assert together == [expected(value, path.split(".")) for value in objects]


def expected(value: object, path: list[str]) -> tuple[str, object] | None:
    """The value at a path as the contract says."""
    for name in path:
        if not isinstance(value, dict):
            return None
        spelled = name if name in value else next((other for other in value if other.lower() == name.lower()), None)
        value = None if spelled is None else value[spelled]
    if value is None:
        return None
    if isinstance(value, bool):
        return "b", value
    if isinstance(value, int):
        return ("i", value) if -(2**63) <= value < 2**63 else ("f", float(value))
    if isinstance(value, float):
        return "f", value + 0.0
    if isinstance(value, str):
        return "s", value
    return "r", one(json.dumps({"a": value}))[1]  # type: ignore[index]
