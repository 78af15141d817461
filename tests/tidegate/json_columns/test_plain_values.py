"""Values of plain objects are taken without the parser, and never otherwise than the parser takes them."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hatch_build
from tidegate.expressions.json_members import extract
from tidegate.expressions.tree import Field
from tidegate.json_columns import plain_json
from tidegate.native_parts import NATIVE_SWITCH

FIELDS = [Field(("a",)), Field(("Ab",)), Field(("ab",)), Field(("x y",))]
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
VALUES = st.one_of(
    NUMBERS,
    st.sampled_from(["true", "false", "null", "{}", "[1]", '{"a":1}', "-0", "-0.0", "0.0", "00", "1.", ".5", "+1", "NaN", "tru"]),
    st.text(max_size=4).map(json.dumps),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False)),
)
NAMES = st.sampled_from(["a", "A", "ab", "AB", "Ab", "aB", "x y", "X Y", "b", "", "\u212a"])
OBJECTS = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(
    lambda members: "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in members) + "}"
)
PAYLOADS = st.none() | st.binary(max_size=5) | OBJECTS.map(str.encode)
PLAIN = b'{"a":1,"ab":"x","Ab":0.5}'


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Where there is a compiler, what is tested is what this checkout compiles."""
    for source, target in hatch_build.PARTS.items():
        hatch_build.compile_part(source, hatch_build.ROOT / target)
    plain_json.library.cache_clear()


def both(column: pa.Array) -> list[tuple[Any, ...]]:
    """What is read of payloads with the native part, and without it: each field's values by kind, bad rows and reasons."""
    found = []
    for way in ("auto", "off"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(NATIVE_SWITCH, way)
            taken = extract(column, FIELDS)
        columns = [{kind: part.to_pylist() for kind, part in taken.columns[field].parts.items()} for field in FIELDS]
        found.append((columns, taken.bad_rows.tolist(), taken.reasons))
    return found


@given(st.lists(PAYLOADS, min_size=1, max_size=8), st.booleans())
@example([b'{"A":1,"a":2}', b'{"A":1}', b'{"AB":1,"ab":2}', b'{"aB":1}'], False)
def test_values_are_those_that_the_parser_takes(payloads: list[bytes | None], wide: bool) -> None:
    """Kinds, values, names in other letters, bad rows and why; also in a slice."""
    column = pa.array([b"cut off", *[PLAIN] * 20, *payloads], type=pa.large_binary() if wide else pa.binary())[1:]
    with_it, without_it = both(column)
    assert with_it == without_it


@given(st.lists(st.from_regex(r"-?(0|[1-9][0-9]{0,7})\.[0-9]{1,9}", fullmatch=True), min_size=1, max_size=50))
def test_fractions_are_rounded_as_they_should_be(texts: list[str]) -> None:
    """The 64 bits are those that Python reads, but that there is no negative zero."""
    found = extract(pa.array([f'{{"a":{text}}}'.encode() for text in texts]), FIELDS[:1]).columns[FIELDS[0]]
    (floats,) = found.parts.values()
    assert [struct.pack("<d", value) for value in floats.to_pylist()] == [struct.pack("<d", float(text) + 0.0) for text in texts]


def test_the_native_part_was_used() -> None:
    """Else nothing above says anything."""
    library = plain_json.library()
    assert library is not None
    found = plain_json.read_values(library, pa.array([PLAIN, b'{"a":1e5}', None]), ["a"])
    assert found is not None
    assert (found.status.tolist(), found.other_rows.tolist()) == ([1, 0, plain_json.MISSING], [1])
