"""
Framing: from retained rows to windows, as tables of the states of each window and group.

Rows are added up by (substream, group, cell). If an event belongs to one window only (tumbling windows, snapshots, sessions), the cell is
the window; otherwise windows are runs of cells. Every state is exact, so neither order nor cuts of rows matter. Aggregates that need the
rows of a window get the rows, sorted as the cells are, and the numbers of each window's first and last row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.columns.segments import sort_places
from query.columns.large_tables import take_rows
from query.operators.rows.ranks import order_places
from query.operators.rows.row_groups import group_numbers, take_or_null
from query.operators.windows.aggregate_states import AggregateState, AggregateStates, add_float_pieces, collect_few
from query.operators.windows.cell_runs import Cells, Runs, hopping_runs, sliding_runs
from query.operators.windows.merged_cells import add_row_numbers, merge_cells
from query.operators.windows.sessions import session_ends
from query.plan.row_tables import Ticks, by_substream, ticks
from query.plan.windows import AnyWindow, Session, Sliding, Span, Window
from tidegate.basics.budget import BUDGET
from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.tree import Aggregate
from tidegate.language.expressions.variant import Variant, from_columns

# So many rows are added up without SQL: a statement of DuckDB costs a millisecond whatever it reads.
FEW_ROWS = 2_048


@dataclass(frozen=True)
class SortedRows:
    """The values of rows, sorted by group and in their order within; only columns that are asked for are put in this order."""

    table: pa.Table
    # The row of the table at each place.
    order: Ints
    _sorted: dict[int, Variant] = field(default_factory=dict)
    _ranked: dict[Aggregate, Ints] = field(default_factory=dict)

    def values(self, number: int) -> Variant:
        if number not in self._sorted:
            self._sorted[number] = from_columns(self.table, f"v{number}").take_rows(self.order)
        return self._sorted[number]

    def ranks(self, total: Aggregate, numbers: Sequence[int]) -> Ints:
        """Return the place of each row in the ORDER BY of an aggregate, whose keys are the values with these numbers."""
        if total not in self._ranked:
            descending = (descending for _, descending in total.order)
            # Of the rows as they stand: texts may be gigabytes, and their ranks are put in order without a copy of them.
            columns = (from_columns(self.table, f"v{number}") for number in numbers)
            self._ranked[total] = order_places(list(zip(columns, descending, strict=True)))[self.order]
        return self._ranked[total]

    def values_at(self, number: int, places: Ints) -> Variant:
        """Return the values at some places, NULL for -1. Raises TooMuchAtOnce: the texts are too large together."""
        return take_or_null(from_columns(self.table, f"v{number}"), self.order[places], places >= 0)


class _MergedWindows(NamedTuple):
    """Windows as in :class:`FramedWindows`, without what belongs to all groups."""

    end_us: Ticks
    group: Ints
    merge: Callable[[Ints], pa.Table]


@dataclass(frozen=True)
class FramedWindows:
    """Windows, their groups, and the rows if aggregates need them."""

    # For each window and group: the end, and the number of the group.
    end_us: Ticks
    group: Ints
    # Returns the windows with these numbers: ``system_us``, the number of the ``group``, the states, ``first_row`` and ``last_row``.
    # Windows that overlap repeat the texts of their rows, so all of them together may be too large (TooMuchAtOnce).
    merge: Callable[[Ints], pa.Table]
    # The sub and the keys of each group.
    groups: pa.Table
    # The numbered rows; None if no aggregate needs them.
    rows: SortedRows | None


@dataclass(frozen=True)
class Framing:
    """The windows of one kind over the rows of a :class:`query.operators.windows.windowed_aggregate.WindowAggregation`."""

    window: AnyWindow
    # How many grouping keys there are.
    key_count: int
    # The aggregates that are made of states.
    totals: Sequence[Aggregate]
    # The number of the value of each aggregate, None for COUNT(*).
    numbers: Sequence[int | None]
    # Whether some aggregate needs the rows themselves.
    needs_rows: bool

    def frame_windows(self, retained: pa.Table, closing: pa.Table) -> Iterator[FramedWindows]:
        """Yield the windows that *closing* asks for, in order of their ends."""
        rows = self._due(retained, closing)
        if not rows.num_rows:
            return
        group, groups = number_groups(rows, self.key_count)
        # Runs and numbered rows need cells in the order of group and time; otherwise sorting would be wasted.
        order = ("group", "cell") if self.needs_rows or not self._is_disjoint else None
        cells, states = collect_states(rows.append_column("group", pa.array(group)), self.totals, self.numbers, order)
        if self.needs_rows:
            cells = add_row_numbers(cells)
        ordered = _sort_by_group(rows, group) if self.needs_rows else None
        for end_us, numbers, merge in self._frames(cells, states, ticks(groups, "sub"), closing):
            if len(end_us):
                yield FramedWindows(end_us, numbers, merge, groups, ordered)

    @property
    def _is_disjoint(self) -> bool:
        """Whether every event belongs to at most one window, so that cells are windows."""
        return isinstance(self.window, Session) or (isinstance(self.window, Window) and self.window.is_tumbling)

    # Rows -> cells

    def _due(self, retained: pa.Table, closing: pa.Table) -> pa.Table:
        """Return the rows that these results need, with their cell."""
        due = _overlaps(self.window.span(ticks(retained, "system_us")), ticks(retained, "sub"), closing)
        if isinstance(self.window, Session) and due.any():
            return _ended_sessions(retained, due, self.window, closing)
        rows = retained if due.all() else retained.filter(pa.array(due))
        system_us = ticks(rows, "system_us")
        return rows.append_column("cell", pa.array(self.window.pane_end(system_us) if isinstance(self.window, Window) else system_us))

    # Cells -> windows

    def _frames(self, table: pa.Table, states: Sequence[AggregateState], subs: Ticks, closing: pa.Table) -> Iterator[_MergedWindows]:
        """Yield windows; *subs* holds the substream of each group."""
        if self._is_disjoint:
            windows = table.rename_columns(["system_us" if name == "cell" else name for name in table.column_names])
            yield _MergedWindows(ticks(windows, "system_us"), ticks(windows, "group"), partial(take_rows, windows))
            return
        cells = Cells.of(table, subs, closing)
        if isinstance(self.window, Sliding):
            yield _merging(table, states, sliding_runs(cells, self.window))
        elif isinstance(self.window, Window):
            for low, high in self._chunks(np.sort(cells.instant), self.window, closing):
                start_us, end_us = int(self.window.start_of(np.array([low]))[0]), int(self.window.end_of(np.array([high]))[0])
                is_near = (cells.instant < end_us) & (cells.instant > start_us)
                near_cells = table if is_near.all() else table.filter(pa.array(is_near))
                yield _merging(near_cells, states, hopping_runs(Cells.of(near_cells, subs, closing), self.window, low, high))

    def _chunks(self, panes: Ticks, window: Window, closing: pa.Table) -> Iterator[tuple[int, int]]:
        """Yield ranges [low, high) of numbers of windows, each with results that are computed at once, or of one window."""
        earliest_us = max(int(panes[0]), int(ticks(closing, "from_us").min()))
        stop_us = min(int(window.last_end(panes[-1:])[0]) + 1, int(ticks(closing, "to_us").max()))
        low, stop = window.number_of(np.array([earliest_us, stop_us])).tolist()
        while low < stop:
            count = stop - low
            while count > 1 and _rows_within(panes, window, low, count) * min(count, window.windows_per_event) > BUDGET.rows:
                count = (count + 1) // 2
            yield low, low + count
            low += count
            following = np.searchsorted(panes, window.start_of(np.array([low]))[0], side="right")
            if following == len(panes):
                return
            # Windows without cells give nothing: go on at the next cell.
            low = max(low, int(window.number_of(panes[following : following + 1])[0]))


def _ended_sessions(retained: pa.Table, due: Mask, window: Session, closing: pa.Table) -> pa.Table:
    """Return the rows of the sessions that end in *closing*, with their ends; values of open sessions may be gigabytes and are not read."""
    known = retained.select([name for name in retained.column_names if not name.startswith("v")]).filter(pa.array(due))
    ends = session_ends(_group_numbers(known, window.partition), ticks(known, "system_us"), window)
    ended = _overlaps((ends, ends), ticks(known, "sub"), closing)
    is_wanted = due.copy()
    is_wanted[due] = ended
    return retained.filter(pa.array(is_wanted)).append_column("cell", pa.array(ends[ended]))


def _merge_runs(cells: pa.Table, states: Sequence[AggregateState], runs: Runs, numbers: Ints) -> pa.Table:
    return merge_cells(cells, ["group"], states, runs[numbers])


def _merging(cells: pa.Table, states: Sequence[AggregateState], runs: Runs) -> _MergedWindows:
    return _MergedWindows(runs.end_us, ticks(cells, "group")[runs.first], partial(_merge_runs, cells, states, runs))


def number_groups(rows: pa.Table, key_count: int) -> tuple[Ticks, pa.Table]:
    """Number the groups of rows from 0 in order of appearance; return each row's number, and the sub and the keys of each group."""
    group = pa.array(_group_numbers(rows, range(key_count))).dictionary_encode().indices.to_numpy().astype(np.int64)
    # The first row of each group: assigned backwards, the first one is written last.
    owner = np.empty(int(group.max()) + 1, dtype=np.int64)
    owner[group[::-1]] = np.arange(len(group))[::-1]
    return group, take_rows(rows.select(["sub", *(name for name in rows.column_names if name.startswith("g"))]), owner)


