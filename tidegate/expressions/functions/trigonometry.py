"""
Functions of angles, in radians. Outside its domain a function has no value, which is NULL (``ACOS(2)``, ``COT(0)``).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.expressions.functions.conversions import TypedSql
from tidegate.expressions.functions.rules import Function, Rule, float_rule
from tidegate.expressions.kinds import Kind


def _pi(args: Sequence[TypedSql]) -> TypedSql:
    return TypedSql("pi()", Kind.FLOAT)


def _function(template: str, arguments: int = 1) -> Function:
    rule: Rule = float_rule(template)
    return Function(arguments, arguments, rule, Kind.FLOAT)


TRIGONOMETRY: dict[str, Function] = {
    **{name: _function(f"{name}({{}})") for name in ("sin", "cos", "tan", "atan", "degrees", "radians")},
    "asin": _function("asin(CASE WHEN {0} BETWEEN -1 AND 1 THEN {0} END)"),
    "acos": _function("acos(CASE WHEN {0} BETWEEN -1 AND 1 THEN {0} END)"),
    "cot": _function("cot({})"),
    "atn2": _function("atan2({}, {})", 2),
    "pi": Function(0, 0, _pi, Kind.FLOAT),
}
"""The functions of angles, by name in lower case."""
