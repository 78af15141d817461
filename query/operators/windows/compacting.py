"""
Compacting: retained rows of an aggregate become fewer rows long before their windows end.

A *pane* is the longest piece of time that no window start or end divides, so rows of one group in one pane belong to the same windows: they
are one *cell*. If states make all aggregates (:mod:`query.operators.windows.aggregate_states`), the rows of a cell become one row at the
end of its pane, with their states in place of their values. The cells of sessions lie at the instants at which their rows can meet
(:func:`query.operators.windows.sessions.meeting_instants`).

If all aggregates are TopOne or CollectTop, the rows of a group and cell that come first in their orders stand for all of them
(:func:`keep_top_rows`).

Law: states add up exactly, and the first rows of a window are among the first rows of its cells; so no result depends on which rows were
put together or dropped, or when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import gcd

import numpy as np
import pyarrow as pa

from query.operators.rows.ranks import order_places
from query.operators.rows.row_groups import group_numbers
from query.operators.windows.framing import collect_states, number_groups
from query.operators.windows.sessions import meeting_instants
from query.plan.local_windows import LocalWindow
from query.plan.row_tables import Ticks, ticks
from query.plan.windows import AnyWindow, Session, Window
from tidegate.language.expressions.tree import Aggregate
from tidegate.language.expressions.variant import from_columns

# Fewer rows are not compacted: it is not worth the work.
COMPACTED_FROM = 4_096
# How many rows must become one, on average: a row of states is larger than a row of values.
SAVING = 2


def cell_grid(windows: Sequence[AnyWindow]) -> Window | None:
    """
    Return the tumbling window whose multiples all *windows* are; None if they have no fixed ends, or not those of one clock, or if it is
    one tick long.
    """
    fixed = [window for window in windows if isinstance(window, Window)]
    zones = {window.zone if isinstance(window, LocalWindow) else None for window in fixed}
    if len(fixed) < len(windows) or len(zones) > 1:
        return None
    offset_us, zone = fixed[0].offset_us, zones.pop()
    step_us = reduce(gcd, (length for window in fixed for length in (window.size_us, window.hop_us, window.offset_us - offset_us)))
    if step_us == 1:
        return None
    # A local division by a part of a length ends wherever one by the length ends: where the clock is changed, too.
    step = (step_us, step_us, offset_us % step_us)
    return Window(*step) if zone is None else LocalWindow(*step, zone=zone)


def compact_rows(
    rows: pa.Table, cells: Window | Session, key_count: int, totals: Sequence[Aggregate], numbers: Sequence[int | None]
) -> pa.Table:
    """Merge the rows of each group and cell; some may be merged already. See :func:`merge_rows`."""
    if rows.num_rows < COMPACTED_FROM:
        return rows
    system_us = ticks(rows, "system_us")
    if isinstance(cells, Session):
        of_session = group_numbers(ticks(rows, "sub"), [from_columns(rows, f"g{key}") for key in cells.partition])
        cell, count = meeting_instants(of_session, system_us, cells)
        # Rows further apart than the timeout stay as they are: adding up would cost more and save nothing.
        return merge_rows(rows, cell, key_count, totals, numbers) if SAVING * count <= rows.num_rows else rows
    return merge_rows(rows, cells.pane_end(system_us), key_count, totals, numbers)


def keep_top_rows(rows: pa.Table, grid: Window, key_count: int, totals: Sequence[Aggregate], values: Sequence[Sequence[int]]) -> pa.Table:
    """
    Return the rows of each group and cell of *grid* that TopOne or CollectTop of a window may pick, in their order.

    *values* are the numbers of the values that each aggregate is made of: what it returns, then its ORDER BY.
    """
    if rows.num_rows < COMPACTED_FROM:
        return rows
    system_us = ticks(rows, "system_us")
    cell = grid.pane_end(system_us)
    group = group_numbers(ticks(rows, "sub"), [from_columns(rows, f"g{key}") for key in range(key_count)])
    is_kept = np.zeros(rows.num_rows, dtype=np.bool_)
    # Aggregates that differ only in the value that they return of a row pick the same rows.
    orders = {replace(total, arg=None): numbers[len(numbers) - len(total.order) :] for total, numbers in zip(totals, values, strict=True)}
    for total, numbers in orders.items():
        order = [from_columns(rows, f"v{number}") for number in numbers]
        place = order_places(list(zip(order, (descending for _, descending in total.order), strict=True)))
        # Among equals the earlier row comes first, as when windows are computed.
        ordered = np.lexsort((system_us, place, cell, group))
        begins = np.append(True, (np.diff(group[ordered]) != 0) | (np.diff(cell[ordered]) != 0))
        rank = np.arange(rows.num_rows) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        is_kept[ordered[rank < (1 if total.parameter is None else int(total.parameter))]] = True
    return rows if is_kept.all() else rows.filter(pa.array(is_kept))


def merge_rows(rows: pa.Table, cell: Ticks, key_count: int, totals: Sequence[Aggregate], numbers: Sequence[int | None]) -> pa.Table:
    """Return a row with states for each group and *cell*, an instant of each row; the rows themselves if that saves little."""
    group, groups = number_groups(rows, key_count)
    placed = rows.append_column("group", pa.array(group)).append_column("cell", pa.array(cell))
    cells, states = collect_states(placed, totals, numbers, ("cell", "group"))
    if SAVING * cells.num_rows > rows.num_rows:
        return rows
    owners = groups.take(cells["group"])
    columns = {"sub": owners["sub"], "system_us": cells["cell"], **{name: owners[name] for name in owners.column_names if name != "sub"}}
    return pa.table({**columns, **{state.name: cells[state.name] for state in states}})
