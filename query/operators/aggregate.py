"""
Aggregates over tumbling and hopping windows.

Rows are first added up by (substream, group, pane), then runs of panes make windows (:mod:`query.operators.panes`), so
the cost does not grow as the hop shrinks. Every state is exact - counts, 128-bit integer sums, float sums
(:mod:`query.operators.exact_sum`), minima and maxima - so neither order nor cuts can show in a result.

COUNT, SUM, AVG, MIN and MAX leave NULL out; all but COUNT are NULL over no values. SUM of bigints is a bigint, NULL when
it does not fit; with any float in the group it is the float nearest to the true sum. AVG is that float (or the nearest
to the integer sum) divided by the count. Among values of several kinds MIN takes the lowest kind of bit < number <
datetime < nvarchar, MAX the highest; of equal numbers the bigint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from query.encode import canonical, encode_keys
from query.operators.base import Retained, Ticks, alone, by_substream, concat_rows, no_rows, rows_table, ticks
from query.operators.panes import slide
from query.operators.rows import RowStage
from query.operators.totals import Totals, finish_total, with_pieces
from query.operators.windows import Window
from query.plan import WindowedAggregate, predicates_of
from tidegate.runtime.payloads.formats import JSON, PayloadFormat
from tidegate.runtime.scalars.duck import run
from tidegate.runtime.scalars.evaluate import evaluate
from tidegate.runtime.scalars.expressions import Aggregate, Call, Expr, Key, Total, WindowEnd
from tidegate.runtime.scalars.kinds import Kind
from tidegate.runtime.scalars.variant import Variant, from_columns

RESULTS_MAX = 2_000_000
"""Most results computed at once; bounds memory where hops are many."""


@dataclass(frozen=True)
class WindowAggregation:
    """The operator of a :class:`query.plan.WindowedAggregate`."""

    node: WindowedAggregate
    payloads: PayloadFormat = JSON
    results_max: int = RESULTS_MAX
    sides: int = 1
    values: tuple[Expr, ...] = field(init=False)

    def __post_init__(self) -> None:
        arguments = [value for total in self.node.totals if (value := _argument(total)) is not None]
        object.__setattr__(self, "values", tuple(dict.fromkeys(_shared(value, arguments) for value in arguments)))

    @property
    def window(self) -> Window:
        """The window."""
        return self.node.window

    @property
    def reach_us(self) -> int:
        """A window's length."""
        return self.window.size_us

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return position, sub, system_us, keys (``g0_s``, ...) and values (``v0_i``, ...) of the rows kept, and the bad rows."""
        keys = self.node.keys
        kept, columns, bad = RowStage(predicates_of(self.node), (*keys, *self.values), self.payloads).apply(below)
        retained = {name: kept[name] for name in ("position", "sub", "system_us")}
        for at, column in enumerate(columns[: len(keys)]):
            retained |= canonical(column).columns(f"g{at}")
        for at, column in enumerate(columns[len(keys) :]):
            retained |= column.columns(f"v{at}")
        return pa.table(retained), bad

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return one row per window and group, ordered by (system_us, key bytes, keys, sub)."""
        found = [self._results(windows) for windows in self._windows(self._due(alone(retained), closing), closing)]
        return concat_rows(found) if found else no_rows()

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows that belong to a window with end >= to_us."""
        system_us = ticks(retained, "system_us")
        last = self.window.last_end(system_us)
        needed = (last >= by_substream(ticks(retained, "sub"), horizon, "to_us", 0)) & (last >= system_us)
        return retained if needed.all() else retained.filter(pa.array(needed))

    # Events -> windows

    def _due(self, retained: pa.Table, closing: pa.Table) -> pa.Table:
        """Return the rows some closing window holds, with their pane."""
        subs, system_us = ticks(retained, "sub"), ticks(retained, "system_us")
        first, last = self.window.first_end(system_us), self.window.last_end(system_us)
        due = (first < by_substream(subs, closing, "to_us", 0)) & (last >= by_substream(subs, closing, "from_us", 0)) & (first <= last)
        rows = retained if due.all() else retained.filter(pa.array(due))
        return rows.append_column("pane", pa.array(self.window.pane_end(system_us[due])))

    def _windows(self, rows: pa.Table, closing: pa.Table) -> Iterator[pa.Table]:
        """Yield the windows, in order of their ends, as tables: sub, system_us, keys, states."""
        if not rows.num_rows:
            return
        numbers = tuple(map(self._value_of, self.node.totals))
        summed = {at for total, at in zip(self.node.totals, numbers, strict=True) if total.function in ("sum", "avg") and at is not None}
        rows, limbs = with_pieces(rows, sorted(at for at in summed if f"v{at}_f" in rows.column_names))
        states = Totals(self.node.totals, numbers, rows.column_names, limbs).states()
        groups = ["sub", *sorted(name for name in rows.column_names if name.startswith("g"))]
        by = ", ".join(groups)
        sql = f"SELECT {by}, pane, {', '.join(f'{state.collect} AS {state.name}' for state in states)} FROM input GROUP BY {by}, pane"
        if self.window.tumbling:
            cells = run(sql, input=rows)
            yield cells.rename_columns(["system_us" if name == "pane" else name for name in cells.column_names])
            return
        cells = run(f"{sql} ORDER BY {', '.join(f'{name} NULLS FIRST' for name in (*groups, 'pane'))}", input=rows)
        for low, high in self._chunks(cells, closing):
            windows = slide(cells, groups, states, self.window, low, high, closing)
            if windows.num_rows:
                yield windows

    def _chunks(self, cells: pa.Table, closing: pa.Table) -> Iterator[tuple[int, int]]:
        """Yield ranges [low, high) of window ends, each with at most *results_max* results (or of one end)."""
        window, hop = self.window, self.window.hop_us
        panes = np.sort(ticks(cells, "pane"))
        earliest = np.array([max(int(panes[0]), int(ticks(closing, "from_us").min()))])
        low = int(window.first_end(earliest)[0])
        stop = min(int(window.last_end(panes[-1:])[0]) + 1, int(ticks(closing, "to_us").max()))
        while low < stop:
            ends = -(-(stop - low) // hop)
            while ends > 1 and _cells(panes, low - window.size_us, low + (ends - 1) * hop) * min(ends, window.hops) > self.results_max:
                ends = (ends + 1) // 2
            yield low, low + ends * hop
            low += ends * hop
            following = np.searchsorted(panes, low - window.size_us, side="right")
            if following == len(panes):
                return
            low = max(low, int(window.first_end(panes[following : following + 1])[0]))

    # Windows -> results

    def _results(self, windows: pa.Table) -> pa.Table:
        leaves = self._leaves(windows)
        count = windows.num_rows
        if self.node.having is not None:
            (verdict,), _ = evaluate([self.node.having], leaves, count)
            kept = pc.fill_null(verdict.only(Kind.BIT), False).to_numpy(zero_copy_only=False)
            leaves = {leaf: column.filter(kept) for leaf, column in leaves.items()}
            windows, count = windows.filter(pa.array(kept)), int(kept.sum())
        columns, _ = evaluate([column.expr for column in self.node.columns], leaves, count)
        keys = [leaves[Key(at, "", None)] for at in range(len(self.node.keys))]
        chosen = keys if self.node.over_key is None else [keys[self.node.over_key]]
        results = rows_table(windows["sub"], windows["system_us"], encode_keys(chosen, count), columns)
        order = {name: windows[name] for name in sorted(windows.column_names) if name.startswith("g")}
        sorting = pa.table({"system_us": results["system_us"], "key": results["key"], **order, "sub": results["sub"]})
        return results.take(pc.sort_indices(sorting, sort_keys=[(name, "ascending") for name in sorting.column_names]))

    def _leaves(self, windows: pa.Table) -> dict[Expr, Variant]:
        leaves: dict[Expr, Variant] = {WindowEnd(): Variant.of(windows.num_rows, {Kind.DATETIME: windows["system_us"]})}
        for at in range(len(self.node.keys)):
            leaves[Key(at, "", None)] = from_columns(windows, f"g{at}")
        for at, total in enumerate(self.node.totals):
            leaves[Total(at, "", None)] = finish_total(windows, total, self._value_of(total))
        return leaves

    def _value_of(self, total: Aggregate) -> int | None:
        argument = _argument(total)
        return None if argument is None else self.values.index(_shared(argument, self.values))


def _shared(argument: Expr, others: Sequence[Expr]) -> Expr:
    """Return the argument of SUM or AVG over the same expression, where there is one: a row that has it has no other kind."""
    if isinstance(argument, Call) and argument.name == "comparable" and (number := Call("number", argument.args)) in others:
        return number
    return argument


def _argument(total: Aggregate) -> Expr | None:
    """Return what has to be known of a row for an aggregate; of COUNT(x) only whether x is there."""
    if total.function == "count" and total.arg is not None:
        return Call("not", (Call("is null", (total.arg,)),))
    return total.arg


def _cells(panes: Ticks, after_us: int, until_us: int) -> int:
    """Count the cells with pane in (after_us, until_us]; *panes* are sorted."""
    start, end = np.searchsorted(panes, [after_us, until_us], side="right")
    return int(end - start)
