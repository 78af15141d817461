"""
The part of a plan's fingerprint that its text does not show: declared types of fields, and whether comparisons of texts ignore case.

Law: two scripts whose plans print alike and that agree in this part compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from query.plan.nodes import Plan, exprs_in, walk
from tidegate.expressions.tree import Call, Cast

# The function that folds the case of texts before they are compared.
FOLD = "fold"


def types_and_case(plans: Sequence[Plan]) -> dict[str, str]:
    """Return both parts as text, under the names by which a checkpoint records them."""
    nodes = dict.fromkeys(node for plan in plans for node in walk(plan.root))
    exprs = [expr for node in nodes for expr in exprs_in(node)]
    types = dict.fromkeys(f"{expr.arg} {expr.kind.asa_name}" for expr in exprs if isinstance(expr, Cast) and expr.declared)
    folds = any(isinstance(expr, Call) and expr.name == FOLD for expr in exprs)
    return {"types": ", ".join(types), "case": "ignored" if folds else "distinguished"}
