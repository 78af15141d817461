"""
Functions over text, as DuckDB expressions. Text is a sequence of characters (Unicode code points), counted from 1.

Texts are compared by their code points, so ``'B' < 'a'`` and ``'é' > 'z'``, whatever the machine's language is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.expressions.functions.conversions import TypedSql, convert
from tidegate.expressions.functions.rules import ARGUMENTS_MAX, Function, as_text, integer, text_rule
from tidegate.expressions.kinds import Kind

REPEATED_CHARACTERS_MAX = 1_000_000
"""A longer text made by REPLICATE or SPACE is NULL."""

_CHARACTER = "CASE WHEN {0} BETWEEN 0 AND 1114111 AND {0} NOT BETWEEN 55296 AND 57343 THEN chr(CAST({0} AS INTEGER)) END"
_REPLICATE = f"CASE WHEN {{1}} >= 0 AND CAST(length({{0}}) AS HUGEINT) * {{1}} <= {REPEATED_CHARACTERS_MAX} THEN repeat({{0}}, {{1}}) END"
_STUFF = (
    "CASE WHEN {1} BETWEEN 1 AND length({0}) AND {2} >= 0 THEN "
    "left({0}, {1} - 1) || coalesce({3}, '') || substring({0}, {1} + least({2}, length({0}))) END"
)
_SPACE = f"CASE WHEN {{0}} BETWEEN 0 AND {REPEATED_CHARACTERS_MAX} THEN repeat(' ', {{0}}) END"
_TRANSLATE = "CASE WHEN length({1}) = length({2}) THEN translate({0}, {1}, {2}) WHEN {0} || {1} || {2} IS NOT NULL THEN " + (
    "CAST(CAST('' AS BIGINT) AS VARCHAR) END"
)


def _character(args: Sequence[TypedSql]) -> TypedSql:
    return TypedSql(_CHARACTER.format(integer(args[0])), Kind.NVARCHAR)


def _space(args: Sequence[TypedSql]) -> TypedSql:
    return TypedSql(_SPACE.format(integer(args[0])), Kind.NVARCHAR)


def _concat_ws(args: Sequence[TypedSql]) -> TypedSql:
    separator, *values = map(as_text, args)
    return TypedSql(f"concat_ws(coalesce({separator}, ''), {', '.join(values)})", Kind.NVARCHAR)


def _fold(args: Sequence[TypedSql]) -> TypedSql:
    value = args[0]
    if value.kind is not Kind.NVARCHAR:
        return value
    return TypedSql(f"lower({value.sql})", Kind.NVARCHAR, None if value.constant is None else fold_case(value.constant))


def fold_case(text: str) -> str:
    """Return *text* with each character in lower case that is one character then, too."""
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


def _type_name(args: Sequence[TypedSql]) -> TypedSql:
    value = args[0]
    if value.kind is Kind.NULL:
        return TypedSql(convert(value, Kind.NVARCHAR), Kind.NVARCHAR)
    return TypedSql(f"CASE WHEN {value.sql} IS NOT NULL THEN '{value.kind.asa_name}' END", Kind.NVARCHAR)


TEXT_FUNCTIONS: dict[str, Function] = {
    "reverse": Function(1, 1, text_rule("reverse({})"), Kind.NVARCHAR),
    "stuff": Function(4, 4, text_rule(_STUFF, numbers=(1, 2)), Kind.NVARCHAR),
    "nchar": Function(1, 1, _character, Kind.NVARCHAR),
    "unicode": Function(1, 1, text_rule("CAST(unicode(nullif({}, '')) AS BIGINT)", Kind.BIGINT), Kind.BIGINT),
    "replicate": Function(2, 2, text_rule(_REPLICATE, numbers=(1,)), Kind.NVARCHAR),
    "space": Function(1, 1, _space, Kind.NVARCHAR),
    "translate": Function(3, 3, text_rule(_TRANSLATE), Kind.NVARCHAR),
    "concat_ws": Function(3, ARGUMENTS_MAX, _concat_ws, Kind.NVARCHAR),
    "gettype": Function(1, 1, _type_name, Kind.NVARCHAR),
    "fold": Function(1, 1, _fold),
}
"""Functions over text, by name in lower case; ``fold`` gives what comparisons that ignore case compare."""
