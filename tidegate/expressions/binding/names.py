"""The meaning of names in an expression: fields of one input here, relations of a SELECT in :mod:`query.sql.scopes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.expressions.binding.input_schema import InputSchema
from tidegate.expressions.kinds import Kind
from tidegate.expressions.syntax.errors import Source, suggest
from tidegate.expressions.tree import (
    Arrival,
    Cast,
    Expr,
    Field,
    PartitionId,
    Payload,
    Property,
)


class Names(Protocol):
    """The meaning of names at the place of an expression."""

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        """Resolve a dotted name; *offset* is its place in the script. Raises QueryError: it is unknown or ambiguous."""
        ...

    def is_row_name(self, name: str) -> bool:
        """Return whether *name* alone means a whole row and not a column."""
        ...

    def whole_row(self, offset: int) -> Expr:
        """Return a whole row as a record; *offset* is the place of the word that takes it. Raises QueryError: there are several rows."""
        ...


@dataclass(frozen=True)
class InputNames:
    """
    Names of the events of one input.

    Args:
        aliases: Names that may stand before a field's (``f.origin``), in lower case.
        reads_json_texts: Whether a declared record may also be a text that holds JSON.
    """

    source: Source
    schema: InputSchema
    aliases: frozenset[str] = frozenset()
    reads_json_texts: bool = False

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        path = path[1:] if len(path) > 1 and path[0].lower() in self.aliases else path
        field = self.field(path, offset)
        record = next((path[:end] for end in range(len(path) - 1, 0, -1) if self.schema.declared_kind(path[:end]) is Kind.RECORD), ())
        if not record or not self.reads_json_texts:
            return field
        member, kind = Property(self.field(record, offset), path[len(record) :], offset=offset), self.schema.declared_kind(path)
        return member if kind is None else Cast(member, kind, declared=True, offset=offset)

    def is_row_name(self, name: str) -> bool:
        return (
            name.lower() in self.aliases
            and self.schema.declared_kind((name,)) is None
            and not (self.schema.is_closed and self.schema.may_have((name,)))
        )

    def whole_row(self, offset: int) -> Expr:
        return Payload(offset=offset)

    def field(self, path: tuple[str, ...], offset: int = -1) -> Expr:
        """Return a field by its path, converted to its declared type if it has one. Raises QueryError: the input has no such field."""
        if {"", "*"} & set(path):
            raise self.source.error("FIELD", offset, "a field cannot be named * or nothing", fix="name the field", example="[my field]")
        if len(path) == 1 and self.schema.declared_kind(path) is None:
            if path[0].lower() == "partitionid":
                return PartitionId(offset=offset)
            if path[0].lower() == "eventenqueuedutctime":
                return Arrival(offset=offset)
            if path[0].lower() == "eventprocessedutctime":
                fix = "use System.Timestamp(), or EventEnqueuedUtcTime"
                raise self.source.error("FIELD", offset, f"{path[0]} would differ between replays", fix=fix)
        if not self.schema.may_have(path):
            known = [name.split(".")[0] for name in self.schema.fields]
            fix = suggest(path[0], known, f"its fields are {', '.join(known)}")
            raise self.source.error("FIELD", offset, f"{self.schema.name} has no field {path[0]}", fix=fix)
        kind = self.schema.declared_kind(path)
        field = Field(path, offset=offset)
        return field if kind is None else Cast(field, kind, declared=True, offset=offset)
