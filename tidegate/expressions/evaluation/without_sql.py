"""
What needs no SQL: text in the usual form of a time that becomes a datetime, and COALESCE of values of one kind.

Law: values are computed here only where no row fails, and are those that DuckDB would give.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ordering.columns.timestamps import to_ticks
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Call, Cast, ComputedCall, Expr, replace_parts
from tidegate.expressions.variant import Variant

Columns = Mapping[Expr, Variant]


def plain_values(expr: Expr, leaves: Columns, length: int) -> Variant | None:
    """Return the values of a leaf, of a text as a time, or of the first of some that is not NULL; None if SQL is needed."""
    if expr in leaves:
        return leaves[expr]
    if isinstance(expr, Cast):
        return _read_times(expr, leaves)
    if isinstance(expr, Call) and expr.name == "coalesce":
        return _first_values([plain_values(arg, leaves, length) for arg in expr.args], length)
    return None


def replace_times(expr: Expr, leaves: Columns) -> tuple[Expr, Columns]:
    """Return *expr* with texts that are times in every row as leaves, and the columns of all leaves."""
    times: dict[Expr, Variant] = {}
    for part in expr.walk():
        # A cast gives even NULL its kind, which a leaf does not: what is around it might ask for that.
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
    # What is not read may be a time between spaces or before 1970, or no time: DuckDB tells.
    if is_read.sum() < len(part) - part.null_count:
        return None
    return Variant.of(texts.length, {Kind.DATETIME: pa.array(ticks, mask=None if is_read.all() else ~is_read)})


def _first_values(columns: list[Variant | None], length: int) -> Variant | None:
    parts = [part for column in columns if column is not None for part in column.parts.items()]
    kinds, types = {kind for kind, _ in parts}, {part.type for _, part in parts}
    if None in columns or len(kinds) != 1 or len(types) != 1 or kinds & {Kind.RECORD, Kind.ARRAY}:
        return None
    return Variant.of(length, {kinds.pop(): pc.coalesce(*(part for _, part in parts))})
