"""Which Avro payloads are one value of their schema, and what may be in one: compiled and not."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.basics import native_parts
from tidegate.language.expressions.tree import Field
from tidegate.records.payloads import avro_layout, avro_records
from tidegate.records.payloads.avro_layout import BYTE_WEIGHT, FREE_WEIGHT, WEIGHT_MAX, AvroSchema, weigh
from tidegate.records.payloads.avro_records import NOT_AVRO, AvroReader
from tidegate.records.payloads.avro_schema import parse_avro_schema


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    """A record schema."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields.items()]}


EVERYTHING = record(
    b="boolean",
    i="int",
    l="long",
    f="float",
    d="double",
    s=["null", "string"],
    x={"type": "fixed", "name": "X", "size": 3},
    e={"type": "enum", "name": "E", "symbols": ["p", "q"]},
    a={"type": "array", "items": record("I", v="long", n="null")},
    m={"type": "map", "values": ["int", "I"]},
)
VALUES = st.fixed_dictionaries(
    {
        "b": st.booleans(),
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": st.integers(-(2**63), 2**63 - 1),
        "f": st.just(0.5),
        "d": st.floats(allow_nan=False),
        "s": st.none() | st.text(max_size=4),
        "x": st.binary(min_size=3, max_size=3),
        "e": st.sampled_from("pq"),
        "a": st.lists(st.fixed_dictionaries({"v": st.integers(-5, 5), "n": st.none()}), max_size=3),
        "m": st.dictionaries(st.text(max_size=2), st.integers(0, 9) | st.fixed_dictionaries({"v": st.integers(0, 9), "n": st.none()})),
    }
)


def schema_of(schema: Any) -> AvroSchema:
    """A schema that was checked."""
    return parse_avro_schema(json.dumps(schema))


def written(schema: Any, value: Any) -> bytes:
    """A value in Avro's binary form, by another program."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def weights(schema: AvroSchema, payloads: list[bytes | None]) -> list[int]:
    """The weights, the same by both ways."""
    column = pa.array([b"before", *payloads], pa.binary())[1:]
    by_column = weigh(schema, column).tolist()
    layout = schema.layout.tolist()
    assert by_column == [-1 if payload is None else avro_layout._weigh_one(layout, payload, 0) for payload in payloads]
    assert by_column == weigh(schema, column.cast(pa.large_binary())).tolist()
    return by_column


SCHEMA = schema_of(EVERYTHING)


@given(st.lists(VALUES, max_size=4))
def test_what_another_program_wrote_has_a_weight(values: list[Any]) -> None:
    """Each value inside weighs one, and a null of an array's record too."""
    payloads = [written(EVERYTHING, value) for value in values]
    inner = [3 * len(value["a"]) + sum(3 if isinstance(entry, dict) else 1 for entry in value["m"].values()) for value in values]
    assert weights(SCHEMA, [*payloads, None]) == [*(11 + more for more in inner), -1]


@given(VALUES, st.data())
def test_changed_bytes_weigh_the_same_both_ways(value: Any, data: st.DataObject) -> None:
    """Level 1: with or without the compiled part; and what has no weight is never decoded."""
    payload = bytearray(written(EVERYTHING, value))
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
    del payload[data.draw(st.integers(0, len(payload))) :]
    (weight,) = weights(SCHEMA, [bytes(payload)])
    found = AvroReader(SCHEMA).extract(pa.array([bytes(payload)], pa.binary()), [Field(("l",))])
    assert weight >= 0 or found.reasons == [NOT_AVRO]


