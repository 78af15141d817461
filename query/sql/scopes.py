"""
Scopes: what the names in one SELECT mean.

FROM and JOIN bring *relations*: an input, whose events may have any field, or a step (WITH), whose columns are known.
A name that several relations may have must say which one it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from query.plan import Filter, Rows, Scan
from tidegate.runtime.scalars.bind import InputNames
from tidegate.runtime.scalars.catalog import InputSchema
from tidegate.runtime.scalars.errors import Source, suggest
from tidegate.runtime.scalars.evaluate import static_kind
from tidegate.runtime.scalars.expressions import Cast, Expr, Numbered, Slot, replaced


@dataclass(frozen=True, slots=True)
class Of(Numbered):
    """A leaf of relation number ``index``; stands while a SELECT is being bound, in no plan."""

    leaf: Expr


@dataclass(frozen=True)
class Relation:
    """
    One name after FROM or JOIN.

    Args:
        name: Its alias, else its own name.
        names: What may stand before a column of it, in lower case.
        rows: The input's events, or the step's rows.
        schema: What is known of an input's fields; None for a step.
    """

    name: str
    names: frozenset[str]
    rows: Scan | Filter | Rows
    schema: InputSchema | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether it may have any column."""
        return self.schema is not None and not self.schema.closed

    @property
    def known(self) -> tuple[str, ...]:
        """The names of its columns, as far as they are known."""
        if self.schema is not None:
            return tuple(name.split(".")[0] for name in self.schema.fields)
        assert not isinstance(self.rows, (Scan, Filter))
        return tuple(column.name for column in self.rows.columns)

    def everything(self, index: int) -> list[tuple[str, Expr]]:
        """Return the name and the leaf of each column of a step that is relation number *index*."""
        assert not isinstance(self.rows, (Scan, Filter))
        return [(column.name, _of(index, slot(self.rows, place))) for place, column in enumerate(self.rows.columns)]

    def has(self, path: tuple[str, ...]) -> bool:
        """Tell whether it may have this column."""
        if self.schema is not None:
            return self.schema.has(path)
        return path[0].lower() in (name.lower() for name in self.known)


@dataclass(frozen=True)
class ScopeNames:
    """
    Names of the rows of several relations.

    Args:
        source: The script, for error places.
        relations: The relations, in the order of the script.
    """

    source: Source
    relations: Sequence[Relation]

    def find(self, path: tuple[str, ...], at: int) -> Expr:
        """
        Return the column, as a leaf of its relation.

        Raises:
            QueryError: No relation has it, or several may.
        """
        if len(path) > 1:
            for index, relation in enumerate(self.relations):
                if path[0].lower() in relation.names:
                    return self._in(index, path[1:], at)
        having = [index for index, relation in enumerate(self.relations) if relation.has(path)]
        if len(having) > 1:
            names = [self.relations[index].name for index in having]
            raise self.source.error(
                f"{'.'.join(path)} may be a column of {' or of '.join(names)}",
                code="FIELD",
                at=at,
                fix="say which",
                example=f"{names[0]}.{'.'.join(path)}",
            )
        if not having and len(self.relations) > 1:
            known = [name for relation in self.relations for name in relation.known]
            fix = suggest(path[0], known, f"their columns are {', '.join(known)}")
            raise self.source.error(f"none of the inputs has a column {path[0]}", code="FIELD", at=at, fix=fix)
        return self._in(having[0] if having else 0, path, at)

    def _in(self, index: int, path: tuple[str, ...], at: int) -> Expr:
        relation = self.relations[index]
        if relation.schema is not None:
            found = InputNames(self.source, relation.schema, relation.names).find(path, at)
            return replaced(found, lambda part: None if isinstance(part, Cast) else _of(index, part))
        return self._column(index, relation, path, at)

    def _column(self, index: int, relation: Relation, path: tuple[str, ...], at: int) -> Expr:
        names = [name.lower() for name in relation.known]
        if path[0].lower() not in names:
            fix = suggest(path[0], relation.known, f"its columns are {', '.join(relation.known)}")
            raise self.source.error(f"{relation.name} has no column {path[0]}", code="FIELD", at=at, fix=fix)
        if len(path) > 1:
            raise self.source.not_yet(f"{'.'.join(path)}, a member of a step's column, is", at=at)
        assert not isinstance(relation.rows, (Scan, Filter))
        place = names.index(path[0].lower())
        return _of(index, slot(relation.rows, place, at))


def slot(rows: Rows, place: int, at: int = -1, shift: int = 0) -> Slot:
    """Return the leaf that is column *place* of *rows*, where *shift* columns of others stand before them."""
    column = rows.columns[place]
    return Slot(place + shift, column.name, static_kind(column.expr), at=at)


def _of(index: int, leaf: Expr) -> Of:
    return Of(index, str(leaf), static_kind(leaf), leaf, at=leaf.at)
