"""
Names with another meaning than their author expects: a text in double quotes is a name; WHERE cannot use an alias of SELECT.

Law: a name that a relation is known to have is that column. Another name in double quotes is a text if no relation can have such a column,
on the right of a comparison, and as a value that CASE chooses; lint warns of all three. There, a name with brackets is refused: it may be
either. ``[name]`` always means the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from query.sql.scopes import Relation
from tidegate.language.expressions.syntax.errors import Source, offset_of

_COMPARING = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like)


def names_meant_as_texts(clauses: Iterable[exp.Expr], relations: Sequence[Relation], source: Source) -> frozenset[int]:
    """Return the offsets of the names in *clauses* that are texts by their place. Raises QueryError: a name there may be either."""
    known = {name.lower() for relation in relations for name in relation.known_columns}
    names = [name for name in _places_of_texts(clauses) if is_quoted(name, source) and name.name.lower() not in known]
    for name in names:
        if set("[]") & set(name.name):
            message, fix = f'"{name.name}" may be a field or a text', text_or_field(name.name)
            raise source.error("FIELD", name, message, fix=fix)
    return frozenset(map(offset_of, names))


def refuse_new_names_in_where(select: exp.Select, relations: Sequence[Relation], source: Source) -> None:
    """Raise QueryError, with its place and a fix, if WHERE uses a name that SELECT gives."""
    for name in named_by_select(select):
        if not any(relation.may_have((name.name,)) for relation in relations):
            message = f"{name.name} is a name that SELECT gives a column, and WHERE is evaluated before SELECT"
            raise source.error("FIELD", name, message, fix="repeat the expression there, or name it in a step")


def text_or_field(name: str) -> str:
    """Return the fix for a name in double quotes: the text in single ones, or the field in brackets."""
    return f"write '{name}' for the text, [{name.replace(']', ']]')}] for the field"


def is_quoted(column: exp.Column, source: Source) -> bool:
    """Return whether *column* is a single name in double quotes."""
    offset = offset_of(column)
    return len(column.parts) == 1 and offset >= 0 and source.text[offset] == '"'


def named_by_select(select: exp.Select) -> Iterator[exp.Column]:
    """Yield the names in WHERE that SELECT uses as an alias for something other than the field of that name."""
    where = select.args.get("where")
    aliases = {
        node.alias.lower()
        for node in select.expressions
        if isinstance(node, exp.Alias) and not any(column.name.lower() == node.alias.lower() for column in node.find_all(exp.Column))
    }
    for column in where.find_all(exp.Column) if where and aliases else ():
        if len(column.parts) == 1 and column.name.lower() in aliases:
            yield column


def clauses_over_rows(select: exp.Select) -> list[exp.Expr]:
    """Return the clauses of a SELECT whose names are those of its rows; ON has names of its own."""
    values = [select.args.get(name) for name in ("expressions", "where", "having", "group")]
    return [node for value in values for node in (value if isinstance(value, list) else [value]) if node]


def _places_of_texts(clauses: Iterable[exp.Expr]) -> Iterator[exp.Column]:
    """Yield the names on the right of comparisons, and those that are values of a CASE."""
    for part in (part for clause in clauses for part in clause.find_all(*_COMPARING, exp.In, exp.Between, exp.Case)):
        values = [*part.expressions, *(part.args.get(part_name) for part_name in ("expression", "low", "high", "default"))]
        values += [value for branch in part.args.get("ifs", ()) for value in (branch.this if part.this else None, branch.args.get("true"))]
        yield from (node for node in values if isinstance(node, exp.Column))
