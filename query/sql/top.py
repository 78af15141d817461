"""
TOP n of a SELECT with a window: of the rows of one instant, the first n in the order of ORDER BY.

The SELECT is rewritten in the language itself: CollectTop over the rows of each instant, then a row for each element of its array. A SELECT
without a window is refused: its first rows would depend on where a run starts.
"""

from __future__ import annotations

from sqlglot import exp, parse_one

from query.plan.nodes import Rows
from tidegate.language.expressions.binding.local_times import zone_of
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.dialect import Asa
from tidegate.language.expressions.syntax.errors import Source, offset_of
from tidegate.language.expressions.tree import Expr

# The name under which the rewritten SELECT reads the rows of the one without TOP.
STEP = "TOP"
TOP_EXAMPLE = "SELECT TOP 5 k, COUNT(*) AS n FROM i GROUP BY k, TumblingWindow(minute, 1) ORDER BY n DESC"
# A member of a record has no static type. CAST gives members of these kinds the type of their column again, for typed tables and files.
_CAST = (Kind.BIT, Kind.BIGINT, Kind.FLOAT, Kind.DATETIME, Kind.NVARCHAR)


def has_top(select: exp.Select, source: Source) -> bool:
    """Return whether the SELECT has TOP. Raises QueryError if it has no window, no ORDER BY, or a variant of TOP."""
    limit = select.args.get("limit")
    if not isinstance(limit, exp.Limit) or not _is_top(limit, source):
        return False
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        raise source.not_yet(limit, "TOP with PERCENT or WITH TIES is", fix="give a number of rows", example=TOP_EXAMPLE)
    if not isinstance(limit.expression, exp.Literal) or not limit.expression.this.isdecimal() or not 0 < int(limit.expression.this) < 2**63:
        raise source.error("TYPE", limit, "TOP takes a number of rows", fix="write a whole number from 1 on", example=TOP_EXAMPLE)
    if not select.args.get("group"):
        message = "TOP needs a window: the first rows of a stream depend on where a run starts"
        raise source.error("GROUP", limit, message, fix="add GROUP BY with a window, and ORDER BY", example=TOP_EXAMPLE)
    if not select.args.get("order"):
        fix = "say by ORDER BY which rows are the first"
        raise source.error("GROUP", limit, "TOP needs ORDER BY: rows of one instant have no order", fix=fix, example=TOP_EXAMPLE)
    return True


def _is_top(limit: exp.Expr, source: Source) -> bool:
    """Return whether the script says TOP, which the parser reads as it reads LIMIT."""
    return source.text[: max(offset_of(limit), 0)].rstrip(" \t\r\n(").upper().endswith("TOP")


def without_top(select: exp.Select) -> exp.Select:
    """Return the SELECT whose rows TOP chooses from."""
    whole = select.copy()
    whole.set("limit", None)
    whole.set("order", None)
    return whole


def rewrite_top(select: exp.Select, rows: Rows, source: Source) -> exp.Expr:
    """Return the SELECT that chooses from *rows*, the rows of the SELECT without TOP, which it reads as the step :data:`STEP`."""
    names = [exp.to_identifier(column.name, quoted=True).sql(Asa) for column in rows.columns]
    order = ", ".join(_order_term(term, select, rows, names, source) for term in select.args["order"].expressions)
    members = [f"e.ArrayValue.[value].{name}" for name in names]
    values = [_typed(member, column.expr) for member, column in zip(members, rows.columns, strict=True)]
    columns = [f"{value} AS {name}" for value, name in zip(values, names, strict=True)]
    collected = f"CollectTop({select.args['limit'].expression.this}) OVER (ORDER BY {order}) AS top_rows"
    instants = f"(SELECT {collected} FROM [{STEP}] GROUP BY System.Timestamp()) AS t"
    rewritten = parse_one(f"SELECT {', '.join(columns)} FROM {instants} CROSS APPLY GetArrayElements(t.top_rows) AS e", read=Asa)
    for node in rewritten.walk():
        # Errors name the author's TOP, not a place in this text.
        node.meta["start"] = offset_of(select.args["limit"])
    return rewritten


def _typed(member: str, expr: Expr) -> str:
    """Return the SQL of a *member* that holds the values of *expr*."""
    kind, zone = static_kind(expr), zone_of(expr)
    typed = f"CAST({member} AS {kind.asa_name})" if kind in _CAST else member
    return typed if zone is None else f"{typed} AT TIME ZONE '{zone}'"


def _order_term(term: exp.Ordered, select: exp.Select, rows: Rows, names: list[str], source: Source) -> str:
    chosen = zip(select.expressions, rows.columns, names, strict=True)
    direction = "DESC" if term.args.get("desc") else "ASC"
    for expression, column, name in chosen:
        is_named = isinstance(term.this, exp.Column) and not term.this.table and term.this.name.lower() == column.name.lower()
        if is_named or term.this == expression.unalias():
            return f"{name} {direction}"
    fix = "select what it orders by, and name that"
    raise source.error("NAME", term, "ORDER BY of TOP takes columns of the SELECT", fix=fix, example=TOP_EXAMPLE)
