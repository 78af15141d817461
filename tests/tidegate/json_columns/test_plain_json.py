"""Plain objects are read without the parser, and never otherwise than the parser reads them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hatch_build
from ingest.fields.json_paths import JsonPaths
from tidegate.json_columns import plain_json
from tidegate.native_parts import NATIVE_SWITCH

PATHS = JsonPaths({"time": ("t",), "over": ("k",)})

_SCALARS = st.one_of(
    st.integers(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=5),
)
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=2) | st.dictionaries(st.text(max_size=2), _SCALARS, max_size=2)
_OBJECTS = st.lists(st.tuples(st.sampled_from(["t", "k", "x", "tt", ""]), _VALUES), max_size=4).map(
    lambda members: "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members) + "}"
)
_SPACED = st.builds(
    lambda text, space: text.replace(":", f"{space}:{space}").replace(",", f"{space},"), _OBJECTS, st.sampled_from(["", " ", "\n\t"])
)
_BROKEN = st.builds(
    lambda text, at, by: text[: at % (len(text) + 1)] + by + text[at % (len(text) + 1) :], _OBJECTS, st.integers(0, 99), st.text(max_size=2)
)
_PAYLOADS = (
    st.none() | st.binary(max_size=6) | st.one_of(_OBJECTS, _SPACED, _BROKEN).map(lambda text: text.encode("utf-8", "surrogatepass"))
)


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Where there is a compiler, what is tested is what this checkout compiles."""
    for source, target in hatch_build.PARTS.items():
        hatch_build.compile_part(source, hatch_build.ROOT / target)
    plain_json.library.cache_clear()


def both(payloads: pa.Array) -> list[tuple[list[object], ...]]:
    """What is read of payloads with the native part, and without it."""
    found = []
    for way in ("auto", "off"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(NATIVE_SWITCH, way)
            taken = PATHS.extract(payloads)
        time_us, valid = taken.columns["time"].ticks("auto")
        keys = taken.columns["over"].keys().dictionary_decode()
        found.append((taken.well_formed.tolist(), np.where(valid, time_us, 0).tolist(), valid.tolist(), keys.to_pylist()))
    return found


@given(st.lists(_PAYLOADS, min_size=1, max_size=12), st.booleans())
def test_what_is_read_of_any_payloads_is_what_the_parser_reads(payloads: list[bytes | None], wide: bool) -> None:
    """Which are JSON, their times and their keys; also in a slice, and after a column with plain ones only."""
    padding = [b'{"t":1,"k":"a"}'] * 40  # so that few are others, and the native part is used
    column = pa.array([b"cut off", *padding, *payloads], type=pa.large_binary() if wide else pa.binary())[1:]
    with_it, without_it = both(column)
    assert with_it == without_it


@pytest.mark.parametrize("way", ["auto", "off"])
def test_two_fields_may_be_the_same_member(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TIMESTAMP BY t OVER t: both get its value, with the native part as without it."""
    monkeypatch.setenv(NATIVE_SWITCH, way)
    taken = JsonPaths({"time": ("t",), "over": ("t",)}).extract(pa.array([b'{"t":5000}', b'{"x":1}', b'{"t":6000,"t":7}']))
    assert taken.columns["time"].ticks("us")[0].tolist()[::2] == [5000, 6000]
    assert taken.columns["over"].keys().dictionary_decode().to_pylist() == [b"5000", b"", b"6000"]


@pytest.mark.parametrize(
    "payload",
    [
        b'{"t":1,"k":"a"}',
        b' { "t" : -12.5 , "x" : null , "k" : 7 } \n',
        b"{}",
        b'{"x":true,"y":false,"z":0.25}',
        b'{"t":"2026-01-01T00:00:00Z","t":5,"k":""}',
    ],
)
def test_plain_objects_need_no_parser(payload: bytes) -> None:
    """Unless the field itself is no short integer and no string, or stands there twice."""
    library = plain_json.library()
    if library is not None:
        plain = plain_json.read_texts(library, pa.array([payload]), ["t", "k"])
        assert plain is not None
        assert len(plain.other_rows) == (b"-12.5" in payload or payload.count(b'"t"') > 1)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'{"t":01}',
        b'{"t":1,}',
        b'{"t":1}x',
        b'{"t":1e3}',
        b'{"t":.5}',
        b'{"x":[]}',
        b'{"x":"\\n"}',
        b'{"x":"\xc3\xa4"}',
        b'{"t":-0}',
        b'{"t":1234567890123456789}',
        b'{"t":null}',
        b'{"t":NaN}',
        b"{'t':1}",
        b'{"t"}',
        b'{"t":1 "k":2}',
        b'\xef\xbb\xbf{"t":1}',
    ],
)
def test_of_all_others_nothing_is_said(payload: bytes) -> None:
    """Whatever two parsers might read differently."""
    library = plain_json.library()
    if library is not None:
        plain = plain_json.read_texts(library, pa.array([payload]), ["t", "k"])
        assert plain is None or plain.other_rows.tolist() == [0]
