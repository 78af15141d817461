"""
From cells to windows: each window's state is that of a run of cells of its group (:mod:`query.operators.windows.cell_runs`).

A sum over a run is the difference of two running sums - exact, because every sum here is one of integers - and an extreme
over a run comes from a table of extremes over runs of 1, 2, 4, ... cells. So the cost is that of the cells and of the
results; it does not grow with the number of windows an event belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from query.operators.windows.aggregate_states import State
from query.operators.windows.cell_runs import Runs
from query.plan.row_tables import ticks
from tidegate.expressions.variant import valid_mask

Ints = npt.NDArray[np.int64]


def merge_cells(cells: pa.Table, groups: Sequence[str], states: Sequence[State], runs: Runs) -> pa.Table:
    """
    Return per run: system_us, the groups, the states, and where cells have them the numbers of the first and the last row.

    Args:
        cells: The groups and the states of cells, sorted by group, then time.
        groups: The columns that tell groups apart.
        states: The state columns and how they merge.
        runs: The windows.
    """
    first = pa.array(runs.first)
    columns = {"system_us": pa.array(runs.end_us), **{name: cells[name].take(first) for name in groups}}
    if "first_row" in cells.column_names:
        columns |= {"first_row": cells["first_row"].take(first), "last_row": cells["last_row"].take(pa.array(runs.last))}
    return pa.table(columns | merge_states(cells, states, runs))


def merge_states(cells: pa.Table, states: Sequence[State], runs: Runs) -> dict[str, pa.Array]:
    """Return the states of each run; a run may be without cells: its last is then one below its first."""
    return {
        state.name: _added(cells[state.name], runs) if state.merge == "add" else _extreme(cells[state.name], runs, state.merge)
        for state in states
    }


def add_row_numbers(cells: pa.Table) -> pa.Table:
    """Add the numbers of each cell's first and last row, where rows are sorted as cells are; ``n`` counts a cell's rows."""
    counts = ticks(cells, "n")
    ends = np.cumsum(counts)
    return cells.append_column("first_row", pa.array(ends - counts)).append_column("last_row", pa.array(ends - 1))


def _added(column: pa.ChunkedArray, runs: Runs) -> pa.Array:
    running = np.concatenate([[0], np.cumsum(column.to_numpy())])
    return pa.array(running[runs.last + 1] - running[runs.first])


def _extreme(column: pa.ChunkedArray, runs: Runs, function: str) -> pa.Array:
    """Return the least or greatest value of each run, null where a run has none."""
    values = column.combine_chunks()
    valid = valid_mask(values)
    having = np.concatenate([[0], np.cumsum(valid)])
    some = having[runs.last + 1] > having[runs.first]
    # Ranks stand for values of any type: order is all that counts.
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    where = np.zeros(int(ranks.max(initial=0)) + 1, dtype=np.int64)
    where[ranks] = np.arange(len(ranks))
    if function == "max":
        ranks = -ranks
    ranks[~valid] = np.iinfo(np.int64).max
    best = np.abs(_least(ranks, runs)[some])
    chosen = np.zeros(len(some), dtype=np.int64)
    chosen[some] = where[best]
    return values.take(pa.array(chosen, mask=~some))


def _least(ranks: Ints, runs: Runs) -> Ints:
    found = np.zeros(len(runs.first), dtype=np.int64)
    lengths = runs.last - runs.first + 1
    for level, table in enumerate(_doublings(ranks, int(lengths.max(initial=1)))):
        mine = np.flatnonzero((lengths >> level) == 1)
        found[mine] = np.minimum(table[runs.first[mine]], table[runs.last[mine] - (1 << level) + 1])
    return found


def _doublings(ranks: Ints, longest: int) -> Iterator[Ints]:
    """Yield tables of the least rank of runs of 1, 2, 4, ... cells, by their first cell."""
    table = ranks
    width = 1
    while width <= longest:
        yield table
        table = np.minimum(table[: len(table) - width], table[width:]) if len(table) > width else table
        width *= 2
