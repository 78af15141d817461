"""Translation: an expression whose leaves have known kinds -> one statically typed DuckDB expression."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.language.expressions.duckdb_pool import quote
from tidegate.language.expressions.functions import catalog, operators
from tidegate.language.expressions.functions.conversions import DUCK_TYPES, TypedSql, convert, unify
from tidegate.language.expressions.functions.definition import condition
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Case, CaseFolded, Cast, DatePart, Expr, Literal, Required


def translate(expr: Expr, known: Mapping[Expr, TypedSql]) -> TypedSql:
    """Translate *expr*; *known* has the SQL of its leaves. Raises KindMismatch: an operation cannot work on its arguments."""
    if expr in known:
        return known[expr]
    if isinstance(expr, Literal):
        return translate_literal(expr)
    if isinstance(expr, DatePart):
        return TypedSql(expr.unit, Kind.NULL)
    if isinstance(expr, Cast):
        return TypedSql(convert(translate(expr.arg, known), expr.kind, lenient=expr.lenient), expr.kind)
    if isinstance(expr, Case):
        return _translate_case(expr, known)
    if isinstance(expr, Required):
        return operators.REQUIREMENTS[expr.requirement].rule([translate(expr.arg, known)])
    if isinstance(expr, CaseFolded):
        return operators.fold_texts(translate(expr.arg, known))
    if isinstance(expr, Call):
        return catalog.FUNCTIONS[expr.name].rule([translate(arg, known) for arg in expr.args])
    raise AssertionError(f"no column for {expr!r}")


def translate_literal(literal: Literal) -> TypedSql:
    """Translate a constant; the result keeps the text of a text constant, which patterns need."""
    if literal.kind is Kind.NULL:
        return TypedSql("NULL", Kind.NULL)
    text = str(literal.value) if literal.kind is Kind.NVARCHAR else None
    value = repr(literal.value) if text is None else quote(text)
    is_small = literal.kind in (Kind.BIGINT, Kind.FLOAT) and isinstance(literal.value, (int, float)) and abs(literal.value) < 2**53
    return TypedSql(f"CAST({value} AS {DUCK_TYPES[literal.kind]})", literal.kind, text, is_small)


def _translate_case(case: Case, known: Mapping[Expr, TypedSql]) -> TypedSql:
    values, kind = unify([translate(value, known) for _, value in case.whens] + [translate(case.otherwise, known)])
    conditions = [condition(translate(test, known)) for test, _ in case.whens]
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in zip(conditions, values, strict=False))
    return TypedSql(f"CASE {whens} ELSE {values[-1]} END", kind)
