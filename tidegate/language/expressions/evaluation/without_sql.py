"""
Expressions that need no SQL: a CAST of text in the usual form of a time, COALESCE of values of one kind, and comparisons of these.

Law: values are computed here only if no row fails, and they equal the values that DuckDB would compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ordering.columns.timestamps import to_ticks
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Cast, ComputedCall, Expr, Literal, replace_parts
from tidegate.language.expressions.variant import Variant

Columns = Mapping[Expr, Variant]
Operand = tuple[Kind, pa.Array | pa.Scalar]

_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_COMPARED = (Kind.BIGINT, Kind.DATETIME)


def plain_values(expr: Expr, leaves: Columns, length: int) -> Variant | None:
    """Return the values of a leaf, of a CAST of text to a datetime, of COALESCE or of a comparison; None if SQL is needed."""
    if expr in leaves:
        return leaves[expr]
    if isinstance(expr, Cast):
        return _read_times(expr, leaves)
    if isinstance(expr, Call) and expr.name == "coalesce":
        return _first_values([plain_values(arg, leaves, length) for arg in expr.args], length)
    if isinstance(expr, Call) and expr.name in _COMPARISONS:
        one, other = (_operand(arg, leaves) for arg in expr.args)
        return _compare(_COMPARISONS[expr.name], one, other, length)
    return None


def replace_times(expr: Expr, leaves: Columns) -> tuple[Expr, Columns]:
    """Return *expr* with each CAST of text that is a time in every row replaced by a leaf, and the columns of all leaves."""
    times: dict[Expr, Variant] = {}
    for part in expr.walk():
        # A cast gives even NULL its kind, and a leaf does not: the operation around it might depend on the kind.
        if isinstance(part, Cast) and (read := _read_times(part, leaves)) is not None and read.valid_mask().all():
            times[ComputedCall(part)] = read
    if not times:
        return expr, leaves
    return replace_parts(expr, lambda part: part if (part := ComputedCall(part)) in times else None), {**leaves, **times}


def _read_times(cast: Cast, leaves: Columns) -> Variant | None:
    texts = leaves.get(cast.arg) if cast.kind is Kind.DATETIME else None
    if texts is None or texts.kinds != (Kind.NVARCHAR,):
        return None
    part = texts.parts[Kind.NVARCHAR]
    ticks, is_read = to_ticks(part, "iso")
    # Text that is not read here may be a time between spaces or before 1970, or no time: DuckDB decides.
    if is_read.sum() < len(part) - part.null_count:
        return None
    return Variant.of(texts.length, {Kind.DATETIME: pa.array(ticks, mask=None if is_read.all() else ~is_read)})


def _first_values(columns: list[Variant | None], length: int) -> Variant | None:
    parts = [part for column in columns if column is not None for part in column.parts.items()]
    kinds, types = {kind for kind, _ in parts}, {part.type for _, part in parts}
    if None in columns or len(kinds) != 1 or len(types) != 1 or kinds & {Kind.RECORD, Kind.ARRAY}:
        return None
    return Variant.of(length, {kinds.pop(): pc.coalesce(*(part for _, part in parts))})


def _operand(expr: Expr, leaves: Columns) -> Operand | None:
    if isinstance(expr, Literal):
        return expr.kind, pa.scalar(expr.value, expr.kind.arrow)
    column = leaves.get(expr)
    return next(iter(column.parts.items())) if column is not None and len(column.parts) == 1 else None


def _compare(compare: Callable[..., pa.Array], one: Operand | None, other: Operand | None, length: int) -> Variant | None:
    if one is None or other is None or one[0] is not other[0] or one[0] not in _COMPARED:
        return None
    values = compare(one[1], other[1])
    return Variant.of(length, {Kind.BIT: values}) if isinstance(values, pa.Array) else None
