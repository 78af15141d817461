"""
Operators, and what binding puts around expressions; a script cannot call any of them by name.

``7 / 2`` of bigints is 3, rounded towards zero. ``+`` joins two texts.

>>> from tidegate.testing import run_query
>>> run_query("SELECT x / 2 AS half, t + '!' AS joined INTO out FROM a", {"a": [{"x": 7, "t": "tide"}]}).rows
[{'half': 3, 'joined': 'tide!'}]
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.functions.conversions import TypedSql, compare, convert, unify, unify_for_comparison
from tidegate.language.expressions.functions.definition import (
    ARGUMENTS_MAX,
    Function,
    Rule,
    as_text,
    bigint_or_null,
    condition,
    integer,
    kind_rule,
    number,
)
from tidegate.language.expressions.functions.patterns import LIKE
from tidegate.language.expressions.kinds import Kind, KindMismatch
from tidegate.language.expressions.tree import Requirement


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
        bigint_operator = "//" if operator == "/" else operator
        return bigint_or_null(f"CAST({a.sql} AS HUGEINT) {bigint_operator} {divisor.format(f'CAST({b.sql} AS HUGEINT)')}")

    return rule


def _negate(args: Sequence[TypedSql]) -> TypedSql:
    value = number(args[0])
    return TypedSql(f"(-{value.sql})", Kind.FLOAT) if value.kind is Kind.FLOAT else bigint_or_null(f"-CAST({value.sql} AS HUGEINT)")


def _bitwise(template: str) -> Rule:
    """Return the rule of an operator on the bits of two bigints, or on two bits, which gives a bit."""

    def rule(args: Sequence[TypedSql]) -> TypedSql:
        sql = template.format(*map(integer, args))
        # Not AND and OR: these have a value where one side is NULL.
        return TypedSql(f"CAST({sql} AS BOOLEAN)", Kind.BIT) if _are_bits(args) else TypedSql(sql, Kind.BIGINT)

    return rule


def _complement(args: Sequence[TypedSql]) -> TypedSql:
    return TypedSql(f"(NOT {condition(args[0])})", Kind.BIT) if _are_bits(args) else TypedSql(f"(~{integer(args[0])})", Kind.BIGINT)


def _are_bits(args: Sequence[TypedSql]) -> bool:
    kinds = {arg.kind for arg in args}
    return Kind.BIT in kinds and kinds <= {Kind.BIT, Kind.NULL}


def _comparison(operator: str) -> Rule:
    def rule(args: Sequence[TypedSql]) -> TypedSql:
        left, right = args
        sql = compare(left, operator, right)
        if left.kind in (Kind.RECORD, Kind.ARRAY):
            raise KindMismatch(QueryReason.NOT_COMPARABLE.text(left.kind.asa_name))
        return TypedSql(sql, Kind.BIT)

    return rule


def _in(args: Sequence[TypedSql]) -> TypedSql:
    value, *options = unify_for_comparison(args)
    if all(option.kind is value.kind for option in options):
        return TypedSql(f"({value.sql} IN ({', '.join(option.sql for option in options)}))", Kind.BIT)
    return TypedSql("(" + " OR ".join(compare(value, "=", option) for option in options) + ")", Kind.BIT)


def _between(args: Sequence[TypedSql]) -> TypedSql:
    value, low, high = unify_for_comparison(args)
    if low.kind is high.kind is value.kind:
        return TypedSql(f"({value.sql} BETWEEN {low.sql} AND {high.sql})", Kind.BIT)
    return TypedSql(f"({compare(value, '>=', low)} AND {compare(value, '<=', high)})", Kind.BIT)


def _logic(operator: str) -> Rule:
    return lambda args: TypedSql("(" + f" {operator} ".join(condition(arg) for arg in args) + ")", Kind.BIT)


def _require_number(args: Sequence[TypedSql]) -> TypedSql:
    if args[0].kind not in (Kind.BIGINT, Kind.FLOAT, Kind.NULL):
        raise KindMismatch(QueryReason.WRONG_KIND.text("a number", args[0].kind.asa_name))
    return args[0]


def _require_comparable(args: Sequence[TypedSql]) -> TypedSql:
    if args[0].kind in (Kind.RECORD, Kind.ARRAY):
        raise KindMismatch(QueryReason.NOT_COMPARABLE.text(args[0].kind.asa_name))
    return args[0]


def fold_texts(value: TypedSql) -> TypedSql:
    """Return a text in lower case, any other value unchanged."""
    if value.kind is not Kind.NVARCHAR:
        return value
    return TypedSql(f"lower({value.sql})", Kind.NVARCHAR, None if value.constant is None else fold_case(value.constant))


def fold_case(text: str) -> str:
    """Return *text* in lower case as DuckDB writes it: a character whose lower case is longer stays unchanged."""
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


# The argument unchanged, if it meets a requirement. Raises KindMismatch: it does not.
REQUIREMENTS: dict[Requirement, Function] = {
    Requirement.CONDITION: Function(1, 1, lambda args: TypedSql(condition(args[0]), Kind.BIT), Kind.BIT),
    Requirement.NUMBER: Function(1, 1, _require_number),
    Requirement.COMPARABLE: Function(1, 1, _require_comparable),
    Requirement.ARRAY: Function(1, 1, kind_rule(Kind.ARRAY, "CAST({} AS VARCHAR)", Kind.ARRAY), Kind.ARRAY),
    Requirement.RECORD: Function(1, 1, kind_rule(Kind.RECORD, "CAST({} AS VARCHAR)", Kind.RECORD), Kind.RECORD),
}

# By name; names with letters are internal.
OPERATORS: dict[str, Function] = {
    **{operator: Function(2, 2, _arithmetic(operator)) for operator in ("+", "-", "*", "/", "%")},
    **{operator: Function(2, 2, _comparison(operator), Kind.BIT) for operator in ("=", "<>", "<", "<=", ">", ">=")},
    **{operator: Function(2, 2, _bitwise(f"({{}} {operator} {{}})")) for operator in "&|"},
    "^": Function(2, 2, _bitwise("xor({}, {})")),
    "~": Function(1, 1, _complement),
    "negate": Function(1, 1, _negate),
    "and": Function(2, ARGUMENTS_MAX, _logic("AND"), Kind.BIT),
    "or": Function(2, ARGUMENTS_MAX, _logic("OR"), Kind.BIT),
    "not": Function(1, 1, lambda args: TypedSql(f"(NOT {condition(args[0])})", Kind.BIT), Kind.BIT),
    "is null": Function(1, 1, lambda args: TypedSql(f"({args[0].sql} IS NULL)", Kind.BIT), Kind.BIT),
    "in": Function(2, ARGUMENTS_MAX, _in, Kind.BIT),
    "between": Function(3, 3, _between, Kind.BIT),
    "like": LIKE,
}
