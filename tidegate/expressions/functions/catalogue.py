"""
Functions and operators: for each name how many arguments it takes, and how DuckDB computes it for given kinds.

Arithmetic that has no result - division by zero, a bigint outside 64 bits, a float that is not finite, the root of a
negative number - is NULL, as in T-SQL with ARITHABORT OFF. Any other NULL argument makes the result NULL, unless the
function says otherwise (COALESCE, ISNULL, CONCAT, IS NULL). ``7 / 2`` of bigints is 3, rounded towards zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidegate.expressions.functions.conversions import TypedSql, convert, unify
from tidegate.expressions.functions.dates import DATE_FUNCTIONS
from tidegate.expressions.functions.patterns import PATTERN_FUNCTIONS
from tidegate.expressions.functions.records import RECORD_FUNCTIONS
from tidegate.expressions.functions.rules import (
    ARGUMENTS_MAX,
    Function,
    Rule,
    as_text,
    bigint_or_null,
    float_rule,
    integer,
    number,
    text_rule,
)
from tidegate.expressions.functions.texts import TEXT_FUNCTIONS
from tidegate.expressions.functions.trigonometry import TRIGONOMETRY
from tidegate.expressions.kinds import Kind, KindMismatch


def find(name: str) -> Function | None:
    """Return the function of that name (lower case), operators included."""
    return FUNCTIONS.get(name)


def _arithmetic(operator: str) -> Rule:
    def rule(args: Sequence[TypedSql]) -> TypedSql:
        left, right = args
        if operator == "+" and {left.kind, right.kind} <= {Kind.NVARCHAR, Kind.NULL}:
            return TypedSql(f"({as_text(left)} || {as_text(right)})", Kind.NVARCHAR)
        if Kind.NVARCHAR in (left.kind, right.kind):
            (left_sql, right_sql), kind = unify((left, right))
            left, right = TypedSql(left_sql, kind), TypedSql(right_sql, kind)
        a, b = number(left), number(right)
        divisor = "NULLIF({}, 0)" if operator in "/%" else "{}"
        if Kind.FLOAT in (a.kind, b.kind):
            return TypedSql(f"({convert(a, Kind.FLOAT)} {operator} {divisor.format(convert(b, Kind.FLOAT))})", Kind.FLOAT)
        # 128 bits hold every sum and product of two bigints, so only the result can be out of range.
        whole_operator = "//" if operator == "/" else operator
        return bigint_or_null(f"CAST({a.sql} AS HUGEINT) {whole_operator} {divisor.format(f'CAST({b.sql} AS HUGEINT)')}")

    return rule


def _negate(args: Sequence[TypedSql]) -> TypedSql:
    value = number(args[0])
    return TypedSql(f"(-{value.sql})", Kind.FLOAT) if value.kind is Kind.FLOAT else bigint_or_null(f"-CAST({value.sql} AS HUGEINT)")


def _comparison(operator: str) -> Rule:
    def rule(args: Sequence[TypedSql]) -> TypedSql:
        (left, right), kind = unify(args)
        if kind in (Kind.RECORD, Kind.ARRAY):
            raise KindMismatch(f"values of type {kind.asa_name} cannot be compared")
        return TypedSql(f"({left} {operator} {right})", Kind.BIT)

    return rule


def _in(args: Sequence[TypedSql]) -> TypedSql:
    (value, *options), _ = unify(args)
    return TypedSql(f"({value} IN ({', '.join(options)}))", Kind.BIT)


def _between(args: Sequence[TypedSql]) -> TypedSql:
    (value, low, high), _ = unify(args)
    return TypedSql(f"({value} BETWEEN {low} AND {high})", Kind.BIT)


def _logic(operator: str) -> Rule:
    return lambda args: TypedSql("(" + f" {operator} ".join(condition(arg) for arg in args) + ")", Kind.BIT)


def condition(value: TypedSql) -> str:
    """Return the DuckDB condition of a bit value; anything else raises KindMismatch."""
    if value.kind not in (Kind.BIT, Kind.NULL):
        raise KindMismatch(f"a condition is needed, not {value.kind.asa_name}")
    return convert(value, Kind.BIT)


def _same_kind(template: str, bigint_template: str = "") -> Rule:
    def rule(args: Sequence[TypedSql]) -> TypedSql:
        value = number(args[0])
        if value.kind is Kind.FLOAT:
            return TypedSql(template.format(value.sql), Kind.FLOAT)
        return bigint_or_null(bigint_template.format(value.sql)) if bigint_template else value

    return rule


def _round(args: Sequence[TypedSql]) -> TypedSql:
    value, places = number(args[0]), (integer(args[1]) if len(args) > 1 else "0")
    if value.kind is Kind.FLOAT:
        return TypedSql(f"round({value.sql}, CAST({places} AS INTEGER))", Kind.FLOAT)
    # The next multiple of ten may need more than 64 bits.
    return bigint_or_null(f"round(CAST({value.sql} AS HUGEINT), CAST({places} AS INTEGER))")


def _concat(args: Sequence[TypedSql]) -> TypedSql:
    return TypedSql("(" + " || ".join(f"coalesce({as_text(arg)}, '')" for arg in args) + ")", Kind.NVARCHAR)


def _charindex(args: Sequence[TypedSql]) -> TypedSql:
    needle, text = as_text(args[0]), as_text(args[1])
    if len(args) == 2:
        return TypedSql(f"CAST(strpos({text}, {needle}) AS BIGINT)", Kind.BIGINT)
    start = f"greatest({integer(args[2])}, 1)"
    position = f"strpos(substring({text}, {start}), {needle})"
    return TypedSql(f"CAST(CASE WHEN {position} = 0 THEN 0 ELSE {position} + {start} - 1 END AS BIGINT)", Kind.BIGINT)


def _coalesce(args: Sequence[TypedSql]) -> TypedSql:
    values, kind = unify(args)
    return TypedSql(f"coalesce({', '.join(values)})", kind)


def _nullif(args: Sequence[TypedSql]) -> TypedSql:
    value = args[0]
    (left, right), _ = unify(args)
    return TypedSql(f"CASE WHEN {left} = {right} THEN NULL ELSE {value.sql} END", value.kind)


def _iif(args: Sequence[TypedSql]) -> TypedSql:
    condition_value, yes, no = args
    (yes_sql, no_sql), kind = unify((yes, no))
    return TypedSql(f"CASE WHEN {condition(condition_value)} THEN {yes_sql} ELSE {no_sql} END", kind)


def _must_be_number(args: Sequence[TypedSql]) -> TypedSql:
    if args[0].kind not in (Kind.BIGINT, Kind.FLOAT, Kind.NULL):
        raise KindMismatch(f"a number is needed, not {args[0].kind.asa_name}")
    return args[0]


def _must_be_comparable(args: Sequence[TypedSql]) -> TypedSql:
    if args[0].kind in (Kind.RECORD, Kind.ARRAY):
        raise KindMismatch(f"values of type {args[0].kind.asa_name} cannot be compared")
    return args[0]


# DuckDB's greatest and least pass over NULL, and its texts have fewer characters than a count may say.
_CHARACTERS_MAX = 2**31 - 1
_FIRST = f"CAST(least(greatest({{1}}, 0), {_CHARACTERS_MAX}) AS BIGINT)"
_LEFT = f"CASE WHEN {{1}} IS NOT NULL THEN substring({{0}}, 1, {_FIRST}) END"
_RIGHT = f"CASE WHEN {{1}} IS NOT NULL THEN right({{0}}, {_FIRST}) END"
# What lies before the first character counts for the length, and is not there.
_SUBSTRING = (
    "CASE WHEN {1} IS NOT NULL AND {2} IS NOT NULL THEN "
    f"substring({{0}}, CAST(least(greatest({{1}}, 1), {_CHARACTERS_MAX}) AS BIGINT), "
    f"CAST(least(greatest(CAST(greatest({{2}}, 0) AS HUGEINT) + least({{1}}, 1) - 1, 0), {_CHARACTERS_MAX}) AS BIGINT)) END"
)

FUNCTIONS: dict[str, Function] = {
    **{operator: Function(2, 2, _arithmetic(operator)) for operator in ("+", "-", "*", "/", "%")},
    **{operator: Function(2, 2, _comparison(operator), Kind.BIT) for operator in ("=", "<>", "<", "<=", ">", ">=")},
    "negate": Function(1, 1, _negate),
    "and": Function(2, ARGUMENTS_MAX, _logic("AND"), Kind.BIT),
    "or": Function(2, ARGUMENTS_MAX, _logic("OR"), Kind.BIT),
    "not": Function(1, 1, lambda args: TypedSql(f"(NOT {condition(args[0])})", Kind.BIT), Kind.BIT),
    "is null": Function(1, 1, lambda args: TypedSql(f"({args[0].sql} IS NULL)", Kind.BIT), Kind.BIT),
    "in": Function(2, ARGUMENTS_MAX, _in, Kind.BIT),
    "between": Function(3, 3, _between, Kind.BIT),
    "condition": Function(1, 1, lambda args: TypedSql(condition(args[0]), Kind.BIT), Kind.BIT),
    "number": Function(1, 1, _must_be_number),
    "comparable": Function(1, 1, _must_be_comparable),
    "abs": Function(1, 1, _same_kind("abs({})", "abs(CAST({} AS HUGEINT))")),
    "ceiling": Function(1, 1, _same_kind("ceil({})")),
    "floor": Function(1, 1, _same_kind("floor({})")),
    "sign": Function(1, 1, _same_kind("CAST(sign({}) AS DOUBLE)", "sign({})")),
    "round": Function(1, 2, _round),
    "square": Function(1, 1, float_rule("pow({}, 2)"), Kind.FLOAT),
    "sqrt": Function(1, 1, float_rule("sqrt(CASE WHEN {0} >= 0 THEN {0} END)"), Kind.FLOAT),
    "power": Function(2, 2, float_rule("pow({}, {})"), Kind.FLOAT),
    "exp": Function(1, 1, float_rule("exp({})"), Kind.FLOAT),
    "log": Function(1, 1, float_rule("ln(CASE WHEN {0} > 0 THEN {0} END)"), Kind.FLOAT),
    "log10": Function(1, 1, float_rule("log10(CASE WHEN {0} > 0 THEN {0} END)"), Kind.FLOAT),
    "len": Function(1, 1, text_rule("CAST(length(rtrim({}, ' ')) AS BIGINT)", Kind.BIGINT), Kind.BIGINT),
    "lower": Function(1, 1, text_rule("lower({})"), Kind.NVARCHAR),
    "upper": Function(1, 1, text_rule("upper({})"), Kind.NVARCHAR),
    "ltrim": Function(1, 1, text_rule("ltrim({}, ' ')"), Kind.NVARCHAR),
    "rtrim": Function(1, 1, text_rule("rtrim({}, ' ')"), Kind.NVARCHAR),
    "trim": Function(1, 1, text_rule("trim({}, ' ')"), Kind.NVARCHAR),
    "left": Function(2, 2, text_rule(_LEFT, numbers=(1,)), Kind.NVARCHAR),
    "right": Function(2, 2, text_rule(_RIGHT, numbers=(1,)), Kind.NVARCHAR),
    "substring": Function(3, 3, text_rule(_SUBSTRING, numbers=(1, 2)), Kind.NVARCHAR),
    "replace": Function(3, 3, text_rule("replace({}, {}, {})"), Kind.NVARCHAR),
    "concat": Function(2, ARGUMENTS_MAX, _concat, Kind.NVARCHAR),
    "charindex": Function(2, 3, _charindex, Kind.BIGINT),
    "coalesce": Function(1, ARGUMENTS_MAX, _coalesce, mixes_kinds=True),
    "isnull": Function(2, 2, _coalesce, mixes_kinds=True),
    "nullif": Function(2, 2, _nullif, mixes_kinds=True),
    "iif": Function(3, 3, _iif, mixes_kinds=True),
    **DATE_FUNCTIONS,
    **TEXT_FUNCTIONS,
    **PATTERN_FUNCTIONS,
    **TRIGONOMETRY,
    **RECORD_FUNCTIONS,
}
"""Every function and operator by its name in lower case, but for column functions."""

INTERNAL = frozenset(
    {"negate", "and", "or", "not", "is null", "in", "like", "between", "condition", "number", "comparable", "fold", "array", "record"}
)
"""Operators that are no functions of the language."""
CALLABLE = tuple(name for name in FUNCTIONS if name.isidentifier() and name not in INTERNAL)
"""What a script can call by name."""
AGGREGATES = (
    *("count", "sum", "avg", "min", "max", "stdev", "stdevp", "var", "varp"),
    *("collect", "collecttop", "topone", "percentile_cont", "percentile_disc"),
)
"""The aggregates there are."""
ANALYTICS = ("lag", "last", "isfirst")
"""The functions that look back from each row and are no aggregates."""
_WINDOWS = ("tumbling", "hopping", "sliding", "session")
WINDOWS = (*_WINDOWS, *(f"{name}window" for name in _WINDOWS), "snapshotwindow", "window", "windows")
"""The window functions there are, by all their names."""
_LATER = """
anomalydetection_changepoint anomalydetection_spikeanddip createlinestring createpoint createpolygon first_value
getmetadatapropertyvalue st_distance st_intersects
st_overlaps st_within
"""
KNOWN_LATER = frozenset(re.findall(r"\w+", _LATER))
"""Names Stream Analytics knows and this engine does not yet; they get their own message."""
_CLOCK = "would differ between replays", "write System.Timestamp(), the event's or the window's time"
_RANKING = "is no function here", "write CollectTop(n) OVER (ORDER BY ...) in a window, whose ranks count from 1"
REFUSED = {
    **dict.fromkeys(("getdate", "getutcdate", "sysdatetime", "sysutcdatetime", "current_timestamp", "now"), _CLOCK),
    "newid": ("would differ between replays", "use a field that tells events apart"),
    "median": ("is no function here", "write PERCENTILE_CONT(0.5) OVER (ORDER BY x)"),
    **dict.fromkeys(("row_number", "rank", "dense_rank"), _RANKING),
    "rand": ("would differ between replays", "use a field of the event"),
    "getarrayelements": ("stands after CROSS APPLY and OUTER APPLY only", "write FROM i CROSS APPLY GetArrayElements(i.readings) AS r"),
}
"""Functions that are refused, with the reason and what to write instead."""
