"""
An operator that plugs into tidegate: ``FROM debounce(readings, sensor, second, 30) AS r``.

A row passes only if no other row with its value in the column named came within the time named before it. A row exactly that old
still holds it back; of rows of one instant the first passes. Rows that are held back hold others back too: a sensor that never
falls silent passes once.

Results depend on the rows up to them, no further back than that time. The operator keeps these rows and nothing else, so a job
that is killed and restored, or is started later, gives the same results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.query.extending import (
    BAD_SCHEMA,
    Argument,
    ColumnArgument,
    Length,
    Operator,
    OperatorExtension,
    Retained,
    RowColumn,
    by_substream,
    from_columns,
    group_numbers,
    only_side,
    ticks,
)


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
        """A row can hold others back this long; a restart reads so much more."""
        return self.silence_us

    @property
    def key_columns(self) -> tuple[int, ...]:
        """Rows that differ in the key never meet, so the work can be spread by it."""
        return (self.key,)

    @property
    def keeps_columns(self) -> bool:
        """Rows pass with the columns they have."""
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
        # A stable sort keeps each group in the order of time, so a row's predecessor in its group stands just before it.
        order = np.argsort(groups, kind="stable")
        is_held_back = (np.diff(groups[order]) == 0) & (np.diff(system_us[order]) <= self.silence_us)
        passes = np.ones(len(order), dtype=np.bool_)
        passes[order[1:]] = ~is_held_back
        passes &= (system_us >= by_substream(subs, closing, "from_us")) & (system_us < by_substream(subs, closing, "to_us"))
        return rows.filter(pa.array(passes)).drop_columns(["position"])

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Keep the rows that can hold back a row to come."""
        until_us = ticks(retained, "system_us") + self.silence_us
        return retained.filter(pa.array(until_us >= by_substream(ticks(retained, "sub"), horizon, "to_us")))


def make(columns: Sequence[RowColumn], arguments: Sequence[Argument]) -> tuple[Sequence[RowColumn], Debouncing]:
    """Make the operator of a call; the text of the error becomes the error of the script."""
    match list(arguments):
        case [ColumnArgument(index=key), Length(us=us)]:
            return columns, Debouncing(key, us)
    raise ValueError("debounce takes a column and a length of time")


debounce = OperatorExtension(make, "debounce(readings, sensor, second, 30)")
