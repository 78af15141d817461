"""
Running whole scripts in tests: events of several inputs go through all operators, time being cut wherever a test wants it.

The walk is that of a bucket, without broker and clock: events are prepared in order as they become final, then the slice
of time is finished. Retained rows are saved and restored between slices, as a bucket's are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from support.query_oracle import Event
from support.query_runs import END_US, event_table, finish, slices

from query.engine.program import Program
from query.engine.retention import Retention
from query.operators.joins.pair_limits import JOIN_PAIRS_MAX
from query.plan.nodes import Plan
from query.reference.tables import ReferenceTable
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import Script, parse_script
from tidegate.records.payloads.formats import PayloadFormat

Row = tuple[int, bytes, bytes]
"""System timestamp, key and value of a result."""


@dataclass
class Answers:
    """What a script gave: for each output the results of each substream in order, and the reasons of what failed."""

    results: dict[str, dict[int, list[Row]]]
    reasons: list[str]

    def values(self, output: str = "out", sub: int = 0) -> list[str]:
        """The values of one output."""
        return [value.decode() for _, _, value in self.results[output].get(sub, [])]

    def times(self, output: str = "out", sub: int = 0) -> list[int]:
        """The system timestamps of one output, microseconds."""
        return [system_us for system_us, _, _ in self.results[output].get(sub, [])]


def program_of(
    sql: str | Script,
    inputs: Sequence[InputSchema],
    references: Sequence[ReferenceTable] = (),
    join_pairs_max: int = JOIN_PAIRS_MAX,
    payloads: Mapping[str, PayloadFormat] = MappingProxyType({}),
    **settings: Any,
) -> Program:
    """Compile a script; its only output may be left out, and is then called ``out``."""
    plans = _plans_of(sql, [*inputs, *(table.schema for table in references)], settings)
    return Program(plans, payloads, references={table.schema.name: table for table in references}, join_pairs_max=join_pairs_max)


_bound: dict[str, dict[str, tuple[Plan, ...]]] = {}


def _plans_of(sql: str | Script, schemas: Sequence[InputSchema], settings: Mapping[str, Any]) -> tuple[Plan, ...]:
    """Bind a script once for all examples of a test: plans never change, and binding takes longer than running a few rows."""
    test = os.environ["PYTEST_CURRENT_TEST"]  # another one may change what a name stands for
    if test not in _bound:
        _bound.clear()
    plans, asked = _bound.setdefault(test, {}), repr((sql if isinstance(sql, str) else sql.source, schemas, sorted(settings.items())))
    if asked not in plans:
        parsed = parse_script(sql, "q.sql") if isinstance(sql, str) else sql
        into = None if "INTO" in parsed.source.text.upper() else "out"
        plans[asked] = bind_outputs(parsed, schemas, into=into, **settings)
    return plans[asked]


def answers_of(
    sql: str | Script,
    events: Mapping[str, Sequence[Event]],
    cuts: Sequence[int] = (),
    *,
    start_us: int = 0,
    schemas: Sequence[InputSchema] = (),
    **settings: Any,
) -> Answers:
    """
    Run a script to its end.

    Args:
        sql: The script.
        events: The events of each input, each list in order of time; an input without schema has none.
        cuts: Instants up to which time is finished, one after the other, before everything is.
        start_us: No result below this is asked for.
        schemas: What is known of inputs.
        settings: The tables of reference data, as ``references``; the formats of inputs, as ``payloads``; further arguments of
            ``bind_outputs``.
    """
    named = {schema.name for schema in schemas}
    program = program_of(sql, [*schemas, *(InputSchema(name) for name in events if name not in named)], **settings)
    answers = Answers({plan.output: {} for plan in program.plans}, [])
    retention = Retention()
    subs = sorted({event.sub for each in events.values() for event in each}) or [0]
    program.start_us = start_us
    done, position = 0, 0
    for cut in [*sorted(cuts), END_US]:
        for name, each in events.items():
            due = [event for event in each if done <= event.system_us < cut]
            prepared, bad = program.prepare(name, event_table(due, position))
            position += len(due)
            answers.reasons += bad["reason"].to_pylist()
            for kept, rows in prepared:
                retention.add(kept, rows)
        found = finish(program, retention, slices(dict.fromkeys(subs, (done, cut)), "from_us", "to_us"))
        done = cut
        answers.reasons += [reason for _, _, reason in program.bad]
        program.bad = []
        for plan, results in zip(program.plans, found, strict=True):
            _collect(answers.results[plan.output], results)
        retention = _save_and_restore(program, retention, slices(dict.fromkeys(subs, (done,)), "to_us"))
    answers.reasons.sort()
    return answers


def _collect(into: dict[int, list[Row]], results: pa.Table) -> None:
    for row in results.to_pylist():
        into.setdefault(row["sub"], []).append((row["system_us"], row["key"], row["value"]))


_SAVED: dict[int, dict[int, bytes]] = {}


def _save_and_restore(program: Program, retention: Retention, horizon: pa.Table) -> Retention:
    """Return what a bucket would have after it was saved and came back."""
    chunks = _SAVED.setdefault(id(program), {})
    changes = retention.save(program.compact_rows)
    for number in changes.delete:
        chunks.pop(number, None)
    chunks.update(changes.put)
    found = Retention.restore(retention.head(), chunks)
    program.forget(found, horizon)
    return found
