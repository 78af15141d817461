"""The law of fields: what a payload gives depends on that payload alone, and is what Python's own reader would find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.same_value import form

from ordering.columns.timestamps import to_ticks
from ordering.policies import Shape
from ordering.testing import tick
from ordering.ticks import NEVER
from query.columns.encode import encode_over_keys
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant
from tidegate.records.fields import FieldReader

Row = tuple[int | None, bool, bytes | None]
"""Event time in microseconds (None: no valid one), whether the payload is JSON, key bytes (None without OVER)."""


def read(payloads: Sequence[bytes | None], by: str | None = "t", over: str | None = "k", unit: str = "auto") -> list[Row]:
    """The fields of each payload."""
    column = np.empty(len(payloads), dtype=object)
    column[:] = payloads
    fields = FieldReader(by, unit, over).read(column)
    keys = [None] * len(payloads) if fields.substream is None else fields.substream.to_pylist()
    times = [time if fine else None for time, fine in zip(fields.event_time_us.tolist(), fields.readable.tolist(), strict=True)]
    return list(zip(times, fields.well_formed.tolist(), keys, strict=True))


TIMES = st.sampled_from(
    ["2001-01-01T00:00:00Z", "2001-01-01 00:00:00.5", "2001-01-01", 978307200, 978307200.25, 978307200000, "978307200", "soon", -1, 10**30]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["", "é\n", '"', "\\", "a\u0000b", "\u2028", "😀", "1", "true", "null", "/"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("kxt") | st.text(max_size=2), inner, max_size=3)
)
DOCUMENTS = st.one_of(
    st.fixed_dictionaries(
        {}, optional={"t": TIMES | VALUES, "k": VALUES, "a": st.fixed_dictionaries({}, optional={"b": VALUES, "t": TIMES})}
    ),
    VALUES,
)
STRANGE = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff",
    b'{"t":1,"k":"\xff"}',
    b"\xef\xbb\xbf{}",
    b'{"t":978307200,"k":"x"} tail',
    b'{"t":978307200,"k":"x",}',
    b'{"t":978307200,"k":"x","k":"y"}',
    b'{"t":978307200,"\\u006b":"escaped name"}',
    b'{"t":978307200,"k":NaN}',
    b'{"t":978307200,"k":nan}',
    b'{"t":978307200,"k":-Infinity}',
    b'{"t":978307200,"k":1e400}',
    b'{"t":978307200,"k":{"a":nan}}',
    b'{"t":978307200,"k":"\\ud800"}',
    b'{"t":978307200,"k":"a\x01"}',
    b'{"t":978307200,"k":1}\x00',
    b'{"t":' + b"9" * 5_000 + b"}",
    b'{"t":978307200,"k":' + b"9" * 5_000 + b"}",
    b'{"t":978307200,"k":' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    b'{"t":NaN,"k":"x"}',
    b'{"t":"2001-01-01T00:00:00Z","k":"\xf0\x9f\x98\x80"}',
    b'{"t":"\\u0032001-01-01","k":"\\ud83d\\ude00"}',
    b' {"t" : 978307200 , "k" : [ 1 , 2.0 ] } ',
]
PAYLOADS = st.one_of(
    DOCUMENTS.map(lambda document: json.dumps(document).encode()),
    DOCUMENTS.map(lambda document: json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")),
    st.tuples(DOCUMENTS.map(json.dumps), st.integers(0, 60)).map(lambda cut: cut[0][: cut[1]].encode()),
    st.sampled_from(STRANGE),
    st.binary(max_size=6),
    st.none(),
)
PATHS = st.sampled_from([("t", "k"), ("a.t", "a.b"), ("t", None), (None, "k"), (None, None), ("k", "t")])


@given(st.lists(PAYLOADS, max_size=12), PATHS, st.sampled_from(["auto", "iso", "s", "ms"]))
def test_a_payload_gives_the_same_alone_and_among_any_neighbours(
    payloads: list[bytes | None], paths: tuple[str | None, str | None], unit: str
) -> None:
    """Level 1: row by row or all at once, in any order; whatever the neighbours are."""
    together = read(payloads, *paths, unit)
    assert together == [read([payload], *paths, unit)[0] for payload in payloads]
    assert together[::-1] == read(payloads[::-1], *paths, unit)


def key_of(value: Any) -> bytes:
    """Substream key bytes as docs/operate/inputs.md says."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode() or b'""'
    return json.dumps(form(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def member(document: Any, path: str) -> Any:
    """The value at a field path, None where there is none."""
    for step in path.split("."):
        document = document.get(step) if isinstance(document, dict) else None
    return document


@given(st.lists(DOCUMENTS, min_size=1, max_size=6), st.sampled_from([("t", "k"), ("a.t", "a.b")]), st.sampled_from(["auto", "iso", "ms"]))
def test_fields_are_those_that_python_reads(documents: list[Any], paths: tuple[str, str], unit: str) -> None:
    """Any JSON document gives the key bytes of docs/operate/inputs.md and the time that its member, alone in a column, is read as."""
    found = read([json.dumps(document).encode() for document in documents], *paths, unit)
    for document, (time_us, well_formed, key) in zip(documents, found, strict=True):
        assert well_formed
        assert key == key_of(member(document, paths[1]))
        value = member(document, paths[0])
        text = value if isinstance(value, str) else None if isinstance(value, bool | dict | list) or value is None else json.dumps(value)
        (expected,), (valid,) = (column.tolist() for column in to_ticks(pa.array([text], pa.string()), unit))
        assert time_us == (expected if valid else None)


@given(st.binary(max_size=12) | st.text(alphabet='{}[]":,.0123456789eE+-truefalsn \n\\', max_size=12).map(str.encode))
def test_what_python_refuses_is_refused_but_for_two_leniencies(payload: bytes) -> None:
    """Bad JSON and bad UTF-8 are told apart from JSON as Python's reader does; only trailing commas, NaN and Infinity pass."""
    try:
        json.loads(payload.decode())
        expected = True
    except ValueError:
        expected = False
    ((_, well_formed, _),) = read([payload], None, None)
    lenient = not expected and (b"," in payload or any(word in payload.lower() for word in (b"nan", b"inf")))
    assert well_formed == expected or (lenient and well_formed)


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        (b'{"k":"ATL"}', b"ATL"),
        (b'{"k":""}', b'""'),
        (b'{"k":"\\u00e9\\n"}', "é\n".encode()),
        (b'{"k":17}', b"17"),
        (b'{"k":-0}', b"0"),
        (b'{"k":123456789012345678901234567890}', b"1.2345678901234568e+29"),
        (b'{"k":' + b"7" * 5_000 + b"}", b""),
        (b'{"k":true}', b"true"),
        (b'{"k":false}', b"false"),
        (b'{"k":1.50}', b"1.5"),
        (b'{"k":1e3}', b"1000"),
        (b'{"k":1e400}', b""),
        (b'{"k":-inf}', b""),
        (b'{"k":nan}', b""),
        (b'{"k":null}', b""),
        (b"{}", b""),
        (b"[1]", b""),
        (b'{"k":{"b":[1, 2.0],"a":"\\u00e9"}}', '{"a":"é","b":[1,2]}'.encode()),
        (b'{"k":{"b":1,"a":nan}}', b'{"a":null,"b":1}'),
        (b'{"k":' + b"[" * 499 + b"]" * 499 + b"}", b"[" * 499 + b"]" * 499),
        (b'{"k":"first","k":"second"}', b"first"),
    ],
)
def test_key_bytes(payload: bytes, key: bytes) -> None:
    """Text as UTF-8, equal numbers alike, true and false, other values as canonical JSON, null as zero bytes; nothing stops the job."""
    assert read([payload], None) == [(0, True, key)]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("k", "k"),
        ("é", "é"),
        ("a b", "a b"),
        ("it's", "it's"),
        ('say "k"', 'say "k"'),
        ("back\\slash", "back\\slash"),
        ("$", "$"),
        ("k[0]", "k[0]"),
    ],
)
def test_any_name_without_a_dot_is_a_field_path(name: str, path: str) -> None:
    """Quotes, spaces and signs in a member's name are nothing special."""
    assert read([json.dumps({name: 5, "other": 6}).encode()], None, path) == [(0, True, b"5")]


