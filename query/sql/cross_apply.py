"""
Binding of CROSS APPLY and OUTER APPLY: each row is paired with each element of its array, or each member of its record.

``FROM x CROSS APPLY GetArrayElements(x.a) AS e`` adds the relation ``e`` with the columns ArrayIndex and ArrayValue,
``GetRecordProperties(x.r) AS p`` one with PropertyName and PropertyValue. An APPLY may use everything before it, so nested arrays take one
APPLY each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from query.plan.nodes import Apply, Column, Project, Rows, Scan, element_columns
from query.sql.column_layout import Layout
from query.sql.scopes import Relation, ScopeNames, joins_and_applies
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.evaluation.static_kinds import check_kinds
from tidegate.language.expressions.kinds import KindMismatch
from tidegate.language.expressions.syntax.errors import Source, offset_of, suggest
from tidegate.language.expressions.tree import Expr, Required, Requirement, Slot

_TAKES = {"getarrayelements": Requirement.ARRAY, "getrecordproperties": Requirement.RECORD}
_EXAMPLE = "FROM i CROSS APPLY GetArrayElements(i.readings) AS r"


@dataclass(frozen=True)
class ApplyClause:
    """One APPLY: the name of its columns, its array or record, and whether a row without elements is kept."""

    name: str
    value: Required
    outer: bool

    @property
    def relation(self) -> Relation:
        columns = tuple(Column(name, Slot(place, name, kind)) for place, (name, kind) in enumerate(element_columns(self.value)))
        return Relation(self.name, frozenset({self.name.lower()}), Project(Scan(self.name), columns), is_applied=True)


@dataclass(frozen=True)
class ApplyClauses:
    """The APPLYs of one SELECT, in the order of the script."""

    clauses: tuple[ApplyClause, ...]

    @property
    def relations(self) -> list[Relation]:
        return [clause.relation for clause in self.clauses]

    @property
    def exprs(self) -> list[Expr]:
        return [clause.value for clause in self.clauses]

    def rows(self, child: Rows, layout: Layout) -> Rows:
        for clause in self.clauses:
            value = layout.over_columns(clause.value)
            assert isinstance(value, Required)
            child = Apply(child, value, clause.outer, clause.name)
        return child


def bind_applies(select: exp.Select, relations: Sequence[Relation], source: Source) -> ApplyClauses:
    """Bind the APPLYs of a SELECT over the relations before them."""
    joins = joins_and_applies(select)
    laterals = [join.this for join in joins if isinstance(join.this, exp.Lateral)]
    if laterals and not isinstance(joins[-1].this, exp.Lateral):
        fix = "write JOINs first, or APPLY in a step"
        raise source.error("SYNTAX", joins[-1], "a JOIN stands after an APPLY", fix=fix, example=_EXAMPLE)
    relations_before, applied = list(relations), []
    for lateral in laterals:
        applied.append(_bind_apply(lateral, relations_before, source))
        relations_before.append(applied[-1].relation)
    return ApplyClauses(tuple(applied))


def _bind_apply(lateral: exp.Lateral, relations: Sequence[Relation], source: Source) -> ApplyClause:
    call, offset = lateral.this, offset_of(lateral)
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name not in _TAKES or len(call.expressions) != 1:
        fix = suggest(name, ["GetArrayElements", "GetRecordProperties"], "apply GetArrayElements(array) or GetRecordProperties(record)")
        raise source.error("FUNCTION", offset, "APPLY takes elements of an array or a record", fix=fix, example=_EXAMPLE)
    alias = str(lateral.alias)
    if not alias or any(alias.lower() in relation.names for relation in relations):
        message = f"there is already an input, step or APPLY named {alias}" if alias else f"{call.name} in APPLY needs a name"
        raise source.error("NAME", offset, message, fix="write AS and a name of its own", example=_EXAMPLE)
    argument, binder = call.expressions[0], ScalarBinder(source, ScopeNames(source, relations))
    row = binder.bind_row(argument) if _TAKES[name] is Requirement.RECORD else None
    bound = row or binder.bind(argument, event_clause="APPLY")
    value = Required(bound, _TAKES[name], offset=bound.offset)
    try:
        check_kinds(value)
    except KindMismatch as problem:
        raise source.error("TYPE", offset, f"{problem}: {value}", fix="convert with CAST or TRY_CAST", example=_EXAMPLE) from None
    return ApplyClause(alias, value, not lateral.args.get("cross_apply"))
