"""
Rules: how one function becomes a DuckDB expression, and the conversions that rules share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.expressions.functions.conversions import TypedSql, convert
from tidegate.expressions.kinds import Kind, KindMismatch

Rule = Callable[[Sequence[TypedSql]], TypedSql]
ARGUMENTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Function:
    """
    One function or operator.

    Args:
        least: Fewest arguments.
        most: Most arguments.
        rule: Arguments of known kinds -> DuckDB expression and its kind; raises KindMismatch.
        result: The kind of its values where that depends on no argument.
        blends: Its kind depends on arguments whose value it does not use, so a NULL of unknown kind must not be taken
            for a NULL of another row's kind.
    """

    args_min: int
    args_max: int
    rule: Rule
    result_kind: Kind | None = None
    mixes_kinds: bool = False


def as_text(value: TypedSql) -> str:
    """Return *value* as text."""
    return convert(value, Kind.NVARCHAR)


def number(value: TypedSql, least: Kind = Kind.BIGINT) -> TypedSql:
    """
    Return *value* as a number of kind *least* or float; text becomes a float.

    Raises:
        KindMismatch: No value of this kind can be one.
    """
    if value.kind in (Kind.BIGINT, Kind.FLOAT):
        return TypedSql(convert(value, Kind.FLOAT), Kind.FLOAT) if least is Kind.FLOAT else value
    if value.kind in (Kind.NULL, Kind.BIT):
        return TypedSql(convert(value, least), least)
    if value.kind is Kind.NVARCHAR:
        return TypedSql(convert(value, Kind.FLOAT), Kind.FLOAT)
    raise KindMismatch(f"a number is needed, not {value.kind.asa_name}")


def float_rule(template: str) -> Rule:
    """Return the rule that gives a float, computed from floats."""
    return lambda args: TypedSql(template.format(*(number(arg, Kind.FLOAT).sql for arg in args)), Kind.FLOAT)


def text_rule(template: str, kind: Kind = Kind.NVARCHAR, numbers: tuple[int, ...] = ()) -> Rule:
    """Return the rule that computes a value of *kind* from texts, and from bigints where *numbers* says so."""

    def rule(args: Sequence[TypedSql]) -> TypedSql:
        return TypedSql(template.format(*(integer(arg) if index in numbers else as_text(arg) for index, arg in enumerate(args))), kind)

    return rule


def bigint_or_null(sql: str) -> TypedSql:
    """Return a DuckDB expression of any integer type as a bigint; NULL where it does not fit 64 bits."""
    return TypedSql(f"TRY_CAST({sql} AS BIGINT)", Kind.BIGINT)


def integer(value: TypedSql) -> str:
    """
    Return *value* as a bigint.

    Raises:
        KindMismatch: It is of another kind.
    """
    if value.kind not in (Kind.BIGINT, Kind.BIT, Kind.NULL):
        raise KindMismatch(f"a bigint is needed, not {value.kind.asa_name}")
    return convert(value, Kind.BIGINT)
