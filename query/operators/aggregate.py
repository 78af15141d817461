"""
Aggregates over tumbling and hopping windows.

Rows are first added up by (substream, group, pane), then panes to windows, so the cost of a hopping window hardly grows
as its hop shrinks. Every state added up is exact - counts, 128-bit integer sums, exact float sums
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

from query.duck import connection, registered, run
from query.encode import canonical, encode_keys, encode_objects
from query.evaluate import evaluate
from query.expressions import Aggregate, Call, Expr, Key, Total, WindowEnd
from query.kinds import Kind
from query.operators.base import RESULT_SCHEMA, Ticks, by_substream, ticks
from query.operators.exact_sum import pieces
from query.operators.rows import RowStage
from query.operators.totals import States, extreme, mean, summed
from query.operators.windows import Window
from query.plan import Plan, WindowedAggregate
from query.variant import Variant, from_columns

CELLS_MAX = 4_000_000
"""Most (pane, window) pairs computed at once; bounds memory where hops are many."""


@dataclass(frozen=True)
class WindowAggregation:
    """The operator of a :class:`query.plan.WindowedAggregate`."""

    plan: Plan
    node: WindowedAggregate
    cells_max: int = CELLS_MAX
    values: tuple[Expr, ...] = field(init=False)

    def __post_init__(self) -> None:
        arguments = [value for total in self.node.totals if (value := _argument(total)) is not None]
        object.__setattr__(self, "values", tuple(dict.fromkeys(_shared(value, arguments) for value in arguments)))

    @property
    def window(self) -> Window:
        """The window."""
        return self.node.window

    def prepare(self, events: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return position, sub, system_us, keys (``g0_s``, ...) and values (``v0_i``, ...) of the rows kept, and the bad rows."""
        keys = self.node.keys
        kept, columns, bad = RowStage(self.plan.predicate, (*keys, *self.values)).apply(events)
        retained = {name: kept[name] for name in ("position", "sub", "system_us")}
        for at, column in enumerate(columns[: len(keys)]):
            retained |= canonical(column).columns(f"g{at}")
        for at, column in enumerate(columns[len(keys) :]):
            retained |= column.columns(f"v{at}")
        return pa.table(retained), bad

    def finish(self, retained: pa.Table, closing: pa.Table) -> pa.Table:
        """Return one result per window and group, ordered by (system_us, key bytes, keys, sub)."""
        found = [self._results(windows) for windows in self._windows(self._due(retained, closing), closing)]
        return pa.concat_tables(found) if found else RESULT_SCHEMA.empty_table()

    def expire(self, retained: pa.Table, horizon: pa.Table) -> pa.Table:
        """Return the rows that belong to a window with end >= to_us."""
        system_us = ticks(retained, "system_us")
        last = self.window.last_end(system_us)
        needed = (last >= by_substream(ticks(retained, "sub"), horizon, "to_us", 0)) & (last >= system_us)
        return retained if needed.all() else retained.filter(pa.array(needed))

    def first_end(self, system_us: Ticks) -> Ticks:
        """Return the first window end each event counts for."""
        return self.window.first_end(system_us)

    def last_end(self, system_us: Ticks) -> Ticks:
        """Return the last window end each event counts for."""
        return self.window.last_end(system_us)

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
        states = States(rows.column_names, self.node.totals, tuple(map(self._value_of, self.node.totals)))
        groups = ["sub", *sorted(name for name in rows.column_names if name.startswith("g"))]
        if self.window.tumbling:
            yield self._one_slice(rows, states, groups)
        else:
            yield from self._hopping(rows, closing, states, groups)

    def _one_slice(self, rows: pa.Table, states: States, groups: list[str]) -> pa.Table:
        by = ", ".join(["pane", *groups])
        cells = f"SELECT {by}, {states.collect} FROM input GROUP BY {by}"
        windows = run(f"SELECT pane AS system_us, {', '.join(groups)}, {states.export} FROM ({cells})", input=rows)
        for at in states.float_values:
            limbs = run(f"SELECT {by}, limb, sum(piece) AS amount FROM input GROUP BY {by}, limb", input=_pieces(rows, at, groups))
            windows = _with_limbs(windows, limbs.rename_columns({"pane": "system_us"}), at, groups)
        return windows

    def _hopping(self, rows: pa.Table, closing: pa.Table, states: States, groups: list[str]) -> Iterator[pa.Table]:
        by, window = ", ".join(["pane", *groups]), self.window
        con = connection()
        try:
            with registered(input=rows):
                con.execute(f"CREATE OR REPLACE TEMP TABLE cells AS SELECT {by}, {states.collect} FROM input GROUP BY {by}")
            for at in states.float_values:
                with registered(input=_pieces(rows, at, groups)):
                    con.execute(
                        f"CREATE OR REPLACE TEMP TABLE limbs{at} AS SELECT {by}, limb, sum(piece) AS amount FROM input GROUP BY {by}, limb"
                    )
            counts = con.sql("SELECT pane, count(*) AS n FROM cells GROUP BY pane ORDER BY pane").to_arrow_table()
            for low, high in self._chunks(ticks(counts, "pane"), ticks(counts, "n"), closing):
                spread = _spread(window, low, high)
                each = ", ".join(["system_us", *groups])
                sql = f"SELECT {each}, {states.merge} FROM ({spread.format(table='cells')}) GROUP BY {each}"
                windows = run(f"SELECT {each}, {states.export} FROM ({sql})", closing=closing)
                for at in states.float_values:
                    table = spread.format(table=f"limbs{at}")
                    limbs = run(f"SELECT {each}, limb, sum(amount) AS amount FROM ({table}) GROUP BY {each}, limb", closing=closing)
                    windows = _with_limbs(windows, limbs, at, groups)
                if windows.num_rows:
                    yield windows
        finally:
            for name in ("cells", *(f"limbs{at}" for at in states.float_values)):
                con.execute(f"DROP TABLE IF EXISTS {name}")

    def _chunks(self, panes: Ticks, counts: Ticks, closing: pa.Table) -> Iterator[tuple[int, int]]:
        """Yield ranges [low, high) of window ends, few enough each that *cells_max* pairs are not exceeded (or one end)."""
        window, hop = self.window, self.window.hop_us
        before = np.concatenate([[0], np.cumsum(counts)])
        earliest = np.array([max(int(panes[0]), int(ticks(closing, "from_us").min()))])
        low = int(window.first_end(earliest)[0])
        stop = min(int(window.last_end(panes[-1:])[0]) + 1, int(ticks(closing, "to_us").max()))
        while low < stop:
            ends = -(-(stop - low) // hop)
            while (
                ends > 1 and _cells(panes, before, low - window.size_us, low + (ends - 1) * hop) * min(ends, window.hops) > self.cells_max
            ):
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
        results = {
            "sub": windows["sub"],
            "system_us": windows["system_us"],
            "key": encode_keys(chosen, count),
            "value": encode_objects([column.name for column in self.node.columns], columns, count),
        }
        order = {name: windows[name] for name in sorted(windows.column_names) if name.startswith("g")}
        sorting = pa.table({"system_us": results["system_us"], "key": results["key"], **order, "sub": results["sub"]})
        by = ", ".join(f"{name} NULLS FIRST" for name in sorting.column_names)
        rows = run(f"SELECT row FROM sorting ORDER BY {by}", sorting=sorting.append_column("row", pa.array(np.arange(count))))["row"]
        return pa.table(results).take(rows).cast(RESULT_SCHEMA)

    def _leaves(self, windows: pa.Table) -> dict[Expr, Variant]:
        leaves: dict[Expr, Variant] = {WindowEnd(): Variant.of(windows.num_rows, {Kind.DATETIME: windows["system_us"]})}
        for at in range(len(self.node.keys)):
            leaves[Key(at, "", None)] = from_columns(windows, f"g{at}")
        for at, total in enumerate(self.node.totals):
            leaves[Total(at, "", None)] = self._total(total, windows)
        return leaves

    def _total(self, total: Aggregate, windows: pa.Table) -> Variant:
        value = self._value_of(total)
        if total.function == "count":
            column = windows["n" if value is None else f"c{value}"]
            return Variant.of(windows.num_rows, {Kind.BIGINT: column})
        assert value is not None
        if total.function in ("sum", "avg"):
            return (summed if total.function == "sum" else mean)(windows, value)
        return extreme(windows, value, largest=total.function == "max")

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


def _cells(panes: Ticks, before: Ticks, after_us: int, until_us: int) -> int:
    """Count the cells with pane in (after_us, until_us]."""
    start, end = np.searchsorted(panes, [after_us, until_us], side="right")
    return int(before[end] - before[start])


def _spread(window: Window, low: int, high: int) -> str:
    """Return a query that repeats each cell of {table} for every closing window end in [low, high) that it counts for."""
    first = f"pane + ((({window.offset_us} - pane) % {window.hop_us}) + {window.hop_us}) % {window.hop_us}"
    beyond = f"pane + {window.size_us - window.pane_us + 1}"
    ends = f"unnest(range(greatest({first}, {low}), least({beyond}, {high}), {window.hop_us}))"
    return (
        f"SELECT s.* FROM (SELECT *, {ends} AS system_us FROM {{table}} WHERE pane < {high} AND pane > {low - window.size_us}) AS s "
        "JOIN closing AS c ON s.sub = c.sub WHERE system_us >= c.from_us AND system_us < c.to_us"
    )


def _pieces(rows: pa.Table, value: int, groups: list[str]) -> pa.Table:
    """Return the pieces of a value's floats with the groups they belong to; pieces of nothing are left out."""
    floats = rows[f"v{value}_f"].combine_chunks()
    having = rows.select(["pane", *groups]).filter(floats.is_valid())
    tables = []
    for limb, piece in pieces(floats.drop_null().to_numpy()):
        table = having.append_column("limb", pa.array(limb)).append_column("piece", pa.array(piece))
        tables.append(table.filter(pa.array(piece != 0)))
    return pa.concat_tables(tables)


def _with_limbs(windows: pa.Table, limbs: pa.Table, value: int, groups: list[str]) -> pa.Table:
    """Add the limbs of a float sum to the windows they belong to, as two list columns."""
    same = " AND ".join(f"w.{name} IS NOT DISTINCT FROM l.{name}" for name in ("system_us", *groups))
    sql = (
        f"SELECT w.row, list(l.limb ORDER BY l.limb) AS limbs, list(CAST(l.amount AS BIGINT) ORDER BY l.limb) AS amounts "
        f"FROM windows AS w JOIN limbs AS l ON {same} GROUP BY w.row ORDER BY w.row"
    )
    found = run(sql, windows=windows.append_column("row", pa.array(np.arange(windows.num_rows))), limbs=limbs)
    at = np.full(windows.num_rows, -1, dtype=np.int64)
    at[ticks(found, "row")] = np.arange(found.num_rows)
    rows = pa.array(at, mask=at < 0)
    for name in ("limbs", "amounts"):
        windows = windows.append_column(f"{name}{value}", found[name].take(rows))
    return windows
