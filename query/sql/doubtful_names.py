"""
Lint of names: names that stand for a field of the event and may have been meant for something else.

If the name before a point is not an input's, it is a record of the event. A name in WHERE is a field of the input, even if SELECT gives a
column that name. Both are allowed; if they are mistakes, the query finds nothing and reports no error.

Law: a name that is declared, or written after its input's name, is never reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from query.sql.input_clauses import named_table, spelled_name
from query.sql.misused_names import named_by_select
from query.sql.scopes import first_table, joins_and_applies
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.errors import nearest, offset_of
from tidegate.language.expressions.syntax.plain_path import listed_paths


@dataclass(frozen=True, slots=True)
class Doubt:
    """The meaning of a name, its offset in the script, and what to write instead."""

    message: str
    offset: int
    fix: str


def foreign_prefixes(tree: exp.Expr, schemas: Sequence[InputSchema]) -> Iterator[Doubt]:
    """Yield the names before a point that name no input but resemble one, or occur beside others that name one."""
    for select, schema, names in _over_one_input(tree, schemas):
        dotted = [column for column in select.find_all(exp.Column) if len(column.parts) > 1 and column.parent_select is select]
        is_called = any(column.parts[0].name.lower() in names for column in dotted)
        for column in dotted:
            first = column.parts[0].name
            if first.lower() in (*names, "system") or _is_declared(schema, first) or first.lower() in _configured(schema):
                continue
            meant = nearest(first, names)
            if (meant and not _is_plural(first.lower(), meant)) or is_called:
                rest = ".".join(part.name for part in column.parts[1:])
                of_record = f"write {next(iter(names))}.{first}.{rest} for a record of the event"
                fix = f"did you mean {meant}.{rest}? Else {of_record}" if meant else of_record
                yield Doubt(f"{first}.{rest} is in a record {first} of the event: no input is called {first}", offset_of(column), fix)


def names_of_columns(tree: exp.Expr, schemas: Sequence[InputSchema]) -> Iterator[Doubt]:
    """Yield the names in WHERE that SELECT gives to a column."""
    for select, schema, _ in _over_one_input(tree, schemas):
        for column in named_by_select(select):
            if not _is_declared(schema, column.name):
                message = f"{column.name} in WHERE is the event's field, not the column that SELECT names so"
                yield Doubt(message, offset_of(column), "repeat the expression there, or name it in a step")


def _over_one_input(tree: exp.Expr, schemas: Sequence[InputSchema]) -> Iterator[tuple[exp.Select, InputSchema, list[str]]]:
    """Yield each SELECT from one input, with the input and the names that may stand before its fields, the alias first."""
    by_name = {schema.name.lower(): schema for schema in schemas}
    for select in tree.find_all(exp.Select):
        table = first_table(select)
        if not isinstance(table, exp.Table):
            continue
        schema = by_name.get(spelled_name(named_table(table)).lower())
        joins = joins_and_applies(select)
        if schema is not None and all(isinstance(join.this, exp.Lateral) for join in joins):
            names = [table.alias, spelled_name(named_table(table)), *(join.this.alias for join in joins)]
            yield select, schema, [name.lower() for name in names if name]


def _is_declared(schema: InputSchema, name: str) -> bool:
    return any(declared.lower().split(".")[0] == name.lower() for declared in schema.fields)


def _configured(schema: InputSchema) -> set[str]:
    """Return the fields and records of events that the settings of an input name, in lower case."""
    texts = [text for text in (schema.timestamp_by, schema.over) if text]
    return {path[0].lower() for text in texts for path in listed_paths(text)}


def _is_plural(name: str, other: str) -> bool:
    """Return whether one is the other with an s: a record ``sensor`` of an input ``sensors`` is no mistake."""
    return name in (f"{other}s", other.removesuffix("s"))
