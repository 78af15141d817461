"""
An operator that plugs into tidegate: ``FROM debounce(readings, sensor, second, 30) AS r``.

A row passes only if no other row with its value in the column named came within the time named before it; a row exactly as old
as that still holds it back, and of rows of one instant the first one does. Rows that are held back hold others back too: a sensor
that never falls silent is heard once.

Its results depend on the rows up to them and no further back than that time, so it keeps these rows and nothing else: what it
knows of the past is in the rows, and a job that is killed and restored, or is started later, says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from query.operators.rows.row_groups import group_numbers
from query.plan.operator import Operator
from query.plan.operator_extensions import Argument, ColumnArgument, Length, OperatorExtension, RowColumn
from query.plan.row_tables import BAD_SCHEMA, Retained, by_substream, only_side, ticks
from tidegate.expressions.variant import from_columns


@dataclass(frozen=True)
class Debouncing(Operator):
    """
    The operator.

    Args:
        key: The number of the column whose values are debounced separately.
        silence_us: How long a row holds others back, microseconds.
    """

    key: int
    silence_us: int

    @property
    def reach_us(self) -> int:
        """A row has a say in results until it holds back no more."""
        return self.silence_us

    @property
    def key_columns(self) -> tuple[int, ...]:
        """Rows that differ in the key never meet, so the work can be spread by it."""
        return (self.key,)

    @property
    def keeps_columns(self) -> bool:
        """Rows pass as they are."""
        return True

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Keep rows as they are; none is bad."""
        return below, BAD_SCHEMA.empty_table()

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows that pass, of the slice of time that is asked for, in the order of time."""
        rows = only_side(retained)
        rows = rows.take(pa.array(np.argsort(ticks(rows, "system_us"), kind="stable")))
        subs, system_us = ticks(rows, "sub"), ticks(rows, "system_us")
        groups = group_numbers(subs, [from_columns(rows, f"s{self.key}")])
        order = np.argsort(groups, kind="stable")
        held = (np.diff(groups[order]) == 0) & (np.diff(system_us[order]) <= self.silence_us)
        passing = np.ones(len(order), dtype=np.bool_)
        passing[order[1:]] = ~held
        passing &= (system_us >= by_substream(subs, closing, "from_us", 0)) & (system_us < by_substream(subs, closing, "to_us", 0))
        return rows.filter(pa.array(passing)).drop_columns(["position"])

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Keep the rows that can hold back a row to come."""
        until_us = ticks(retained, "system_us") + self.silence_us
        return retained.filter(pa.array(until_us >= by_substream(ticks(retained, "sub"), horizon, "to_us", 0)))


def make(columns: Sequence[RowColumn], arguments: Sequence[Argument]) -> tuple[Sequence[RowColumn], Debouncing]:
    """Make the operator of a call; what it raises is what people read."""
    match list(arguments):
        case [ColumnArgument(index=key), Length(us=us)]:
            return columns, Debouncing(key, us)
    raise ValueError("debounce takes a column and a length of time")


debounce = OperatorExtension(make, "debounce(readings, sensor, second, 30)")
