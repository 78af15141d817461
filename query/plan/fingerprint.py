"""
What decides results and is not read off a plan's text: the declared types of the fields that it reads, and whether comparisons
of texts ignore case. Law: two scripts whose plans print alike and that agree in this compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from query.plan.nodes import Column, Plan, walk
from tidegate.expressions.tree import Call, Cast, Expr

FOLD = "fold"
"""The function that texts are put through to be compared ignoring case."""


def types_and_case(plans: Sequence[Plan]) -> dict[str, str]:
    """Return it as text, by names under which a checkpoint may remember it."""
    nodes = dict.fromkeys(node for plan in plans for node in walk(plan.root))
    read = [part for node in nodes for one in fields(node) for part in _parts(getattr(node, one.name))]  # type: ignore[arg-type]
    types = dict.fromkeys(f"{part.arg} {part.kind.asa_name}" for part in read if isinstance(part, Cast) and part.declared)
    folds = any(isinstance(part, Call) and part.name == FOLD for part in read)
    return {"types": ", ".join(types), "case": "ignored" if folds else "distinguished"}


def _parts(value: object) -> Iterator[Expr]:
    """Yield every expression that a field of a node holds, and every part of it."""
    if isinstance(value, Column):
        value = value.expr
    if isinstance(value, Expr):
        yield from value.walk()
    elif isinstance(value, tuple):
        for one in value:
            yield from _parts(one)
