"""
Parts of a statement that the parser understands and this dialect does not have.

Law: every part that would be parsed and then left out is refused, since the results would be those of another script. Clauses with an
error message of their own are refused where statements are bound.
"""

from __future__ import annotations

from sqlglot import exp

from tidegate.language.expressions.syntax.errors import Source

_ROWS = "rows come in the order of time; take the first ones of a window by CollectTop"
# By kind of node: its name, the parts of it that have a meaning, and what to write in place of others.
_READ: dict[type[exp.Expr], tuple[str, frozenset[str], str]] = {
    exp.Star: ("*", frozenset(), "name the columns that you want"),
    exp.With: ("WITH", frozenset({"expressions"}), "leave it out: a step reads inputs and the steps above it"),
    exp.CTE: ("a step", frozenset({"this", "alias"}), "leave it out"),
    exp.Union: ("a UNION", frozenset({"this", "expression", "distinct", "with_"}), f"leave it out: {_ROWS}"),
    exp.Subquery: ("a subquery", frozenset({"this", "alias"}), "leave it out, or write the SELECT as a step"),
}


def refuse_ignored_parts(node: exp.Expr, source: Source) -> None:
    """Raise QueryError if *node*, without the nodes below it, has a part that would be left out."""
    alias = node.args.get("alias") if isinstance(node, (exp.CTE, exp.Subquery, exp.Lateral)) else None
    if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
        raise source.error("SYNTAX", alias, f"{alias.name} takes no list of columns", fix="name them by AS in the SELECT")
    kind, read, fix = _READ.get(type(node), ("", frozenset(node.args), ""))
    for name, part in node.args.items():
        if part and name not in read:
            place = part[0] if isinstance(part, list) else part if isinstance(part, exp.Expr) else node
            words = "ORDER BY" if name == "order" else name.strip("_").upper()
            raise source.not_yet(place, f"{words} of {kind} is", fix=fix)
