"""Avro: what each type is as a field, which payloads are no value, and which schemas are refused before one is read."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.testing import tick
from tidegate.language.expressions.field_columns import NO_PAYLOAD
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.records.payloads.avro_records import NOT_AVRO, AvroReader
from tidegate.records.payloads.avro_schema import UnusableSchema, parse_avro_schema


def record(**fields: Any) -> dict[str, Any]:
    """A record schema."""
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def written(schema: Any, value: Any) -> bytes:
    """A value in Avro's binary form, as another program writes it: logical types as the integers beneath."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def field_of(schema: Any, payloads: list[bytes | None], path: str = "v") -> tuple[list[tuple[Kind, Any] | None], dict[int, str]]:
    """Kind and value of one field in each payload, and the reasons of bad rows."""
    field = Field(tuple(path.split(".")))
    found = AvroReader(parse_avro_schema(json.dumps(schema))).extract(pa.array(payloads, pa.binary()), [field])
    values: list[tuple[Kind, Any] | None] = [None] * len(payloads)
    for kind, part in found.columns[field].parts.items():
        for row, value in enumerate(part.to_pylist()):
            values[row] = values[row] if value is None else (kind, value)
    return values, dict(zip(found.bad_rows.tolist(), found.reasons, strict=True))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A type with a logical type."""
    return {"type": kind, "logicalType": name, **more}


TWO = record(w="int", t=logical("long", "timestamp-millis"))
NOW_US = tick("2001-01-01T00:00:00.123456Z")


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("long", 5, (Kind.BIGINT, 5)),
        ("int", -5, (Kind.BIGINT, -5)),
        ("double", 2.5, (Kind.FLOAT, 2.5)),
        ("double", float("nan"), None),
        ("float", float("inf"), None),
        ("boolean", True, (Kind.BIT, True)),
        ("string", "é\0", (Kind.NVARCHAR, "é\0")),
        ("bytes", b"\x00\xff", (Kind.NVARCHAR, "00ff")),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x01\x02", (Kind.NVARCHAR, "0102")),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", (Kind.NVARCHAR, "b")),
        (["null", "string"], None, None),
        (["null", "string"], "x", (Kind.NVARCHAR, "x")),
        (["int", "string"], "x", (Kind.NVARCHAR, "x")),
        (logical("long", "timestamp-millis"), NOW_US // 1000, (Kind.DATETIME, NOW_US // 1000 * 1000)),
        (["null", logical("long", "timestamp-micros")], NOW_US, (Kind.DATETIME, NOW_US)),
        (logical("long", "local-timestamp-micros"), NOW_US, (Kind.DATETIME, NOW_US)),
        (logical("long", "timestamp-nanos"), NOW_US * 1000 + 999, (Kind.DATETIME, NOW_US)),
        (logical("long", "timestamp-millis"), -1, (Kind.DATETIME, -1000)),
        (logical("long", "timestamp-millis"), 2**62, None),
        (logical("int", "date"), 11_323, (Kind.DATETIME, tick("2001-01-01T00:00:00Z"))),
        (logical("int", "time-millis"), 5, (Kind.BIGINT, 5)),
        (logical("string", "nobody-knows"), "x", (Kind.NVARCHAR, "x")),
        (logical("bytes", "decimal", precision=6, scale=2), Decimal("-1234.56"), (Kind.FLOAT, -1234.56)),
        (
            record(w="int", t=logical("long", "timestamp-millis")),
            {"w": 1, "t": 978307200000},
            (Kind.RECORD, '{"w":1,"t":"2001-01-01T00:00:00Z"}'),
        ),
        ({"type": "array", "items": "double"}, [1.0, float("nan")], (Kind.ARRAY, "[1.0,null]")),
        ({"type": "map", "values": "bytes"}, {"é": b"\x01"}, (Kind.RECORD, '{"é":"01"}')),
    ],
)
def test_each_type_has_its_kind(schema: Any, value: Any, expected: Any) -> None:
    """Dates and timestamps are datetimes; what is not finite, or no date, is NULL."""
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "v", "type": schema}]}
    plain = json.loads(json.dumps(outer).replace("timestamp-", "plain-").replace('"date"', '"plain"').replace("local-plain", "plain"))
    assert field_of(outer, [written(plain, {"v": value})]) == ([expected], {})


def test_paths_lead_through_records_and_maps() -> None:
    """Exactly spelled names first, then any case; what is not there is NULL."""
    schema = record(
        v={
            "type": "record",
            "name": "Inner",
            "fields": [{"name": "At", "type": "long"}, {"name": "m", "type": {"type": "map", "values": "long"}}],
        }
    )
    payload = written(schema, {"v": {"At": 5, "m": {"x": 6}}})
    for path, expected in (("v.At", 5), ("V.at", 5), ("v.m.x", 6), ("v.m.X", 6), ("v.m.y", None), ("v.At.z", None), ("w", None)):
        assert field_of(schema, [payload], path)[0] == [None if expected is None else (Kind.BIGINT, expected)]


def zigzag(number: int) -> bytes:
    """An Avro long, also one that no honest writer gives."""
    rest, out = ((number << 1) ^ (number >> 63)) & (2**64 - 1), b""
    while rest > 127:
        out, rest = out + bytes([rest & 127 | 128]), rest >> 7
    return out + bytes([rest])


@pytest.mark.parametrize("kind", ["string", "bytes", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}])
@pytest.mark.parametrize("length", [-1, -5, 2**20, 2**40, 2**62, -(2**62)])
def test_lengths_that_lie_cost_only_their_payload(kind: Any, length: int) -> None:
    """Whatever a payload claims, no more is read than it has; its neighbour is read as ever."""
    schema = record(v=kind)
    good = written(schema, {"v": {"string": "x", "bytes": b"x"}.get(str(kind), [] if "array" in str(kind) else {})})
    values, reasons = field_of(schema, [zigzag(length) + b"\x02\x02", good, None])
    assert reasons == {0: NOT_AVRO, 2: NO_PAYLOAD}
    assert values[1] is not None


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_give_a_value_or_a_reason_alone_as_among_others(payloads: list[bytes]) -> None:
    """Level 1, and nothing raises: neither truncated nor random bytes."""
    schema = record(
        u=["null", "string", {"type": "array", "items": ["int", "double"]}],
        e={"type": "enum", "name": "E", "symbols": ["a", "b"]},
        v=logical("long", "timestamp-millis"),
        d=logical("bytes", "decimal", precision=5, scale=1),
    )
    values, reasons = field_of(schema, list(payloads))
    for row, payload in enumerate(payloads):
        assert field_of(schema, [payload]) == ([values[row]], {0: reasons[row]} if row in reasons else {})


def test_every_cut_of_a_payload_is_bad() -> None:
    """A truncated value and one with bytes after it are none."""
    schema = record(s="string", v="double", n={"type": "array", "items": "string"})
    payload = written(schema, {"s": "text", "v": 2.5, "n": ["a", "b"]})
    _, reasons = field_of(schema, [payload[:at] for at in range(len(payload))] + [payload + b"\0", payload])
    assert reasons == dict.fromkeys(range(len(payload) + 1), NOT_AVRO)


def test_a_payload_of_ten_megabytes_is_read() -> None:
    """Its size is Kafka's affair, not the parser's."""
    schema = record(s="bytes", v="long")
    assert field_of(schema, [written(schema, {"s": b"x" * 10_000_000, "v": 5})]) == ([(Kind.BIGINT, 5)], {})


def doubling(levels: int) -> dict[str, Any]:
    """A schema of *levels* records, each of which holds the one before twice: no bytes, and more types than anyone can count."""
    above = [record(a=f"R{level - 1}", b=f"R{level - 1}") | {"name": f"R{level}"} for level in range(1, levels)]
    records = [record(x="null") | {"name": "R0"}, *above]
    return record(**{f"d{level}": each for level, each in enumerate(records)})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "no JSON"),
        ('"nobody"', "no Avro schema"),
        ("{}", "no Avro schema"),
        ("5", "no Avro schema"),
        ("null", "no Avro schema"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (json.dumps(record(next=["null", "R"])), "R contains itself"),
        (json.dumps(record(a={"type": "array", "items": "R"})), "R contains itself"),
        (json.dumps({"type": "array", "items": "null"}), "take no bytes"),
        (json.dumps({"type": "array", "items": record()}), "take no bytes"),
        (json.dumps({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), "take no bytes"),
        (json.dumps(doubling(40)), "more than 10000 types"),
        (json.dumps({"type": "fixed", "name": "F", "size": -1}), "F has no size"),
        (json.dumps({"type": "record", "name": "A", "fields": 5}), "no Avro schema"),
        ('"' + "x" * 2_000_000 + '"', "characters"),
    ],
)
def test_a_schema_that_could_hurt_is_refused(schema: str, why: str) -> None:
    """What is no schema, and what could nest or repeat beyond the length of a payload."""
    with pytest.raises(UnusableSchema, match=why):
        parse_avro_schema(schema)


def test_a_type_may_be_used_twice() -> None:
    """Using a name again is no recursion."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "long"}]}
    schema = record(a=inner, v="I")
    assert field_of(schema, [written(schema, {"a": {"x": 1}, "v": {"x": 2}})], "v.x") == ([(Kind.BIGINT, 2)], {})
