"""The fields of an input's events are extracted once for all steps that read it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from support.query_oracle import Event
from support.query_runs import ARRIVALS, SECOND, event_table

from query.engine.program import Program
from query.operators.rows import event_fields
from query.operators.rows.event_fields import EventFields
from query.sql.bind import bind_outputs
from tidegate.language.expressions.field_columns import FieldColumns
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.expressions.tree import Field
from tidegate.records.payloads.formats import JSON, PayloadFormat, PayloadReader, reader_of

A, B, UPPER_A = Field(("a",)), Field(("b",)), Field(("A",))
SCRIPT = "SELECT a INTO one FROM arrivals WHERE b > 0; SELECT c INTO two FROM arrivals; SELECT b INTO three FROM arrivals"


class CountingReader:
    """Reads as the reader of a format does, and records the fields of each call."""

    def __init__(self, reader: PayloadReader, calls: list[list[str]]) -> None:
        self._reader, self._calls = reader, calls

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> FieldColumns:
        self._calls.append([str(field) for field in fields])
        return self._reader.extract(payloads, fields)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The fields of each pass over payloads."""
    made: list[list[str]] = []

    def counting(payloads: PayloadFormat) -> CountingReader:
        return CountingReader(reader_of(payloads), made)

    monkeypatch.setattr(event_fields, "reader_of", counting)
    return made


def program(sql: str) -> Program:
    """A script of several outputs."""
    return Program(bind_outputs(parse_script(sql, "q.sql"), [ARRIVALS]))


def events(*payloads: object) -> pa.Table:
    """A batch of payloads."""
    return event_table([Event(0, (number + 1) * SECOND, payload) for number, payload in enumerate(payloads)])


def test_one_pass_extracts_what_any_step_uses(calls: list[list[str]]) -> None:
    """Each step gets its own, and conditions and columns share."""
    script = program(SCRIPT)
    for number in range(3):
        prepared, bad = script.prepare("arrivals", events({"a": number, "b": 1, "c": 2}))
        assert [rows["value"].to_pylist() for _, rows in prepared] == [[b'{"a":%d}' % number], [b'{"c":2}'], [b'{"b":1}']]
        assert not bad.num_rows
    assert calls == [["b", "a", "c"]] * 3


def test_names_that_differ_in_case_are_read_apart() -> None:
    """A payload may have both members: each step reads the one that it spells."""
    fields, rows = EventFields(), events({"a": 1, "A": 2}, {"A": 3})
    assert fields.extract(rows, [A, B]).columns[A].of_kind(Kind.BIGINT).to_pylist() == [1, 3]
    assert fields.extract(rows, [UPPER_A]).columns[UPPER_A].of_kind(Kind.BIGINT).to_pylist() == [2, 3]


def test_a_step_without_fields_finds_no_payload_bad(calls: list[list[str]]) -> None:
    """Though another step over the same events does."""
    script = program("SELECT a INTO one FROM arrivals; SELECT System.Timestamp() AS at INTO two FROM arrivals")
    for _ in range(2):
        (one, two), bad = script.prepare("arrivals", events({"a": 1}, b"[]"))
        assert (one[1].num_rows, two[1].num_rows, bad["position"].to_pylist()) == (1, 2, [1])
    assert calls == [["a"], ["a"]]


def test_a_batch_is_forgotten_when_all_steps_have_read_it() -> None:
    """So the payloads of a batch do not stay in memory until the next one."""
    fields = EventFields(JSON)
    assert A in fields.extract(events({"a": 1}), [A]).columns
    fields.forget_events()
    assert fields.extract(events({"a": 2}), [A]).columns[A].of_kind(Kind.BIGINT).to_pylist() == [2]
