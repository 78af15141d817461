"""
Column functions inside an expression: they are computed first, innermost first, and replaced by leaves.

Law: a column function is computed for exactly those rows in which its value is used. It is not computed, and cannot fail, in a branch of
CASE or IIF that is not chosen, or after a value of COALESCE or ISNULL that is not NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from ordering.arrays import Mask
from tidegate.basics.dead_letter_reasons import with_place
from tidegate.language.expressions.functions import column_functions
from tidegate.language.expressions.functions.column_functions import FailedRows, RowNumbers
from tidegate.language.expressions.functions.records import member
from tidegate.language.expressions.functions.zoned_times import compute_zoned
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Case, ComputedCall, Expr, OnlyKind, Property, Zoned
from tidegate.language.expressions.variant import Variant, gather

# The column of an expression, and the rows that failed.
Evaluated = tuple[Variant, list[FailedRows]]
# An expression without column functions, its leaves, their length -> its column and failures.
Compute = Callable[[Expr, Mapping[Expr, Variant], int], Evaluated]


@dataclass
class ColumnCalls:
    """The column functions of one expression over *length* rows."""

    # The column of every leaf; each computed call is added.
    leaves: dict[Expr, Variant]
    length: int
    # Evaluates an expression without column functions.
    compute: Compute
    # Calls computed in every row without a failure, shared by all expressions over the same rows.
    computed_everywhere: dict[Expr, Variant]
    failures: list[FailedRows] = field(default_factory=list)
    _computed_rows: dict[Expr, Mask] = field(default_factory=dict)

    def replace_calls(self, expr: Expr, rows: RowNumbers) -> Expr:
        """Return *expr* with its column functions computed in *rows* and replaced by leaves."""
        if expr in self.leaves or not any(map(self.is_call, expr.walk())):
            return expr
        if isinstance(expr, Case):
            return self._replace_in_case(expr, rows)
        if isinstance(expr, Call) and expr.name == "iif":
            case = self._replace_in_case(Case(((expr.args[0], expr.args[1]),), expr.args[2]), rows)
            return expr.with_parts(case.parts)
        if isinstance(expr, Call) and expr.name in ("coalesce", "isnull"):
            return self._replace_in_coalesce(expr, rows)
        return self._compute_call(expr, rows) if self.is_call(expr) else self._replace_in_parts(expr, rows)

    def is_call(self, expr: Expr) -> bool:
        """Return whether the outermost operation of *expr* is computed apart from the expression around it."""
        return column_functions.is_column_call(expr)

    def _replace_in_parts(self, expr: Expr, rows: RowNumbers) -> Expr:
        return expr.with_parts(tuple(self.replace_calls(part, rows) for part in expr.parts))

    def _replace_in_case(self, case: Case, rows: RowNumbers) -> Case:
        whens = []
        for condition, value in case.whens:
            condition_without_calls = self.replace_calls(condition, rows)
            truth, _ = self._evaluate(condition_without_calls, rows)
            is_true: Mask = pc.fill_null(truth.of_kind(Kind.BIT), False).to_numpy(zero_copy_only=False)
            whens.append((condition_without_calls, self.replace_calls(value, rows[is_true])))
            # Later branches are computed only in rows for which no earlier condition is true.
            rows = rows[~is_true]
        return Case(tuple(whens), self.replace_calls(case.otherwise, rows), offset=case.offset)

    def _replace_in_coalesce(self, call: Call, rows: RowNumbers) -> Expr:
        args = []
        for arg in call.args:
            args.append(self.replace_calls(arg, rows))
            value, _ = self._evaluate(args[-1], rows)
            # Later arguments are computed only in rows in which all earlier ones are NULL.
            rows = rows[~value.valid_mask()]
        return call.with_parts(tuple(args))

    def _evaluate(self, expr: Expr, rows: RowNumbers) -> Evaluated:
        """Evaluate an expression without calls in *rows*; failures are numbered within *rows*."""
        leaves = {leaf: self._leaf_rows(leaf, rows) for leaf in expr.leaves()}
        return (leaves[expr], []) if expr in leaves else self.compute(expr, leaves, len(rows))

    def _leaf_rows(self, leaf: Expr, rows: RowNumbers) -> Variant:
        return self.leaves[leaf] if len(rows) == self.length else self.leaves[leaf].take_rows(rows)

    def _compute_call(self, expr: Expr, rows: RowNumbers) -> Expr:
        leaf = ComputedCall(expr, offset=expr.offset)
        if expr in self.computed_everywhere:
            self.leaves.setdefault(leaf, self.computed_everywhere[expr])
            return leaf
        is_computed = self._computed_rows.setdefault(leaf, np.zeros(self.length, dtype=np.bool_))
        # Another branch of the same expression may have computed the call in some of these rows.
        rows = rows[~is_computed[rows]]
        if len(rows) or leaf not in self.leaves:
            is_computed[rows] = True
            column, failures = self._call_function(expr, rows)
            self.failures += [FailedRows(rows[failure.rows], failure.reason) for failure in failures]
            pieces = [(rows, column)]
            if (earlier := self.leaves.get(leaf)) is not None:
                earlier_rows = np.flatnonzero(earlier.valid_mask())
                pieces.append((earlier_rows, earlier.take_rows(earlier_rows)))
            self.leaves[leaf] = gather(self.length, pieces)
            if len(rows) == self.length and not self.failures:
                self.computed_everywhere[expr] = self.leaves[leaf]
        return leaf

    def _call_function(self, expr: Expr, rows: RowNumbers) -> Evaluated:
        """Compute the outermost operation of *expr* in *rows*; also return the failures of it and of its arguments."""
        args, failures = [], []
        for part in self._replace_in_parts(expr, rows).parts:
            column, failed = self._evaluate(part, rows)
            args.append(column)
            failures += failed
        column, own_failures = self.call(expr, args, len(rows))
        return column, [*failures, *own_failures]

    def call(self, expr: Expr, args: Sequence[Variant], length: int) -> Evaluated:
        """Compute the outermost operation of *expr*, given its arguments."""
        if isinstance(expr, Property):
            return member(args[0], expr.path), []
        if isinstance(expr, Zoned):
            return compute_zoned(expr, args[0]), []
        if isinstance(expr, OnlyKind):
            column = Variant.of(length, {expr.kind: column_functions.argument_column(args[0], expr.kind)})
            own_failures = column_functions.wrong_kinds(args, (expr.kind,))
        else:
            assert isinstance(expr, Call)
            function = column_functions.REGISTERED.get(expr.name)
            assert function is not None, f"{expr.name} is registered"
            column, failed_rows = function.compute(args, length)
            own_failures = [*column_functions.wrong_kinds(args, function.argument_kinds), *failed_rows]
        return column, [FailedRows(failure.rows, with_place(failure.reason, expr)) for failure in own_failures]
