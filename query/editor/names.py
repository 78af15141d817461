"""
What names mean at a place in a script: inputs, steps, outputs, columns, functions.

Law: what is found for a name that the script resolves is what the script means by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from query.editor.project import ScriptProject
from query.editor.scopes import Scope, ScriptScopes, SourceName, read_scopes
from query.editor.words import ScriptWord, words_of
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.plain_path import listed_paths, plain_path

_T = TypeVar("_T")
# Steps may read steps; a script that is being written may have a circle.
_DEPTH_MAX = 20


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column that a name can mean: its path, its type if it is known, and whose it is."""

    path: tuple[str, ...]
    kind: str
    owner: str


@dataclass(frozen=True)
class EditedScript:
    """A script that is being written, and the project around it. *path* is its file, None: it has none yet."""

    text: str
    project: ScriptProject
    path: Path | None = None

    @cached_property
    def words(self) -> list[ScriptWord]:
        """Its words."""
        return words_of(self.text)

    @cached_property
    def scopes(self) -> ScriptScopes:
        """Its SELECTs."""
        return read_scopes(self.words, len(self.text))

    def origins_at(self, offset: int) -> list[SourceName]:
        """Return what the SELECT around an offset reads; before FROM is written all that there is."""
        scope = self.scopes.at(offset)
        if scope is not None and any(origin.name or origin.alias for origin in scope.origins):
            return scope.origins
        return [SourceName(name, name) for name in (*self.project.streams, *self.scopes.tables)]

    def columns_at(self, offset: int, qualifier: str = "") -> list[NamedColumn]:
        """Return the columns that a name at an offset can mean; with *qualifier* those of the input or step of that name or alias."""
        wanted = qualifier.lower()
        origins = [origin for origin in self.origins_at(offset) if not wanted or wanted in (origin.alias.lower(), origin.name.lower())]
        found = [column for origin in origins for column in self.columns_of(origin.name)]
        return list({tuple(map(str.lower, column.path)): column for column in reversed(found)}.values())[::-1]

    def columns_of(self, name: str, depth: int = 0) -> Iterator[NamedColumn]:
        """Yield the columns of an input, a step or reference data."""
        step = self.scopes.step(name) if depth < _DEPTH_MAX else None
        if step is not None:
            yield from self._columns_of_step(step, depth)
            return
        declared = find_named(self.scopes.tables, name) or {}
        yield from (NamedColumn(tuple(path.split(".")), kind, name) for path, kind in declared.items())
        schema = find_named(self.project.streams, name) or find_named(self.project.references, name)
        if schema is not None:
            yield from _columns_of_schema(schema)

    def _columns_of_step(self, step: Scope, depth: int) -> Iterator[NamedColumn]:
        yield from (NamedColumn((name,), "", step.step) for name in step.columns)
        if step.has_star:
            for origin in step.origins:
                yield from (NamedColumn(column.path, column.kind, step.step) for column in self.columns_of(origin.name, depth + 1))


def _columns_of_schema(schema: InputSchema) -> Iterator[NamedColumn]:
    yield from (NamedColumn(tuple(path.split(".")), kind, schema.name) for path, kind in schema.fields.items())
    declared = {path.lower() for path in schema.fields}
    event_time = plain_path(schema.timestamp_by) if schema.timestamp_by else None
    keys = listed_paths(schema.over) if schema.over else ()
    for path in dict.fromkeys((*((event_time,) if event_time else ()), *keys)):
        if ".".join(path).lower() not in declared:
            yield NamedColumn(path, "datetime" if path == event_time else "", schema.name)


def find_named(tables: Mapping[str, _T], name: str) -> _T | None:
    """Return what bears a name, in capitals or not; None: nothing does."""
    return next((table for known, table in tables.items() if known.lower() == name.lower()), None)
