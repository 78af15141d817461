"""
From panes to hopping windows: each window's state is that of a run of panes of its group.

The states of a group's panes lie side by side, in order of time. A sum over a run is the difference of two running sums -
exact, because every sum here is one of integers - and an extreme over a run comes from a table of extremes over runs of
1, 2, 4, ... panes. So the cost is that of the panes and of the results; it does not grow with the number of windows an
event belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from query.operators.base import by_substream, ticks
from query.operators.totals import State
from query.operators.windows import Window
from tidegate.runtime.scalars.variant import valid_mask

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """For each result: the first and last of its cells (inclusive) and the window's end."""

    first: Whole
    last: Whole
    end_us: Whole


def slide(
    cells: pa.Table, groups: Sequence[str], states: Sequence[State], window: Window, low: int, high: int, closing: pa.Table
) -> pa.Table:
    """
    Compute the windows with end in [low, high) that *closing* asks for.

    Args:
        cells: States of panes (``pane`` and the groups), sorted by group, then pane.
        groups: The columns that tell groups apart.
        states: The state columns and how they merge.
        window: The window.
        low: First window end to compute.
        high: Where to stop.
        closing: Per substream, which ends are asked for.

    Returns:
        Per window and group with rows: system_us, the groups, the states.
    """
    panes = ticks(cells, "pane")
    near = (panes < high) & (panes > low - window.size_us)
    cells = cells if near.all() else cells.filter(pa.array(near))
    runs = _runs(cells, groups, window, low, high, closing)
    owners = pa.array(runs.first)
    columns = {"system_us": pa.array(runs.end_us), **{name: cells[name].take(owners) for name in groups}}
    for state in states:
        merged = _added(cells[state.name], runs) if state.merge == "add" else _extreme(cells[state.name], runs, state.merge)
        columns[state.name] = merged
    return pa.table(columns)


def group_numbers(cells: pa.Table, groups: Sequence[str]) -> Whole:
    """Number the groups of cells sorted by group: 0, 0, 1, 1, 1, 2, ..."""
    count = cells.num_rows
    changed = np.zeros(count, dtype=np.bool_)
    for name in groups:
        column = cells[name].combine_chunks()
        before, after = column.slice(0, max(count - 1, 0)), column.slice(1)
        differs = pc.fill_null(pc.not_equal(before, after), False).to_numpy(zero_copy_only=False)
        changed[1:] |= differs | (valid_mask(before) != valid_mask(after))
    return np.cumsum(changed)


def _runs(cells: pa.Table, groups: Sequence[str], window: Window, low: int, high: int, closing: pa.Table) -> Runs:
    panes, subs, hop = ticks(cells, "pane"), ticks(cells, "sub"), window.hop_us
    asked_from = np.maximum(by_substream(subs, closing, "from_us", 0), low)
    asked_to = np.minimum(by_substream(subs, closing, "to_us", 0), high)
    # Window ends by number: end = low + number * hop.
    begins = (window.first_end(panes) - low) // hop
    ceases = (window.last_end(panes) - low) // hop
    start = np.maximum(begins, -((low - asked_from) // hop))
    stop = np.minimum(ceases, -((low - asked_to) // hop) - 1)
    group = group_numbers(cells, groups)
    # Both rise within a group; a cell adds the ends its predecessor did not reach.
    start[1:] = np.where(group[1:] == group[:-1], np.maximum(start[1:], stop[:-1] + 1), start[1:])
    counts = np.maximum(stop - start + 1, 0)
    owner = np.repeat(np.arange(len(panes)), counts)
    number = start[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    base, span = int(begins.min(initial=0)), int(max(begins.max(initial=0), number.max(initial=0))) + 1
    order = group * (span - base) + (begins - base)
    last = np.searchsorted(order, group[owner] * (span - base) + (number - base), side="right") - 1
    return Runs(owner, last, low + number * hop)


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


def _least(ranks: Whole, runs: Runs) -> Whole:
    found = np.zeros(len(runs.first), dtype=np.int64)
    lengths = runs.last - runs.first + 1
    for level, table in enumerate(_doublings(ranks, int(lengths.max(initial=1)))):
        mine = np.flatnonzero((lengths >> level) == 1)
        found[mine] = np.minimum(table[runs.first[mine]], table[runs.last[mine] - (1 << level) + 1])
    return found


def _doublings(ranks: Whole, longest: int) -> Iterator[Whole]:
    """Yield tables of the least rank of runs of 1, 2, 4, ... cells, by their first cell."""
    table = ranks
    width = 1
    while width <= longest:
        yield table
        table = np.minimum(table[: len(table) - width], table[width:]) if len(table) > width else table
        width *= 2