@pytest.mark.parametrize(
    ("schema", "payload", "is_value"),
    [
        ("long", b"\xff" * 9 + b"\x01", True),
        ("long", b"\xff" * 9 + b"\x02", False),
        ("long", b"\x80" * 9 + b"\x00", True),
        ("long", b"\x80" * 10 + b"\x00", False),
        ("long", b"\x80", False),
        ("int", b"\xff\xff\xff\xff\x0f", True),
        ("int", b"\x80\x80\x80\x80\x10", False),
        ("boolean", b"\x02", False),
        (["null", "int"], b"\x01", False),
        (["null", "int"], b"\x04", False),
        (["null", "int"], b"\x00", True),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, b"\x01", False),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, b"\x02", False),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x02\x00", True),
        ({"type": "array", "items": "int"}, b"\x03\x02\x02\x02\x00", False),
        ({"type": "array", "items": "int"}, b"\x03\x06\x02\x02\x00", False),
        ({"type": "array", "items": "int"}, b"\x03\x01\x02\x02\x00", False),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01" + b"\x00", False),
        ({"type": "fixed", "name": "F", "size": 2**40}, b"\x00" * 9, False),
        ("bytes", b"\x01", False),
    ],
)
def test_readers_agree_on_what_is_a_value(schema: Any, payload: bytes, is_value: bool) -> None:
    """Numbers of too many bits, indexes outside, blocks that lie: no value, whatever one reader makes of them."""
    outer = record("Outer", v=schema)
    assert (weights(schema_of(outer), [payload])[0] >= 0) == is_value
    found = AvroReader(schema_of(outer)).extract(pa.array([payload], pa.binary()), [Field(("v",))])
    assert found.reasons == ([] if is_value else [NOT_AVRO])


def test_few_bytes_become_no_gigabytes() -> None:
    """20 kB of records of a byte with 5,000 nulls each, and the longest that is read."""
    schema = schema_of(record("Outer", v={"type": "array", "items": record(x="long", **{f"n{at}": "null" for at in range(5_000)})}))

    def array(items: int) -> bytes:
        return written({"type": "array", "items": "int"}, [0] * items)

    most = FREE_WEIGHT // 5_002
    assert [weight >= 0 for weight in weights(schema, [array(20_000), array(most), array(most + 2)])] == [False, True, False]


def test_no_payload_is_too_heavy_for_its_bytes_alone() -> None:
    """An array of numbers of a byte each: a megabyte of it is read, and much more is not."""
    schema = schema_of(record(v={"type": "array", "items": "int"}))
    payloads = [written({"type": "array", "items": "int"}, [0] * items) for items in (1_048_576, WEIGHT_MAX)]
    assert weights(schema, payloads) == [1_048_578, -1]
    assert BYTE_WEIGHT > 1


def test_long_names_weigh_what_they_write() -> None:
    """A record is written with the names of its fields: a name of 1,600 characters weighs a hundred times a byte."""
    schema = schema_of(record(v={"type": "array", "items": record("I", **{"x" * 1_600: "int"})}))
    items = FREE_WEIGHT // 100
    payload = written({"type": "array", "items": "int"}, [0] * (2 * items))
    assert weights(schema, [payload]) == [-1]
    assert weights(schema, [written({"type": "array", "items": "int"}, [0] * (items // 2))])[0] > 0


@given(st.lists(st.none() | st.binary(max_size=6) | st.integers(0, 50).map(lambda number: written("long", number)), max_size=20))
def test_a_batch_is_decoded_in_parts_of_any_size(payloads: list[bytes | None]) -> None:
    """Level 1: fields and reasons are those of one part."""
    column, field, schema = pa.array(payloads, pa.binary()), Field(("v",)), schema_of(record(v="long"))
    expected = AvroReader(schema).extract(column, [field])
    with pytest.MonkeyPatch.context() as patch:
        for weight in (1, 3, 7):
            patch.setattr(avro_records, "DECODED_WEIGHT", weight)
            found = AvroReader(schema).extract(column, [field])
            assert found.columns[field].parts == expected.columns[field].parts
            assert (found.bad_rows.tolist(), found.reasons) == (expected.bad_rows.tolist(), expected.reasons)


def test_without_the_compiled_part_all_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting that turns native parts off turns this one off."""
    payloads = pa.array([written("long", number) for number in range(100)], pa.binary())
    schema = schema_of(record(v="long"))
    assert avro_layout.library() is not None, "the compiler is there, so the part is"
    by_part = weigh(schema, payloads)
    monkeypatch.setenv(native_parts.NATIVE_SWITCH, "off")
    assert np.array_equal(weigh(schema, payloads), by_part)
