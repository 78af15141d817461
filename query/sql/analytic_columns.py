"""
Analytic functions in a SELECT become columns of its input rows, before WHERE and GROUP BY.

Law: an expression over these columns equals the expression with the functions in it. Each distinct function is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ordering.ticks import format_duration
from query.plan.nodes import Analyze
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.expressions.tree import Analytic, Expr, Slot, replace_parts


def analytics_of(exprs: Iterable[Expr]) -> tuple[Analytic, ...]:
    """Return the distinct analytic functions in expressions, in order of appearance."""
    return tuple(dict.fromkeys(part for expr in exprs for part in expr.walk() if isinstance(part, Analytic)))


def refuse_long(analytics: Iterable[Analytic], source: Source, window_us_max: int) -> None:
    """Raise QueryError if a function looks back further than the longest window."""
    for analytic in analytics:
        if analytic.limit_us > window_us_max:
            function, limit = analytic.function.upper(), format_duration(analytic.limit_us)
            message = f"{function} over {limit} looks back beyond {format_duration(window_us_max)}"
            raise source.error("WINDOW", analytic.offset, message, fix="shorten it, or raise query.window_max in the settings")


def over_columns(analyzed: Analyze) -> Callable[[Expr], Expr]:
    """Return a function that replaces each analytic function in an expression by its column in the rows of *analyzed*."""
    width = len(analyzed.child.columns)
    slots = {
        analytic: Slot(place, column.name, static_kind(column.expr))
        for place, (analytic, column) in enumerate(zip(analyzed.analytics, analyzed.columns[width:], strict=True), start=width)
    }

    def column_of(part: Expr) -> Expr | None:
        return replace(slots[part], offset=part.offset) if isinstance(part, Analytic) else None

    return lambda expr: replace_parts(expr, column_of)
