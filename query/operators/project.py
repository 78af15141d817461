"""
Projection without a window: each event that passes WHERE gives one result at its own system timestamp.

Results are encoded when the event comes and held until their instant is certain, in the order of events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from query.encode import encode_keys, encode_objects
from query.operators.base import RESULT_SCHEMA, Ticks, by_substream, ticks
from query.operators.rows import RowStage
from query.plan import Plan, Project
from tidegate.runtime.payloads.formats import JSON, PayloadFormat


@dataclass(frozen=True)
class Projection:
    """The operator of a :class:`query.plan.Project`; without columns the payload passes as it is."""

    plan: Plan
    project: Project
    payloads: PayloadFormat = JSON

    def prepare(self, events: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return position, sub, system_us and the encoded key and value of the rows kept, and the bad rows."""
        over = () if self.plan.over is None else (self.plan.over,)
        exprs = tuple(column.expr for column in self.project.columns)
        kept, columns, bad = RowStage(self.plan.predicate, (*over, *exprs), self.payloads).apply(events)
        count = kept.num_rows
        names = [column.name for column in self.project.columns]
        value = encode_objects(names, columns[len(over) :], count) if names else kept["value"].cast(pa.binary())
        retained = {name: kept[name] for name in ("position", "sub", "system_us")}
        return pa.table({**retained, "key": encode_keys(columns[: len(over)], count), "value": value}), bad

    def finish(self, retained: pa.Table, closing: pa.Table) -> pa.Table:
        """Return the results with from_us <= system_us < to_us, ordered by (system_us, position)."""
        subs, system_us = ticks(retained, "sub"), ticks(retained, "system_us")
        due = (system_us >= by_substream(subs, closing, "from_us", 0)) & (system_us < by_substream(subs, closing, "to_us", 0))
        rows = np.flatnonzero(due)
        rows = rows[np.lexsort((ticks(retained, "position")[rows], system_us[rows]))]
        return retained.take(pa.array(rows)).select(RESULT_SCHEMA.names).cast(RESULT_SCHEMA)

    def expire(self, retained: pa.Table, horizon: pa.Table) -> pa.Table:
        """Return the rows with system_us >= to_us."""
        subs = ticks(retained, "sub")
        return retained.filter(pa.array(ticks(retained, "system_us") >= by_substream(subs, horizon, "to_us", 0)))

    def first_end(self, system_us: Ticks) -> Ticks:
        """Return the event's own instant."""
        return system_us

    def last_end(self, system_us: Ticks) -> Ticks:
        """Return the event's own instant."""
        return system_us
