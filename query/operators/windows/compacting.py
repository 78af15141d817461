"""
Compacting: retained rows of an aggregate become fewer rows long before their windows end.

A *cell* is the longest piece of time that no window start or end divides, so rows of one group in one cell belong to the same windows. If
states make all aggregates (:mod:`query.operators.windows.aggregate_states`), these rows become one row at the end of the cell, with their
states in place of their values.

Law: states add up exactly, so no result depends on which rows were put together, or when.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import gcd

import pyarrow as pa

from query.operators.windows.framing import collect_states, number_groups
from query.plan.row_tables import Ticks, ticks
from query.plan.windows import AnyWindow, Window
from tidegate.expressions.tree import Aggregate

# Fewer rows are not compacted: it is not worth the work.
COMPACTED_FROM = 4_096
# How many rows must become one, on average: a row of states is larger than a row of values.
SAVING = 2


def cell_grid(windows: Sequence[AnyWindow]) -> Window | None:
    """Return the tumbling window whose multiples all *windows* are; None if they have no fixed ends, or if it is one tick long."""
    fixed = [window for window in windows if isinstance(window, Window)]
    if len(fixed) < len(windows):
        return None
    offset_us = fixed[0].offset_us
    step_us = reduce(gcd, (length for window in fixed for length in (window.size_us, window.hop_us, window.offset_us - offset_us)))
    return Window(step_us, step_us, offset_us) if step_us > 1 else None


def compact_rows(rows: pa.Table, grid: Window, keys: int, totals: Sequence[Aggregate], numbers: Sequence[int | None]) -> pa.Table:
    """Merge the rows of each group and cell of *grid*; some may be merged already. See :func:`merge_rows`."""
    if rows.num_rows < COMPACTED_FROM:
        return rows
    return merge_rows(rows, grid.pane_end(ticks(rows, "system_us")), keys, totals, numbers)


def merge_rows(rows: pa.Table, cell: Ticks, keys: int, totals: Sequence[Aggregate], numbers: Sequence[int | None]) -> pa.Table:
    """Return a row with states for each group and *cell*, an instant of each row; the rows themselves if that saves little."""
    group, groups = number_groups(rows, keys)
    placed = rows.append_column("group", pa.array(group)).append_column("cell", pa.array(cell))
    cells, states = collect_states(placed, totals, numbers, 'cell, "group"')
    if SAVING * cells.num_rows > rows.num_rows:
        return rows
    owners = groups.take(cells["group"])
    columns = {"sub": owners["sub"], "system_us": cells["cell"], **{name: owners[name] for name in owners.column_names if name != "sub"}}
    return pa.table({**columns, **{state.name: cells[state.name] for state in states}})
