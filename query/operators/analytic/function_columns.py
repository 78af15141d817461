"""
The columns that analytic functions need beside those of a row: conditions, keys and arguments, computed once when the row comes.

A function's argument is computed only in rows that meet its WHEN, so ``LAG(CAST(x AS bigint)) OVER (... WHEN ok = 1)`` cannot fail in other
rows. A row is bad if any of these expressions fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Mask
from query.operators.rows.row_stage import RowStage
from query.plan.nodes import Analyze, predicates_of
from query.plan.row_tables import append_values, first_reasons, ticks
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.tree import Expr, Literal, Slot
from tidegate.language.expressions.variant import Variant, from_columns, gather

# The number of rows that a row of states stands for; null in a row that stands for itself.
ROW_COUNT = "n"
# An expression, and the condition under which it is computed; None: always.
_Value = tuple[Expr, Expr | None]


@dataclass(frozen=True)
class AnalyticColumns:
    """The additional columns of one :class:`query.plan.nodes.Analyze`."""

    node: Analyze

    def prepare(self, below: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows with columns ``w0`` (whether the first condition is met), ..., ``v0_i``, ... (the values), and the bad rows."""
        values, conditions = self._values, self._conditions
        always = [expr for expr, when in values if when is None]
        kept, columns, bad = RowStage(predicates_of(self.node), tuple(always)).apply(below)
        computed: dict[_Value, Variant] = {(expr, None): column for expr, column in zip(always, columns, strict=True)}
        table, reasons = kept, [bad]
        for number, when in enumerate(conditions):
            exprs = [expr for expr, condition in values if condition == when]
            meeting, columns, bad = RowStage((when,), tuple(exprs)).apply(kept)
            rows = np.searchsorted(ticks(kept, "position"), ticks(meeting, "position"))
            table = table.append_column(f"w{number}", pa.array(np.isin(np.arange(kept.num_rows), rows)))
            computed |= {(expr, when): gather(kept.num_rows, [(rows, column)]) for expr, column in zip(exprs, columns, strict=True)}
            reasons.append(bad)
        for number, value in enumerate(values):
            table = append_values(table, f"v{number}", computed[value])
        failed = first_reasons(reasons)
        if failed.num_rows:
            table = table.filter(pc.invert(pc.is_in(table["position"], failed["position"].combine_chunks())))
        return table, failed

    def input_columns(self, rows: pa.Table) -> list[str]:
        # Conditions are w0, w1, ..., arguments v0_i, ..., states t0.n, ...; those of rows are s0_i, ... and sub, system_us, key.
        return [name for name in rows.column_names if name not in ("position", ROW_COUNT) and name[0] not in "vwt"]

    def condition_mask(self, rows: pa.Table, when: Expr | None) -> Mask | None:
        """Return which rows meet a condition, None if there is no condition."""
        if when is None:
            return None
        mask: Mask = rows[f"w{self._conditions.index(when)}"].to_numpy()
        return mask

    def value(self, rows: pa.Table, expr: Expr, when: Expr | None = None) -> Variant:
        """Return the values of an expression; in rows that do not meet *when* they are meaningless."""
        if isinstance(expr, Slot):
            return from_columns(rows, f"s{expr.index}")
        if isinstance(expr, Literal):
            (column,), _ = evaluate([expr], {}, rows.num_rows)
            return column
        return from_columns(rows, f"v{self._values.index((expr, when))}")

    @property
    def are_computed(self) -> bool:
        """Whether there is anything to compute, so that a row can fail."""
        return bool(self._values or self._conditions)

    @cached_property
    def _conditions(self) -> list[Expr]:
        return list(dict.fromkeys(analytic.when for analytic in self.node.analytics if analytic.when is not None))

    @cached_property
    def _values(self) -> list[_Value]:
        """The expressions to compute: all but columns of the rows and constants."""
        values: list[_Value] = []
        for analytic in self.node.analytics:
            values += [(key, None) for key in analytic.partition]
            values += [(analytic.default, None)] if analytic.default is not None else []
            values += [(part, analytic.when) for part in analytic.inputs]
        return list(dict.fromkeys(value for value in values if not isinstance(value[0], (Slot, Literal))))


def state_name(number: int, state: str) -> str:
    """Name the column of a state of function *number*."""
    return f"t{number}.{state}"
