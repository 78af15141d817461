"""
Instant rows: each gives results at its own instant and has a part in no others, as the rows of filters and projections.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from query.columns.large_tables import take_rows
from query.plan.operator import Operator
from query.plan.row_tables import Ticks, by_substream, ticks


class InstantRows(Operator):
    """What operators with such rows share."""

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        """Return its own instant twice: a row gives results at its own time, and has a part in no others."""
        return instant_us, instant_us

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows with system_us >= to_us of their substream."""
        return retained.filter(pa.array(ticks(retained, "system_us") >= by_substream(ticks(retained, "sub"), horizon, "to_us", 0)))


def due_rows(retained: pa.Table, closing: pa.Table) -> pa.Table:
    """Return the rows with from_us <= system_us < to_us of their substream, ordered by (system_us, position)."""
    subs, system_us = ticks(retained, "sub"), ticks(retained, "system_us")
    due = (system_us >= by_substream(subs, closing, "from_us", 0)) & (system_us < by_substream(subs, closing, "to_us", 0))
    rows: Ticks = np.flatnonzero(due)
    rows = rows[np.lexsort((ticks(retained, "position")[rows], system_us[rows]))]
    return take_rows(retained, rows)
