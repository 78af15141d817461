"""
Conditions of ON on how the geometries of two sides lie to each other: ``ST_WITHIN(a.place, b.area) = 1``, ``ST_DISTANCE(a.p, b.p) < 500``.

Each row's geometry is read once, not once for each pair. Where one side is a table, a tree of its geometries' boxes finds the pairs that
can meet the condition (:mod:`query.operators.joins.near`). Law: a pair meets such a condition exactly if the condition, evaluated over the
joined row, is true.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ordering.arrays import Mask
from query.operators.joins.matching import Pairs
from query.operators.joins.reach import are_within_reach
from query.plan.row_tables import Ticks
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.functions.geography import RELATIONS, Shapes, distances, read_geometries, relate
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Expr, Literal, Required, Slot
from tidegate.language.expressions.variant import Variant, from_columns

_SIDES = ((0, 1), (1, 0))
DISTANCE = "st_distance"
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Beyond it a bigint may have no equal float.
_EXACT_MAX = 2**53


class SideShapes:
    """The geometries that an expression gives for the rows of a side; each is read when it is first needed."""

    def __init__(self, rows: pa.Table, expr: Expr, first_number: int) -> None:
        self._rows, self._expr, self._first_number = rows, expr, first_number
        self._shapes: Shapes = np.full(rows.num_rows, None, dtype=np.object_)
        self._is_read = np.zeros(rows.num_rows, dtype=np.bool_)

    def at(self, rows: Ticks) -> Shapes:
        """Return the geometry of each of these rows; None where there is none, or the row fails."""
        wanted = np.unique(rows)
        missing = wanted[~self._is_read[wanted]]
        if len(missing):
            column = _column(self._expr, self._rows.take(pa.array(missing)), self._first_number)
            self._shapes[missing] = read_geometries(column, "")[0]
            self._is_read[missing] = True
        chosen: Shapes = self._shapes[rows]
        return chosen

    def all(self) -> Shapes:
        """Return those of all rows."""
        return self.at(np.arange(len(self._shapes)))


@dataclass
class Geometries:
    """The geometries of two sides, by the expressions that give them. Left rows have *width* columns."""

    left: pa.Table
    right: pa.Table
    width: int
    # Those of the right side, which may be known from other left rows.
    of_right: dict[Expr, SideShapes] = field(default_factory=dict)
    _of_left: dict[Expr, SideShapes] = field(default_factory=dict)

    def of(self, side: int, expr: Expr) -> SideShapes:
        """Return what an expression over a side gives for its rows."""
        known = self.of_right if side else self._of_left
        if expr not in known:
            known[expr] = SideShapes(self.right if side else self.left, expr, self.width if side else 0)
        return known[expr]


@dataclass(frozen=True, slots=True)
class Lying:
    """
    A condition that a function of :data:`RELATIONS`, or the distance, compares so to a value; *geometries* are its arguments, *sides* the
    side of each.
    """

    function: str
    geometries: tuple[Expr, ...]
    sides: tuple[int, ...]
    comparison: str
    value: float

    @classmethod
    def of(cls, condition: Expr, width: int) -> Lying | None:
        """Return a condition as such a one; None if it is another. Left rows have *width* columns."""
        if not isinstance(condition, Call) or condition.name not in _MIRRORED:
            return None
        call, value = condition.args
        comparison = condition.name
        if isinstance(call, Literal):
            call, value, comparison = value, call, _MIRRORED[comparison]
        if not isinstance(call, Call) or not isinstance(value, Literal) or not _is_asked(call.name, comparison, value):
            return None
        of_leaves = [{int(leaf.index >= width) if isinstance(leaf, Slot) else -1 for leaf in arg.leaves()} for arg in call.args]
        sides = tuple(found.pop() if len(found) == 1 else -1 for found in of_leaves)
        return cls(call.name, call.args, sides, comparison, float(str(value.value))) if sides in _SIDES else None

    def holds(self, geometries: Geometries, pairs: Pairs) -> Mask:
        """Return for which pairs it is true."""
        first, second = (self.shapes(geometries, number).at(pairs[self.sides[number]]) for number in (0, 1))
        if self.function == DISTANCE:
            metres, is_known = distances(first, second, are_within_reach(first, second, self.value))
            near: Mask = is_known & (metres < self.value if self.comparison == "<" else metres <= self.value)
            return near
        verdict, is_known = relate(self.function, first, second)
        met: Mask = is_known & (verdict == self.value)
        return met

    def shapes(self, geometries: Geometries, number: int) -> SideShapes:
        """Return the geometries of one argument."""
        return geometries.of(self.sides[number], self.geometries[number])

    def of_side(self, geometries: Geometries, side: int) -> SideShapes:
        """Return the geometries of the argument that is of a side."""
        return self.shapes(geometries, self.sides.index(side))

    @property
    def needs_nearness(self) -> bool:
        """Whether only pairs meet it whose boxes, widened by the distance, have a point in common."""
        return self.function == DISTANCE or self.value == 1


def _is_asked(function: str, comparison: str, value: Literal) -> bool:
    """Return whether a comparison of a function is one that :class:`Lying` knows."""
    if function in RELATIONS:
        return comparison == "=" and value.kind is Kind.BIGINT and abs(int(str(value.value))) < _EXACT_MAX
    is_number = value.kind in (Kind.BIGINT, Kind.FLOAT) and abs(float(str(value.value))) < _EXACT_MAX
    return function == DISTANCE and comparison in ("<", "<=") and is_number


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