def test_without_a_field_only_well_formed_payloads_are_told() -> None:
    """Without TIMESTAMP BY and OVER every JSON payload is readable, also one that is no object."""
    assert read([b"{}", b"3", b"{", None], None, None) == [(0, True, None), (0, True, None), (None, False, None), (None, False, None)]


def test_equal_keys_written_in_different_ways_are_one_substream() -> None:
    """1 and "1", and one text with and without escapes, are the same key bytes."""
    found = read([b'{"k":1}', b'{"k":"1"}', b'{"k":"\\u0031"}'], None)
    assert {key for _, _, key in found} == {b"1"}


def test_many_rows_with_one_broken_among_them() -> None:
    """A column longer than the parser's own blocks: one bad row costs only itself."""
    payloads = [json.dumps({"t": 978307200 + row, "k": row % 7}).encode() for row in range(5_000)]
    payloads[3_000] = b'{"t":"\xff'
    found = read(payloads)
    assert found[3_000] == (None, False, b"")
    start_us = tick("2001-01-01T00:00:00Z")
    assert all(row == (start_us + at * 1_000_000, True, b"%d" % (at % 7)) for at, row in enumerate(found) if at != 3_000)


def spans(shape: Shape, payloads: Sequence[bytes]) -> list[tuple[int, int | None, int | None] | str]:
    """Event time, end and start of each payload's span, or which of its times is not valid."""
    column = np.empty(len(payloads), dtype=object)
    column[:] = payloads
    fields = FieldReader("t", "us", None, shape, "e").read(column)
    rows: list[tuple[int, int | None, int | None] | str] = []
    for row, (readable, timed) in enumerate(zip(fields.readable.tolist(), fields.timed.tolist(), strict=True)):
        others = [None if column is None else int(column[row]) for column in (fields.end_us, fields.start_us)]
        rows.append((int(fields.event_time_us[row]), others[0], others[1]) if readable else "end" if timed else "timestamp")
    return rows


