"""
Aggregates over windows of every kind.

Rows are first added up by (substream, group, cell), then runs of cells make windows (:mod:`query.operators.windows.framing`), so the cost
does not grow with the number of windows per event. Every state is exact: counts, 128-bit integer sums, float sums
(:mod:`query.operators.windows.exact_sum`), minima and maxima. So results do not depend on the order or the cuts of rows. Aggregates without
such states are computed from the rows of each window (:mod:`query.operators.windows.holistic`).

COUNT, SUM, AVG, MIN and MAX ignore NULL; all but COUNT are NULL over no values. SUM of bigints is a bigint, or NULL if it does not fit;
with any float in the group it is the float nearest to the true sum. AVG is that float (or the float nearest to the integer sum) divided by
the count. Among values of several kinds MIN takes the lowest kind of bit < number < datetime < nvarchar, MAX the highest; of equal numbers
the bigint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.columns.segments import sort_places
from query.columns.encode import encode_keys, encode_over_keys
from query.columns.large_tables import check_repeated, in_parts, repeat_rows, take_rows, variant_bytes
from query.columns.same_values import canonicalize
from query.operators.rows.event_fields import EventFields
from query.operators.rows.row_stage import RowStage
from query.operators.windows.aggregate_states import finish_aggregate
from query.operators.windows.compacting import cell_grid, compact_rows, keep_top_rows, merge_rows
from query.operators.windows.framing import FramedWindows, Framing, SortedRows, needed_rows
from query.operators.windows.holistic import compute_aggregate, is_holistic, picked_rows
from query.plan.gathered import Gathered, GatheredTable
from query.plan.nodes import WindowedAggregate, predicates_of
from query.plan.operator import Operator
from query.plan.row_tables import (
    Retained,
    TooMuchTimeAtOnce,
    concat_rows,
    in_steps,
    is_one_instant,
    no_rows,
    only_side,
    rows_table,
    ticks,
    with_reasons,
)
from query.plan.windows import AnyWindow, Session, Sliding, Window, WindowSet, window_id, windows_of
from tidegate.basics.budget import BUDGET, TooMuchAtOnce
from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.functions.column_functions import FailedRows
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate, Call, Expr, Key, Required, Requirement, Total, WindowEnd, WindowId
from tidegate.language.expressions.variant import Variant, from_columns

# The functions of aggregates that need only the first rows of a cell.
_TOP_ROWS = {"topone"}, {"collecttop"}, {"topone", "collecttop"}


class _Results(NamedTuple):
    """Results of one window of the query: their rows, the groups, and the number of each row's group."""

    rows: pa.Table
    groups: pa.Table
    group: pa.ChunkedArray


