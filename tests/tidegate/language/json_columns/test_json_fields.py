"""Members of JSON are read in C, and never otherwise than Python's parser, DuckDB and the careful path read them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.edge_floats import decimal_tick, floats_on_edges
from support.json_payloads import PATHS, member_of, payloads, read, same

import hatch_build
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.language.expressions.json_members import extract, extract_parsed
from tidegate.language.expressions.tree import Field
from tidegate.language.json_columns import json_fields
from tidegate.language.json_columns.json_fields import MISSING, NESTED, OTHER, READ, REPEATED, UNASKED, MemberPath, read_members
from tidegate.records.fields import FieldReader
from tidegate.records.fields.json_source import JsonSource

SEEDS = st.integers(0, 2**32)
FIELDS = [Field(path) for path in PATHS]
# Few at a time: the careful path, which reads what C leaves, takes statements for each of them.
SOME_FIELDS = st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True)
SOURCE = JsonSource(
    {"time": Field(("a",)), "end": Field(("b", "a")), "over": Field(("größe",)), "other": Field(("Ab", "A")), "computed": Field(("A", "b"))}
)


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Where there is a compiler, what is tested is what this checkout compiles."""
    for source, target in hatch_build.PARTS.items():
        hatch_build.compile_part(source, hatch_build.ROOT / target)
    json_fields.library.cache_clear()


def count() -> int:
    """Return how many payloads an example makes: with the deep profile a test reads more than 100,000."""
    return 120 if settings.get_current_profile_name() == "deep" else 30


def column_of(values: Sequence[bytes | None], *, wide: bool = False) -> pa.Array:
    """Return payloads as a slice of a column, with neighbours on both sides."""
    octets = pa.large_binary() if wide else pa.binary()
    return pa.array([b'{"cut": "off', *values, b'"}'], octets)[1:-1]


def values_of(payload_column: pa.Array, fields: Sequence[Field]) -> list[list[tuple[str, Any] | None]]:
    """Return the kind letter and value of each field in each payload."""
    found = []
    for column in extract(payload_column, fields).columns.values():
        values: list[tuple[str, Any] | None] = [None] * len(payload_column)
        for kind, part in column.parts.items():
            for row, value in enumerate(part.to_pylist()):
                if value is not None:
                    values[row] = kind.value, value
        found.append(values)
    return found


def status_of(payload: bytes | None, *names: str) -> int:
    """Return what C knows of one payload of which *names* are wanted."""
    found = read_members(pa.array([payload], pa.binary()), tuple(MemberPath((name,)) for name in names))
    assert found is not None, "the part is compiled"
    return int(found.status[0])


@given(SEEDS, SOME_FIELDS, st.booleans())
def test_members_are_those_that_pythons_parser_reads(seed: int, fields: list[Field], wide: bool) -> None:
    """Each field of each payload of strict JSON, by an oracle of its own: kinds, values, members of equal names and in other letters."""
    drawn = [payload or b"" for payload in payloads(seed, count(), hostile=False)]
    found = values_of(column_of(drawn, wide=wide), fields)
    for row, payload in enumerate(drawn):
        value = read(payload)
        for field, members in zip(fields, found, strict=True):
            expected, told = member_of(value, field.path), members[row]
            if told is not None and told[0] in "ra":
                told = told[0], read(told[1].encode())
            assert (told is None) == (expected is None), (payload, field, told, expected)
            assert told is None or expected is None or same(told, expected), (payload, field, told, expected)


@given(SEEDS, st.sampled_from(PATHS))
def test_records_and_exact_members_are_written_as_duckdb_writes_them(seed: int, path: tuple[str, ...]) -> None:
    """A whole payload, and a record or array in it, is the text of DuckDB's writer, NaN and infinities aside."""
    drawn = column_of(payloads(seed, count(), hostile=False))
    query = "SELECT CAST(json_extract(decode(v), ?) AS VARCHAR) FROM input"
    with duckdb.connect() as connection:
        connection.register("input", pa.table({"v": drawn}))
        for fields_path in ((), path):
            written = connection.execute(query, ["$" + "".join(f'."{name}"' for name in fields_path)]).fetchall()
            (found,) = values_of(drawn, [Field(fields_path)])
            for (text,), told in zip(written, found, strict=True):
                if text is not None and text[0] in "{[" and told is not None:
                    assert told[1] == text
                assert fields_path or told is not None


