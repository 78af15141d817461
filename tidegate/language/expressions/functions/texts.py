"""
Functions of text. Text is a sequence of characters (Unicode code points), counted from 1.

Texts are compared by code point: ``'B' < 'a'`` and ``'é' > 'z'``, regardless of the machine's locale.

>>> from tidegate.testing import run_query
>>> run_query("SELECT UPPER(t) AS up, LEN(t) AS n, SUBSTRING(t, 2, 2) AS part INTO out FROM a", {"a": [{"t": "tide"}]}).rows
[{'up': 'TIDE', 'n': 4, 'part': 'id'}]
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.language.expressions.functions.conversions import TypedSql
from tidegate.language.expressions.functions.definition import ARGUMENTS_MAX, Function, as_text, integer, text_rule
from tidegate.language.expressions.kinds import Kind

# A longer text made by REPLICATE or SPACE is NULL.
REPEATED_CHARACTERS_MAX = 1_000_000

# What .NET calls white space, which TRIM and its halves remove in Stream Analytics, unlike those of T-SQL.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"

# DuckDB's greatest and least ignore NULL, hence the NULL checks; its texts are shorter than 2**31 characters, hence the bound.
_CHARACTERS_MAX = 2**31 - 1
_FIRST = f"CAST(least(greatest({{1}}, 0), {_CHARACTERS_MAX}) AS BIGINT)"
_LEFT = f"CASE WHEN {{1}} IS NOT NULL THEN substring({{0}}, 1, {_FIRST}) END"
_RIGHT = f"CASE WHEN {{1}} IS NOT NULL THEN right({{0}}, {_FIRST}) END"
# Positions below 1 use up part of the length, but have no characters.
_SUBSTRING = (
    "CASE WHEN {1} IS NOT NULL AND {2} IS NOT NULL THEN "
    f"substring({{0}}, CAST(least(greatest({{1}}, 1), {_CHARACTERS_MAX}) AS BIGINT), "
    f"CAST(least(greatest(CAST(greatest({{2}}, 0) AS HUGEINT) + least({{1}}, 1) - 1, 0), {_CHARACTERS_MAX}) AS BIGINT)) END"
)

_CHARACTER = "CASE WHEN {0} BETWEEN 0 AND 1114111 AND {0} NOT BETWEEN 55296 AND 57343 THEN chr(CAST({0} AS INTEGER)) END"
_REPLICATE = f"CASE WHEN {{1}} >= 0 AND CAST(length({{0}}) AS HUGEINT) * {{1}} <= {REPEATED_CHARACTERS_MAX} THEN repeat({{0}}, {{1}}) END"
# From the first character on at least; behind the last one the result is empty.
_STUFF = (
    "CASE WHEN {1} IS NULL OR {2} IS NULL THEN NULL WHEN {1} > length({0}) THEN '' ELSE "
    "left({0}, greatest({1}, 1) - 1) || coalesce({3}, '') || substring({0}, greatest({1}, 1) + least(greatest({2}, 0), length({0}))) END"
)
_SPACE = f"CASE WHEN {{0}} BETWEEN 0 AND {REPEATED_CHARACTERS_MAX} THEN repeat(' ', {{0}}) END"
# The cast of '' to BIGINT always fails: texts of unequal length are an error, as in T-SQL.
_TRANSLATE = "CASE WHEN length({1}) = length({2}) THEN translate({0}, {1}, {2}) WHEN {0} || {1} || {2} IS NOT NULL THEN " + (
    "CAST(CAST('' AS BIGINT) AS VARCHAR) END"
)


def _concat_ws(args: Sequence[TypedSql]) -> TypedSql:
    separator, *values = map(as_text, args)
    return TypedSql(f"concat_ws(coalesce({separator}, ''), {', '.join(values)})", Kind.NVARCHAR)


def _concat(args: Sequence[TypedSql]) -> TypedSql:
    return TypedSql("(" + " || ".join(f"coalesce({as_text(arg)}, '')" for arg in args) + ")", Kind.NVARCHAR)


def _charindex(args: Sequence[TypedSql]) -> TypedSql:
    needle, text = as_text(args[0]), as_text(args[1])
    if len(args) == 2:
        return TypedSql(f"CAST(strpos({text}, {needle}) AS BIGINT)", Kind.BIGINT)
    start = f"greatest({integer(args[2])}, 1)"
    position = f"strpos(substring({text}, {start}), {needle})"
    return TypedSql(f"CAST(CASE WHEN {position} = 0 THEN 0 ELSE {position} + {start} - 1 END AS BIGINT)", Kind.BIGINT)


# By name in lower case.
TEXT_FUNCTIONS: dict[str, Function] = {
    "len": Function(1, 1, text_rule("CAST(length(rtrim({}, ' ')) AS BIGINT)", Kind.BIGINT), Kind.BIGINT),
    "lower": Function(1, 1, text_rule("lower({})"), Kind.NVARCHAR),
    "upper": Function(1, 1, text_rule("upper({})"), Kind.NVARCHAR),
    "ltrim": Function(1, 1, text_rule(f"ltrim({{}}, '{_WHITE_SPACE}')"), Kind.NVARCHAR),
    "rtrim": Function(1, 1, text_rule(f"rtrim({{}}, '{_WHITE_SPACE}')"), Kind.NVARCHAR),
    "trim": Function(1, 1, text_rule(f"trim({{}}, '{_WHITE_SPACE}')"), Kind.NVARCHAR),
    "left": Function(2, 2, text_rule(_LEFT, numbers=(1,)), Kind.NVARCHAR),
    "right": Function(2, 2, text_rule(_RIGHT, numbers=(1,)), Kind.NVARCHAR),
    "substring": Function(3, 3, text_rule(_SUBSTRING, numbers=(1, 2)), Kind.NVARCHAR),
    "replace": Function(3, 3, text_rule("replace({}, {}, {})"), Kind.NVARCHAR),
    "concat": Function(2, ARGUMENTS_MAX, _concat, Kind.NVARCHAR),
    "concat_ws": Function(3, ARGUMENTS_MAX, _concat_ws, Kind.NVARCHAR),
    "charindex": Function(2, 3, _charindex, Kind.BIGINT),
    "reverse": Function(1, 1, text_rule("reverse({})"), Kind.NVARCHAR),
    "stuff": Function(4, 4, text_rule(_STUFF, numbers=(1, 2)), Kind.NVARCHAR),
    "nchar": Function(1, 1, text_rule(_CHARACTER, numbers=(0,)), Kind.NVARCHAR),
    "unicode": Function(1, 1, text_rule("CAST(unicode(nullif({}, '')) AS BIGINT)", Kind.BIGINT), Kind.BIGINT),
    "replicate": Function(2, 2, text_rule(_REPLICATE, numbers=(1,)), Kind.NVARCHAR),
    "space": Function(1, 1, text_rule(_SPACE, numbers=(0,)), Kind.NVARCHAR),
    "translate": Function(3, 3, text_rule(_TRANSLATE), Kind.NVARCHAR),
}
