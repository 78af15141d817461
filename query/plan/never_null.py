"""
Columns that are never NULL, whatever the events hold: what ``lint`` and ``plan`` do not warn of.

Law: a column that is named has a value in every result. The reverse does not hold: of a column that is not named nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from query.plan.nodes import Analyze, Apply, Filter, Join, Node, Plan, Project, ReferenceJoin, Union, WindowedAggregate, predicates_of
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import (
    Arrival,
    Call,
    Case,
    CaseFolded,
    Cast,
    EventId,
    Expr,
    Key,
    Literal,
    PartitionId,
    RecordOffset,
    Required,
    Requirement,
    Slot,
    SystemTimestamp,
    Total,
    WindowEnd,
)

_ALWAYS = (Arrival, EventId, PartitionId, RecordOffset, SystemTimestamp, WindowEnd)
# Conditions that are true only if all their sides have a value.
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "like", "between"})


def columns_never_null(plan: Plan) -> frozenset[str]:
    """Return the names of a plan's columns that are never NULL."""
    columns = _columns(plan.root)
    return frozenset(column.name for column, has_value in zip(plan.root.columns, columns, strict=True) if has_value)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known to have a value: expressions by conditions that hold, and numbered values."""

    exprs: frozenset[Expr] = frozenset()
    slots: Sequence[bool] = ()
    keys: Sequence[bool] = ()
    totals: Sequence[bool] = ()

    def has_value(self, expr: Expr) -> bool:
        if expr in self.exprs or isinstance(expr, _ALWAYS):
            return True
        if isinstance(expr, Literal):
            return expr.kind is not Kind.NULL
        for kind, values in ((Slot, self.slots), (Key, self.keys), (Total, self.totals)):
            if isinstance(expr, kind):
                return expr.index < len(values) and values[expr.index]
        if isinstance(expr, Cast):
            # A value that cannot be converted makes the row a dead letter.
            return not expr.lenient and self.has_value(expr.arg)
        if isinstance(expr, Case):
            return all(map(self.has_value, [*(value for _, value in expr.whens), expr.otherwise]))
        if isinstance(expr, Call):
            return expr.name in ("coalesce", "isnull") and any(map(self.has_value, expr.args))
        if isinstance(expr, (Required, CaseFolded)):
            return self.has_value(expr.arg)
        return False


def _columns(node: Node) -> Sequence[bool]:
    """Return for each column of a node whether it always has a value; nothing of an input, which has fields instead."""
    if isinstance(node, Filter):
        known = _Known(frozenset(_proven([node.predicate])))
        return [has_value or Slot(index, "", None) in known.exprs for index, has_value in enumerate(_columns(node.child))]
    if isinstance(node, Project):
        known = _known_below(node)
        return [known.has_value(column.expr) for column in node.columns]
    if isinstance(node, WindowedAggregate):
        known = _known_below(node)
        of_group = _Known(
            frozenset(_proven([] if node.having is None else [node.having])),
            keys=[known.has_value(key) for key in node.keys],
            totals=[total.function == "count" for total in node.totals],
        )
        return [of_group.has_value(column.expr) for column in node.columns]
    if isinstance(node, Union):
        return [all(values) for values in zip(*map(_columns, node.parts), strict=True)]
    if isinstance(node, Join):
        right = _columns(node.right)
        return [*_columns(node.left), *([False] * len(right) if node.outer else right)]
    first: Sequence[bool] = ()
    if isinstance(node, (Analyze, Apply)):
        first = _columns(node.child)
    elif isinstance(node, ReferenceJoin):
        first = _columns(node.left)
    columns: Sequence[object] = getattr(node, "columns", ())
    return [*first, *[False] * (len(columns) - len(first))]


def _known_below(node: Project | WindowedAggregate) -> _Known:
    return _Known(frozenset(_proven(predicates_of(node))), slots=_columns(node.child))


def _proven(conditions: Iterable[Expr]) -> Iterator[Expr]:
    """Yield the expressions that have a value wherever all *conditions* are true."""
    for condition in conditions:
        match condition:
            case Required(requirement=Requirement.CONDITION, arg=arg):
                yield from _proven([arg])
            case Call(name="and", args=args):
                yield from _proven(args)
            case Call(name="not", args=(Call(name="is null", args=(value,)),)):
                yield value
            case Call(name=name, args=args) if name in _COMPARISONS:
                yield from (_unwrapped(arg) for arg in args)


def _unwrapped(expr: Expr) -> Expr:
    return _unwrapped(expr.arg) if isinstance(expr, (Required, CaseFolded)) else expr
