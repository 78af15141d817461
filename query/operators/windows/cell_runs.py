"""
Runs of cells: which of a group's cells each window contains.

A *cell* is the sum of the rows of a group at one instant, or in one pane if windows have fixed ends. The cells of a group are sorted by
time, so every window is a run of them, from its first cell to its last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.columns.segments import first_above
from query.plan.row_tables import by_substream, ticks
from query.plan.windows import Sliding, Window


@dataclass(frozen=True)
class Cells:
    """Cells, sorted by group, then instant (of a pane its end); results are asked for in [from_us, to_us) of the cell's substream."""

    group: Ints
    instant: Ints
    from_us: Ints
    to_us: Ints

    @classmethod
    def of(cls, cells: pa.Table, subs: Ints, closing: pa.Table) -> Cells:
        """Return the cells of a table with ``group`` and ``cell``; *subs* holds the substream of each group."""
        group = ticks(cells, "group")
        from_us, to_us = (by_substream(subs[group], closing, name) for name in ("from_us", "to_us"))
        return cls(group, ticks(cells, "cell"), from_us, to_us)


@dataclass(frozen=True)
class Runs:
    """For each result: the first and last of its cells (inclusive) and the window's end."""

    first: Ints
    last: Ints
    end_us: Ints

    def __getitem__(self, numbers: Ints) -> Runs:
        return Runs(self.first[numbers], self.last[numbers], self.end_us[numbers])


def hopping_runs(cells: Cells, window: Window, low: int, high: int) -> Runs:
    """Return the windows with cells, panes of *window*, whose number lies in [low, high) and whose end is asked for."""
    panes, group = cells.instant, cells.group
    low_us, high_us = window.end_of(np.array([low, high]))
    first_number, last_number = window.number_of(panes), window.number_of(window.last_end(panes))
    start = np.maximum(first_number, window.number_of(np.maximum(cells.from_us, low_us)))
    stop = np.minimum(last_number, window.number_of(np.minimum(cells.to_us, high_us)) - 1)
    # Both rise within a group; a cell adds only the ends that the cell before it did not reach.
    start[1:] = np.where(group[1:] == group[:-1], np.maximum(start[1:], stop[:-1] + 1), start[1:])
    counts = np.maximum(stop - start + 1, 0)
    owner = np.repeat(np.arange(len(panes)), counts)
    number = start[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Runs(owner, _last_until(group, first_number, number, group[owner]), window.end_of(number))


def sliding_runs(cells: Cells, window: Sliding) -> Runs:
    """Return the windows with cells that end where a cell enters or leaves, each once, in the slice of time."""
    instant, group, number = cells.instant, cells.group, np.arange(len(cells.instant))
    # A window that ends at e, where a cell enters, contains the cells after e - size.
    first = _last_until(group, instant, instant - window.size_us, group) + 1
    # Where a cell leaves, at e, the window contains the later ones up to e. If one enters at e, its window is this one.
    left_us = instant + window.size_us
    behind = _last_until(group, instant, left_us, group)
    leaves = (behind > number) & (instant[behind] < left_us)
    runs = Runs(
        np.concatenate([first, number[leaves] + 1]), np.concatenate([number, behind[leaves]]), np.concatenate([instant, left_us[leaves]])
    )
    due = (runs.end_us >= cells.from_us[runs.last]) & (runs.end_us < cells.to_us[runs.last])
    return Runs(runs.first[due], runs.last[due], runs.end_us[due])


def _last_until(group: Ints, rising: Ints, until: Ints, of_group: Ints) -> Ints:
    """Return the last cell of a group whose entry does not exceed a value; the one before the group if every entry does."""
    starts = np.searchsorted(group, np.arange(int(group.max(initial=-1)) + 2))
    return first_above(rising, group, starts, until, of_group) - 1
