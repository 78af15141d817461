"""
Shift: each row later by a fixed time. ``shift(flights, minute, 5)``.

Law: a row at s is given once, at s + d, with the columns it has; rows of one instant stay in their order. What is shifted needs
nothing of its future, so rows can only be moved to later instants; and where all rows below c are known, so are those below c + d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from query.operators.lifetimes.offered import Argument, Length, OfferedOperator, RowColumn
from query.operators.rows.instant_rows import Momentary, due_rows
from query.plan.operator import BAD_SCHEMA, Retained, alone


@dataclass(frozen=True)
class Shift(Momentary):
    """The operator; *reach_us* is by how much rows are moved, microseconds."""

    reach_us: int
    sides: int = 1
    apart: None = None
    passes: bool = True

    @property
    def ahead_us(self) -> int:
        """Return by how much rows are moved, microseconds."""
        return self.reach_us

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return the rows at their new times."""
        at = below.schema.get_field_index("system_us")
        return below.set_column(at, "system_us", pc.add(below["system_us"], self.reach_us)), BAD_SCHEMA.empty_table()

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows with from_us <= system_us < to_us, ordered by (system_us, position)."""
        return due_rows(alone(retained), closing).drop_columns(["position"])


def make(columns: Sequence[RowColumn], arguments: Sequence[Argument]) -> tuple[Sequence[RowColumn], Shift]:
    """Make ``shift(rows, unit, n)``."""
    if len(arguments) != 1 or not isinstance(arguments[0], Length):
        raise ValueError("shift takes a length of time: a unit and a number")
    return columns, Shift(arguments[0].us)


SHIFT = OfferedOperator(make, "shift(flights, minute, 5)")