@dataclass(frozen=True)
class WindowAggregation(Operator):
    """The operator of a :class:`query.plan.nodes.WindowedAggregate`."""

    node: WindowedAggregate
    fields: EventFields = field(default_factory=EventFields)

    @cached_property
    def values(self) -> tuple[Expr, ...]:
        """The expressions over a row from which the aggregates are computed, each once."""
        exact = [value for total in self.node.totals if not is_holistic(total) and (value := _argument(total)) is not None]
        shared = [_shared_argument(value, exact) for value in exact]
        holistic = [value for total in self.node.totals if is_holistic(total) for value in total.parts]
        return tuple(dict.fromkeys([*shared, *holistic]))

    @property
    def _windows(self) -> Sequence[AnyWindow]:
        return windows_of(self.node.window)

    @property
    def reach_us(self) -> int:
        return self.node.window.reach_us

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return position, sub, system_us, keys (``g0_s``, ...) and values (``v0_i``, ...) of the rows kept, and the bad rows."""
        keys = self.node.keys
        kept, columns, bad = RowStage(predicates_of(self.node), (*keys, *self.values), self.fields).apply(below)
        retained = {name: kept[name] for name in ("position", "sub", "system_us")}
        for number, (key, column) in enumerate(zip(keys, columns[: len(keys)], strict=True)):
            retained |= canonicalize(column, keeps_floats=static_kind(key) is Kind.FLOAT).columns(f"g{number}")
        for number, column in enumerate(columns[len(keys) :]):
            retained |= column.columns(f"v{number}")
        return pa.table(retained), bad

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return one row per window and group, ordered by (system_us, key bytes, keys, number of the window, sub)."""
        results = [*self.slices([GatheredTable(only_side(retained))], closing)]
        return concat_rows(results) if results else no_rows()

    def slices(self, gathered: Sequence[Gathered | None], closing: pa.Table) -> Iterator[pa.Table]:
        (side,) = gathered
        assert side is not None, "an operator is asked only while something is retained"
        if (count := side.portions) > 1:
            yield from in_steps(closing, lambda step: self._merged(side.read_portions(partial(self._portion_of, count), count), step))
        elif isinstance(self.node.window, WindowSet):
            rows = side.table()
            yield from in_steps(closing, lambda step: self._merged([rows], step))
        else:
            for framed in self._framing(self.node.window).frame_windows(side.table(), closing):
                for part in self._results(framed, 0):
                    yield part.rows

    def _merged(self, portions: Iterable[pa.Table], closing: pa.Table) -> pa.Table:
        """
        Return the results of several portions of rows or several windows, in one order.

        Raises:
            TooMuchTimeAtOnce: Less time must be asked for; never if it is one instant.
        """
        parts = (
            (_with_sort_columns(part, number), framed.end_us)
            for rows in portions
            for number, window in enumerate(self._windows)
            for framed in self._framing(window).frame_windows(rows, closing)
            for part in self._results(framed, number)
        )
        results, size = [], 0
        for part, instants_us in parts:
            results.append(part)
            size += part.nbytes
            if size > BUDGET.bytes and not is_one_instant(closing):
                raise TooMuchTimeAtOnce(instants_us)
        return _merge_results(results) if results else no_rows()

    @property
    def can_outgrow(self) -> bool:
        return any(isinstance(window, Sliding) or (isinstance(window, Window) and not window.is_tumbling) for window in self._windows)

    def _portion_of(self, count: int, retained: pa.Table) -> npt.NDArray[np.uint8]:
        """Return the portion of each row, 0 to *count* - 1: rows of one group are in one portion."""
        # One session may serve all groups that share some of their keys: only these keys may divide portions.
        sessions = [window for window in self._windows if isinstance(window, Session)]
        keys = set(range(len(self.node.keys))).intersection(*(session.partition for session in sessions))
        names = ["sub", *(name for name in _key_columns(retained) if int(name[1:].partition("_")[0]) in keys)]
        # A kind that does not occur in a piece has no column there and is null in others, so null must count as 0 in the hash.
        hashes = [f"CASE WHEN {name} IS NULL THEN 0 ELSE hash({name}) END" for name in names]
        spread = reduce(lambda left, right: f"xor({left}, {right})", hashes)
        portions = run(f"SELECT CAST({spread} % {count} AS UTINYINT) AS portion FROM input", input=retained.select(names))
        portion: npt.NDArray[np.uint8] = portions["portion"].to_numpy()
        return portion

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        spans = [window.span(np.array([instant_us])) for window in self._windows]
        return min(int(first[0]) for first, _ in spans), max(int(last[0]) for _, last in spans)

    def may_have_results(self, from_us: int, to_us: int) -> bool:
        # Sliding windows and sessions can end at any instant.
        return any(not isinstance(window, Window) or window.can_end_within(from_us, to_us) for window in self._windows)

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        needed = np.zeros(retained.num_rows, dtype=np.bool_)
        for window in self._windows:
            needed |= needed_rows(window, retained, horizon)
        return retained if needed.all() else retained.filter(pa.array(needed))

    def compact(self, retained: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows of each cell as one; see :mod:`query.operators.windows.compacting`."""
        grid = cell_grid(self._windows)
        if grid is not None and {total.function for total in self.node.totals} in _TOP_ROWS:
            values = [[self.values.index(value) for value in total.parts] for total in self.node.totals]
            return keep_top_rows(retained, grid, len(self.node.keys), self.node.totals, values)
        cells = self.node.window if isinstance(self.node.window, Session) else grid
        if cells is None or any(map(is_holistic, self.node.totals)):
            return retained
        numbers = [self._number_of(total) for total in self.node.totals]
        return compact_rows(retained, cells, len(self.node.keys), self.node.totals, numbers)

    @property
    def can_summarize(self) -> bool:
        """Whether successive windows contain nearly the same rows, and every aggregate is made of states."""
        return isinstance(self.node.window, Sliding) and not any(map(is_holistic, self.node.totals))

    def results_depend_alike(self, ends_us: tuple[int, int], from_us: int, to_us: int) -> bool:
        low_us, high_us = ends_us
        # All rows have come before the first end, and none leaves before the last one.
        return high_us < from_us and low_us + self.reach_us >= to_us

    def summarize(self, retained: pa.Table) -> pa.Table:
        """Return a row of states for each group, at the time of the latest row; the rows themselves if that saves little."""
        system_us = ticks(retained, "system_us")
        numbers = [self._number_of(total) for total in self.node.totals]
        return merge_rows(retained, np.full_like(system_us, system_us.max()), len(self.node.keys), self.node.totals, numbers)

    def _framing(self, window: AnyWindow) -> Framing:
        exact = [total for total in self.node.totals if not is_holistic(total)]
        numbers = [self._number_of(total) for total in exact]
        return Framing(window, len(self.node.keys), exact, numbers, len(exact) < len(self.node.totals))

    # Windows -> results

    def _results(self, framed: FramedWindows, number: int) -> Iterator[_Results]:
        """
        Yield the results of window *number* of the query, in order, in parts that fit into memory: windows that overlap repeat keys, texts
        and arrays.
        """
        keys = [from_columns(framed.groups, f"g{key}") for key in range(len(self.node.keys))]
        count, over = framed.groups.num_rows, self.node.over_key
        key = encode_keys(keys, count) if over is None else encode_over_keys([keys[number] for number in over], count)
        groups = framed.groups.append_column("key", key)
        yield from in_parts(
            _window_order(framed, groups), lambda windows: self._results_of(framed.merge(windows), groups, framed.rows, number)
        )

    def _results_of(self, windows: pa.Table, groups: pa.Table, rows: pa.Table | None, number: int) -> _Results:
        check_repeated(groups["key"], ticks(windows, "group"))
        leaves, aggregate_failures = self._leaves(windows, groups, rows, number)
        kept, group_failures = self._apply_having(leaves, aggregate_failures, windows.num_rows)
        kept_leaves, windows = {leaf: column.filter_rows(kept) for leaf, column in leaves.items()}, windows.filter(pa.array(kept))
        columns, failures = evaluate([column.expr for column in self.node.columns], kept_leaves, windows.num_rows)
        group = windows["group"]
        results = rows_table(groups["sub"].take(group), windows["system_us"], groups["key"].take(group), columns)
        return _Results(with_reasons(results, [*group_failures, *failures]), groups, group)

    def _apply_having(self, leaves: Mapping[Expr, Variant], failing: Sequence[FailedRows], count: int) -> tuple[Mask, list[FailedRows]]:
        """Return which groups meet HAVING or have failed, and the failures, numbered among those groups."""
        if self.node.having is None:
            return np.ones(count, dtype=np.bool_), list(failing)
        (verdict,), having_failures = evaluate([self.node.having], leaves, count)
        failures = [*failing, *having_failures]
        kept = pc.fill_null(verdict.of_kind(Kind.BIT), False).to_numpy(zero_copy_only=False).copy()
        for failure in failures:
            kept[failure.rows] = True
        # A failed group is kept, since its result becomes a dead letter.
        number = np.cumsum(kept) - 1
        return kept, [FailedRows(number[failure.rows], failure.reason) for failure in failures]

    def _leaves(
        self, windows: pa.Table, groups: pa.Table, rows: SortedRows | None, number: int
    ) -> tuple[dict[Expr, Variant], list[FailedRows]]:
        """Return the columns from which results are computed, and the results for which an aggregate failed."""
        count = windows.num_rows
        leaves: dict[Expr, Variant] = {WindowEnd(): Variant.of(count, {Kind.DATETIME: windows["system_us"]})}
        name = window_id(self.node.window, number)
        leaves[WindowId()] = Variant.of(count, {} if name is None else {Kind.NVARCHAR: pa.array([name] * count, pa.string())})
        exprs = [column.expr for column in self.node.columns] + ([self.node.having] if self.node.having is not None else [])
        for leaf in dict.fromkeys(leaf for expr in exprs for leaf in expr.leaves()):
            if isinstance(leaf, Key):
                leaves[leaf] = repeat_rows(from_columns(groups, f"g{leaf.index}"), ticks(windows, "group"))
        failing: list[FailedRows] = []
        size, picked = 0, dict[Aggregate, Ints]()
        for index, total in enumerate(self.node.totals):
            column, failures = self._total(windows, rows, total, picked)
            leaves[Total(index, "", None)] = column
            failing += failures
            size += variant_bytes(column).sum()
            if size > BUDGET.repeated_bytes and count > 1:
                raise TooMuchAtOnce
        return leaves, failing

    def _total(
        self, windows: pa.Table, rows: SortedRows | None, total: Aggregate, picked: dict[Aggregate, Ints]
    ) -> tuple[Variant, list[FailedRows]]:
        """Return the values of one aggregate, and its failures; *picked* collects the rows that TopOne() picks, by its order."""
        if not is_holistic(total):
            return finish_aggregate(windows, total, self._number_of(total)), []
        assert rows is not None, "rows are framed if an aggregate needs them"
        numbers = [self.values.index(value) for value in total.parts]
        first, last = ticks(windows, "first_row"), ticks(windows, "last_row")
        if total.function != "topone":
            return compute_aggregate(total, list(map(rows.values, numbers)), first, last)
        # TopOne()s of one order pick the same rows; they differ only in the value that they return.
        same = replace(total, arg=None)
        if same not in picked:
            picked[same] = picked_rows(rows.ranks(same, numbers[1:]), first, last)
        return rows.values_at(numbers[0], picked[same]), []

    def _number_of(self, total: Aggregate) -> int | None:
        argument = _argument(total)
        return None if argument is None else self.values.index(_shared_argument(argument, self.values))


def _shared_argument(argument: Expr, others: Sequence[Expr]) -> Expr:
    """Return the argument of SUM or AVG over the same expression, if there is one: a row that has it has no other kind."""
    if isinstance(argument, Required) and argument.requirement is Requirement.COMPARABLE:
        number = replace(argument, requirement=Requirement.NUMBER)
        return number if number in others else argument
    return argument


def _argument(total: Aggregate) -> Expr | None:
    """Return the value that an aggregate needs of each row; for COUNT(x) only whether x is NULL."""
    if total.function == "count" and total.arg is not None:
        return Call("not", (Call("is null", (total.arg,)),))
    return total.arg


def _key_columns(groups: pa.Table) -> list[str]:
    return sorted(name for name in groups.column_names if name.startswith("g"))


def _window_order(framed: FramedWindows, groups: pa.Table) -> Ints:
    """Return the numbers of the windows in the order (system_us, key bytes, keys, sub)."""
    places = _sort_indices(groups, ["key", *_key_columns(groups), "sub"]).to_numpy()
    rank = np.empty(len(places), dtype=np.int64)
    rank[places] = np.arange(len(places))
    count = len(framed.end_us)
    return sort_places(framed.end_us, rank[framed.group], np.arange(count), count)


def _merge_results(results: list[pa.Table]) -> pa.Table:
    """Return the results of several windows or portions, ordered by (system_us, key bytes, keys, number of the window, sub)."""
    merged = concat_rows(results)
    keys = _key_columns(merged)
    ordered = take_rows(merged, _sort_indices(merged, ["system_us", "key", *keys, "window", "sub"]).to_numpy())
    return ordered.drop_columns([*keys, "window"])


def _with_sort_columns(part: _Results, number: int) -> pa.Table:
    """Append the columns that order results among those of other windows and portions."""
    results = part.rows
    for name in _key_columns(part.groups):
        results = results.append_column(name, part.groups[name].take(part.group))
    return results.append_column("window", pa.array(np.full(results.num_rows, number)))


def _sort_indices(table: pa.Table, names: list[str]) -> pa.Array:
    return pc.sort_indices(table.select(names), sort_keys=[(name, "ascending") for name in names])
