"""
The row stage, with which operators begin: extract fields from payloads, apply WHERE, compute expressions over single rows once.

A row fails, and becomes a dead letter of the query, if its payload is unusable, if a condition fails on it, or if it passes all conditions
and an expression fails on it. The first reason counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from query.columns.encode import encode_objects
from query.columns.large_tables import combine_column
from query.operators.rows.event_fields import EventFields
from query.plan.row_tables import BAD_SCHEMA
from tidegate.basics.dead_letter_reasons import ReasonText
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.field_columns import FieldColumns
from tidegate.language.expressions.functions.column_functions import FailedRows
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import (
    Arrival,
    EventId,
    Expr,
    Field,
    Header,
    PartitionId,
    Payload,
    RecordOffset,
    Slot,
    SystemTimestamp,
)
from tidegate.language.expressions.variant import Variant, from_columns


class StageRows(NamedTuple):
    """What a stage makes of rows: those that pass, a column for each expression over them, and the bad rows (``BAD_SCHEMA``)."""

    kept: pa.Table
    columns: list[Variant]
    bad: pa.Table


@dataclass(frozen=True)
class RowStage:
    """The conditions of WHERE, evaluated one after the other, and the expressions to compute for each row that passes all of them."""

    predicates: tuple[Expr, ...]
    exprs: tuple[Expr, ...]
    fields: EventFields = dataclass_field(default_factory=EventFields)
    # Whether the events that pass are returned with their payloads, whose bytes are then copied.
    keeps_payload: bool = False

    def apply(self, events: pa.Table) -> StageRows:
        """
        Evaluate events, or rows of another operator.

        Raises:
            TooMuchAtOnce: The values might be too large for memory together; half of the rows may fit.
        """
        count = events.num_rows
        leaves, reasons = self._leaves(events)
        is_alive = np.ones(count, dtype=np.bool_)
        is_alive[list(reasons)] = False
        for predicate in self.predicates:
            rows = np.flatnonzero(is_alive)
            (verdict,), failures = evaluate([predicate], _alive_columns(leaves, [predicate], is_alive), len(rows), can_split=True)
            _note_failures(reasons, failures, rows)
            is_alive[rows] = pc.fill_null(verdict.of_kind(Kind.BIT), False).to_numpy(zero_copy_only=False)
            is_alive[list(reasons)] = False
        rows = np.flatnonzero(is_alive)
        columns, failures = evaluate(self.exprs, _alive_columns(leaves, self.exprs, is_alive), len(rows), can_split=True)
        _note_failures(reasons, failures, rows)
        if failures:
            has_passed = np.ones(count, dtype=np.bool_)
            has_passed[list(reasons)] = False
            columns = [column.filter_rows(has_passed[rows]) for column in columns]
            rows = rows[has_passed[rows]]
        kept = events if self.keeps_payload or "value" not in events.column_names else events.drop_columns(["value"])
        return StageRows(kept if len(rows) == count else kept.take(pa.array(rows)), columns, _bad_rows(events, reasons))

    def _leaves(self, events: pa.Table) -> tuple[dict[Expr, Variant], dict[int, ReasonText]]:
        wanted = dict.fromkeys(leaf for expr in (*self.predicates, *self.exprs) for leaf in expr.leaves())
        fields = [leaf for leaf in wanted if isinstance(leaf, Field)]
        if Payload() in wanted:
            fields = list(dict.fromkeys([*fields, *self._payload_fields()]))
        extracted = self.fields.extract(events, fields)
        leaves: dict[Expr, Variant] = {leaf: self._leaf(leaf, events, extracted) for leaf in wanted}
        return leaves, dict(zip(extracted.bad_rows.tolist(), extracted.reasons, strict=True))

    def _leaf(self, leaf: Expr, events: pa.Table, extracted: FieldColumns) -> Variant:
        count = events.num_rows
        if isinstance(leaf, Field):
            return extracted.columns[leaf]
        if isinstance(leaf, SystemTimestamp):
            return Variant.of(count, {Kind.DATETIME: events["system_us"]})
        if isinstance(leaf, Arrival):
            return Variant.of(count, {Kind.DATETIME: events["arrival_us"]})
        if isinstance(leaf, PartitionId):
            return Variant.of(count, {Kind.BIGINT: events["partition_id"].cast(pa.int64())})
        if isinstance(leaf, RecordOffset):
            return Variant.of(count, {Kind.BIGINT: events["offset"]})
        if isinstance(leaf, EventId):
            parts = (combine_column(events[name]).cast(pa.string()) for name in ("partition_id", "offset"))
            return Variant.of(count, {Kind.NVARCHAR: pc.binary_join_element_wise(*parts, ":")})
        if isinstance(leaf, Header):
            return Variant.of(count, {Kind.NVARCHAR: self.fields.header(events, leaf.name)})
        if isinstance(leaf, Slot):
            return from_columns(events, f"s{leaf.index}")
        assert isinstance(leaf, Payload), f"rows have no {leaf}"
        if leaf.names:
            return _encode_records(leaf.names, [self._leaf(column, events, extracted) for column in leaf.columns], count)
        if csv_columns := self.fields.payloads.csv_columns:
            return _encode_records(csv_columns, [extracted.columns[field] for field in self._payload_fields()], count)
        return extracted.columns[_PAYLOAD]

    def _payload_fields(self) -> list[Field]:
        """Return the fields of a payload as a record: the values of a CSV record, else the value at the empty path."""
        return [Field((name,)) for name in self.fields.payloads.csv_columns] or [_PAYLOAD]


_PAYLOAD = Field(())


def _encode_records(names: Sequence[str], values: Sequence[Variant], length: int) -> Variant:
    return Variant.of(length, {Kind.RECORD: encode_objects(names, values, length).cast(pa.string())})


def _alive_columns(leaves: dict[Expr, Variant], exprs: Sequence[Expr], mask: Mask) -> dict[Expr, Variant]:
    """Return the leaves of *exprs* in some of the rows."""
    return {leaf: leaves[leaf].filter_rows(mask) for expr in exprs for leaf in expr.leaves()}


def _note_failures(reasons: dict[int, ReasonText], failures: Iterable[FailedRows], rows: Ints) -> None:
    for failure in failures:
        for row in rows[failure.rows].tolist():
            reasons.setdefault(row, failure.reason)


def _bad_rows(events: pa.Table, reasons: dict[int, ReasonText]) -> pa.Table:
    rows = sorted(reasons)
    positions = events["position"].take(pa.array(rows, pa.int64())).combine_chunks()
    return pa.table({"position": positions, "reason": pa.array([reasons[row] for row in rows], pa.string())}, schema=BAD_SCHEMA)
