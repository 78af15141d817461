"""
Aggregates over windows of every kind.

Rows are first added up by (substream, group, cell), then runs of cells make windows (:mod:`query.operators.windows.framing`), so
the cost does not grow with the number of windows an event belongs to. Every state is exact - counts, 128-bit integer sums,
float sums (:mod:`query.operators.windows.exact_sum`), minima and maxima - so neither order nor cuts can show in a result.
Aggregates that have no such states are computed from the rows of each window (:mod:`query.operators.windows.holistic`).

COUNT, SUM, AVG, MIN and MAX leave NULL out; all but COUNT are NULL over no values. SUM of bigints is a bigint, NULL when
it does not fit; with any float in the group it is the float nearest to the true sum. AVG is that float (or the nearest
to the integer sum) divided by the count. Among values of several kinds MIN takes the lowest kind of bit < number <
datetime < nvarchar, MAX the highest; of equal numbers the bigint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordering.columns.segments import sort_places
from query.columns.encode import canonicalize, encode_keys
from query.operators.rows.row_stage import RowStage
from query.operators.windows.aggregate_states import finish_aggregate
from query.operators.windows.compacting import cell_grid, compact_rows, merge_rows
from query.operators.windows.framing import FramedWindows, Framing, needed_rows
from query.operators.windows.holistic import arguments, compute_aggregate, is_holistic
from query.plan.nodes import WindowedAggregate, predicates_of
from query.plan.operator import Operator
from query.plan.row_tables import Retained, concat_rows, no_rows, only_side, rows_table, ticks, with_reasons
from query.plan.windows import AnyWindow, Session, Sliding, WindowSet, window_id, windows_of
from tidegate.expressions.duckdb_pool import run
from tidegate.expressions.evaluation.evaluate import evaluate
from tidegate.expressions.functions.column_functions import Failure
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Aggregate, Call, Expr, Key, Total, WindowEnd, WindowId
from tidegate.expressions.variant import Variant, from_columns
from tidegate.payloads.formats import JSON, PayloadFormat

RESULTS_MAX = 2_000_000
"""Most results computed at once; bounds memory where hops are many."""


@dataclass(frozen=True)
class WindowAggregation(Operator):
    """The operator of a :class:`query.plan.nodes.WindowedAggregate`."""

    node: WindowedAggregate
    payloads: PayloadFormat = JSON
    results_max: int = RESULTS_MAX
    values: tuple[Expr, ...] = field(init=False)

    def __post_init__(self) -> None:
        exact = [value for total in self.node.totals if not is_holistic(total) and (value := _argument(total)) is not None]
        shared = [_shared(value, exact) for value in exact]
        whole = [value for total in self.node.totals if is_holistic(total) for value in arguments(total)]
        object.__setattr__(self, "values", tuple(dict.fromkeys([*shared, *whole])))

    @property
    def reach_us(self) -> int:
        """How long after a row a result can depend on it."""
        return self.node.window.reach_us

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return position, sub, system_us, keys (``g0_s``, ...) and values (``v0_i``, ...) of the rows kept, and the bad rows."""
        keys = self.node.keys
        kept, columns, bad = RowStage(predicates_of(self.node), (*keys, *self.values), self.payloads).apply(below)
        retained = {name: kept[name] for name in ("position", "sub", "system_us")}
        for at, column in enumerate(columns[: len(keys)]):
            retained |= canonicalize(column).columns(f"g{at}")
        for at, column in enumerate(columns[len(keys) :]):
            retained |= column.columns(f"v{at}")
        return pa.table(retained), bad

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return one row per window and group, ordered by (system_us, key bytes, keys, number of the window, sub)."""
        if isinstance(self.node.window, WindowSet):
            return self.rows_of_portions([only_side(retained)], closing)
        framing = self._framing(self.node.window)
        found = [self._results(framed, 0)[0] for framed in framing.frame_windows(only_side(retained), closing)]
        return concat_rows(found) if found else no_rows()

    def rows_of_portions(self, portions: Iterable[pa.Table], closing: pa.Table) -> pa.Table:
        """Return the same of rows given in portions: no group has rows in two of them."""
        found = [
            _placed(*self._results(framed, number), number)
            for rows in portions
            for number, window in enumerate(windows_of(self.node.window))
            for framed in self._framing(window).frame_windows(rows, closing)
        ]
        return _side_by_side(found) if found else no_rows()

    @property
    def can_take_portions(self) -> bool:
        """Whether groups can be told from keys: always."""
        return True

    def portion_of(self, retained: pa.Table, count: int) -> npt.NDArray[np.uint8]:
        """Return which of *count* portions each row's group belongs to."""
        # A session may be one of all groups that share some of their keys.
        sessions = [window for window in windows_of(self.node.window) if isinstance(window, Session)]
        keys = set(range(len(self.node.keys))).intersection(*(session.partition for session in sessions))
        names = ["sub", *(name for name in _keys(retained) if int(name[1:].partition("_")[0]) in keys)]
        # A column that a piece lacks is null in others: neither may count.
        hashes = [f"CASE WHEN {name} IS NULL THEN 0 ELSE hash({name}) END" for name in names]
        spread = reduce(lambda left, right: f"xor({left}, {right})", hashes)
        found = run(f"SELECT CAST({spread} % {count} AS UTINYINT) AS portion FROM input", input=retained.select(names))
        portion: npt.NDArray[np.uint8] = found["portion"].to_numpy()
        return portion

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        """Return the first and the last end of windows that can hold a row of this time."""
        spans = [window.span(np.array([instant_us])) for window in windows_of(self.node.window)]
        return min(int(first[0]) for first, _ in spans), max(int(last[0]) for _, last in spans)

    def may_have_results(self, from_us: int, to_us: int) -> bool:
        """Tell whether a window can end there."""
        return any(window.can_end_within(from_us, to_us) for window in windows_of(self.node.window))

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows that a result at or after to_us can depend on."""
        needed = np.zeros(retained.num_rows, dtype=np.bool_)
        for window in windows_of(self.node.window):
            needed |= needed_rows(window, retained, horizon)
        return retained if needed.all() else retained.filter(pa.array(needed))

    def compact(self, retained: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows put together as far as no result can tell; see :mod:`query.operators.windows.compacting`."""
        grid = cell_grid(windows_of(self.node.window))
        if grid is None or any(map(is_holistic, self.node.totals)):
            return retained
        numbers = [self._number_of(total) for total in self.node.totals]
        return compact_rows(retained, grid, len(self.node.keys), self.node.totals, numbers)

    @property
    def can_summarize(self) -> bool:
        """Whether windows that end after each other hold nearly the same rows, and their states make all that is asked of them."""
        return isinstance(self.node.window, Sliding) and not any(map(is_holistic, self.node.totals))

    def is_seen_alike(self, ends_us: tuple[int, int], from_us: int, to_us: int) -> bool:
        """Tell whether all sliding windows that end there hold the rows between two instants, both included."""
        low_us, high_us = ends_us
        # Before the first end all of them have come, and none leaves before the last one.
        return high_us < from_us and low_us + self.reach_us >= to_us

    def summarize(self, retained: pa.Table) -> pa.Table:
        """Return a row of states for each group, at the time of the latest row; the rows themselves if that saves little."""
        system_us = ticks(retained, "system_us")
        numbers = [self._number_of(total) for total in self.node.totals]
        return merge_rows(retained, np.full_like(system_us, system_us.max()), len(self.node.keys), self.node.totals, numbers)

    def _framing(self, window: AnyWindow) -> Framing:
        exact = [total for total in self.node.totals if not is_holistic(total)]
        numbers = [self._number_of(total) for total in exact]
        return Framing(window, len(self.node.keys), exact, numbers, len(exact) < len(self.node.totals), self.results_max)

    # Windows -> results

    def _results(self, framed: FramedWindows, number: int) -> tuple[pa.Table, pa.Table, pa.ChunkedArray]:
        """Return the results of some windows, those of window *number* of the query, in order; the groups; and the number of each one's."""
        keys = [from_columns(framed.groups, f"g{at}") for at in range(len(self.node.keys))]
        chosen = keys if self.node.over_key is None else [keys[self.node.over_key]]
        groups = framed.groups.append_column("key", encode_keys(chosen, framed.groups.num_rows))
        framed = FramedWindows(_in_order(framed.windows, groups), groups, framed.rows)
        (leaves, failing), windows = self._leaves(framed, number), framed.windows
        kept, refused = self._kept(leaves, failing, windows.num_rows)
        leaves = {leaf: column.filter_rows(kept) for leaf, column in leaves.items()}
        windows, count = windows.filter(pa.array(kept)), int(kept.sum())
        columns, failed = evaluate([column.expr for column in self.node.columns], leaves, count)
        group = windows["group"]
        results = rows_table(groups["sub"].take(group), windows["system_us"], groups["key"].take(group), columns)
        return with_reasons(results, [*refused, *failed]), groups, group

    def _kept(self, leaves: Mapping[Expr, Variant], failing: Sequence[Failure], count: int) -> tuple[npt.NDArray[np.bool_], list[Failure]]:
        """Return which groups meet HAVING or fail, in it or before, and the failures, numbered among those groups."""
        if self.node.having is None:
            return np.ones(count, dtype=np.bool_), list(failing)
        (verdict,), found = evaluate([self.node.having], leaves, count)
        failures = [*failing, *found]
        kept = pc.fill_null(verdict.of_kind(Kind.BIT), False).to_numpy(zero_copy_only=False).copy()
        for failure in failures:
            kept[failure.rows] = True
        number = np.cumsum(kept) - 1
        return kept, [Failure(number[failure.rows], failure.reason) for failure in failures]

    def _leaves(self, framed: FramedWindows, number: int) -> tuple[dict[Expr, Variant], list[Failure]]:
        """Return what results are computed from, and the results of which an aggregate could not be computed."""
        windows = framed.windows
        leaves: dict[Expr, Variant] = {WindowEnd(): Variant.of(windows.num_rows, {Kind.DATETIME: windows["system_us"]})}
        leaves[WindowId()] = _constant(windows.num_rows, window_id(self.node.window, number))
        asked = [column.expr for column in self.node.columns] + ([self.node.having] if self.node.having is not None else [])
        for leaf in dict.fromkeys(leaf for expr in asked for leaf in expr.leaves()):
            if isinstance(leaf, Key):
                leaves[leaf] = from_columns(framed.groups, f"g{leaf.index}").take_rows(ticks(windows, "group"))
        failing: list[Failure] = []
        for at, total in enumerate(self.node.totals):
            leaves[Total(at, "", None)], failures = self._total(framed, total)
            failing += failures
        return leaves, failing

    def _total(self, framed: FramedWindows, total: Aggregate) -> tuple[Variant, list[Failure]]:
        if not is_holistic(total):
            return finish_aggregate(framed.windows, total, self._number_of(total)), []
        assert framed.rows is not None, "rows are asked for where aggregates need them"
        values = [from_columns(framed.rows, f"v{self.values.index(value)}") for value in arguments(total)]
        first, last = ticks(framed.windows, "first_row"), ticks(framed.windows, "last_row")
        return compute_aggregate(total, values, first, last)

    def _number_of(self, total: Aggregate) -> int | None:
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


