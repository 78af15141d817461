"""Key bytes are those of docs/operate/inputs.md for every JSON value, and nothing that a parser lets through raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.same_value import form

from ordering.protocol.keys import canonical, key_bytes, number_key, number_text

HUGE = "9" * 5_000
DEEP = "[" * 3_000 + "]" * 3_000
WIDE = "[" + ",".join(["{}"] * 300) + "]"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('"ATL"', b"ATL"),
        ('""', b'""'),
        ('"\\u00e9\\n"', "é\n".encode()),
        ("17", b"17"),
        ("-9223372036854775809", b"-9223372036854775808"),
        ("-9223372036854777000", b"-9.223372036854778e+18"),
        ("9223372036854775807", b"9223372036854775807"),
        ("9223372036854775808", b"9.223372036854776e+18"),
        ("-9223372036854775808.0", b"-9223372036854775808"),
        ("9007199254740993", b"9007199254740993"),
        ("9007199254740993.0", b"9007199254740992"),
        ("5.0", b"5"),
        ("1e2", b"100"),
        ("-0.0", b"0"),
        ("-0", b"0"),
        ("123456789012345678901234567890", b"1.2345678901234568e+29"),
        (HUGE, b""),
        ("true", b"true"),
        ("false", b"false"),
        ("null", b""),
        ("1.50", b"1.5"),
        ("1e16", b"10000000000000000"),
        ("1e19", b"1e+19"),
        ("1e400", b""),
        ("NaN", b""),
        ("nan", b""),
        ("-Infinity", b""),
        ('{"b":[1,2.0],"a":"\\u00e9"}', '{"a":"é","b":[1,2]}'.encode()),
        ("[-0.0,1e3,1.5,9223372036854775808,-9223372036854775808.0]", b"[0,1000,1.5,9.223372036854776e+18,-9223372036854775808]"),
    ],
)
def test_key_bytes_by_kind_of_value(text: str, key: bytes) -> None:
    """Text as UTF-8, numbers that are equal alike, true and false, other values as canonical JSON, null as zero bytes."""
    assert key_bytes(text) == key


@pytest.mark.parametrize(
    "text",
    [f'{{"b":1,"a":{HUGE}}}', DEEP, WIDE],
)
def test_what_has_no_canonical_form_stays_as_it_is(text: str) -> None:
    """A value that Python's reader has no JSON for is still a key, and the same one each time."""
    assert canonical(text) == text
    assert key_bytes(text) == text.encode()


@pytest.mark.parametrize("number", ["NaN", "nan", "-inf", "-Infinity", "1e400", "-1e400"])
def test_what_is_no_number_is_null_inside_a_key_too(number: str) -> None:
    """As it is as a key of its own."""
    assert canonical(f'{{"b":[{number}],"a":1}}') == '{"a":1,"b":[null]}'


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3))


@given(VALUES, st.booleans())
def test_a_value_is_one_key_however_it_is_written(value: Any, escaped: bool) -> None:
    """Level 1: escapes, the order of members and how numbers in it are spelled do not show in the bytes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=escaped)
    if isinstance(value, str):
        assert key_bytes(text) == (value.encode() or b'""')
    elif type(value) in (int, float):
        assert key_bytes(text) == number_key(value)
    elif value is None:
        assert key_bytes(text) == b""
    else:
        expected = form(value) if isinstance(value, (list, dict)) else value
        assert key_bytes(text) == json.dumps(expected, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_equal_numbers_have_one_text(number: float) -> None:
    """Which is that of the integer, if 64 bits hold it."""
    assert number_text(number) == repr(form(number))
    assert form(float(number_text(number))) == form(number)
