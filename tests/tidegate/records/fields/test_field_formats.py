"""Fields out of every format, and event times by expressions: one law for all, and the same value a query computes."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_runs import values as query_values

from ordering.errors import QueryError
from ordering.policies import Shape
from ordering.testing import tick
from ordering.ticks import NEVER
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.records.fields import FieldReader, Fields
from tidegate.records.payloads.formats import PayloadFormat

CSV = PayloadFormat("csv", ("at", "k", "end"))
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "at", "type": ["null", "string", {"type": "long", "logicalType": "timestamp-millis"}, "double"]},
        {"name": "k", "type": ["null", "string", "long", "boolean", "double", {"type": "array", "items": "int"}]},
        {"name": "end", "type": ["null", "string"]},
    ],
}
AVRO = PayloadFormat("avro", avro_schema=json.dumps(SCHEMA))
START = "2001-01-01T00:00:00Z"
START_US = tick(START)
Row = tuple[int | None, bool, bytes | None]


def avro(at: Any = None, k: Any = None, end: Any = None) -> bytes:
    """An Avro payload; an integer time is in milliseconds."""
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType": "timestamp-millis"', '"doc": ""'))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), {"at": at, "k": k, "end": end})
    return out.getvalue()


def rows(fields: Fields) -> list[Row]:
    """Event time (None: no valid one), whether the payload is of its format, and key bytes of each payload."""
    keys = [None] * len(fields.readable) if fields.substream is None else fields.substream.to_pylist()
    times = [time if fine else None for time, fine in zip(fields.event_time_us.tolist(), fields.readable.tolist(), strict=True)]
    return list(zip(times, fields.well_formed.tolist(), keys, strict=True))


def read(rows_in: list[bytes | None], by: str | None = "at", over: str | None = "k", **more: Any) -> list[Row]:
    """The fields of each payload."""
    return rows(FieldReader(by, more.pop("unit", "auto"), over, **more).read(pa.array(rows_in, pa.binary())))


def test_csv_values_are_times_and_keys_as_they_stand() -> None:
    """Text is text: 007 is no 7; an empty value is no key."""
    payloads = [b"2001-01-01T00:00:00Z,007,", b'978307200,"",', b"978307200.5,,", b"soon,x,", b"1,2", None]
    expected = [(START_US, True, b"007"), (START_US, True, b'""'), (START_US + 500_000, True, b""), (None, True, b"x"), (None, False, b"")]
    assert read(payloads, payloads=CSV) == [*expected, (None, False, b"")]


def test_avro_values_are_times_and_keys_by_their_types() -> None:
    """A timestamp is a time whatever the declared unit, text and numbers are as declared; keys are the bytes JSON would give."""
    payloads = [avro(978307200000, "x"), avro(START, 7), avro(978307200.25, True), avro(None, 2.5), avro(-5, [1, 2]), b"\x07"]
    assert read(payloads, payloads=AVRO) == [
        (START_US, True, b"x"),
        (START_US, True, b"7"),
        (START_US + 250_000, True, b"true"),
        (None, True, b"2.5"),
        (None, True, b"[1,2]"),
        (None, False, b""),
    ]
    assert read([avro(978307200000, "x"), avro(START)], payloads=AVRO, unit="s", over=None) == [(START_US, True, None), (None, True, None)]


@pytest.mark.parametrize(
    ("payloads", "of"),
    [
        ([b"2000,k,3000", b"2000,k,", b"2000,k,x", b"x,k,3000"], CSV),
        ([avro("2000", "k", "3000"), avro("2000", "k"), avro("2000", "k", "x"), avro("x", "k", "3000")], AVRO),
    ],
)
def test_spans_have_both_ends_in_every_format(payloads: list[bytes | None], of: PayloadFormat) -> None:
    """An edge without an end is a start edge."""
    fields = FieldReader("at", "us", None, Shape.EDGE, "end", payloads=of).read(pa.array(payloads, pa.binary()))
    assert fields.readable.tolist() == [True, True, False, False]
    assert fields.timed.tolist() == [True, True, True, False]
    assert fields.start_us is not None
    assert (fields.event_time_us[:2].tolist(), fields.start_us[:2].tolist()) == ([3000, 2000], [2000, NEVER])


EXPRESSIONS = [
    ("CAST(ts AS bigint) * 1000", "us", {"ts": "1700000000000"}),
    ("DATEADD(second, p.off, p.base)", "auto", {"p": {"off": 5, "base": START}}),
    ("DATEADD(millisecond, ts, '1970-01-01')", "auto", {"ts": 978307200123}),
    ("CASE WHEN kind = 'a' THEN a ELSE b END", "auto", {"kind": "b", "a": "soon", "b": START}),
    ("COALESCE(x, [event time])", "auto", {"x": None, "event time": 978307200}),
    ("SUBSTRING(text, 3, 20)", "iso", {"text": f"t={START}"}),
    ("CAST(at AS datetime)", "s", {"at": "2001-01-01T02:00:00+02:00"}),
    ("d + '-' + m", "iso", {"d": "2001", "m": "01-05"}),
    ("TS * 2", "s", {"ts": 500_000_000.25}),
]


@pytest.mark.parametrize(("expression", "unit", "payload"), EXPRESSIONS)
def test_ingest_computes_what_a_query_computes(expression: str, unit: str, payload: dict[str, Any]) -> None:
    """The same text over the same payload: read as a time, it is the event time."""
    (line,) = query_values(f"SELECT {expression} AS v FROM arrivals", [payload])
    ((wanted, _, _),) = read(
        [line.encode()], "v", None, unit=unit if "datetime" not in expression and "DATEADD" not in expression else "iso"
    )
    ((found, _, _),) = read([json.dumps(payload).encode()], expression, None, unit=unit)
    assert found == wanted
    assert found is not None


def test_a_row_in_which_an_expression_fails_has_no_time() -> None:
    """A wrong kind, a failing conversion, NULL, a time out of range: a dead letter for its time; broken JSON stays broken JSON."""
    payloads = [
        b'{"s":5,"b":"2001-01-01"}',
        b'{"s":"x","b":"2001-01-01"}',
        b'{"s":5,"b":"soon"}',
        b'{"s":5}',
        b'{"s":1e18,"b":"2001-01-01"}',
    ]
    payloads += [b'{"s":5,"b":7}', b'{"s":{"a":1},"b":"2001-01-01"}', b'{"s":-1e10,"b":"2001-01-01"}', b'["s"]', b"{", b"\xff"]
    found = read(payloads, "DATEADD(second, s, b)", None)
    assert found[0] == (START_US + 5_000_000, True, None)
    assert found[1:] == [(None, True, None)] * 8 + [(None, False, None)] * 2


def test_declared_types_count_in_an_expression() -> None:
    """As in a query: the field is converted before it is computed with."""
    payload = b'{"ts":"978307200"}'
    schema = InputSchema("arrivals", fields={"ts": "bigint"})
    assert query_values("SELECT ts * 1000 AS v FROM arrivals", [{"ts": "978307200"}], schema) == ['{"v":978307200000}']
    assert read([payload], "ts * 1000", None, unit="ms", types={"ts": "bigint"}) == [(START_US, True, None)]
    with pytest.raises(QueryError) as caught:
        FieldReader("DATEADD(day, 1, ts)", "auto", None, types={"ts": "bigint"})
    assert (caught.value.code, caught.value.where) == ("TG-QUERY-TYPE", "timestamp_by:1:1")


def test_an_expression_reads_csv_and_avro_too() -> None:
    """Text converts as T-SQL does; a timestamp of Avro is a datetime."""
    assert read([b"2001-01-01,5,", b"x,5,"], "DATEADD(hour, CAST(k AS bigint), at)", None, payloads=CSV) == [
        (START_US + 5 * 3_600_000_000, True, None),
        (None, True, None),
    ]
    assert read([avro(978307200000, 5)], "DATEADD(minute, k, at)", None, payloads=AVRO) == [(START_US + 5 * 60_000_000, True, None)]


HOSTILE = [
    b"",
    b"\0",
    b"\0" * 1000,
    b"{" * 100_000,
    b'{"at":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"at":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"at":"' + b"x" * 1_000_000 + b'"}',
    b'{"at":"\xed\xa0\x80"}',
    b'{"at":"\\ud800"}',
    b'{"at\0":1,"\\u0061t":2}',
    b'{"at":1e99999,"k":-1e-99999}',
    b'{"at":' + b"9" * 100_000 + b"}",
    b'{"AT":978307200,"k":"\\u0000"}',
    "{‮}".encode(),
    b"," * 1000,
    b'"' * 1001,
    b"\xff" * 1000,
    b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80" * 100,
]
READERS = [
    FieldReader("at", "auto", "k"),
    FieldReader("COALESCE(at, k)", "auto", "k"),
    FieldReader("DATEADD(second, 1, at)", "auto", None),
    FieldReader("at", "auto", "k", payloads=CSV),
    FieldReader("at", "auto", "k", payloads=AVRO),
]


@pytest.mark.parametrize("reader", READERS)
def test_hostile_payloads_cost_only_themselves(reader: FieldReader) -> None:
    """Deep, huge, truncated, with NUL and bad UTF-8: nothing raises, and each gives what it gives alone."""
    together = rows(reader.read(pa.array([*HOSTILE, None], pa.binary())))
    assert together == [rows(reader.read(pa.array([payload], pa.binary())))[0] for payload in [*HOSTILE, None]]


DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "at": st.one_of(st.integers(0, 2**62), st.sampled_from([START, "soon", None, True, 5.5, {"a": 1}]), st.text(max_size=4)),
        "k": st.one_of(st.integers(-(2**66), 2**66), st.booleans(), st.text(max_size=3), st.none(), st.lists(st.integers(), max_size=2)),
    },
)
PAYLOADS = st.one_of(
    DOCUMENTS.map(lambda document: json.dumps(document).encode()),
    DOCUMENTS.map(lambda document: json.dumps({name.upper(): value for name, value in document.items()}).encode()),
    st.binary(max_size=8),
    st.none(),
    st.tuples(st.sampled_from([START, "978307200", "", '"x"']), st.text(alphabet='ab"\n,', max_size=4)).map(
        lambda two: f"{two[0]},{two[1]},".encode()
    ),
    st.one_of(st.none(), st.just(START), st.integers(0, 2**40)).map(lambda at: avro(at, "k")),
)


@settings(max_examples=25)
@given(st.lists(PAYLOADS, max_size=6), st.sampled_from(READERS))
def test_a_payload_gives_the_same_alone_and_among_any_neighbours(payloads: list[bytes | None], reader: FieldReader) -> None:
    """Level 1, in every format and with expressions: row by row, all at once, in any order."""
    together = rows(reader.read(pa.array(payloads, pa.binary())))
    assert together == [rows(reader.read(pa.array([payload], pa.binary())))[0] for payload in payloads]
    assert together[::-1] == rows(reader.read(pa.array(payloads[::-1], pa.binary())))


def test_several_keys_of_a_record_of_texts_are_an_array_of_them() -> None:
    """As JSON's are: in the order of OVER, not of the columns."""
    reader = FieldReader("t", "auto", "b, k", payloads=PayloadFormat("csv", ("k", "t", "b")))
    keys = reader.read([b'x,2001-01-01,"1 ""\xc3\xa9"""', b",2001-01-01,"]).substream
    assert keys is not None
    assert keys.to_pylist() == [b'["1 \\"\xc3\xa9\\"","x"]', b'["",""]']