def _keys(groups: pa.Table) -> list[str]:
    return sorted(name for name in groups.column_names if name.startswith("g"))


def _in_order(windows: pa.Table, groups: pa.Table) -> pa.Table:
    """Return windows ordered by (system_us, key bytes, keys, sub)."""
    places = _sorted(groups, ["key", *_keys(groups), "sub"]).to_numpy()
    rank = np.empty(len(places), dtype=np.int64)
    rank[places] = np.arange(len(places))
    count = windows.num_rows
    return windows.take(pa.array(sort_places(ticks(windows, "system_us"), rank[ticks(windows, "group")], np.arange(count), count)))


def _side_by_side(results: list[pa.Table]) -> pa.Table:
    """Put the results of several windows, or portions, together, ordered by (system_us, key bytes, keys, number of the window, sub)."""
    together = concat_rows(results)
    keys = _keys(together)
    ordered = together.take(_sorted(together, ["system_us", "key", *keys, "window", "sub"]))
    return ordered.drop_columns([*keys, "window"])


def _placed(results: pa.Table, groups: pa.Table, group: pa.ChunkedArray, number: int) -> pa.Table:
    """Return results with what says where they stand among those of other windows and portions."""
    for name in _keys(groups):
        results = results.append_column(name, groups[name].take(group))
    return results.append_column("window", pa.array(np.full(results.num_rows, number)))


def _sorted(table: pa.Table, names: list[str]) -> pa.Array:
    return pc.sort_indices(table.select(names), sort_keys=[(name, "ascending") for name in names])


def _constant(count: int, text: str | None) -> Variant:
    return Variant.of(count, {} if text is None else {Kind.NVARCHAR: pa.array([text] * count, pa.string())})
