"""
Plan node -> the operator that computes it.

:class:`CompiledQuery` is a query of one operator behind three calls on Arrow tables; :mod:`query.engine.program` puts many together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from query.operators.analytic.analysis import Analysis
from query.operators.joins.reference_join import ReferenceTableJoin
from query.operators.joins.temporal_join import TemporalJoin
from query.operators.rows.apply import Expansion
from query.operators.rows.project import EncodedProjection, Projection
from query.operators.rows.union import UnionOfRows
from query.operators.windows.windowed_aggregate import WindowAggregation
from query.plan.nodes import Analyze, Apply, Custom, Join, Plan, Project, ReferenceJoin, Rows, Union, WindowedAggregate
from query.plan.operator import Operator
from query.plan.row_tables import BAD_SCHEMA, RESULT_SCHEMA, concat_rows, encode_rows, split_failed
from query.reference.tables import NO_REFERENCES, ReferenceTable
from tidegate.payloads.formats import JSON, PayloadFormat

__all__ = ["BAD_SCHEMA", "EVENTS_SCHEMA", "RESULT_SCHEMA", "CompiledQuery", "compile_plan", "make_operator"]

EVENTS_SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("sub", pa.int64()),
        ("system_us", pa.int64()),
        ("partition_id", pa.int32()),
        ("value", pa.binary()),
        ("arrival_us", pa.int64()),
    ]
)
"""
Events as operators take them, in order: ``position`` rises and is unique; ``sub`` is the dense number of the
substream, 0 for all without OVER; ``system_us`` is the system timestamp; ``value`` the payload; ``arrival_us`` the
arrival time.
"""


def make_operator(
    node: Rows, payloads: PayloadFormat = JSON, *, is_last: bool = False, references: Mapping[str, ReferenceTable] = NO_REFERENCES
) -> Operator:
    """
    Return the operator that computes a node.

    Args:
        node: The node.
        payloads: How payloads are written, where the node takes events.
        is_last: Whether it takes events and nothing but its encoded results are asked for.
        references: The tables of reference data, by name.
    """
    if isinstance(node, WindowedAggregate):
        return WindowAggregation(node, payloads)
    if isinstance(node, Union):
        return UnionOfRows(node)
    if isinstance(node, Join):
        return TemporalJoin(node)
    if isinstance(node, ReferenceJoin):
        return ReferenceTableJoin(node, references[node.name])
    if isinstance(node, Analyze):
        return Analysis(node)
    if isinstance(node, Apply):
        return Expansion(node)
    if isinstance(node, Custom):
        return node.operator
    assert isinstance(node, Project), f"no operator for {node.describe()}"
    return EncodedProjection(node, payloads) if is_last else Projection(node, payloads)


@dataclass(frozen=True)
class CompiledQuery:
    """
    A query of one operator over events, ready to run.

    Args:
        plan: What it computes.
        operator: What computes it.
    """

    plan: Plan
    operator: Operator

    @property
    def lookback_us(self) -> int:
        """How long before an output instant events can still count for it, in microseconds."""
        return self.plan.lookback_us

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
    return CompiledQuery(plan, make_operator(plan.root, payloads, is_last=True))
