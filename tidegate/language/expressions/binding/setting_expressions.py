"""
Expressions in settings: the ``timestamp_by`` of an input.

A plain path (:mod:`tidegate.language.expressions.syntax.plain_path`) is a field, even if its words are SQL keywords. Anything else is
parsed as in a query: ``[event time]`` is a field too, ``DATEADD(second, delay, base)`` an expression. Law: ingest and queries bind the same
tree from the same text, so they evaluate alike and can be compared.
"""

from __future__ import annotations

from ordering.errors import QueryError
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.names import InputNames
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.expressions.syntax.parse import parse_expression
from tidegate.language.expressions.syntax.plain_path import plain_path
from tidegate.language.expressions.tree import Aggregate, Cast, Expr, Field, Leaf


def bind_setting(text: str, where: str, schema: InputSchema, aliases: frozenset[str] = frozenset()) -> Expr:
    """Bind the value of setting *where*, a plain path or an expression over the payload; *aliases* may stand before a field's name."""
    path = plain_path(text)
    if path:
        return InputNames(Source(text, where), schema, aliases).field(path)
    source, tree = parse_expression(text, where)
    return ScalarBinder(source, InputNames(source, schema, aliases)).bind(tree, event_clause="TIMESTAMP BY")


def bind_event_time(text: str, where: str, schema: InputSchema) -> Expr:
    """Bind an input's event time as ingest computes it. Raises QueryError: it reads more than the payload, or no field at all."""
    path = plain_path(text)
    if path:
        return Field(path)
    bound = bind_setting(text, where, schema)
    source, _ = parse_expression(text, where)
    foreign = next((part for part in bound.walk() if isinstance(part, (Leaf, Aggregate)) and not isinstance(part, Field)), None)
    if foreign is not None:
        raise source.error("TIMESTAMP", foreign.offset, f"{foreign} is no part of the payload", fix="name a field of the payload")
    if not bound.leaves():
        raise source.error("TIMESTAMP", -1, f"{bound} names no field: all events would have one time", fix="name a field")
    return bound


def bind_condition(text: str, where: str, schema: InputSchema, aliases: frozenset[str] = frozenset()) -> Expr:
    """Bind a condition on one event's payload, given in flag *where*. Raises QueryError: it reads more than the payload, or no field."""
    # Without parentheses "a = 1" would be a column called a.
    source, tree = parse_expression(f"({text})", where)
    bound = ScalarBinder(source, InputNames(source, schema, aliases)).bind(tree, event_clause=where)
    foreign = next((part for part in bound.walk() if isinstance(part, (Leaf, Aggregate)) and not isinstance(part, Field)), None)
    if foreign is not None or not bound.leaves():
        what = f"{foreign} is no part of the payload" if foreign is not None else f"{bound} names no field"
        raise source.error("CONDITION", -1, what, fix="compare a field of the payload", example=f"{where} \"order_id = 'o-1'\"")
    return bound


def path_of(bound: Expr) -> tuple[str, ...] | None:
    """Return the path if the expression is just a field, else None."""
    inner = bound.arg if isinstance(bound, Cast) and bound.declared else bound
    return inner.path if isinstance(inner, Field) else None


def field_paths(bound: Expr) -> tuple[tuple[str, ...], ...]:
    """Return the paths of all fields in an expression."""
    return tuple(leaf.path for leaf in bound.leaves() if isinstance(leaf, Field))


def canonical_text(text: str, where: str, schema: InputSchema) -> str:
    """Return the same text for all spellings of an event time that mean the same: a dotted path, or ``=`` and the expression."""
    bound = bind_event_time(text, where, schema)
    path = path_of(bound)
    if path and not any("." in name for name in path):
        return ".".join(path)
    declared = {f"{part.arg}: {part.kind.asa_name}".lower() for part in bound.walk() if isinstance(part, Cast) and part.declared}
    return " ".join([f"= {bound}", *sorted(declared)])


def event_time_problem(text: str) -> str:
    """Return the problem of an event time that no input could make valid, with its column; empty if there is none."""
    try:
        bind_event_time(text, "", InputSchema("input"))
    except QueryError as error:
        column = error.where.rpartition(":")[2]
        place = f"column {column}: " if column.isdigit() else ""
        return f"{place}{error.what}; {error.fix}" if error.fix else f"{place}{error.what}"
    return ""
