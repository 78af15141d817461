"""
Functions that choose among their arguments. The kind of the result is the highest of the kinds that they choose among.

>>> from tidegate.testing import run_query
>>> script = "SELECT COALESCE(x, 0) AS known, CASE WHEN x IS NULL THEN 'none' ELSE 'some' END AS what INTO out FROM a"
>>> run_query(script, {"a": [{"x": None}]}).rows
[{'known': 0, 'what': 'none'}]
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.language.expressions.functions.conversions import TypedSql, compare, unify
from tidegate.language.expressions.functions.definition import ARGUMENTS_MAX, Function, condition
from tidegate.language.expressions.kinds import Kind


def _coalesce(args: Sequence[TypedSql]) -> TypedSql:
    values, kind = unify(args)
    return TypedSql(f"coalesce({', '.join(values)})", kind)


def _nullif(args: Sequence[TypedSql]) -> TypedSql:
    value = args[0]
    return TypedSql(f"CASE WHEN {compare(args[0], '=', args[1])} THEN NULL ELSE {value.sql} END", value.kind)


def _iif(args: Sequence[TypedSql]) -> TypedSql:
    test, yes, no = args
    (yes_sql, no_sql), kind = unify((yes, no))
    return TypedSql(f"CASE WHEN {condition(test)} THEN {yes_sql} ELSE {no_sql} END", kind)


def _type_name(args: Sequence[TypedSql]) -> TypedSql:
    value = args[0]
    if value.kind is Kind.NULL:
        return TypedSql("CAST(NULL AS VARCHAR)", Kind.NVARCHAR)
    return TypedSql(f"CASE WHEN {value.sql} IS NOT NULL THEN '{value.kind.asa_name}' END", Kind.NVARCHAR)


# By name in lower case.
CONDITIONAL_FUNCTIONS: dict[str, Function] = {
    "coalesce": Function(1, ARGUMENTS_MAX, _coalesce, mixes_kinds=True),
    "isnull": Function(2, 2, _coalesce, mixes_kinds=True),
    "nullif": Function(2, 2, _nullif, mixes_kinds=True),
    "iif": Function(3, 3, _iif, mixes_kinds=True),
    "gettype": Function(1, 1, _type_name, Kind.NVARCHAR),
}
