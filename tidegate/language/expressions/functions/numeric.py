"""
Functions of numbers and angles (radians). Outside its domain a function is NULL (``ACOS(2)``, ``COT(0)``).

>>> from tidegate.testing import run_query
>>> run_query("SELECT ROUND(x, 1) AS tenth, FLOOR(x) AS below, ACOS(x) AS no_angle INTO out FROM a", {"a": [{"x": 2.46}]}).rows
[{'tenth': 2.5, 'below': 2.0, 'no_angle': None}]
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.language.expressions.functions.conversions import TypedSql
from tidegate.language.expressions.functions.definition import Function, Rule, bigint_or_null, float_rule, integer, number
from tidegate.language.expressions.kinds import Kind


def _same_kind(float_template: str, bigint_template: str = "") -> Rule:
    """Return the rule of a function whose result has the argument's kind; without *bigint_template* a bigint stays unchanged."""

    def rule(args: Sequence[TypedSql]) -> TypedSql:
        value = number(args[0])
        if value.kind is Kind.FLOAT:
            return TypedSql(float_template.format(value.sql), Kind.FLOAT)
        return bigint_or_null(bigint_template.format(value.sql)) if bigint_template else value

    return rule


def _round(args: Sequence[TypedSql]) -> TypedSql:
    value, places = number(args[0]), (integer(args[1]) if len(args) > 1 else "0")
    if value.kind is Kind.FLOAT:
        return TypedSql(f"round({value.sql}, CAST({places} AS INTEGER))", Kind.FLOAT)
    # The next multiple of ten may need more than 64 bits.
    return bigint_or_null(f"round(CAST({value.sql} AS HUGEINT), CAST({places} AS INTEGER))")


def _power(args: Sequence[TypedSql]) -> TypedSql:
    base, exponent = number(args[0]), number(args[1], Kind.FLOAT)
    power = f"pow({number(base, Kind.FLOAT).sql}, {exponent.sql})"
    return TypedSql(power, Kind.FLOAT) if base.kind is Kind.FLOAT else bigint_or_null(f"trunc({power})")


def _float(template: str, arguments: int = 1) -> Function:
    return Function(arguments, arguments, float_rule(template), Kind.FLOAT)


# By name in lower case.
NUMERIC_FUNCTIONS: dict[str, Function] = {
    "abs": Function(1, 1, _same_kind("abs({})", "abs(CAST({} AS HUGEINT))")),
    "ceiling": Function(1, 1, _same_kind("ceil({})")),
    "floor": Function(1, 1, _same_kind("floor({})")),
    "sign": Function(1, 1, _same_kind("CAST(sign({}) AS DOUBLE)", "sign({})")),
    "round": Function(1, 2, _round),
    "square": _float("pow({}, 2)"),
    "sqrt": _float("sqrt(CASE WHEN {0} >= 0 THEN {0} END)"),
    "power": Function(2, 2, _power),
    "exp": _float("exp({})"),
    "log": _float("ln(CASE WHEN {0} > 0 THEN {0} END)"),
    "log10": _float("log10(CASE WHEN {0} > 0 THEN {0} END)"),
    **{name: _float(f"{name}({{}})") for name in ("sin", "cos", "tan", "cot", "atan", "degrees", "radians")},
    "asin": _float("asin(CASE WHEN {0} BETWEEN -1 AND 1 THEN {0} END)"),
    "acos": _float("acos(CASE WHEN {0} BETWEEN -1 AND 1 THEN {0} END)"),
    "atn2": _float("atan2({}, {})", 2),
    "pi": _float("pi()", 0),
}
