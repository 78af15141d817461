"""
Conversions between kinds, as DuckDB expressions: CAST, TRY_CAST and T-SQL's implicit conversions.

Text is read strictly: ``'12'`` is a bigint, ``'12.5'`` is not; a float loses its fraction when it becomes a bigint. Where two kinds meet,
the lower one of nvarchar < bit < bigint < float < datetime is converted to the higher, as in T-SQL. Records and arrays convert only to
their JSON text, and by CAST from it.

>>> from tidegate.testing import run_query
>>> run_query("SELECT TRY_CAST(t AS bigint) AS whole, TRY_CAST(t AS float) AS number INTO out FROM a", {"a": [{"t": "12.5"}]}).rows
[{'whole': None, 'number': 12.5}]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText
from tidegate.language.expressions.duckdb_pool import MACRO_USES
from tidegate.language.expressions.kinds import Kind, KindMismatch

SQL_CHARACTERS_MAX = 50_000  # longest SQL of one expression
EXPANDED_CHARACTERS_MAX = 500_000  # longest SQL of one expression with all macros expanded

DUCK_TYPES = {
    Kind.NULL: "INTEGER",
    Kind.BIT: "BOOLEAN",
    Kind.BIGINT: "BIGINT",
    Kind.FLOAT: "DOUBLE",
    Kind.DATETIME: "BIGINT",
    Kind.NVARCHAR: "VARCHAR",
    Kind.RECORD: "VARCHAR",
    Kind.ARRAY: "VARCHAR",
}
_PRECEDENCE = (Kind.NULL, Kind.NVARCHAR, Kind.BIT, Kind.BIGINT, Kind.FLOAT, Kind.DATETIME)

_INTEGER = r"^\s*([+-]?[0-9]+)\s*$"
_NUMBER = r"^\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*$"
_BIT = r"^\s*(true|false|1|0)\s*$"
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_HOURS, _SIXTY = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_TIME, _ZONE = rf"{_HOURS}:{_SIXTY}(?::{_SIXTY}(?:\.[0-9]{{1,9}})?)?", rf"Z|[+-]{_HOURS}(?::?{_SIXTY})?"
# As ordering.columns.timestamps reads event times, between spaces; days of months are left to DuckDB.
_DATETIME = rf"^\s*({_YEAR}-[0-9]{{2}}-[0-9]{{2}}(?:[T ]{_TIME}(?:{_ZONE})?)?)\s*$"

# {x}: the value; {cast}: CAST or TRY_CAST. Text that does not match becomes '', which no type accepts.
_TEMPLATES = {
    (Kind.NVARCHAR, Kind.BIGINT): f"{{cast}}(regexp_extract({{x}}, '{_INTEGER}', 1) AS BIGINT)",
    (Kind.NVARCHAR, Kind.FLOAT): f"{{cast}}(regexp_extract({{x}}, '{_NUMBER}', 1) AS DOUBLE)",
    (Kind.NVARCHAR, Kind.BIT): f"{{cast}}(regexp_extract(lower({{x}}), '{_BIT}', 1) AS BOOLEAN)",
    (Kind.NVARCHAR, Kind.DATETIME): f"{{cast}}_datetime(epoch_us({{cast}}(regexp_extract(upper({{x}}), '{_DATETIME}', 1) AS TIMESTAMPTZ)))",
    (Kind.FLOAT, Kind.BIGINT): "{cast}(trunc({x}) AS BIGINT)",
    (Kind.BIT, Kind.BIGINT): "CAST({x} AS BIGINT)",
    (Kind.BIGINT, Kind.FLOAT): "CAST({x} AS DOUBLE)",
    (Kind.BIT, Kind.FLOAT): "CAST({x} AS DOUBLE)",
    (Kind.BIGINT, Kind.BIT): "({x} <> 0)",
    (Kind.FLOAT, Kind.BIT): "({x} <> 0)",
    (Kind.BIGINT, Kind.NVARCHAR): "CAST({x} AS VARCHAR)",
    (Kind.FLOAT, Kind.NVARCHAR): "CAST({x} AS VARCHAR)",
    (Kind.BIT, Kind.NVARCHAR): "CAST({x} AS VARCHAR)",
    (Kind.DATETIME, Kind.NVARCHAR): "iso8601({x})",
    (Kind.RECORD, Kind.NVARCHAR): "({x} || '')",
    (Kind.ARRAY, Kind.NVARCHAR): "({x} || '')",
    (Kind.NVARCHAR, Kind.RECORD): "{cast}_json({x}, 'OBJECT')",
    (Kind.NVARCHAR, Kind.ARRAY): "{cast}_json({x}, 'ARRAY')",
}
# Double the braces of the regular expressions, which str.format would otherwise read as fields.
_TEMPLATES = {pair: re.sub(r"(\{[0-9,]+\})", r"{\1}", text) for pair, text in _TEMPLATES.items()}
# The beginnings of conversions that may fail.
_STRICT = re.compile(r"(?<!TRY_)CAST(?:_json\(|\((?:regexp_extract|trunc)\()")


class TooLong(KindMismatch):
    """The SQL of an expression would be too long. It is raised when a script is read, so no row fails by it."""

    def __init__(self, characters: int) -> None:
        super().__init__(ReasonText(f"the expression needs more than {characters} characters of SQL"))


@dataclass(frozen=True, slots=True)
class TypedSql:
    """
    A DuckDB expression and the kind of its values; for a constant text also the text. A number *is_small* if it is a constant below 2**53:
    every bigint compares with it as the float nearest to the bigint does.
    """

    sql: str
    kind: Kind
    constant: str | None = None
    is_small: bool = False

    def __post_init__(self) -> None:
        # A few functions repeat an argument's text; nested, they would double it at each level.
        if len(self.sql) > SQL_CHARACTERS_MAX:
            raise TooLong(SQL_CHARACTERS_MAX)


def refuse_long(sql: str) -> None:
    """Raise TooLong if a DuckDB expression is too long with all macros expanded."""
    factors, length = [1], 0
    for word in re.finditer(r"'(?:[^']|'')*'|(\w*)\(|\)|[^'()]", sql):
        if word[0] == ")":
            factors.pop()
        elif word[1] is not None:
            factors.append(factors[-1] * MACRO_USES.get(word[1].lower(), 1))
        length += factors[-1] * len(word[0])
        if length > EXPANDED_CHARACTERS_MAX:
            raise TooLong(EXPANDED_CHARACTERS_MAX)


def convert(value: TypedSql, to: Kind, *, lenient: bool = False) -> str:
    """Return the DuckDB conversion of *value* to kind *to*; if *lenient*, failing values are NULL. KindMismatch: kinds do not fit."""
    if value.kind is to:
        return value.sql
    if value.kind is Kind.NULL:
        return f"CAST(NULL AS {DUCK_TYPES[to]})"
    template = _TEMPLATES.get((value.kind, to))
    if template is None:
        if lenient:
            return f"CAST(NULL AS {DUCK_TYPES[to]})"
        raise KindMismatch(QueryReason.NOT_CONVERTIBLE.text(value.kind.asa_name, to.asa_name))
    return template.format(x=value.sql, cast="TRY_CAST" if lenient else "CAST")


def can_fail(sql: str) -> bool:
    """Return whether a DuckDB expression contains a conversion that may fail; a text constant may cause a false positive."""
    return _STRICT.search(sql) is not None


def unify(values: Sequence[TypedSql]) -> tuple[tuple[str, ...], Kind]:
    """Convert values that meet (in a comparison, in CASE) to the highest of their kinds. Raises KindMismatch: they cannot be mixed."""
    kinds = {value.kind for value in values} - {Kind.NULL}
    if not kinds:
        return tuple("NULL" for _ in values), Kind.NULL
    if len(kinds) == 1:
        common = kinds.pop()
    elif kinds & {Kind.RECORD, Kind.ARRAY}:
        raise KindMismatch(QueryReason.MIXED.text(" and ".join(sorted(kind.asa_name for kind in kinds))))
    else:
        common = max(kinds, key=_PRECEDENCE.index)
    return tuple(convert(value, common) for value in values), common


def compare(left: TypedSql, operator: str, right: TypedSql) -> str:
    """Compare two values that meet, as the higher of their kinds; a bigint and a float by their exact values. KindMismatch: as unify."""
    if {left.kind, right.kind} != {Kind.BIGINT, Kind.FLOAT} or left.is_small or right.is_small:
        (left_sql, right_sql), _ = unify((left, right))
        return f"({left_sql} {operator} {right_sql})"
    if left.kind is Kind.BIGINT:
        return f"(compare_numbers({left.sql}, {right.sql}) {operator} 0)"
    return f"(0 {operator} compare_numbers({right.sql}, {left.sql}))"


def unify_for_comparison(values: Sequence[TypedSql]) -> Sequence[TypedSql]:
    """Convert values that are all compared with each other to the highest of their kinds, but leave bigints beside floats as they are."""
    texts, kind = unify(values)
    if kind is not Kind.FLOAT:
        return [TypedSql(text, kind, is_small=value.is_small) for text, value in zip(texts, values, strict=True)]
    return [
        value if value.kind is Kind.BIGINT else TypedSql(text, kind, is_small=value.is_small)
        for text, value in zip(texts, values, strict=True)
    ]
