"""
Active: how many rows are alive. ``active(flights, minute, 5, origin)`` counts for each origin the flights of the last five minutes.

A row lives from its own time for a fixed time, until an end that a column holds, or until an edge
(:mod:`query.operators.lifetimes.lifetime_rules`). At its end it no longer counts. A group is a substream and the values of the named
columns; NULL is a value of its own.

Law: a group has one row at each instant at which a life of its rows begins or ends, with the number of rows alive then, which is 0 when the
last one has ended. Rows of one instant are ordered by the values of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.columns.segments import sort_places
from query.columns.encode import encode_keys
from query.columns.same_values import canonicalize
from query.operators.lifetimes.lifetime_rules import ForLength, Lifetime, UntilColumn, UntilEdge, count_alive
from query.operators.rows.row_groups import RowGroups, group_numbers
from query.plan.operator import Operator
from query.plan.operator_extensions import Argument, ColumnArgument, Length, NamedColumn, OperatorExtension, RowColumn
from query.plan.row_tables import Retained, by_substream, in_slice, no_rows, only_side, rows_table, ticks
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant, from_columns


class _LivingRows(NamedTuple):
    """The rows that live, in the order of time, their groups, and place by place the end of their lives."""

    rows: pa.Table
    groups: RowGroups
    ends_us: Ints


@dataclass(frozen=True)
class Active(Operator):
    """The operator; *lifetime* decides how long a row lives, *keys* are the columns by which rows are grouped."""

    lifetime: Lifetime
    keys: tuple[int, ...]
    # The columns that hold nothing but floats, which stay floats.
    floats: frozenset[int] = frozenset()

    @property
    def key_columns(self) -> tuple[int, ...]:
        return self.keys

    @property
    def reach_us(self) -> int:
        return self.lifetime.longest_us

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return position, substream, time, the grouping columns, the columns of the lifetime, and the bad rows."""
        below, marks, bad = self.lifetime.mark_rows(below)
        keys = [canonicalize(from_columns(below, f"s{index}"), keeps_floats=index in self.floats) for index in self.keys]
        rows = rows_table(below["sub"], below["system_us"], below["key"], keys)
        for name, column in {"position": below["position"], **marks}.items():
            rows = rows.append_column(name, column)
        return rows, bad

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the counts at from_us <= system_us < to_us, ordered by (system_us, grouping columns, sub)."""
        living, groups, ends_us = self._living_rows(only_side(retained))
        if not living.num_rows:
            return no_rows()
        instants, group, alive = count_alive(groups, ends_us)
        sub = ticks(living, "sub")[groups.order[groups.starts[group]]]
        due = in_slice(sub, instants, closing)
        instants, group, alive = instants[due], group[due], alive[due]
        owners = self._owners(living.take(pa.array(groups.order[groups.starts[:-1]])))
        order = sort_places(instants, _ranks(owners)[group], np.arange(len(instants)), len(instants))
        counts = owners.take(pa.array(group[order])).append_column("system_us", pa.array(instants[order]))
        return counts.append_column(f"s{len(self.keys)}_{Kind.BIGINT.value}", pa.array(alive[order]))

    def _living_rows(self, rows: pa.Table) -> _LivingRows:
        system_us = ticks(rows, "system_us")
        if (np.diff(system_us) < 0).any():
            rows = rows.take(pa.array(np.argsort(system_us, kind="stable")))
        is_living, ends_us = self.lifetime.find_ends(rows, self._keys(rows))
        if is_living is not None and not is_living.all():
            rows, ends_us = rows.filter(pa.array(is_living)), ends_us[is_living]
        groups = RowGroups.of(group_numbers(ticks(rows, "sub"), self._keys(rows)), ticks(rows, "system_us"))
        return _LivingRows(rows, groups, ends_us[groups.order])

    def _keys(self, rows: pa.Table) -> list[Variant]:
        return [from_columns(rows, f"s{place}") for place in range(len(self.keys))]

    def _owners(self, rows: pa.Table) -> pa.Table:
        """Return substream, key and grouping columns of groups; rows of one group can have had different record keys."""
        keys = self._keys(rows)
        key = encode_keys(keys, rows.num_rows)
        return rows_table(rows["sub"], rows["system_us"], key, keys).drop_columns(["system_us"])

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        ends = ticks(retained, "until_us") if "until_us" in retained.column_names else ticks(retained, "system_us") + self.reach_us
        return retained.filter(pa.array(ends >= by_substream(ticks(retained, "sub"), horizon, "to_us")))


def _ranks(owners: pa.Table) -> Ints:
    """Return the rank of each group in the order of (grouping columns, sub)."""
    columns = sorted(name for name in owners.column_names if name not in ("sub", "key"))
    order = pc.sort_indices(owners, sort_keys=[(name, "ascending") for name in (*columns, "sub")]).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def make_active(columns: Sequence[RowColumn], arguments: Sequence[Argument]) -> tuple[Sequence[RowColumn], Active]:
    """Make ``active(rows, unit, n, key, ...)``, with ``ends = column``, or ``edge = column`` and ``span = column``, anywhere after n."""
    keys = [argument for argument in arguments[1:] if isinstance(argument, ColumnArgument)]
    named = [argument for argument in arguments[1:] if isinstance(argument, NamedColumn)]
    if not arguments or not isinstance(arguments[0], Length) or len(keys) + len(named) < len(arguments) - 1:
        raise ValueError("active takes a length of time - a unit and a number - and the columns that rows are counted by")
    grouping = [columns[key.index] for key in keys]
    if len({column.name.lower() for column in grouping} | {"active"}) <= len(grouping):
        raise ValueError("active takes each column once, and none that is called active")
    lifetime = _lifetime(arguments[0].us, {column.name: column.index for column in named}, columns)
    floats = frozenset(key.index for key in keys if columns[key.index].kind == Kind.FLOAT.asa_name)
    return (*grouping, RowColumn("active", "bigint")), Active(lifetime, tuple(key.index for key in keys), floats)


def _lifetime(longest_us: int, places: Mapping[str, int], columns: Sequence[RowColumn]) -> Lifetime:
    if "ends" in places and len(places) > 1:
        raise ValueError("active takes ends, a column of the rows that live, or edge, one of rows that end others, not both")
    if "span" in places and "edge" not in places:
        raise ValueError("span says which rows an edge ends: active takes it with edge = column only")
    if "edge" in places:
        return UntilEdge(longest_us, places["edge"], places.get("span"))
    if "ends" not in places:
        return ForLength(longest_us)
    column = columns[places["ends"]]
    if column.kind not in ("any", "datetime", "nvarchar(max)"):
        raise ValueError(f"ends of active is a datetime, and {column.name} is {column.kind}")
    return UntilColumn(longest_us, places["ends"], column.name)


ACTIVE = OperatorExtension(make_active, "active(flights, minute, 5, origin)", named_columns=("ends", "edge", "span"))