SPANS = (b'{"t":2000,"e":3000}', b'{"t":2000,"e":1000}', b'{"t":2000}', b'{"t":2000,"e":null}', b'{"t":2000,"e":"null"}', b'{"e":3000}')


def test_an_interval_has_two_times() -> None:
    """Its event time is its start; without a valid end it cannot be read. An end before the start is a time too."""
    assert spans(Shape.INTERVAL, SPANS) == [(2000, 3000, None), (2000, 1000, None), "end", "end", "end", "timestamp"]


def test_an_edge_with_an_end_is_an_end_edge() -> None:
    """Its event time is its end, and it names its start; an edge without end, or with null for it, is a start edge."""
    edges = [(3000, None, 2000), (1000, None, 2000), (2000, None, NEVER), (2000, None, NEVER), "end", "timestamp"]
    assert spans(Shape.EDGE, SPANS) == edges


@given(st.lists(st.sampled_from(SPANS), max_size=8), st.sampled_from([Shape.INTERVAL, Shape.EDGE]))
def test_a_span_depends_on_its_own_payload(payloads: list[bytes], shape: Shape) -> None:
    """Level 1: alone or among others, a payload gives the same times."""
    assert spans(shape, payloads) == [spans(shape, [payload])[0] for payload in payloads]


@pytest.mark.parametrize("native", ["auto", "off"])
def test_times_in_small_letters_are_read(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the C reader of JSON and by the one in Python."""
    monkeypatch.setenv("TIDEGATE_KAFKA__NATIVE", native)
    rows = read([b'{"t":"2001-01-01t00:00:00z","k":1}', b'{"t":"2001-01-01T00:00:00Z","k":1}'])
    assert rows[0] == rows[1] == (978_307_200_000_000, True, b"1")


@pytest.mark.parametrize("native", ["auto", "off"])
def test_a_record_with_a_longer_key_is_unusable_and_its_key_is_not_kept(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead letter with its own reason; equal keys of other records stay what they are."""
    monkeypatch.setenv("TIDEGATE_KAFKA__NATIVE", native)
    payloads = [b'{"t":1,"k":"%s"}' % (b"x" * size) for size in (4, 5, 4, 6)]
    fields = FieldReader("t", "s", "k").read(pa.array(payloads, pa.binary()))
    fields.limit_keys(4)
    assert fields.readable.tolist() == [True, False, True, False]
    assert fields.reasons == {1: "key_too_long", 3: "key_too_long"}
    assert fields.substream is not None
    assert fields.substream.to_pylist() == [b"xxxx", b"", b"xxxx", b""]
    assert max(map(len, fields.substream.dictionary.to_pylist())) == 4


@given(st.lists(st.tuples(VALUES, VALUES), max_size=6))
def test_several_keys_are_one_array_of_the_key_of_each(rows: list[tuple[Any, Any]]) -> None:
    """Each part is what it would be alone, so 1 and "1" are one substream; queries write the same bytes as the keys of their results."""
    payloads = [json.dumps({"k": first, "a": {"b": second}}).encode() for first, second in rows]
    alone = [[(key or b"").decode() for _, _, key in read(payloads, None, path)] for path in ("k", "a.b")]
    expected = [json.dumps(pair, separators=(",", ":"), ensure_ascii=False).encode() for pair in zip(*alone, strict=True)]
    assert [key for _, _, key in read([*payloads, b"{}"], None, "k, a.b")] == [*expected, b'["",""]']
    columns = [Variant.of(len(rows), {Kind.NVARCHAR: pa.array([text or None for text in texts], pa.string())}) for texts in alone]
    assert encode_over_keys(columns, len(rows)).to_pylist() == expected
