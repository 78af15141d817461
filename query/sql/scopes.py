"""
Scopes: the meaning of names in one SELECT.

FROM and JOIN add *relations*: an input, whose events may have any field, or a step (WITH), whose columns are known. A name that several
relations may have must be qualified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from query.columns.splicing import STAR
from query.plan.nodes import Filter, Reference, Rows, Scan
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.local_times import at_zone, zone_of
from tidegate.language.expressions.binding.names import InputNames, header_of
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.errors import Source, nearest, suggest
from tidegate.language.expressions.tree import (
    Cast,
    EventId,
    Expr,
    Header,
    Leaf,
    Literal,
    Numbered,
    Payload,
    Property,
    RecordOffset,
    Slot,
    SystemTimestamp,
    replace_parts,
)


@dataclass(frozen=True, slots=True)
class RelationLeaf(Numbered):
    """A leaf of relation number ``index``; it exists only during binding, never in a plan."""

    leaf: Expr


@dataclass(frozen=True)
class Relation:
    """One name after FROM or JOIN, or one that APPLY adds."""

    name: str
    # The qualifiers that may stand before its columns, in lower case.
    names: frozenset[str]
    rows: Scan | Filter | Rows
    # The fields of an input; None for a step.
    schema: InputSchema | None = None
    is_applied: bool = False
    # The possible members of a step's column ``*``; None without such a column.
    star: InputSchema | None = None

    @property
    def known_columns(self) -> tuple[str, ...]:
        if self.schema is not None:
            return tuple(name.split(".")[0] for name in self.schema.fields)
        assert not isinstance(self.rows, (Scan, Filter))
        return tuple(column.name for column in self.rows.columns)

    def knows(self, name: str) -> bool:
        """Return whether a known column has this name, ignoring case."""
        return name.lower() in map(str.lower, self.known_columns)

    def all_columns(self, index: int) -> list[tuple[str, Expr]]:
        """Return the name and the leaf of each column of a step; the relation has number *index*."""
        assert not isinstance(self.rows, (Scan, Filter))
        return [(column.name, _relation_leaf(index, slot(self.rows, place))) for place, column in enumerate(self.rows.columns)]

    def local_columns(self, index: int) -> list[tuple[str, Expr]]:
        """Return the same as :meth:`all_columns`, local times with their zones."""
        columns = zip(self.rows.columns, self.all_columns(index), strict=True)  # type: ignore[union-attr]
        return [(name, _in_zone_of(column.expr, leaf)) for column, (name, leaf) in columns]

    def whole_row(self, index: int) -> RelationLeaf:
        if isinstance(self.rows, (Scan, Filter, Reference)):
            return RelationLeaf(index, self.name, Kind.RECORD, Payload())
        columns = tuple(slot(self.rows, place) for place in range(len(self.rows.columns)))
        return RelationLeaf(index, self.name, Kind.RECORD, Payload(self.known_columns, columns))

    def may_have(self, path: tuple[str, ...]) -> bool:
        if self.schema is not None:
            return self.schema.may_have(path)
        return self.knows(path[0]) or (self.star is not None and self.star.may_have(path))


@dataclass(frozen=True)
class ScopeNames:
    """The names of several relations, in the order of the script; *texts* are the offsets of those that are texts by their place."""

    source: Source
    relations: Sequence[Relation]
    texts: frozenset[int] = frozenset()

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        """Return the column as a leaf of its relation, or the text that is meant. Raises QueryError: no relation has it, or several may."""
        if offset in self.texts:
            return Literal(path[0], Kind.NVARCHAR, offset=offset)
        if len(path) > 1:
            for index, relation in enumerate(self.relations):
                if path[0].lower() in relation.names:
                    if self._is_timestamp(relation, path[1:]):
                        return self.of_row(path[0], SystemTimestamp(), offset)
                    return self._resolve_in(index, path[1:], offset)
        elif len(self.relations) > 1:
            self._refuse_relation(path[0], offset)
        candidates = [index for index, relation in enumerate(self.relations) if relation.may_have(path)]
        if len(candidates) > 1 or (candidates and self._must_be_side(path, self.relations[candidates[0]])):
            self._refuse_hidden(path, offset)
            self._refuse_unknown(path, offset)
            if (text := self._text(path, offset)) is not None:
                return text
            names = [self.relations[index].name for index in candidates]
            message = f"{'.'.join(path)} may be a column of {' or of '.join(names)}"
            fix, example = "write one of these names before it", ".".join((names[0], *path))
            raise self.source.error("FIELD", offset, message, fix=fix, example=example)
        if not candidates and (text := self._text(path, offset)) is not None:
            return text
        if not candidates and len(self.relations) > 1:
            of_relations = [(*side.known_columns, *([side.name] if len(path) > 1 else [])) for side in self.relations]
            known_names = [name for names in of_relations for name in names]
            fix = suggest(path[0], known_names, f"their columns are {', '.join(known_names)}")
            raise self.source.error("FIELD", offset, f"none of the inputs has a column {path[0]}", fix=fix)
        return self._resolve_in(candidates[0] if candidates else 0, path, offset)

    def of_row(self, name: str, leaf: Leaf, offset: int) -> Expr:
        index = next((index for index, relation in enumerate(self.relations) if name.lower() in relation.names), None)
        if index is None:
            self._refuse_hidden((name, "k"), offset)
            names = [relation.name for relation in self.relations]
            fix = suggest(name, names, f"inputs are {', '.join(names)}")
            raise self.source.error("FIELD", offset, f"no input is called {name} here", fix=fix)
        relation = self.relations[index]
        is_time = isinstance(leaf, SystemTimestamp)
        if relation.is_applied or (relation.schema.is_reference if relation.schema is not None else not is_time):
            what = "is reference data" if relation.schema is not None else "comes from APPLY" if relation.is_applied else "is a step"
            fix = "name an input that has a time" if is_time else "select it in the step, where it names the input"
            raise self.source.error("FIELD", offset, f"{relation.name} {what} and has no {leaf} of its own", fix=fix)
        if is_time and len(self.relations) == 1:
            return SystemTimestamp(offset=offset)
        if relation.schema is not None and relation.schema.is_result and isinstance(leaf, (EventId, RecordOffset)):
            fix = "select it in the query that writes the results"
            raise self.source.not_yet(offset, f"{leaf} of {relation.name}, the result of a query, is", fix=fix)
        if relation.schema is not None and isinstance(leaf, Header):
            return of_relation(index, header_of(self.source, relation.schema, leaf, offset))
        return replace(_relation_leaf(index, leaf), offset=offset)

    def time_of_side(self, name: str, offset: int) -> Expr | None:
        sides = [relation for relation in self.relations if not relation.is_applied]
        is_column = any(relation.knows(name) for relation in self.relations)
        if len(sides) < 2 or is_column or not any(name.lower() in side.names for side in sides):
            return None
        return self.of_row(name, SystemTimestamp(), offset)

    def knows(self, name: str) -> bool:
        return any(relation.knows(name) or (relation.schema is not None and relation.schema.knows(name)) for relation in self.relations)

    def is_row_name(self, name: str) -> bool:
        """Return whether *name* names the only relation, and none of its columns."""
        return len(self.relations) == 1 and self._names_row(self.relations[0], name)

    def row_as_record(self, name: str, offset: int) -> Expr | None:
        index = next((index for index, relation in enumerate(self.relations) if self._names_row(relation, name)), None)
        if index is None or any(relation.knows(name) for relation in self.relations):
            return None
        return replace(record_of(self.relations[index], index), offset=offset)

    def whole_row(self, offset: int) -> Expr:
        """Return a row as a record, as SELECT * does; for several relations a record of one record each."""
        if len(self.relations) == 1:
            return replace(self.relations[0].whole_row(0), title="*", offset=offset)
        records = tuple(record_of(relation, index) for index, relation in enumerate(self.relations))
        return Payload(tuple(relation.name for relation in self.relations), records, offset=offset)

    def _names_row(self, relation: Relation, name: str) -> bool:
        if relation.schema is None:
            return name.lower() in relation.names and not relation.knows(name)
        return InputNames(self.source, relation.schema, relation.names).is_row_name(name)

    def _is_timestamp(self, relation: Relation, path: tuple[str, ...]) -> bool:
        is_declared = relation.knows(path[0])
        return tuple(map(str.lower, path)) == ("system", "timestamp") and not is_declared

    def _refuse_hidden(self, path: tuple[str, ...], offset: int) -> None:
        name = path[0].lower() if len(path) > 1 else None
        hidden = next((relation for relation in self.relations if relation.schema and relation.schema.name.lower() == name), None)
        if hidden is not None:
            example = ".".join((hidden.name, *path[1:]))
            raise self.source.error("FIELD", offset, f"{path[0]} is called {hidden.name} here", fix="write that name", example=example)

    def _must_be_side(self, path: tuple[str, ...], relation: Relation) -> bool:
        """Return whether a qualifier must be a side of a join, because *relation* may have a record of that name but is not known to."""
        is_join = sum(not side.is_applied for side in self.relations) > 1
        return is_join and len(path) > 1 and not relation.knows(path[0])

    def _refuse_unknown(self, path: tuple[str, ...], offset: int) -> None:
        """Refuse a qualifier that is no input, if several inputs may have a record of that name."""
        if len(path) > 1:
            names = [relation.name for relation in self.relations]
            meant = nearest(path[0], names)
            fix = f"did you mean {meant}?" if meant else f"inputs are {', '.join(names)}: write one of them before the name of a record"
            example = ".".join((meant, *path[1:]) if meant else (names[0], *path))
            raise self.source.error("FIELD", offset, f"no input is called {path[0]} here", fix=fix, example=example)

    def _text(self, path: tuple[str, ...], offset: int) -> Literal | None:
        """Return the text that a name in double quotes means, if no relation is known to have a column of that name."""
        is_known = any(relation.knows(path[0]) for relation in self.relations)
        is_text = len(path) == 1 and not is_known and offset >= 0 and self.source.text[offset] == '"'
        return Literal(path[0], Kind.NVARCHAR, offset=offset) if is_text else None

    def _refuse_relation(self, name: str, offset: int) -> None:
        relation = next((relation for relation in self.relations if name.lower() in relation.names), None)
        if relation is not None and not any(other.knows(name) for other in self.relations):
            message = f"{name} is the name of a side of the join, not of a column"
            fix = "name a column of it; only DATEDIFF, < and > in ON take the name alone"
            raise self.source.error("FIELD", offset, message, fix=fix, example=f"{name}.{(*relation.known_columns, 'k')[0]}")

    def _resolve_in(self, index: int, path: tuple[str, ...], offset: int) -> Expr:
        relation = self.relations[index]
        if relation.schema is not None:
            column = InputNames(self.source, relation.schema, relation.names, reads_json_texts=True).resolve(path, offset)
            return of_relation(index, column)
        return self._column(index, relation, path, offset)

    def _column(self, index: int, relation: Relation, path: tuple[str, ...], offset: int) -> Expr:
        names = [name.lower() for name in relation.known_columns]
        if path[0].lower() not in names:
            if relation.star is not None and relation.star.may_have(path):
                return self._resolve_in_star(index, relation, relation.star, path, offset)
            fix = suggest(path[0], relation.known_columns, f"its columns are {', '.join(relation.known_columns)}")
            raise self.source.error("FIELD", offset, f"{relation.name} has no column {path[0]}", fix=fix)
        assert not isinstance(relation.rows, (Scan, Filter))
        place = names.index(path[0].lower())
        column = _relation_leaf(index, slot(relation.rows, place, offset))
        return Property(column, path[1:], offset=offset) if len(path) > 1 else _in_zone_of(relation.rows.columns[place].expr, column)

    def _resolve_in_star(self, index: int, relation: Relation, schema: InputSchema, path: tuple[str, ...], offset: int) -> Expr:
        stars = [place for place, name in enumerate(relation.known_columns) if name == STAR]
        if len(stars) > 1:
            message = f"{'.'.join(path)} may be a member of each * of {relation.name}"
            raise self.source.error("FIELD", offset, message, fix="name it in the step")
        assert not isinstance(relation.rows, (Scan, Filter))
        member = Property(_relation_leaf(index, slot(relation.rows, stars[0], offset)), path, offset=offset)
        kind = schema.declared_kind(path)
        return member if kind is None else Cast(member, kind, declared=True, offset=offset)


def first_table(select: exp.Select) -> exp.Expr | None:
    """Return what stands first after FROM; None without FROM."""
    clause = select.args.get("from_")
    return clause.this if clause else None


def joins_and_applies(select: exp.Select) -> list[exp.Join]:
    """Return the JOINs and APPLYs after the first input of FROM, in the order of the script; an APPLY is a join with a lateral table."""
    table = first_table(select)
    of_table = table.args.get("joins") if isinstance(table, (exp.Table, exp.MatchRecognize)) else None
    return [*(of_table or []), *(select.args.get("joins") or [])]


def record_of(relation: Relation, index: int) -> Expr:
    """Return a row of relation number *index* as a record."""
    if not relation.is_applied:
        return relation.whole_row(index)
    names, columns = zip(*relation.all_columns(index), strict=True)
    return Payload(names, columns)


def of_relation(index: int, expr: Expr) -> Expr:
    """Return an expression over an input's events with its leaves assigned to relation number *index*."""
    return replace_parts(expr, lambda part: _relation_leaf(index, part) if isinstance(part, Leaf) else None)


def slot(rows: Rows, place: int, offset: int = -1, shift: int = 0) -> Slot:
    """Return the leaf of column *place* of *rows*, which stand after *shift* columns of other rows."""
    column = rows.columns[place]
    return Slot(place + shift, column.name, static_kind(column.expr), offset=offset)


def _in_zone_of(column: Expr, leaf: Expr) -> Expr:
    """Return the *leaf* that holds a step's *column*: a local time, if the column is one."""
    zone = zone_of(column)
    return leaf if zone is None else at_zone(leaf, zone, leaf.offset)


def _relation_leaf(index: int, leaf: Expr) -> RelationLeaf:
    return RelationLeaf(index, str(leaf), static_kind(leaf), leaf, offset=leaf.offset)
