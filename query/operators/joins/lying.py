"""
Conditions of ON on how the geometries of two sides lie to each other: ``ST_WITHIN(a.place, b.area) = 1``.

Each row's geometry is read once, not once for each pair. Law: a pair meets such a condition exactly if the condition, evaluated over the
joined row, is true.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordering.arrays import Mask
from query.operators.joins.matching import Pairs
from query.plan.row_tables import Ticks
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.functions.geography import RELATIONS, Shapes, read_geometries, relate
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Expr, Literal, Required, Slot
from tidegate.language.expressions.variant import Variant, from_columns

_SIDES = ((0, 1), (1, 0))


@dataclass(frozen=True, slots=True)
class Lying:
    """A condition that a function of :data:`RELATIONS` has a value; *geometries* are its arguments, *sides* the side of each."""

    function: str
    geometries: tuple[Expr, ...]
    sides: tuple[int, ...]
    value: int
    # The number of columns of the left side.
    width: int

    @classmethod
    def of(cls, condition: Expr, width: int) -> Lying | None:
        """Return a condition as such a one; None if it is another. Left rows have *width* columns."""
        if not isinstance(condition, Call) or condition.name != "=":
            return None
        call, value = sorted(condition.args, key=lambda arg: isinstance(arg, Literal))
        if not isinstance(call, Call) or call.name not in RELATIONS or not isinstance(value, Literal) or value.kind is not Kind.BIGINT:
            return None
        of_leaves = [{int(leaf.index >= width) if isinstance(leaf, Slot) else -1 for leaf in arg.leaves()} for arg in call.args]
        sides = tuple(found.pop() if len(found) == 1 else -1 for found in of_leaves)
        return cls(call.name, call.args, sides, int(str(value.value)), width) if sides in _SIDES else None

    def holds(self, left: pa.Table, right: pa.Table, pairs: Pairs) -> Mask:
        """Return for which pairs it is true."""
        first, second = (self._shapes(number, (left, right), pairs) for number in (0, 1))
        verdict, is_known = relate(self.function, first, second)
        met: Mask = is_known & (verdict == self.value)
        return met

    def _shapes(self, number: int, tables: tuple[pa.Table, pa.Table], pairs: Pairs) -> Shapes:
        """Return the geometry of one argument for each pair; None where there is none, or its row fails."""
        side, expr = self.sides[number], self.geometries[number]
        rows, places = np.unique(pairs[side], return_inverse=True)
        column = _column(expr, tables[side].take(pa.array(rows)), self.width if side else 0)
        shapes: Shapes = read_geometries(column, self.function)[0][places]
        return shapes


def _column(expr: Expr, rows: pa.Table, first_number: int) -> Variant:
    leaves: dict[Expr, Variant] = {
        leaf: from_columns(rows, f"s{leaf.index - first_number}") for leaf in expr.leaves() if isinstance(leaf, Slot)
    }
    (column,), _ = evaluate([expr], leaves, rows.num_rows)
    return column


def conjuncts(condition: Expr) -> list[Expr]:
    """Return the conditions that must all be true."""
    if isinstance(condition, Required):
        return conjuncts(condition.arg)
    if isinstance(condition, Call) and condition.name == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]


def lying_of(condition: Expr, width: int) -> tuple[list[Lying], Expr | None]:
    """Return the conditions on how geometries lie among those of *condition*, and what else it asks."""
    found, others = list[Lying](), list[Expr]()
    for part in conjuncts(condition):
        lying = Lying.of(part, width)
        if lying is None:
            others.append(part)
        else:
            found.append(lying)
    if not found:
        return [], condition
    return found, (others[0] if len(others) == 1 else Call("and", tuple(others))) if others else None


def keep(pairs: Pairs, chosen: Ticks) -> Pairs:
    """Return the pairs at these places."""
    return pairs[0][chosen], pairs[1][chosen]
