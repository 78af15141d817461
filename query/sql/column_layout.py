"""
Layout: the source of each value in the expressions of a SELECT.

Over one input alone, expressions read its payload. Over a step, a join or rows with analytic columns they read columns by number: the named
columns of an input, all columns of a step. The columns of joined relations follow each other in the order of the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from query.plan.nodes import Column, Filter, Project, Rows, Scan
from query.sql.scopes import Relation, RelationLeaf, slot
from tidegate.language.expressions.tree import Cast, Expr, Slot, SystemTimestamp, replace_parts


@dataclass(frozen=True)
class Layout:
    """For each relation the node of its rows, and the number of each named column by the expression that names it."""

    rows: tuple[Scan | Filter | Rows, ...]
    places: dict[Expr, Slot]

    @classmethod
    def of_one(cls, relation: Relation) -> Layout:
        return cls((relation.rows,), {})

    @classmethod
    def of(cls, relations: Sequence[Relation], exprs: Iterable[Expr]) -> Layout:
        """Lay out relations for all the expressions over their rows."""
        named = list(dict.fromkeys(part for expr in exprs for part in _named_columns(expr)))
        rows: list[Rows] = []
        places: dict[Expr, Slot] = {}
        shift = 0
        for index, relation in enumerate(relations):
            rows_below, naming = _lay_out_relation(index, relation, [part for part in named if _relation_of(part) == index])
            of = f"{relation.name}." if len(relations) > 1 else ""
            for place, name in enumerate(naming):
                column = slot(rows_below, place, shift=shift)
                places[name] = replace(column, title=f"{of}{column.title}")
            rows.append(rows_below)
            shift += len(rows_below.columns)
        return cls(tuple(rows), places)

    def first_relations(self, count: int) -> Layout:
        width = sum(len(rows.columns) for rows in self.rows[:count] if not isinstance(rows, (Scan, Filter)))
        return Layout(self.rows[:count], {named: column for named, column in self.places.items() if column.index < width})

    def over_columns(self, expr: Expr) -> Expr:
        return replace_parts(expr, self._leaf)

    def _leaf(self, part: Expr) -> Expr | None:
        if part in self.places:
            return replace(self.places[part], offset=part.offset)
        return part.leaf if isinstance(part, RelationLeaf) else None


def _named_columns(expr: Expr) -> Iterable[Expr]:
    """Yield the columns that *expr* names: leaves of relations, each with the conversion to its declared type."""
    if isinstance(expr, RelationLeaf) or (isinstance(expr, Cast) and expr.declared and isinstance(expr.arg, RelationLeaf)):
        yield expr
    else:
        for part in expr.parts:
            yield from _named_columns(part)


def _relation_of(named: Expr) -> int:
    leaf = named.arg if isinstance(named, Cast) else named
    assert isinstance(leaf, RelationLeaf)
    return leaf.index


def over_own_rows(named: Expr) -> Expr:
    """Return an expression over one relation as one over the rows of that relation."""
    return replace_parts(named, lambda part: part.leaf if isinstance(part, RelationLeaf) else None)


def _lay_out_relation(index: int, relation: Relation, named: Sequence[Expr]) -> tuple[Rows, Sequence[Expr]]:
    if relation.schema is not None:
        # A projection without columns would pass whole payloads on.
        naming = named or [RelationLeaf(index, "System.Timestamp()", None, SystemTimestamp())]
        return Project(relation.rows, tuple(Column(str(part), over_own_rows(part)) for part in naming)), naming
    assert not isinstance(relation.rows, (Scan, Filter))
    own_leaves = [leaf for _, leaf in relation.all_columns(index)]
    added = [part for part in named if not isinstance(over_own_rows(part), Slot)]
    if not added:
        return relation.rows, own_leaves
    everything = [Column(column.name, slot(relation.rows, place)) for place, column in enumerate(relation.rows.columns)]
    return Project(relation.rows, (*everything, *(Column(str(part), over_own_rows(part)) for part in added))), [*own_leaves, *added]
