"""
Origins: an expression over the rows of a node, traced back to expressions over the events from which the rows come.

If rows can come about in several ways, such as by each part of a union, an expression has one origin for each way. The origin is unknown if
the value is computed from more than one event or from a time that is not the event's own, or if it can be NULL whatever the event holds
(the right side of a left join).

Law: if every origin is known, an expression's value in a row is the value of one of its origins in one of the events from which the row
comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from query.plan.nodes import (
    Analyze,
    Apply,
    Custom,
    Filter,
    Join,
    Node,
    Project,
    ReferenceJoin,
    Rows,
    Scan,
    Union,
    WindowedAggregate,
    source_of,
)
from tidegate.language.expressions.tree import Expr, Key, Slot, replace_parts


@dataclass(frozen=True, slots=True)
class Origin:
    """An expression over the events of one input."""

    input: str
    expr: Expr


# One for each way in which rows come about; None if it is unknown.
Origins = tuple[Origin | None, ...]


def origins(node: Node, expr: Expr) -> Origins:
    """Return the origins of an expression over the rows of *node*."""
    if isinstance(node, Filter):
        return origins(node.child, expr)
    leaves = expr.leaves()
    if not leaves:
        # A constant keeps no rows apart.
        return (None,)
    if isinstance(node, Scan):
        return (Origin(node.input, expr),)
    slots = [leaf for leaf in leaves if isinstance(leaf, Slot)]
    if len(slots) < len(leaves):
        return (None,)
    if isinstance(node, Union):
        return tuple(origin for part in node.parts for origin in origins(part, expr))
    if isinstance(node, Project):
        return origins(source_of(node), _substitute(expr, [column.expr for column in node.columns])) if node.columns else (None,)
    if isinstance(node, WindowedAggregate):
        over_groups = _substitute(expr, [column.expr for column in node.columns])
        is_of_keys = all(isinstance(leaf, Key) for leaf in over_groups.leaves())
        return origins(source_of(node), _substitute(over_groups, node.keys)) if is_of_keys else (None,)
    if isinstance(node, Join):
        return _of_joined(node, expr, slots)
    below = _node_with_same_columns(node)
    if below is not None and all(slot.index < len(below.columns) for slot in slots):
        return origins(below, expr)
    return (None,)


def _of_joined(node: Join, expr: Expr, slots: Sequence[Slot]) -> Origins:
    width = len(node.left.columns)
    on_left = [slot.index < width for slot in slots]
    if all(on_left):
        return origins(node.left, expr)
    if any(on_left) or node.outer:
        return (None,)
    return origins(node.right, renumber_columns(expr, width))


def _node_with_same_columns(node: Node) -> Rows | None:
    """Return the node below if the columns of *node* begin with its columns, else None."""
    if isinstance(node, ReferenceJoin):
        return node.left
    if isinstance(node, (Analyze, Apply)) or (isinstance(node, Custom) and node.operator.keeps_columns):
        return node.child
    return None


def _substitute(expr: Expr, values: Sequence[Expr]) -> Expr:
    """Replace each numbered column in an expression by the expression in *values*."""
    return replace_parts(expr, lambda part: values[part.index] if isinstance(part, (Slot, Key)) else None)


def renumber_columns(expr: Expr, by: int) -> Expr:
    """Renumber the columns of an expression: number *by* becomes 0."""
    return replace_parts(expr, lambda part: replace(part, index=part.index - by) if isinstance(part, Slot) else None)
