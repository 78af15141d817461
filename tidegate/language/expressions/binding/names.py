"""The meaning of names in an expression: fields of one input here, relations of a SELECT in :mod:`query.sql.scopes`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.errors import Source, nearest, similarity, suggest
from tidegate.language.expressions.syntax.plain_path import listed_paths
from tidegate.language.expressions.tree import Arrival, Cast, Expr, Field, Header, Leaf, PartitionId, Payload, Property, key_list


class Names(Protocol):
    """The meaning of names at the place of an expression."""

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        """Resolve a dotted name; *offset* is its place in the script. Raises QueryError: it is unknown or ambiguous."""

    def of_row(self, name: str, leaf: Leaf, offset: int) -> Expr:
        """Return *leaf* of the row that FROM or JOIN calls *name*. Raises QueryError: there is no such row, or no such value."""

    def time_of_side(self, name: str, offset: int) -> Expr | None:
        """Return the System.Timestamp() of the side of a join that is called *name*; None if *name* means no side."""

    def knows(self, name: str) -> bool:
        """Return whether a row is known to have a column *name*, ignoring case; an input's events may have others too."""

    def is_row_name(self, name: str) -> bool:
        """Return whether *name* alone means a whole row and not a column."""

    def whole_row(self, offset: int) -> Expr:
        """Return a whole row as a record; *offset* is the place of the word that takes it. Raises QueryError: there are several rows."""

    def row_as_record(self, name: str, offset: int) -> Expr | None:
        """Return the row that *name* alone means, as a record; None if it means a column."""


def header_of(source: Source, schema: InputSchema, header: Header, offset: int) -> Expr:
    """
    Return the expression of *header* in an input; names are matched exactly, else ignoring case.
    Raises QueryError: the input keeps no such header.
    """
    if schema.is_free or schema.headers is None:
        return Cast(Field(("User", header.name), offset=offset), Kind.NVARCHAR, offset=offset)
    if schema.is_result:
        fix = "select it in the query that writes the results"
        raise source.not_yet(offset, f"{header} of {schema.name}, the result of a query, is", fix=fix)
    alike = [name for name in schema.headers if name.lower() == header.name.lower()]
    if not alike:
        kept = f"it keeps {', '.join(schema.headers)}" if schema.headers else "it keeps none"
        fix = suggest(
            header.name, schema.headers, f"{kept}: add the name to headers of [inputs.{schema.name}], and order it into a new topic"
        )
        example = f"headers = {[*schema.headers, header.name]}".replace("'", '"')
        raise source.error("HEADER", offset, f"the ordered topic of {schema.name} keeps no header {header.name}", fix=fix, example=example)
    return Header(header.name if header.name in alike else alike[0], offset=offset)


# Least similarity of a name to a declared field that it misspells.
_MISSPELLED_MIN = 0.8


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


@dataclass(frozen=True)
class InputNames:
    """Names of the events of one input."""

    source: Source
    schema: InputSchema
    # Names that may stand before a field's (``f.origin``), in lower case.
    aliases: frozenset[str] = frozenset()
    # Whether a declared record may also be a text that holds JSON.
    reads_json_texts: bool = False

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        path = path[1:] if len(path) > 1 and path[0].lower() in self.aliases else path
        field = self.field(path, offset)
        record = next((path[:end] for end in range(len(path) - 1, 0, -1) if self.schema.declared_kind(path[:end]) is Kind.RECORD), ())
        if not record or not self.reads_json_texts:
            return field
        member, kind = Property(self.field(record, offset), path[len(record) :], offset=offset), self.schema.declared_kind(path)
        return member if kind is None else Cast(member, kind, declared=True, offset=offset)

    def of_row(self, name: str, leaf: Leaf, offset: int) -> Expr:
        if name.lower() not in self.aliases | {self.schema.name.lower()}:
            fix = suggest(name, [self.schema.name], f"the input is {self.schema.name}")
            raise self.source.error("FIELD", offset, f"no input is called {name} here", fix=fix)
        if isinstance(leaf, Header):
            return header_of(self.source, self.schema, leaf, offset)
        return replace(leaf, offset=offset)

    def time_of_side(self, name: str, offset: int) -> Expr | None:
        return None

    def knows(self, name: str) -> bool:
        return self.schema.knows(name)

    def is_row_name(self, name: str) -> bool:
        return (
            name.lower() in self.aliases
            and self.schema.declared_kind((name,)) is None
            and not (self.schema.is_closed and self.schema.may_have((name,)))
        )

    def whole_row(self, offset: int) -> Expr:
        return Payload(offset=offset)

    def row_as_record(self, name: str, offset: int) -> Expr | None:
        return self.whole_row(offset) if self.is_row_name(name) else None

    def _find_misspelled(self, name: str) -> str:
        """Return the declared field that *name* probably misspells, else an empty text; names with other digits are no misspellings."""
        meant = nearest(name, {field.split(".")[0] for field in self.schema.fields})
        if not meant or self.schema.knows(name) or _digits(name) != _digits(meant):
            return ""
        return meant if similarity(name, meant) >= _MISSPELLED_MIN else ""

    def configured_over(self) -> Expr | None:
        """Return the input's substream key as configured; None if it has none."""
        return None if self.schema.over is None else key_list([self.field(path) for path in listed_paths(self.schema.over)])

    def field(self, path: tuple[str, ...], offset: int = -1) -> Expr:
        """Return a field by its path, converted to its declared type if it has one. Raises QueryError: the input has no such field."""
        if {"", "*"} & set(path):
            raise self.source.error("FIELD", offset, "a field cannot be named * or nothing", fix="name the field", example="[my field]")
        if len(path) == 1 and self.schema.declared_kind(path) is None:
            if path[0].lower() == "partitionid":
                return PartitionId(offset=offset)
            is_processing_time = path[0].lower() == "eventprocessedutctime"
            if is_processing_time and self.schema.is_free:
                # Files, such as samples of Stream Analytics, hold it as a field.
                return Cast(Field(path, offset=offset), Kind.DATETIME, declared=True, offset=offset)
            if is_processing_time and not self.schema.is_stamped:
                of_input = "" if self.schema.is_result else ' with arrival = "broker"'
                fix = 'set arrival = "ingest", which makes it the time of the first reading; or use EventEnqueuedUtcTime; '
                fix = f"{'' if self.schema.is_result else fix}declare a field of that name"
                example = f"CREATE TABLE {self.schema.name} (EventProcessedUtcTime datetime)"
                raise self.source.not_yet(offset, f"{path[0]} of {self.schema.name}{of_input} is", fix=fix, example=example)
            if is_processing_time or path[0].lower() == "eventenqueuedutctime":
                return Arrival(offset=offset)
        if not self.schema.may_have(path):
            known = [name.split(".")[0] for name in self.schema.fields]
            fix = suggest(path[0], known, f"its fields are {', '.join(known)}")
            raise self.source.error("FIELD", offset, f"{self.schema.name} has no field {path[0]}", fix=fix)
        kind = self.schema.declared_kind(path)
        if kind is None and (meant := self._find_misspelled(path[0])):
            message = f"{self.schema.name} declares {meant}, and no field {path[0]}"
            raise self.source.error("FIELD", offset, message, fix=f"did you mean {meant}? Else declare {path[0]} too")
        field = Field(path, offset=offset)
        return field if kind is None else Cast(field, kind, declared=True, offset=offset)
