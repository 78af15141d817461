"""
The definition of a scalar function: its number of arguments, and the rule that writes it as a DuckDB expression.

:func:`float_rule`, :func:`text_rule` and :func:`kind_rule` build most rules from a template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.functions.conversions import TypedSql, convert
from tidegate.language.expressions.kinds import Kind, KindMismatch, mismatch_reason

# Arguments of known kinds -> DuckDB expression and its kind. Raises KindMismatch.
Rule = Callable[[Sequence[TypedSql]], TypedSql]
ARGUMENTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Function:
    """One function or operator."""

    args_min: int
    args_max: int
    rule: Rule
    # The kind of its values if it depends on no argument.
    result_kind: Kind | None = None
    # The kind depends on arguments whose value is not used. Rows with a NULL argument are then evaluated apart: that NULL must not get the
    # kind that the argument has in other rows.
    mixes_kinds: bool = False


def as_text(value: TypedSql) -> str:
    """Return *value* converted to text."""
    return convert(value, Kind.NVARCHAR)


def number(value: TypedSql, least: Kind = Kind.BIGINT) -> TypedSql:
    """Return *value* as a number of kind *least* or float; text becomes a float. Raises KindMismatch: its kind is no number."""
    if value.kind in (Kind.BIGINT, Kind.FLOAT):
        return TypedSql(convert(value, Kind.FLOAT), Kind.FLOAT) if least is Kind.FLOAT else value
    if value.kind in (Kind.NULL, Kind.BIT):
        return TypedSql(convert(value, least), least)
    if value.kind is Kind.NVARCHAR:
        return TypedSql(convert(value, Kind.FLOAT), Kind.FLOAT)
    raise KindMismatch(QueryReason.WRONG_KIND.text("a number", value.kind.asa_name))


def integer(value: TypedSql) -> str:
    """Return *value* as a bigint. Raises KindMismatch: it is of another kind."""
    if value.kind not in (Kind.BIGINT, Kind.BIT, Kind.NULL):
        raise KindMismatch(mismatch_reason(Kind.BIGINT, value.kind))
    return convert(value, Kind.BIGINT)


def condition(value: TypedSql) -> str:
    """Return *value* as a DuckDB condition. Raises KindMismatch: it is not a bit."""
    if value.kind not in (Kind.BIT, Kind.NULL):
        raise KindMismatch(QueryReason.WRONG_KIND.text("a condition", value.kind.asa_name))
    return convert(value, Kind.BIT)


def bigint_or_null(sql: str) -> TypedSql:
    """Return an integer expression as a bigint; NULL if the value does not fit 64 bits."""
    return TypedSql(f"TRY_CAST({sql} AS BIGINT)", Kind.BIGINT)


def float_rule(template: str) -> Rule:
    """Return a rule that computes a float from floats."""
    return lambda args: TypedSql(template.format(*(number(arg, Kind.FLOAT).sql for arg in args)), Kind.FLOAT)


def text_rule(template: str, kind: Kind = Kind.NVARCHAR, numbers: tuple[int, ...] = ()) -> Rule:
    """Return a rule that computes a value of *kind* from texts; the arguments at the indexes in *numbers* are bigints."""

    def rule(args: Sequence[TypedSql]) -> TypedSql:
        return TypedSql(template.format(*(integer(arg) if index in numbers else as_text(arg) for index, arg in enumerate(args))), kind)

    return rule


def kind_rule(kind: Kind, template: str, result_kind: Kind) -> Rule:
    """Return a rule that computes a value of *result_kind* from one argument of *kind*."""

    def rule(args: Sequence[TypedSql]) -> TypedSql:
        if args[0].kind not in (kind, Kind.NULL):
            raise KindMismatch(mismatch_reason(kind, args[0].kind))
        return TypedSql(template.format(args[0].sql), result_kind)

    return rule
