"""
The types of CSV columns of reference data: a column without a declared type is typed as a whole, by all values of its file.

Law: the type depends on the file alone, so a version keeps its type whatever comes later, and a lookup in it gives what it gave.

| all values, empty ones apart | type |
|---|---|
| integers of 64 bits, written as JSON writes them | bigint |
| numbers, written as JSON writes them, some with a point or exponent | float |
| anything else: `01234`, `+5`, longer integers, texts among numbers | nvarchar(max) |

An empty value is NULL. If only some values are numbers, or a type changes from one version to the next, a warning names the column: the
values of a join might be found no more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from tidegate.language.expressions.kinds import Kind

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BIGINTS = range(-(2**63), 2**63)
# So many digits always fit; more are not worth reading before their length is known to do.
_DIGITS_MAX = 20
CODE = "TG-REFERENCE-TYPE"


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column and the kind of its values; NULL if it has none."""

    name: str
    kind: Kind
    # A row whose value is no number, if others have numbers.
    odd_row: int | None = None

    @property
    def write(self) -> Callable[[str], str]:
        """Writes a value as JSON."""
        return {Kind.BIGINT: _write_integer, Kind.FLOAT: _write_float}.get(self.kind, write_text)


@dataclass(frozen=True, slots=True)
class TypeWarning:
    """A column whose type may not be what was meant: the version's instant (microseconds), a place in its file, the problem, the fix."""

    begins_us: int
    where: str
    what: str
    fix: str


def find_type(name: str, texts: Sequence[str]) -> FoundColumn:
    """Return the type of a column, given its values in all rows."""
    distinct = {text for text in texts if text}
    if not distinct:
        return FoundColumn(name, Kind.NULL)
    odd = {text for text in distinct if not _is_number(text)}
    if not odd:
        return FoundColumn(name, Kind.BIGINT if all(map(_INTEGER.fullmatch, distinct)) else Kind.FLOAT)
    return FoundColumn(name, Kind.NVARCHAR, None if odd == distinct else next(row for row, text in enumerate(texts) if text in odd))


def _is_number(text: str) -> bool:
    if _INTEGER.fullmatch(text):
        # Of longer integers a float keeps the first digits only: two codes would become one.
        return len(text) <= _DIGITS_MAX and int(text) in _BIGINTS
    return _NUMBER.fullmatch(text) is not None and isfinite(float(text))


def write_text(text: str) -> str:
    """Write a value as a JSON text, an empty one as null."""
    return json.dumps(text) if text else "null"


def _write_integer(text: str) -> str:
    return text or "null"


def _write_float(text: str) -> str:
    # Without a point or exponent it would be a bigint.
    return f"{text}.0" if _INTEGER.fullmatch(text) else text or "null"


def type_warnings(table: str, versions: Sequence[tuple[int, Sequence[FoundColumn], Callable[[int], str]]]) -> list[TypeWarning]:
    """
    Return the columns of mixed values, and the types that change from a version to the next. Of each version there are the instant, the
    columns, and what names the place of a row.
    """
    warnings = []
    for begins, columns, place in versions:
        for column in columns:
            if column.odd_row is not None:
                what = f"column {column.name} of {table} is read as text, since not all of its values are numbers"
                warnings.append(TypeWarning(begins, place(column.odd_row), what, _fix(table, column.name)))
    for (_, earlier, _), (begins, later, place) in pairwise(versions):
        kinds = {column.name.lower(): column.kind for column in earlier}
        for column in later:
            before = kinds.get(column.name.lower(), Kind.NULL)
            if Kind.NULL not in (before, column.kind) and before is not column.kind:
                what = f"column {column.name} of {table} is {column.kind.asa_name} in this version, {before.asa_name} in the one before"
                warnings.append(TypeWarning(begins, place(0), what, _fix(table, column.name)))
    return warnings


def _fix(table: str, column: str) -> str:
    declared = f'fields = {{ {json.dumps(column)} = "nvarchar(max)" }} in [references.{table}]'
    return f"declare its type: {declared}; for tidegate local --reference {table}=FILE:{column}=nvarchar(max)"
