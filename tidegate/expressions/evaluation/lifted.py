"""
Lifting: column functions inside an expression are computed first, innermost first, and stand in it as leaves.

Law: a column function is asked for exactly those rows in which its value is reached. What stands behind a CASE or IIF that
goes another way, or behind a value of COALESCE or ISNULL that is there, is not computed and cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tidegate.expressions.functions import columns
from tidegate.expressions.functions.columns import Failure, Rows
from tidegate.expressions.functions.records import member
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Call, Case, Computed, Expr, Property
from tidegate.expressions.variant import Variant, gather

Compute = Callable[[Expr, Mapping[Expr, Variant], int], tuple[Variant, list[Failure]]]
"""An expression without column functions, its leaves, their length -> its column and failures."""


@dataclass
class Lifting:
    """
    The lifting of one expression.

    Args:
        leaves: The column of every leaf; what is computed is added.
        length: Number of rows.
        compute: What computes expressions without column functions.
        whole: What other expressions over the same rows have computed in every row, with its failures.
    """

    leaves: dict[Expr, Variant]
    length: int
    compute: Compute
    whole: dict[Expr, tuple[Variant, list[Failure]]]
    failures: list[Failure] = field(default_factory=list)
    _done: dict[Expr, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def lift(self, expr: Expr, rows: Rows) -> Expr:
        """Return *expr* with leaves for its column functions, computed where it is reached: in *rows*."""
        if expr in self.leaves or not columns.occurs_in(expr):
            return expr
        if isinstance(expr, Case):
            return self._case(expr, rows)
        if isinstance(expr, Call) and expr.name == "iif":
            case = self._case(Case(((expr.args[0], expr.args[1]),), expr.args[2]), rows)
            return expr.rebuilt(case.parts)
        if isinstance(expr, Call) and expr.name in ("coalesce", "isnull"):
            return self._coalesce(expr, rows)
        return self._computed(expr, rows) if columns.is_column(expr) else self._inside(expr, rows)

    def _inside(self, expr: Expr, rows: Rows) -> Expr:
        return expr.rebuilt(tuple(self.lift(part, rows) for part in expr.parts))

    def _case(self, case: Case, rows: Rows) -> Case:
        whens = []
        for condition, value in case.whens:
            asked = self.lift(condition, rows)
            verdict, _ = self._value(asked, rows)
            goes: npt.NDArray[np.bool_] = pc.fill_null(verdict.only(Kind.BIT), False).to_numpy(zero_copy_only=False)
            whens.append((asked, self.lift(value, rows[goes])))
            rows = rows[~goes]
        return Case(tuple(whens), self.lift(case.otherwise, rows), at=case.at)

    def _coalesce(self, call: Call, rows: Rows) -> Expr:
        args = []
        for arg in call.args:
            args.append(self.lift(arg, rows))
            value, _ = self._value(args[-1], rows)
            rows = rows[~value.valid()]
        return call.rebuilt(tuple(args))

    def _value(self, lifted: Expr, rows: Rows) -> tuple[Variant, list[Failure]]:
        """Return a lifted expression in *rows*, and where it fails, numbered as in *rows*."""
        leaves = {leaf: self._taken(leaf, rows) for leaf in lifted.leaves()}
        return (leaves[lifted], []) if lifted in leaves else self.compute(lifted, leaves, len(rows))

    def _taken(self, leaf: Expr, rows: Rows) -> Variant:
        return self.leaves[leaf] if len(rows) == self.length else self.leaves[leaf].take(rows)

    def _computed(self, expr: Expr, rows: Rows) -> Expr:
        leaf = Computed(expr, at=expr.at)
        if expr in self.whole:
            if leaf not in self.leaves:
                self.leaves[leaf], failures = self.whole[expr]
                self.failures += failures
            return leaf
        done = self._done.setdefault(leaf, np.zeros(self.length, dtype=np.bool_))
        rows = rows[~done[rows]]
        if len(rows) or leaf not in self.leaves:
            done[rows] = True
            column, failures = self._called(expr, rows)
            failures = [Failure(rows[failure.rows], failure.reason) for failure in failures]
            self.failures += failures
            known = [(np.flatnonzero(self.leaves[leaf].valid()), self.leaves[leaf])] if leaf in self.leaves else []
            pieces = [(before, column_before.take(before)) for before, column_before in known]
            self.leaves[leaf] = gather(self.length, [*pieces, (rows, column)])
            if len(rows) == self.length and not self.failures:
                self.whole[expr] = self.leaves[leaf], failures
        return leaf

    def _called(self, expr: Expr, rows: Rows) -> tuple[Variant, list[Failure]]:
        """Return the outermost operation of *expr* in *rows*, and where it or its arguments fail."""
        outer = self._inside(expr, rows)
        args, failures = [], []
        for part in outer.parts:
            column, failed = self._value(part, rows)
            args.append(column)
            failures += failed
        if isinstance(expr, Property):
            return member(args[0], expr.path), failures
        assert isinstance(expr, Call)
        function = columns.find(expr.name)
        assert function is not None, f"{expr.name} is registered"
        found, failed_rows = function.rule(args, len(rows))
        told = [Failure(failure.rows, f"{failure.reason}: {expr}") for failure in (*columns.unfit(args, function.takes), *failed_rows)]
        return found, [*failures, *told]
