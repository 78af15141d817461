"""Result bytes are pinned: these exact bytes, on every replay."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.query_runs import values

from ordering.protocol.keys import key_bytes
from query.columns.encode import encode_keys, encode_objects
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant


def column(*values: object, kind: Kind) -> Variant:
    """A column of one kind."""
    return Variant.of(len(values), {kind: pa.array(values, kind.arrow)})


MIXED = Variant.of(
    7,
    {
        Kind.BIGINT: pa.array([1, None, None, None, None, None, None], pa.int64()),
        Kind.FLOAT: pa.array([None, 1e16, None, None, None, None, None]),
        Kind.NVARCHAR: pa.array([None, None, 'é"\n\x1f\x7f', None, None, None, None]),
        Kind.BIT: pa.array([None, None, None, True, None, None, None]),
        Kind.DATETIME: pa.array([None, None, None, None, 1_500_000, None, None], pa.int64()),
        Kind.RECORD: pa.array([None, None, None, None, None, '{"b":1,"a":[2.0]}', None]),
    },
)


def test_values_are_written_as_the_contract_says() -> None:
    """One member per column, in order, without spaces."""
    found = encode_objects(["a", 'b"'], [MIXED, column(*range(7), kind=Kind.BIGINT)], 7).to_pylist()
    assert [row.decode() for row in found] == [
        '{"a":1,"b\\"":0}',
        '{"a":1e+16,"b\\"":1}',
        '{"a":"é\\"\\n\\u001f\x7f","b\\"":2}',
        '{"a":true,"b\\"":3}',
        '{"a":"1970-01-01T00:00:01.500Z","b\\"":4}',
        '{"a":{"b":1,"a":[2.0]},"b\\"":5}',
        '{"a":null,"b\\"":6}',
    ]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.none(), min_size=1, max_size=20))
def test_a_float_is_its_shortest_text_however_many_are_written(floats: list[float | None]) -> None:
    """As Python writes it: the shortest text that reads back as the same float; a long column says what a short one says."""
    texts = ["null" if value is None else repr(value) for value in floats]
    for column in (floats, floats + [0.5] * 1_000):
        found = encode_objects(["v"], [Variant.of(len(column), {Kind.FLOAT: pa.array(column, pa.float64())})], len(column)).to_pylist()
        assert [row.decode() for row in found[: len(floats)]] == [f'{{"v":{text}}}' for text in texts]


def test_one_key_is_its_substream_key_bytes() -> None:
    """Text as it is, numbers in digits, records canonical, NULL as nothing."""
    assert encode_keys([MIXED], 7).to_pylist() == [
        b"1",
        b"10000000000000000",
        'é"\n\x1f\x7f'.encode(),
        b"true",
        b"1970-01-01T00:00:01.500Z",
        b'{"a":[2],"b":1}',
        b"",
    ]


DEEP = ["[" * 400 + "]" * 400, f'{{"b":1,"a":{"9" * 5_000}}}']
NOT_A_NUMBER = '{"b":1,"a":nan}'


@pytest.mark.parametrize(("text", "key"), [(NOT_A_NUMBER, '{"a":null,"b":1}'), *((text, text) for text in DEEP)])
def test_records_and_arrays_without_a_canonical_form_are_keys_too(text: str, key: str) -> None:
    """They are the key bytes that ingest gives them, and no job stops over them."""
    assert encode_keys([column(text, kind=Kind.RECORD)], 1).to_pylist() == [key.encode()] == [key_bytes(text)]


@pytest.mark.parametrize(
    ("sql", "not_a_number"),
    [("SELECT k FROM arrivals", '{"b":1,"a":null}'), ("SELECT k FROM arrivals GROUP BY k, TumblingWindow(day, 1)", '{"a":null,"b":1}')],
)
def test_no_value_stops_a_query(sql: str, not_a_number: str) -> None:
    """Whatever the parser lets through is projected and grouped, an integer of thousands of digits as the NULL it is."""
    found = values(sql, [f'{{"k":{text}}}'.encode() for text in [NOT_A_NUMBER, *DEEP, "9" * 5_000, "123456789012345678901", "NaN"]])
    assert set(found) == {f'{{"k":{text}}}' for text in [not_a_number, *DEEP, "null", "1.2345678901234568e+20"]}


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ('{"a":NaN,"b":-nan,"c":"NaN, -inf"}', '{"a":null,"b":null,"c":"NaN, -inf"}'),
        ('[Infinity, -Infinity, {"inf": [inf]}, nan]', '[null,null,{"inf":[null]},null]'),
        ('{"a":"x:nan,\\"[inf"}', '{"a":"x:nan,\\"[inf"}'),
    ],
)
def test_what_is_no_number_inside_of_an_object_is_null_in_results(written: str, result: str) -> None:
    """Results are JSON: NaN and infinities are none; texts that look like it stay."""
    found = values("SELECT k, CAST(k AS nvarchar(max)) AS t FROM arrivals", [f'{{"k":{written}}}'.encode(), b'{"k":[1]}'])
    assert set(found) == {f'{{"k":{text},"t":{json.dumps(text)}}}' for text in (result, "[1]")}


def test_several_keys_are_an_array_and_none_is_nothing() -> None:
    """An array tells 1 from '1'."""
    assert encode_keys([column("a", None, kind=Kind.NVARCHAR), column(1, 2, kind=Kind.BIGINT)], 2).to_pylist() == [b'["a",1]', b"[null,2]"]
    assert encode_keys([], 2).to_pylist() == [b"", b""]


def test_no_rows_are_no_bytes() -> None:
    """Empty columns encode to empty columns."""
    assert encode_objects(["a"], [Variant.of(0, {})], 0).to_pylist() == []
    assert encode_keys([Variant.of(0, {}), Variant.of(0, {})], 0).to_pylist() == []


@given(
    st.lists(st.text(max_size=5), min_size=1, max_size=5),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=5, max_size=5),
)
def test_text_and_floats_are_pythons_json(texts: list[str], floats: list[float]) -> None:
    """The same bytes as json.dumps without spaces and without escaping what needs none."""
    numbers = floats[: len(texts)]
    found = encode_objects(["t", "f"], [column(*texts, kind=Kind.NVARCHAR), column(*numbers, kind=Kind.FLOAT)], len(texts)).to_pylist()
    pairs = zip(texts, numbers, strict=True)
    assert found == [json.dumps({"t": text, "f": number}, ensure_ascii=False, separators=(",", ":")).encode() for text, number in pairs]
