"""
Shift: each row later by a fixed time. ``shift(flights, minute, 5)``.

Law: a row at s comes once, at s + d, with unchanged columns; rows of one instant keep their order. Rows only move to later instants, so if
all input rows below c are known, all results below c + d are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from query.operators.rows.instant_rows import InstantRows
from query.plan.operator_extensions import Argument, Length, OperatorExtension, RowColumn
from query.plan.row_tables import BAD_SCHEMA


@dataclass(frozen=True)
class Shift(InstantRows):
    """The operator that moves rows by *shift_us*."""

    shift_us: int

    @property
    def reach_us(self) -> int:
        return self.shift_us

    @property
    def ahead_us(self) -> int:
        return self.shift_us

    @property
    def key_columns(self) -> None:
        return None

    @property
    def keeps_columns(self) -> bool:
        return True

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        place = below.schema.get_field_index("system_us")
        return below.set_column(place, "system_us", pc.add(below["system_us"], self.shift_us)), BAD_SCHEMA.empty_table()


def make_shift(columns: Sequence[RowColumn], arguments: Sequence[Argument]) -> tuple[Sequence[RowColumn], Shift]:
    """Make ``shift(rows, unit, n)``."""
    if len(arguments) != 1 or not isinstance(arguments[0], Length):
        raise ValueError("shift takes a length of time: a unit and a number")
    return columns, Shift(arguments[0].us)


SHIFT = OperatorExtension(make_shift, "shift(flights, minute, 5)")
