"""Running compiled queries in tests: events as tables, and the walk of a job that knows no clock and no broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from support.query_oracle import Event

from query.columns.events import EVENTS_SCHEMA
from query.engine.compile import make_operator
from query.engine.program import Program
from query.engine.retention import Retention
from query.operators.rows.event_fields import EventFields
from query.operators.rows.project import EncodedProjection
from query.plan.nodes import Plan
from query.plan.operator import Operator
from query.plan.row_tables import RESULT_SCHEMA, concat_rows, encode_rows, split_failed
from query.sql.bind import bind_outputs, bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.records.payloads.formats import JSON, PayloadFormat

SECOND = 1_000_000
END_US = 2**62
ARRIVALS = InputSchema("arrivals")
FLIGHTS = InputSchema("flights", timestamp_by="scheduled", over="origin")


@dataclass(frozen=True)
class CompiledQuery:
    """
    A query of one operator over events, without the program that production puts around it.

    Args:
        plan: What it computes.
        operator: What computes it.
    """

    plan: Plan
    operator: Operator

    def prepare(self, events: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Take events in order (``EVENTS_SCHEMA``); return what to retain and the rows that failed (``BAD_SCHEMA``)."""
        return self.operator.prepare(events)

    def concat(self, retained: Sequence[pa.Table]) -> pa.Table:
        """Put retained tables together, in order; equals having prepared all their events at once."""
        return concat_rows(list(retained)) if retained else self.prepare(EVENTS_SCHEMA.empty_table())[0]

    def finish(self, retained: pa.Table, closing: pa.Table) -> pa.Table:
        """Return the results (``RESULT_SCHEMA``) with from_us <= System.Timestamp < to_us of each substream in *closing*."""
        if isinstance(self.operator, EncodedProjection):
            return self.operator.encoded([retained], closing)
        rows, _ = split_failed(self.operator.rows([retained], closing))
        return encode_rows(rows, [column.name for column in self.plan.root.columns])

    def expire(self, retained: pa.Table, horizon: pa.Table) -> pa.Table:
        """Return the rows that a result at or after ``to_us`` of their substream can need."""
        return self.operator.expire(retained, horizon)


def compile_plan(plan: Plan, payloads: PayloadFormat = JSON) -> CompiledQuery:
    """Return a plan of one operator over events, whose *payloads* are written so, ready to run."""
    return CompiledQuery(plan, make_operator(plan.root, EventFields(payloads), is_last=True))


def compiled(sql: str, *inputs: InputSchema) -> CompiledQuery:
    """Compile a script whose output is named ``out``."""
    return compile_plan(bind_script(parse_script(sql, "q.sql"), inputs or (ARRIVALS, FLIGHTS), into="out"))


def program(sql: str, *inputs: InputSchema) -> Program:
    """The same script as the operators of a bucket."""
    return Program(bind_outputs(parse_script(sql, "q.sql"), inputs or (ARRIVALS, FLIGHTS), into="out"))


def finish(program: Program, retention: Retention, closing: pa.Table) -> list[pa.Table]:
    """The results of a finished slice of time, a table for each output."""
    nothing = [RESULT_SCHEMA.empty_table()] * len(program.outputs)
    return [pa.concat_tables(tables) for tables in zip(nothing, *program.finish(retention, closing), strict=True)]


def event_table(events: Sequence[Event], first: int = 0) -> pa.Table:
    """Events as the engine takes them, positions counted from *first*."""
    columns = {
        "position": range(first, first + len(events)),
        "sub": [event.sub for event in events],
        "system_us": [event.system_us for event in events],
        "partition_id": [0] * len(events),
        "offset": range(first, first + len(events)),
        "value": [event.bytes for event in events],
        "arrival_us": [event.system_us if event.arrival_us is None else event.arrival_us for event in events],
    }
    return pa.table({name: pa.array(columns[name], EVENTS_SCHEMA.field(name).type) for name in EVENTS_SCHEMA.names})


def slices(per_sub: Mapping[int, Sequence[int]], *names: str) -> pa.Table:
    """A table of times per substream: ``times({0: (1, 5)}, "from_us", "to_us")``."""
    columns = {"sub": list(per_sub)} | {name: [values[at] for values in per_sub.values()] for at, name in enumerate(names)}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def answers(query: CompiledQuery, events: Sequence[Event], low: int = 0, high: int = END_US) -> list[dict[str, Any]]:
    """All results with low <= System.Timestamp < high, in order."""
    retained, _ = query.prepare(event_table(events))
    subs = sorted({event.sub for event in events}) or [0]
    return query.finish(retained, slices(dict.fromkeys(subs, (low, high)), "from_us", "to_us")).to_pylist()


def values(sql: str, payloads: Sequence[Any], *inputs: InputSchema) -> list[str]:
    """The values a script gives for payloads that come one second apart, from second 1."""
    events = [Event(0, (at + 1) * SECOND, payload) for at, payload in enumerate(payloads)]
    return [row["value"].decode() for row in answers(compiled(sql, *inputs), events)]


def reasons(sql: str, payloads: Sequence[Any], *inputs: InputSchema) -> list[tuple[int, str]]:
    """Position and reason of the rows that fail."""
    events = [Event(0, (at + 1) * SECOND, payload) for at, payload in enumerate(payloads)]
    _, bad = compiled(sql, *inputs).prepare(event_table(events))
    return [(row["position"], row["reason"]) for row in bad.to_pylist()]