SPELLED = [
    ({"at": START, "k": "x"}, b"x"),
    ({"AT": START, "K": "x"}, b"x"),
    ({"At": "soon", "at": START, "K": "y", "k": "x"}, b"x"),
    ({"aT": START, "At": "soon", "kK": "z", "K": "x"}, b"x"),
]


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize(("by", "over"), [("at", "k"), ("p.at", "p.k"), ("COALESCE(p.at, at)", "p.k")])
def test_names_in_json_are_exact_first_and_else_ignore_case(by: str, over: str, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record by record, also along a path, in event time, key and end alike; with and without the compiled part."""
    monkeypatch.setenv("TIDEGATE_KAFKA__NATIVE", native)
    documents = [record for record, _ in SPELLED]
    if "." in over:
        documents = [{("P" if number % 2 else "p"): record} for number, record in enumerate(documents)]
    payloads = [json.dumps(document).encode() for document in documents]
    expected = [(START_US, True, key) for _, key in SPELLED]
    assert read([*payloads, b'{"x":1}'], by, over) == [*expected, (None, True, b"")]
    for payload, row in zip(payloads, expected, strict=True):
        assert read([payload], by, over) == [row]


@pytest.mark.parametrize("native", ["auto", "off"])
def test_ends_are_found_like_every_name(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly spelled first, else ignoring case."""
    monkeypatch.setenv("TIDEGATE_KAFKA__NATIVE", native)
    payloads = [b'{"t":2000,"End":3000}', b'{"T":2000,"END":5,"end":3000}', b'{"T":2000}']
    fields = FieldReader("t", "us", None, Shape.INTERVAL, "end").read(pa.array(payloads, pa.binary()))
    assert fields.readable.tolist() == [True, True, False]
    assert fields.end_us is not None
    assert fields.end_us[:2].tolist() == [3000, 3000]


def test_names_of_columns_and_avro_fields_follow_the_rule_too() -> None:
    """CSV by the configured columns, Avro by the schema's fields."""
    assert read([b"2001-01-01,x,"], "AT", "K", payloads=CSV) == [(START_US, True, b"x")]
    both = PayloadFormat("csv", ("AT", "at", "K", "k"))
    assert read([b"soon,2001-01-01,y,x"], "at", "k", payloads=both) == [(START_US, True, b"x")]
    assert read([avro(978307200000, "x")], "AT", "K", payloads=AVRO) == [(START_US, True, b"x")]


def test_equal_numbers_are_one_key_in_every_format() -> None:
    """A number is not text in JSON and Avro, and CSV has text alone; the empty text is not NULL."""
    values = [b"5", b"5.0", b"5e0", b"0.5e1", b"-0.0", b"0", b"1e2", b"100", b'""', b"null"]
    told = [key for _, _, key in read([b'{"at":1,"k":%b}' % value for value in values])]
    assert told == [*[b"5"] * 4, *[b"0"] * 2, *[b"100"] * 2, b'""', b""]
    told = [key for _, _, key in read([avro(1000, value) for value in (5, 5.0, -0.0, 100.0, "", None)], payloads=AVRO)]
    assert told == [b"5", b"5", b"0", b"100", b'""', b""]
