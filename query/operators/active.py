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

from ordering.segments import first_above
from query.encode import canonical
from query.operators.base import BAD_SCHEMA, Retained, alone, by_substream, rows_table, ticks
from query.operators.lookback import Groups, Whole, group_numbers
from query.operators.offered import Argument, ColumnArgument, Length, OfferedOperator, RowColumn
from tidegate.runtime.scalars.kinds import Kind
from tidegate.runtime.scalars.variant import Variant, from_columns


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
        every = alone(retained)
        subs = ticks(every, "sub")
        keys = [from_columns(every, f"s{place}") for place in range(len(self.apart))]
        # Within a group the order of equals does not matter, but times must rise.
        by_time = np.argsort(ticks(every, "system_us"), kind="stable")
        every, subs, keys = every.take(pa.array(by_time)), subs[by_time], [key.take(by_time) for key in keys]
        groups = Groups.of(group_numbers(subs, keys), ticks(every, "system_us"))
        sub = subs[groups.order]
        begin, end = (by_substream(sub, closing, name, 0) for name in ("from_us", "to_us"))
        instants, owners = [], []
        for system_us in (groups.system_us, groups.system_us + self.reach_us):
            due = (system_us >= begin) & (system_us < end)
            instants.append(system_us[due])
            owners.append(groups.group[due])
        at, group = _distinct(np.concatenate(instants), np.concatenate(owners))
        begun, ended = (first_above(groups.system_us, groups.group, groups.starts, till, group) for till in (at, at - self.reach_us))
        first = groups.order[groups.starts[group]]
        found = every.take(pa.array(first)).drop_columns(["position"])
        found = found.set_column(found.schema.get_field_index("system_us"), "system_us", pa.array(at))
        found = found.append_column(f"s{len(self.apart)}_{Kind.BIGINT.value}", pa.array(begun - ended))
        names = ["system_us", "key", *sorted(_columns(keys)), "sub"]
        return found.take(pc.sort_indices(found, sort_keys=[(name, "ascending") for name in names]))

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows that end to live at or after to_us."""
        ends = ticks(retained, "system_us") + self.reach_us
        return retained.filter(pa.array(ends >= by_substream(ticks(retained, "sub"), horizon, "to_us", 0)))


def _columns(keys: Sequence[Variant]) -> list[str]:
    return [name for place, key in enumerate(keys) for name in key.columns(f"s{place}")]


def _distinct(at: Whole, group: Whole) -> tuple[Whole, Whole]:
    """Return each pair once."""
    order = np.lexsort((at, group))
    at, group = at[order], group[order]
    fresh = np.ones(len(at), dtype=np.bool_)
    fresh[1:] = (at[1:] != at[:-1]) | (group[1:] != group[:-1])
    return at[fresh], group[fresh]


def make(columns: Sequence[RowColumn], arguments: Sequence[Argument]) -> tuple[Sequence[RowColumn], Active]:
    """Make ``active(rows, unit, n, key, ...)``."""
    keys = [argument for argument in arguments[1:] if isinstance(argument, ColumnArgument)]
    if not arguments or not isinstance(arguments[0], Length) or len(keys) < len(arguments) - 1:
        raise ValueError("active takes a length of time - a unit and a number - and the columns that rows are counted by")
    given = [columns[key.index] for key in keys]
    return (*given, RowColumn("active", "bigint")), Active(arguments[0].us, tuple(key.index for key in keys))


ACTIVE = OfferedOperator(make, "active(flights, minute, 5, origin)")
