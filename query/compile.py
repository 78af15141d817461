"""
Plan -> something that runs: the operator of a plan behind four calls on Arrow tables.

The caller owns time and state. It hands events over in order (``prepare``), keeps the rows that come back, says which
instants have become final (``finish``), and forgets what is no longer needed (``expire``). No clock, no broker and no
engine beneath is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from query.operators.aggregate import WindowAggregation
from query.operators.base import BAD_SCHEMA, RESULT_SCHEMA, Operator, Ticks, concat_rows
from query.operators.project import Projection
from query.plan import Plan, WindowedAggregate
from tidegate.runtime.payloads.formats import JSON, PayloadFormat

__all__ = ["BAD_SCHEMA", "EVENTS_SCHEMA", "RESULT_SCHEMA", "CompiledQuery", "compile_plan"]

EVENTS_SCHEMA = pa.schema(
    [("position", pa.int64()), ("sub", pa.int64()), ("system_us", pa.int64()), ("partition_id", pa.int32()), ("value", pa.binary())]
)
"""
Events as ``prepare`` takes them, in order: ``position`` rises and is unique; ``sub`` is the dense number of the
substream, 0 for all without OVER; ``system_us`` is the system timestamp; ``value`` the payload.
"""


@dataclass(frozen=True)
class CompiledQuery:
    """
    A query ready to run.

    Args:
        plan: What it computes.
        operator: What computes it.
    """

    plan: Plan
    operator: Operator

    @property
    def windowed(self) -> bool:
        """Tell whether results are stamped at window ends rather than at their events."""
        return self.plan.windowed

    @property
    def lookback_us(self) -> int:
        """How long before an output instant events can still count for it, in microseconds."""
        return self.plan.lookback_us

    def prepare(self, events: pa.Table) -> tuple[pa.Table, pa.Table]:
        """
        Take events in order, apply WHERE, evaluate every row-level expression once.

        Args:
            events: See ``EVENTS_SCHEMA``.

        Returns:
            The rows to retain (position, sub, system_us and columns of the operator; a kind of value that does not occur
            has no column) and the rows that failed (``BAD_SCHEMA``), which are nowhere else.
        """
        return self.operator.prepare(events)

    def concat(self, retained: Sequence[pa.Table]) -> pa.Table:
        """Put retained tables together, in order; equals having prepared all their events at once."""
        return concat_rows(list(retained)) if retained else self.prepare(EVENTS_SCHEMA.empty_table())[0]

    def finish(self, retained: pa.Table, closing: pa.Table) -> pa.Table:
        """
        Compute the results that have become final.

        Args:
            retained: All rows retained and not expired.
            closing: ``sub``, ``from_us``, ``to_us``, one row per substream (one row with sub 0 without OVER): emit its
                results with from_us <= System.Timestamp < to_us. A CTI c makes final what lies below c.

        Returns:
            Results (``RESULT_SCHEMA``) of groups that have rows, ordered by (system_us, key bytes, keys, sub) or, without
            a window, by (system_us, position).
        """
        return self.operator.finish(retained, closing)

    def expire(self, retained: pa.Table, horizon: pa.Table) -> pa.Table:
        """
        Forget rows no later result can need.

        Args:
            retained: All rows retained.
            horizon: ``sub``, ``to_us``: no result below to_us will be asked for again. Other substreams keep their rows.
        """
        return self.operator.expire(retained, horizon)

    def first_end(self, system_us: Ticks) -> Ticks:
        """Return the earliest result instant that events at these system timestamps can count for."""
        return self.operator.first_end(system_us)

    def last_end(self, system_us: Ticks) -> Ticks:
        """Return the latest such instant; below :meth:`first_end` for an event that falls between windows."""
        return self.operator.last_end(system_us)


def compile_plan(plan: Plan, payloads: PayloadFormat = JSON) -> CompiledQuery:
    """Choose the operator that computes *plan* over events whose *payloads* are written so."""
    if isinstance(plan.root, WindowedAggregate):
        return CompiledQuery(plan, WindowAggregation(plan, plan.root, payloads))
    return CompiledQuery(plan, Projection(plan, plan.root, payloads))
