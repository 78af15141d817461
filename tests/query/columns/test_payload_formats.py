"""Queries over inputs that are no JSON: the same expressions over the fields their formats give; results are JSON as ever."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pytest
from support.query_oracle import Event
from support.query_runs import SECOND, CompiledQuery, answers, compile_plan, event_table

from ordering.errors import QueryError
from query.sql.bind import bind_script
from query.start.survey import payload_format
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.settings.load import load
from tidegate.records.payloads.formats import PayloadFormat

CSV = PayloadFormat("csv", ("at", "k", "delay"))
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "p", "type": {"type": "record", "name": "P", "fields": [{"name": "k", "type": "string"}]}},
        {"name": "delay", "type": ["null", "int"]},
    ],
}
AVRO = PayloadFormat("avro", avro_schema=json.dumps(SCHEMA))
TYPED = InputSchema("lines", fields={"delay": "bigint"})


def compiled(sql: str, of: PayloadFormat, schema: InputSchema = TYPED) -> CompiledQuery:
    """A query over payloads of a format."""
    return compile_plan(bind_script(parse_script(sql), [schema], into="out"), of)


def results(query: CompiledQuery, payloads: list[bytes]) -> tuple[list[str], list[tuple[int, str]]]:
    """Values, and positions and reasons of rows that fail, for payloads one second apart."""
    events = [Event(0, (at + 1) * SECOND, payload) for at, payload in enumerate(payloads)]
    _, bad = query.prepare(event_table(events))
    return [row["value"].decode() for row in answers(query, events)], [(row["position"], row["reason"]) for row in bad.to_pylist()]


def test_declared_columns_of_csv_are_numbers() -> None:
    """Undeclared ones are text; a value that is not of its type fails its row."""
    query = compiled("SELECT k, delay * 2 AS twice FROM lines WHERE delay > 1", CSV)
    values, bad = results(query, [b"x,a,5", b'x,"b,c",1', b"x,,7", b"x,d,soon", b"x,e"])
    assert values == ['{"k":"a","twice":10}', '{"k":null,"twice":14}']
    assert [position for position, _ in bad] == [3, 4]


def test_avro_fields_have_their_types_and_windows_count_them() -> None:
    """Nested fields, datetimes, NULL: as if they had come as JSON."""
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType": "timestamp-millis"', '"doc": ""'))

    def payload(at_ms: int, key: str, delay: int | None) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(plain), {"at": at_ms, "p": {"k": key}, "delay": delay})
        return out.getvalue()

    payloads = [payload(978307200000, "a", 5), payload(0, "b", None), payload(1, "a", 7), b"\xff"]
    one = compiled("SELECT at, P.K AS k, delay FROM lines", AVRO, InputSchema("lines"))
    values, bad = results(one, payloads)
    assert values[0] == '{"at":"2001-01-01T00:00:00Z","k":"a","delay":5}'
    assert bad == [(3, "payload is not one value of the Avro schema")]
    grouped = compiled("SELECT p.k, SUM(delay) AS s FROM lines GROUP BY p.k, TumblingWindow(second, 10)", AVRO, InputSchema("lines"))
    assert results(grouped, payloads)[0] == ['{"k":"a","s":12}', '{"k":"b","s":null}']


def test_whole_rows_are_records_whatever_their_format() -> None:
    """Of a CSV record the columns by name, each text or NULL; of an Avro value its members."""
    window = "FROM lines GROUP BY TumblingWindow(second, 10)"
    values, bad = results(compiled(f"SELECT COLLECT() AS c, MAX(delay) AS m {window}", CSV), [b"x,a,5", b'x,"b ""c""",', b"x"])
    assert values == ['{"c":[{"at":"x","k":"a","delay":"5"},{"at":"x","k":"b \\"c\\"","delay":null}],"m":5}']
    assert [position for position, _ in bad] == [2]
    flat = {"type": "record", "name": "F", "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": ["null", "long"]}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(flat), {"k": "a", "v": None})
    of = PayloadFormat("avro", avro_schema=json.dumps(flat))
    values, bad = results(compiled(f"SELECT TopOne() OVER (ORDER BY k) AS t {window}", of, InputSchema("lines")), [out.getvalue(), b"\xff"])
    assert values == ['{"t":{"k":"a","v":null}}']
    assert bad == [(1, "payload is not one value of the Avro schema")]


def test_a_star_over_other_formats_is_refused(tmp_path: Path) -> None:
    """It would hand on, as results, what no later query can read."""
    file = tmp_path / "tidegate.toml"
    file.write_text('[inputs.lines]\nformat = "csv"\ncsv_columns = ["at", "k"]\n')
    settings = load(file, env={})
    with pytest.raises(QueryError) as caught:
        payload_format(settings, [bind_script(parse_script("SELECT * INTO o FROM lines"), [InputSchema("lines")])], "lines")
    assert caught.value.code == "TG-QUERY-NOT-YET"
    assert (
        payload_format(settings, [bind_script(parse_script("SELECT k INTO o FROM lines"), [InputSchema("lines")])], "lines").name == "csv"
    )