@given(SEEDS, st.booleans(), SOME_FIELDS, st.booleans())
def test_hostile_payloads_are_read_as_by_the_careful_path(seed: int, hostile: bool, fields: list[Field], wide: bool) -> None:
    """Kinds, values to the last bit, bad rows and why."""
    drawn = column_of(payloads(seed, count(), hostile=hostile), wide=wide)
    found, careful = extract(drawn, [*fields, Field(())]), extract_parsed(drawn, [*fields, Field(())])
    assert (found.bad_rows.tolist(), found.reasons) == (careful.bad_rows.tolist(), careful.reasons)
    for field, column in found.columns.items():
        assert _bits(column.parts) == _bits(careful.columns[field].parts), field


def _bits(parts: Any) -> dict[Any, list[Any]]:
    return {
        kind: [struct.pack("<d", value) if isinstance(value, float) else value for value in part.to_pylist()]
        for kind, part in parts.items()
    }


@given(SEEDS, st.booleans())
def test_ingest_reads_the_same_with_the_native_parts_switched_off(seed: int, hostile: bool) -> None:
    """Which payloads are JSON, their times, ends and keys, by names that match exactly or else ignoring case."""
    drawn, told = column_of(payloads(seed, count(), hostile=hostile)), []
    for way in ("auto", "off"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(NATIVE_SWITCH, way)
            found = SOURCE.extract(drawn)
        columns = []
        for column in found.columns.values():
            ticks, valid = column.ticks("auto")
            columns.append((np.where(valid, ticks, 0).tolist(), valid.tolist(), column.keys().to_pylist(), column.present().tolist()))
        told.append((found.well_formed.tolist(), columns))
    assert told[0] == told[1]


@pytest.mark.parametrize("way", ["auto", "off"])
@pytest.mark.parametrize("unit", ["auto", "s", "ms", "us", "ns"])
def test_a_float_is_the_same_time_with_and_without_the_native_parts(way: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every edge of size and unit, by exact decimals: one record has one time on every machine."""
    monkeypatch.setenv(NATIVE_SWITCH, way)
    floats = floats_on_edges()
    fields = FieldReader("t", unit, None).read(pa.array([b'{"t":%b}' % repr(value).encode() for value in floats]))
    found = [time if fine else None for time, fine in zip(fields.event_time_us.tolist(), fields.readable.tolist(), strict=True)]
    expected = [decimal_tick(Decimal(repr(value)), unit) for value in floats]
    assert [wrong for wrong in zip(floats, found, expected, strict=True) if wrong[1] != wrong[2]] == []


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50), st.integers(1, 20))
def test_floats_are_rounded_as_python_rounds_them(floats: list[float], digits: int) -> None:
    """All 64 bits, of the shortest text and of others, but that there is no negative zero."""
    texts = [text for value in floats for text in (repr(value), f"{value:.{digits}e}", f"{value:.{digits}f}")]
    (found,) = values_of(pa.array([f'{{"a":{text}}}'.encode() for text in texts]), FIELDS[:1])
    for text, told in zip(texts, found, strict=True):
        value = float(text) + 0.0
        if any(sign in text for sign in ".e") and abs(value) < float("inf"):
            assert told == ("f", value)
            assert struct.pack("<d", told[1]) == struct.pack("<d", value)


def test_integers_beyond_64_bits_are_floats() -> None:
    """The last bigint on both sides, and the first float."""
    texts = ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1" + "0" * 30]
    (found,) = values_of(pa.array([f'{{"a":{text}}}'.encode() for text in texts]), FIELDS[:1])
    assert found == [("i", 2**63 - 1), ("f", 2.0**63), ("i", -(2**63)), ("f", -(2.0**63)), ("f", 1e30)]


def test_ordinary_payloads_need_no_parser() -> None:
    """Nested, spaced, escaped, with names that are absent, or spelled in other letters."""
    assert status_of(b'{"a":1,"b":"x"}', "a", "b", "c") == READ
    assert status_of(b' { "a" : -12.5e3 , "x" : null , "B" : 0.1234567890123456 } \n', "a", "b") == READ | UNASKED
    assert status_of(b"{}", "a") == READ
    assert status_of(b'{"x":{"y":[1,{"z":"\\u00e9\\n"}]},"a":true}', "a") == READ | NESTED | UNASKED
    assert status_of('{"größe":"é","\\u00fc":1}'.encode(), "a", "größe") == READ | UNASKED
    assert status_of(b'{"a":1,"a":2,"x":3,"x":4}', "a") == READ | REPEATED | UNASKED
    assert status_of(None, "a") == MISSING
    assert status_of(b'{"a":' + b"[" * 64 + b"]" * 64 + b"}") == READ | NESTED


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"{", b"[]", b"1", b'{"t":01}', b'{"t":1,}', b'{"t":1}x', b'{"t":.5}', b'{"t":1.}', b'{"t":1e}', b'{"t":NaN}', b"{'t':1}"),
        *(b'{"t"}', b'{"t":1 "k":2}', b'{"t":1e400}', b'\xef\xbb\xbf{"t":1}', b'{"x":"\\ud800"}', b'{"x":"\xc3"}', b'{"x":"\xed\xa0\x80"}'),
        *(
            b'{"x":"\x01"}',
            b'{"x":"\\x"}',
            b'{"x":[1,]}',
            b'{"x":[1}',
            b'{"x":[1}}',
            b'{"x":{]}',
            b'{"x":tru}',
            b'{"\xe2\x84\xaa":1}',
            b'{"x":"',
        ),
        *(b"{" * 66, b'{"a":' + b"[" * 66 + b"]" * 66 + b"}"),
    ],
)
def test_of_all_others_nothing_is_said(payload: bytes) -> None:
    """What is not strict JSON, in a member that nobody wants too, or what C cannot read as everybody else does."""
    assert status_of(payload, "t", "k") == OTHER


@pytest.mark.parametrize("way", ["auto", "off"])
def test_two_fields_may_be_the_same_member_or_one_within_the_other(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TIMESTAMP BY t OVER t, and a record beside its own member."""
    monkeypatch.setenv(NATIVE_SWITCH, way)
    taken = FieldReader("t", "us", "t").read(pa.array([b'{"t":5000}', b'{"x":1}', b'{"t":6000,"t":7}']))
    assert taken.event_time_us.tolist()[::2] == [5000, 6000]
    assert taken.substream is not None
    assert taken.substream.to_pylist() == [b"5000", b"", b"6000"]
    record, inner, deep = values_of(
        pa.array([b'{"r": {"x": {"y": 7}} }', b'{"R":{"X":1,"x":{"Y":2}}}']), [Field(("r",)), Field(("r", "x")), Field(("r", "x", "y"))]
    )
    assert record == [("r", '{"x":{"y":7}}'), ("r", '{"X":1,"x":{"Y":2}}')]
    assert (inner, deep) == ([("r", '{"y":7}'), ("r", '{"Y":2}')], [("i", 7), ("i", 2)])


def test_what_counts_less_leaves_nothing_behind() -> None:
    """A member in other letters is read first; then comes the one of that very name."""
    found = values_of(pa.array([b'{"A":{"b":1,"ab":2},"a":{"b":3}}', b'{"A":{"b":1},"a":4}']), [Field(("a", "b")), Field(("a", "ab"))])
    assert found == [[("i", 3), None], [None, None]]


def test_the_wire_of_a_wide_payload_comes_back() -> None:
    """Sixty members, half of them wanted in another order than they stand."""
    names = [f"member_{number:02}" for number in range(60)]
    payload = json.dumps({name: number for number, name in enumerate(names)}).encode()
    wanted = names[::-2]
    found = values_of(pa.array([payload] * 3), [Field((name,)) for name in wanted])
    assert [column[1] for column in found] == [("i", names.index(name)) for name in wanted]
