"""
From cells to windows: the state of a window is that of a run of cells of its group (:mod:`query.operators.windows.cell_runs`).

A sum over a run is the difference of two running sums of integers, which is exact. An extreme over a run comes from a table of extremes
over runs of 1, 2, 4, ... cells. So the cost grows with the cells and the results, not with the number of windows per event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from query.columns.large_tables import check_repeated
from query.operators.windows.aggregate_states import AggregateState
from query.operators.windows.cell_runs import Runs
from query.plan.row_tables import ticks
from tidegate.language.expressions.variant import valid_mask


def merge_cells(cells: pa.Table, groups: Sequence[str], states: Sequence[AggregateState], runs: Runs) -> pa.Table:
    """
    Return for each run system_us, the groups, the states, and if cells have them the numbers of the first and the last row.

    *cells* have the columns *groups* and the states, and are sorted by group, then time; *runs* are the windows.

    Raises:
        TooMuchAtOnce: The texts of all states together are too large: merge fewer runs.
    """
    first = pa.array(runs.first)
    columns = {"system_us": pa.array(runs.end_us), **{name: cells[name].take(first) for name in groups}}
    if "first_row" in cells.column_names:
        columns |= {"first_row": cells["first_row"].take(first), "last_row": cells["last_row"].take(pa.array(runs.last))}
    return pa.table(columns | merge_states(cells, states, runs))


def merge_states(cells: pa.Table, states: Sequence[AggregateState], runs: Runs) -> dict[str, pa.Array]:
    """Return the states of each run. A run without cells has last = first - 1."""
    return {
        state.name: _sum_runs(cells[state.name], runs) if state.merge == "add" else _extreme_of_runs(cells[state.name], runs, state.merge)
        for state in states
    }


def add_row_numbers(cells: pa.Table) -> pa.Table:
    """Add the numbers of each cell's first and last row, if rows are sorted as cells are; ``n`` counts a cell's rows."""
    counts = ticks(cells, "n")
    ends = np.cumsum(counts)
    return cells.append_column("first_row", pa.array(ends - counts)).append_column("last_row", pa.array(ends - 1))


def _sum_runs(column: pa.ChunkedArray, runs: Runs) -> pa.Array:
    running = np.concatenate([[0], np.cumsum(column.to_numpy())])
    return pa.array(running[runs.last + 1] - running[runs.first])


def _extreme_of_runs(column: pa.ChunkedArray, runs: Runs, function: str) -> pa.Array:
    """Return the least or greatest value of each run, null if it has none."""
    values = column.combine_chunks()
    valid = valid_mask(values)
    counts = np.concatenate([[0], np.cumsum(valid)])
    has_value = counts[runs.last + 1] > counts[runs.first]
    # Ranks work for values of any type: only their order matters.
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    cell_of_rank = np.zeros(int(ranks.max(initial=0)) + 1, dtype=np.int64)
    cell_of_rank[ranks] = np.arange(len(ranks))
    # Runs are searched for the least rank only, so for MAX ranks are negated; abs below undoes this. NULL must win neither way.
    if function == "max":
        ranks = -ranks
    ranks[~valid] = np.iinfo(np.int64).max
    best = np.abs(_least_of_runs(ranks, runs)[has_value])
    chosen = np.zeros(len(has_value), dtype=np.int64)
    chosen[has_value] = cell_of_rank[best]
    check_repeated(values, chosen[has_value])
    return values.take(pa.array(chosen, mask=~has_value))


def _least_of_runs(ranks: Ints, runs: Runs) -> Ints:
    least = np.zeros(len(runs.first), dtype=np.int64)
    lengths = runs.last - runs.first + 1
    for level, table in enumerate(_doublings(ranks, int(lengths.max(initial=1)))):
        # Two overlapping runs of 2**level cells cover a run of up to twice that length.
        chosen = np.flatnonzero((lengths >> level) == 1)
        least[chosen] = np.minimum(table[runs.first[chosen]], table[runs.last[chosen] - (1 << level) + 1])
    return least


def _doublings(ranks: Ints, longest: int) -> Iterator[Ints]:
    """Yield tables of the least rank of runs of 1, 2, 4, ... cells, by their first cell."""
    table = ranks
    width = 1
    while width <= longest:
        yield table
        table = np.minimum(table[: len(table) - width], table[width:]) if len(table) > width else table
        width *= 2
