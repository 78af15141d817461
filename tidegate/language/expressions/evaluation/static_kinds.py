"""Facts about an expression before any row is read: the kind of its values, whether its operations can work on it, and its size."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.language.expressions.evaluation.translation import translate
from tidegate.language.expressions.functions import catalog, column_functions, extension_aggregates, operators
from tidegate.language.expressions.functions.conversions import TooLong, TypedSql, refuse_long
from tidegate.language.expressions.kinds import Kind, KindMismatch, mismatch_reason
from tidegate.language.expressions.tree import (
    Aggregate,
    Analytic,
    Arrival,
    Call,
    Case,
    CaseFolded,
    Cast,
    DatePart,
    EventId,
    Expr,
    Header,
    Leaf,
    Literal,
    MatchValue,
    Numbered,
    OnlyKind,
    PartitionId,
    Payload,
    Property,
    RecordOffset,
    Required,
    SystemTimestamp,
    WindowEnd,
    WindowId,
    Zoned,
    ZoneForm,
)


def static_kind(expr: Expr) -> Kind | None:
    """Return the kind of all values of *expr*, or None if it may differ from row to row."""
    if isinstance(expr, (Literal, Cast, Numbered, OnlyKind)):
        return expr.kind
    if isinstance(expr, (SystemTimestamp, WindowEnd, Arrival)):
        return Kind.DATETIME
    if isinstance(expr, Zoned):
        return Kind.NVARCHAR if expr.form is ZoneForm.TEXT else Kind.DATETIME
    if isinstance(expr, (PartitionId, RecordOffset)):
        return Kind.BIGINT
    if isinstance(expr, (WindowId, EventId, Header)):
        return Kind.NVARCHAR
    if isinstance(expr, Payload):
        return Kind.RECORD
    if isinstance(expr, Aggregate):
        return _aggregate_kind(expr)
    if isinstance(expr, Analytic):
        return _analytic_kind(expr)
    if isinstance(expr, MatchValue):
        inner = expr.aggregate or expr.arg
        return Kind.ARRAY if inner is None else static_kind(inner)
    if isinstance(expr, Call) and (column_function := column_functions.REGISTERED.get(expr.name)):
        return column_function.result_kind
    if isinstance(expr, Call) and (function := catalog.FUNCTIONS.get(expr.name)) and function.result_kind:
        return function.result_kind
    if isinstance(expr, Required) and (required_kind := operators.REQUIREMENTS[expr.requirement].result_kind):
        return required_kind
    if isinstance(expr, (Call, Case, Required, CaseFolded)):
        kinds = [static_kind(part) for part in expr.parts]
        if None not in kinds:
            return translate(expr, _stand_ins(dict(zip(expr.parts, kinds, strict=True)))).kind
    return None


_AGGREGATE_KINDS = {
    "count": Kind.BIGINT,
    **dict.fromkeys(("avg", "stdev", "stdevp", "var", "varp", "percentile_cont"), Kind.FLOAT),
    **dict.fromkeys(("collect", "collecttop"), Kind.ARRAY),
    **dict.fromkeys(catalog.ANOMALIES, Kind.RECORD),
}


def _aggregate_kind(expr: Aggregate) -> Kind | None:
    if (extension := extension_aggregates.REGISTERED.get(expr.function)) is not None:
        return extension.result_kind
    fixed = _AGGREGATE_KINDS.get(expr.function)
    return fixed or (static_kind(expr.parts[0]) if expr.parts else None)


def _analytic_kind(expr: Analytic) -> Kind | None:
    if expr.function == "isfirst":
        return Kind.BIGINT
    if expr.aggregate is not None:
        return static_kind(expr.aggregate)
    kinds = {static_kind(value) for value in (expr.arg, expr.default) if value is not None} - {Kind.NULL}
    return kinds.pop() if len(kinds) == 1 else None if kinds else Kind.NULL


def check_kinds(expr: Expr) -> None:
    """Check the outermost operation of *expr* for arguments of known kind. Raises KindMismatch: it cannot work on them."""
    kinds = {part: static_kind(part) for part in expr.parts if not isinstance(part, DatePart)}
    if isinstance(expr, (Property, Zoned)):
        return
    if isinstance(expr, OnlyKind):
        _check_argument(kinds[expr.arg], expr.kind)
        return
    if isinstance(expr, Call) and (function := column_functions.REGISTERED.get(expr.name)):
        for arg, expected in zip(expr.args, function.argument_kinds, strict=False):
            _check_argument(kinds[arg], expected)
        return
    if None not in kinds.values():
        translate(expr, _stand_ins(kinds))


def _check_argument(kind: Kind | None, expected: Kind | None) -> None:
    if expected is not None and kind not in (Kind.NULL, None) and not column_functions.is_accepted(kind, expected):
        raise KindMismatch(mismatch_reason(expected, kind))


def _stand_ins(kinds: Mapping[Expr, Kind | None]) -> dict[Expr, TypedSql]:
    """Return a typed NULL for each part of known kind, except constants, whose value may matter."""
    return {part: TypedSql("NULL", kind) for part, kind in kinds.items() if kind is not None and not _is_constant(part)}


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, Literal) or (isinstance(expr, CaseFolded) and isinstance(expr.arg, Literal))


def check_size(expr: Expr) -> None:
    """Check the size of *expr* for any kinds of its leaves. Raises TooLong: its SQL would be too long."""
    for kind in (Kind.FLOAT, Kind.NVARCHAR):
        columns: dict[Expr, TypedSql] = {
            part: TypedSql("c0", static_kind(part) or kind)
            for part in expr.walk()
            if isinstance(part, (Leaf, Aggregate, Analytic, MatchValue)) or column_functions.is_column_call(part)
        }
        try:
            refuse_long(translate(expr, columns).sql)
        except TooLong:
            raise
        except KindMismatch:
            continue
    for arg in (arg for part in expr.walk() if column_functions.is_column_call(part) for arg in part.parts):
        check_size(arg)
