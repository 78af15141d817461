"""Instant rows: each gives results at its own instant and counts for no others, such as the rows of filters and projections."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from query.columns.large_tables import take_rows
from query.plan.operator import Operator
from query.plan.row_tables import Retained, Ticks, by_substream, in_slice, only_side, ticks


class InstantRows(Operator):
    """The common part of operators over instant rows."""

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        return instant_us, instant_us

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows with from_us <= system_us < to_us, ordered by (system_us, position)."""
        return due_rows(only_side(retained), closing).drop_columns(["position"])

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        return retained.filter(pa.array(ticks(retained, "system_us") >= by_substream(ticks(retained, "sub"), horizon, "to_us")))


def due_rows(retained: pa.Table, closing: pa.Table) -> pa.Table:
    """Return the rows with from_us <= system_us < to_us of their substream, ordered by (system_us, position)."""
    system_us = ticks(retained, "system_us")
    rows: Ticks = np.flatnonzero(in_slice(ticks(retained, "sub"), system_us, closing))
    rows = rows[np.lexsort((ticks(retained, "position")[rows], system_us[rows]))]
    return take_rows(retained, rows)
