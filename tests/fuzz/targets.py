"""
What is fuzzed. A target takes one input and raises if a law is broken; otherwise it returns what happened in a word or two, so that inputs
that do something new are kept and changed further.

Targets are deterministic: an input that failed once fails again.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from fuzz.sanitizers import PARTS_FOLDER
from support import json_payloads

from ordering.errors import ProtocolError, QueryError
from ordering.protocol.facts import FactMerger, decode_facts, encode_facts
from ordering.protocol.partitioner import murmur2_column
from ordering.protocol.reader import Log, PartitionReader
from ordering.protocol.wire import decode_cti, decode_event_headers, decode_source_cti, encode_cti
from query.sql.bind import bind_outputs
from tidegate.basics import native_parts
from tidegate.language.expressions import json_members
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.field_columns import FieldColumns
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.expressions.tree import Field
from tidegate.language.json_columns import json_fields, json_rows
from tidegate.language.json_columns.json_fields import MemberPath
from tidegate.records.fields import FieldReader
from tidegate.records.payloads import avro_layout
from tidegate.records.payloads.avro_layout import AvroSchema
from tidegate.records.payloads.avro_records import AvroReader
from tidegate.records.payloads.avro_schema import parse_avro_schema
from tidegate.records.payloads.csv_records import CsvReader
from tidegate.records.payloads.json_elements import split_elements

_FIELDS = [Field((name,)) for name in ("at", "k", "AT", "a.b")]
_PATHS = (("at",), ("k",), ("AT", "k"), ("a.b",), ())
_LETTERS = {
    json_fields.BIGINT: "i",
    json_fields.FLOAT: "f",
    json_fields.TRUE: "b",
    json_fields.TEXT: "s",
    json_fields.RECORD: "r",
    json_fields.ARRAY: "a",
}
_NEIGHBOUR = b'{"at":1,"k":"x"}'


def load_sanitized_parts() -> None:
    """Make this process use the sanitized parts, if its environment names their folder. Call it before any part is used."""
    folder = os.environ.get(PARTS_FOLDER)
    if folder:
        # Below open_part, which modules may have imported by its name.
        native_parts.ctypes = SimpleNamespace(CDLL=lambda path: ctypes.CDLL(str(Path(folder) / Path(path).name)))


@contextmanager
def _without_native() -> Any:
    before = os.environ.get(native_parts.NATIVE_SWITCH)
    os.environ[native_parts.NATIVE_SWITCH] = "off"
    try:
        yield
    finally:
        del os.environ[native_parts.NATIVE_SWITCH]
        if before is not None:
            os.environ[native_parts.NATIVE_SWITCH] = before


def _column(*payloads: bytes) -> pa.Array:
    """Return payloads in a buffer that ends with the last: a read beyond it is seen by the sanitizer."""
    octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).copy()
    ends = np.cumsum([0, *map(len, payloads)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(payloads), [None, pa.py_buffer(ends), pa.py_buffer(octets)])


def _values(found: FieldColumns) -> Any:
    columns = [
        {kind.value: part.to_pylist() for kind, part in variant.parts.items() if part.null_count < len(part)}
        for variant in found.columns.values()
    ]
    return columns, dict(zip(found.bad_rows.tolist(), found.reasons, strict=True))


def read_json(octets: bytes) -> str:
    """A payload says the same to the compiled reader and to the careful one, alone and beside others; both jobs take the same ones."""
    alone = _json_verdict(_column(octets), 0)
    assert alone == _json_verdict(_column(_NEIGHBOUR, octets, _NEIGHBOUR, _NEIGHBOUR, _NEIGHBOUR), 1), "a neighbour changes it"
    with _without_native():
        assert alone == _json_verdict(_column(octets), 0), "the compiled reader differs"
    (is_readable, *_), values, reason = alone
    assert not is_readable or reason is None, "ingest takes what queries refuse"
    return f"{is_readable} {reason} {[type(value) for value in values]}"


def scan_json(octets: bytes) -> str:
    """The walk in C alone: what it reads is what Python reads, or it leaves the payload to others."""
    found = json_fields.read_members(_column(octets), tuple(map(MemberPath, _PATHS)))
    assert found is not None, "the part is compiled"
    if found.status[0] == json_fields.OTHER:
        return "left"
    value, told = json_payloads.read(octets), []
    for path, parts in zip(_PATHS, found.columns, strict=True):
        kinds = [kind for kind, part in parts.items() if part[0].is_valid]
        expected = json_payloads.member_of(value, path)
        assert len(kinds) == (expected is not None), (path, expected)
        if expected is not None:
            letter, member = expected
            one = parts[kinds[0]][0].as_py()
            assert letter == _LETTERS[kinds[0]]
            assert json_payloads.same(json_payloads.read(one.encode()) if letter in "ra" else one, member), (path, expected)
        told.append(kinds)
    return f"{told} {found.status[0]}"


def split_json(octets: bytes) -> str:
    """An array is split alike by C and without it, alone and beside others; the elements are those that Python reads."""
    told = []
    for payload in (octets, b"[%b,%b]" % (octets, octets)):
        alone = _split(_column(payload), 0)
        assert alone == _split(_column(_NEIGHBOUR, payload, b"[1,2]"), 1), "a neighbour changes it"
        with _without_native():
            assert alone == _split(_column(payload), 0), "the compiled splitter differs"
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, list) and len(alone) > 1:
            assert repr([json.loads(element) for element in alone]) == repr(value), "the elements are others"
        told.append(min(len(alone), 4))
    return str(told)


def _split(payloads: pa.Array, row: int) -> list[bytes]:
    elements = split_elements(payloads)
    return [element for element, of in zip(elements.value.to_pylist(), elements.row.tolist(), strict=True) if of == row]


def _json_verdict(payloads: pa.Array, row: int) -> tuple[tuple[bool, int, bytes], list[Any], str | None]:
    """Return what ingest reads of a payload, the values that a query reads, and why it cannot."""
    fields = FieldReader("at", "auto", "k").read(payloads)
    is_readable = bool(fields.readable[row])
    ingested = is_readable, int(fields.event_time_us[row]) if is_readable else 0, fields.substream[row].as_py()
    found = json_members.extract(payloads, _FIELDS)
    values = [
        next((part[row].as_py() for part in variant.parts.values() if part[row].is_valid), None) for variant in found.columns.values()
    ]
    return ingested, values, dict(zip(found.bad_rows.tolist(), found.reasons, strict=True)).get(row)


def write_json(octets: bytes) -> str:
    """Rows of numbers and texts are written as Python writes them."""
    rows = max(len(octets) // 8, 1)
    padded = octets[: 8 * rows].ljust(8 * rows, b"\0")
    integers, floats = np.frombuffer(padded, dtype=np.int64).copy(), np.frombuffer(padded, dtype=np.float64).copy()
    floats[~np.isfinite(floats)] = 0.5
    floats = np.round(floats, octets[0] % 20) if octets and abs(floats).max() < 1e12 else floats
    texts = pa.array([padded[8 * row : 8 * row + octets[row] % 9].hex() if row % 3 else None for row in range(rows)], pa.string())
    columns = [
        json_rows.JsonColumn(b'{"i":', json_rows.INTEGER, pa.array(integers)),
        json_rows.JsonColumn(b',"f":', json_rows.FLOAT, pa.array(floats)),
        json_rows.JsonColumn(b',"t":', json_rows.QUOTED, texts),
    ]
    asked: list[int] = []

    def text_of(column: int) -> pa.Array:
        asked.append(column)
        return pa.array([repr(value) for value in floats.tolist()], pa.string())

    part = json_rows.library()
    assert part is not None, "the part is compiled"
    written = json_rows.write_rows(part, columns, b"}", rows, text_of)
    expected = [
        json.dumps({"i": integer, "f": number, "t": text}, separators=(",", ":")).encode()
        for integer, number, text in zip(integers.tolist(), floats.tolist(), texts.to_pylist(), strict=True)
    ]
    assert written is not None
    assert written.to_pylist() == expected
    return f"{asked} {min(rows, 4)}"


@cache
def _schemas() -> list[AvroSchema]:
    lines = (Path(__file__).parent / "corpus" / "schemas.ndjson").read_text().splitlines()
    return [parse_avro_schema(line) for line in lines]


def read_avro(octets: bytes) -> str:
    """The compiled weigher and the careful one agree; what has a weight is decoded, or its text is no UTF-8; nothing raises."""
    if not octets:
        return "nothing"
    schemas = _schemas()
    schema, skipped = schemas[octets[0] % len(schemas)], 5 if octets[0] & 0x80 else 0
    payloads = _column(octets[1:])
    weight = int(avro_layout.weigh(schema, payloads, skipped)[0])
    with _without_native():
        assert weight == int(avro_layout.weigh(schema, payloads, skipped)[0]), "the compiled weigher differs"
    assert weight <= min(avro_layout.WEIGHT_MAX, avro_layout.FREE_WEIGHT + avro_layout.BYTE_WEIGHT * len(octets))
    if skipped:
        return f"{octets[0]} framed {weight >= 0}"
    columns, reasons = _values(AvroReader(schema).extract(payloads, [Field(("v",)), Field(("v", "x")), Field(("w",))]))
    assert weight >= 0 or 0 in reasons, "a payload without a weight is read"
    return f"{octets[0]} {weight.bit_length()} {0 in reasons} {[sorted(column) for column in columns]}"


def read_csv(octets: bytes) -> str:
    """A record is read alone as among others, and nothing raises."""
    reader, fields = CsvReader(("at", "b", "c"), ";" if octets[:1] == b";" else ","), [Field(("at",)), Field(("c",))]
    alone, reasons = _values(reader.extract(_column(octets), fields))
    together, among = _values(reader.extract(_column(b"1,2,3", octets, b'"1",2,3'), fields))
    assert among.get(1) == reasons.get(0), "a neighbour changes it"
    for column, others in zip(alone, together, strict=True):
        assert [values[0] for values in column.values()] == [values[1] for values in others.values() if values[1] is not None]
    return f"{reasons.get(0)} {[value is None for column in alone for values in column.values() for value in values]}"


def read_wire(octets: bytes) -> str:
    """Whatever a topic holds, a reader takes it or says that it breaks the protocol; what it takes is written again as it was."""
    header, value = octets[1 : 1 + octets[0] % 64] if octets else b"", octets[1 + octets[0] % 64 :] if octets else b""
    told = []
    for read in (_read_cti, _read_source_cti, _read_facts, _read_events):
        try:
            told.append(read(header, value))
        except ProtocolError as error:
            told.append(error.what.split("=")[0][:24])
    return " ".join(told)


def _read_cti(header: bytes, value: bytes) -> str:
    cti = decode_cti(header, value, 0)
    again = encode_cti(cti)
    assert decode_cti(*again, 0) == cti, "a CTI is not what it was"
    reader = PartitionReader(0, 1)
    empty = np.empty(0, dtype=np.int64)
    reader.accept(Log(empty, empty, empty, empty, [(0, cti)]))
    PartitionReader.restore(reader.save(), 0, 1)
    return f"cti {cti.parts > 1} {bool(cti.listed)} {reader.finished}"


def _read_source_cti(header: bytes, value: bytes) -> str:
    decode_source_cti(header, value)
    return "source"


def _read_facts(header: bytes, value: bytes) -> str:
    facts = decode_facts(value)
    assert encode_facts(facts) == value
    merger = FactMerger()
    merger.add(facts)
    return f"facts {min(len(merger.facts), 3)}"


def _read_events(header: bytes, value: bytes) -> str:
    whole = value[: len(value) // 48 * 48]
    headers = [whole[at : at + 48] for at in range(0, len(whole), 48)]
    table = decode_event_headers([*headers, header] if header else headers)
    numbers = [table[name].astype(np.int64) for name in ("number", "seq", "system_us")]
    reader = PartitionReader(0, 1, start_us=5 if len(header) % 2 else None)
    accepted = reader.accept(Log(np.arange(len(table), dtype=np.int64), *numbers, []))
    murmur2_column(headers)
    return f"events {min(len(table), 3)} {min(len(accepted.rows), 3)}"


def read_script(octets: bytes) -> str:
    """A script is bound, or refused with an error that says what and where."""
    text = octets.decode("utf-8", "replace")
    schemas = [InputSchema("a", is_free=True), InputSchema("b", "at", "k", {"x": "bigint"})]
    try:
        plans = bind_outputs(parse_script(text, "fuzz.sql"), schemas)
    except QueryError as error:
        if not error.what or not error.code.startswith("TG-QUERY"):
            raise AssertionError("an error without a code of its own") from error
        return f"{error.code} {error.what[:16]}"
    return f"bound {len(plans)} {[type(plan).__name__ for plan in plans]}"


TARGETS: Mapping[str, Callable[[bytes], str]] = {
    "read_json": read_json,
    "scan_json": scan_json,
    "split_json": split_json,
    "write_json": write_json,
    "read_avro": read_avro,
    "read_csv": read_csv,
    "read_wire": read_wire,
    "read_script": read_script,
}