def collect_states(
    rows: pa.Table, totals: Sequence[Aggregate], numbers: Sequence[int | None], order: Sequence[str] | None
) -> tuple[pa.Table, Sequence[AggregateState]]:
    """Add rows up by ``group`` and ``cell``; return the cells in the *order* of these two, and their states (*numbers*: see Framing)."""
    pairs = zip(totals, numbers, strict=True)
    summed = {number for total, number in pairs if total.function in ("sum", "avg") and number is not None}
    rows, limbs = add_float_pieces(rows, sorted(number for number in summed if f"v{number}_f" in rows.column_names))
    states = AggregateStates(totals, numbers, rows.column_names, limbs).states()
    if rows.num_rows <= FEW_ROWS:
        return collect_few(rows, states, order or ("group", "cell")), states
    sums = ", ".join(f"{state.collect} AS {state.name}" for state in states)
    ordered = " ORDER BY " + ", ".join(f'"{name}"' for name in order) if order else ""
    return run(f'SELECT "group", cell, {sums} FROM input GROUP BY "group", cell{ordered}', input=rows), states


def needed_rows(window: AnyWindow, retained: pa.Table, horizon: pa.Table) -> Mask:
    """Return for each row whether a result at or after ``to_us`` of its substream can depend on it."""
    first, last = window.span(ticks(retained, "system_us"))
    mask: Mask = (first <= last) & (last >= by_substream(ticks(retained, "sub"), horizon, "to_us"))
    return mask


def _group_numbers(rows: pa.Table, keys: Sequence[int]) -> Ticks:
    return group_numbers(ticks(rows, "sub"), [from_columns(rows, f"g{key}") for key in keys])


def _overlaps(span: Span, subs: Ticks, closing: pa.Table) -> Mask:
    """Return which spans overlap the slice of time of their substream."""
    first, last = span
    mask: Mask = (first <= last) & (first < by_substream(subs, closing, "to_us")) & (last >= by_substream(subs, closing, "from_us"))
    return mask


def _sort_by_group(rows: pa.Table, group: Ticks) -> SortedRows:
    """Return the values of rows, sorted by (group, system_us) and otherwise in their order."""
    values = rows.select([name for name in rows.column_names if name.startswith("v")])
    return SortedRows(values, sort_places(group, ticks(rows, "system_us"), np.arange(len(group)), len(group)))


def _rows_within(panes: Ticks, window: Window, low: int, count: int) -> int:
    """Count the cells with panes in *count* windows from number *low* on; *panes* are sorted."""
    edges = [window.start_of(np.array([low]))[0], window.end_of(np.array([low + count - 1]))[0]]
    start, end = np.searchsorted(panes, edges, side="right")
    return int(end - start)
