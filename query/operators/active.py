"""
Active: how many rows are alive. ``active(flights, minute, 5, origin)`` counts for each origin the flights of the last five minutes.

A row at s lives in [s, s + n): at s it counts, at s + n it does so no more. Law: of each group - a substream and the values
of the columns named; NULL is a value of its own - there is one row at each instant at which any of its rows begins or ends to
live, however many do; it holds how many are alive then, 0 when the last one has ended. Rows of one instant are ordered by the
values of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.segments import first_above, sorted_places
from query.encode import canonical
from query.operators.base import BAD_SCHEMA, Retained, alone, by_substream, rows_table, ticks
from query.operators.lookback import Groups, Whole, group_numbers
from query.operators.offered import Argument, ColumnArgument, Length, OfferedOperator, RowColumn
from tidegate.runtime.scalars.kinds import Kind
from tidegate.runtime.scalars.variant import from_columns


@dataclass(frozen=True)
class Active:
    """The operator; *reach_us* is how long a row lives, microseconds, *apart* are the columns by which rows are grouped."""

    reach_us: int
    apart: tuple[int, ...]
    sides: int = 1

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return position, substream, time and the grouping columns."""
        keys = [canonical(from_columns(below, f"s{index}")) for index in self.apart]
        rows = rows_table(below["sub"], below["system_us"], below["key"], keys)
        return rows.append_column("position", below["position"]), BAD_SCHEMA.empty_table()

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the counts at from_us <= system_us < to_us, ordered by (system_us, key bytes, grouping columns, sub)."""
        every, groups = self._grouped(alone(retained))
        at, group, alive = _instants(groups, self.reach_us)
        sub = ticks(every, "sub")[groups.order[groups.starts[group]]]
        due = (at >= by_substream(sub, closing, "from_us", 0)) & (at < by_substream(sub, closing, "to_us", 0))
        at, group, alive = at[due], group[due], alive[due]
        owners = every.take(pa.array(groups.order[groups.starts[:-1]])).drop_columns(["position", "system_us"])
        order = sorted_places(at, _ranks(owners)[group], np.arange(len(at)), len(at))
        found = owners.take(pa.array(group[order]))
        found = found.append_column("system_us", pa.array(at[order]))
        return found.append_column(f"s{len(self.apart)}_{Kind.BIGINT.value}", pa.array(alive[order]))

    def _grouped(self, rows: pa.Table) -> tuple[pa.Table, Groups]:
        """Return the rows in the order of time, and their groups."""
        system_us = ticks(rows, "system_us")
        if (np.diff(system_us) < 0).any():
            rows = rows.take(pa.array(np.argsort(system_us, kind="stable")))
        keys = [from_columns(rows, f"s{place}") for place in range(len(self.apart))]
        return rows, Groups.of(group_numbers(ticks(rows, "sub"), keys), ticks(rows, "system_us"))

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows that end to live at or after to_us."""
        ends = ticks(retained, "system_us") + self.reach_us
        return retained.filter(pa.array(ends >= by_substream(ticks(retained, "sub"), horizon, "to_us", 0)))


def _instants(groups: Groups, lifetime_us: int) -> tuple[Whole, Whole, Whole]:
    """
    Return the instants at which rows begin or end to live, each once for its group.

    Returns:
        The instants, the numbers of their groups, and how many rows are alive then.
    """
    is_first = np.ones(len(groups.order), dtype=np.bool_)
    is_first[1:] = (groups.system_us[1:] != groups.system_us[:-1]) | (groups.group[1:] != groups.group[:-1])
    first = np.flatnonzero(is_first)
    begins, group = groups.system_us[first], groups.group[first]
    # The place after the rows that have begun at an instant is the one after those that have ended a lifetime later.
    upto = np.append(first[1:], len(is_first))
    ended = _until(groups, begins - lifetime_us, group)
    ends = begins + lifetime_us
    begun = _until(groups, ends, group)
    # An end at which another row begins is an instant already.
    only = groups.system_us[begun - 1] != ends
    alive = np.concatenate([upto - ended, (begun - upto)[only]])
    return np.concatenate([begins, ends[only]]), np.concatenate([group, group[only]]), alive


def _until(groups: Groups, till: Whole, group: Whole) -> Whole:
    """Return the place after the last row of each group that is no later than an instant."""
    return first_above(groups.system_us, groups.group, groups.starts, till, group)


def _ranks(owners: pa.Table) -> Whole:
    """Return the rank of each group in the order of (key bytes, grouping columns, sub)."""
    columns = sorted(name for name in owners.column_names if name not in ("sub", "key"))
    order = pc.sort_indices(owners, sort_keys=[(name, "ascending") for name in ("key", *columns, "sub")]).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def make(columns: Sequence[RowColumn], arguments: Sequence[Argument]) -> tuple[Sequence[RowColumn], Active]:
    """Make ``active(rows, unit, n, key, ...)``."""
    keys = [argument for argument in arguments[1:] if isinstance(argument, ColumnArgument)]
    if not arguments or not isinstance(arguments[0], Length) or len(keys) < len(arguments) - 1:
        raise ValueError("active takes a length of time - a unit and a number - and the columns that rows are counted by")
    given = [columns[key.index] for key in keys]
    if len({column.name.lower() for column in given} | {"active"}) <= len(given):
        raise ValueError("active takes each column once, and none that is called active")
    return (*given, RowColumn("active", "bigint")), Active(arguments[0].us, tuple(key.index for key in keys))


ACTIVE = OfferedOperator(make, "active(flights, minute, 5, origin)")
