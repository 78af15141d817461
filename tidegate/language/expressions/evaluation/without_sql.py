"""
Expressions that need no SQL: arithmetic, comparisons and logic over values of one kind, a CAST of text in the usual form of a time, and
COALESCE of values of one kind. A statement of DuckDB costs a millisecond however few rows it has; a kernel of Arrow costs microseconds.

Law: values are computed here only if no row fails, and they equal the values that DuckDB would compute. Whatever has another rule there -
a bigint outside 64 bits, an intermediate float that is not finite, numbers of two kinds compared - is left to DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce

import pyarrow as pa
import pyarrow.compute as pc

from ordering.columns.timestamps import to_ticks
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Call, Cast, ComputedCall, Expr, Literal, Required, Requirement, replace_parts
from tidegate.language.expressions.variant import Variant, finite

Columns = Mapping[Expr, Variant]
# A kind, and a column of its values or one value for all rows.
Operand = tuple[Kind, pa.Array | pa.Scalar]

_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_COMPARED = (Kind.BIGINT, Kind.DATETIME, Kind.FLOAT, Kind.NVARCHAR)
# Of bigints: they raise ArrowInvalid if a result does not fit 64 bits.
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked, "/": pc.divide_checked}
_OF_FLOATS = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
_LOGIC = {"and": pc.and_kleene, "or": pc.or_kleene}
_NUMBERS = (Kind.BIGINT, Kind.FLOAT)
# Every bigint compares with a smaller number as the float nearest to the bigint does.
_SMALL = 2**53


def plain_values(expr: Expr, leaves: Columns, length: int) -> Variant | None:
    """Return the values of an expression of this module, or of a leaf; None if SQL is needed."""
    if expr in leaves:
        return leaves[expr]
    if isinstance(expr, Cast):
        return _read_times(expr, leaves)
    if isinstance(expr, Call) and expr.name == "coalesce":
        return _first_values([plain_values(arg, leaves, length) for arg in expr.args], length)
    return operator_values(expr, leaves, length)


def operator_values(expr: Expr, leaves: Columns, length: int) -> Variant | None:
    """Return the values of an expression made of operators alone; None if SQL is needed."""
    if expr in leaves or not _has_only_operators(expr):
        return None
    try:
        operand = _operand(expr, leaves, length)
    except pa.ArrowInvalid:
        # A bigint is out of range.
        return None
    if operand is None or isinstance(operand[1], pa.Scalar):
        return None
    kind, values = operand
    return Variant.of(length, {kind: finite(values) if kind is Kind.FLOAT else values})


@lru_cache(maxsize=4096)
def _has_only_operators(expr: Expr) -> bool:
    """Return whether an expression may be computed here: so nothing of one that may not is computed in vain."""
    if isinstance(expr, Required):
        return expr.requirement in _REQUIREMENTS and _has_only_operators(expr.arg)
    if isinstance(expr, Call):
        return expr.name in _OPERATIONS and all(map(_has_only_operators, expr.args))
    return isinstance(expr, Literal) or not expr.parts


def _operand(expr: Expr, leaves: Columns, length: int) -> Operand | None:
    """Return the values of an operand; None if SQL is needed. Raises ArrowInvalid: so it is."""
    column = leaves.get(expr)
    if column is not None:
        if not column.parts:
            return Kind.NULL, pa.nulls(length)
        return next(iter(column.parts.items())) if len(column.parts) == 1 else None
    if isinstance(expr, Literal):
        return None if expr.kind is Kind.NULL else (expr.kind, pa.scalar(expr.value, expr.kind.arrow))
    if isinstance(expr, Required):
        operand = _operand(expr.arg, leaves, length)
        return operand if operand is not None and operand[0] in _REQUIREMENTS[expr.requirement] else None
    assert isinstance(expr, Call), "an operator"
    if expr.name == "is null" and expr.args[0] in leaves:
        # A column may have values of several kinds.
        return Kind.BIT, pa.array(~leaves[expr.args[0]].valid_mask())
    operands = [_operand(arg, leaves, length) for arg in expr.args]
    found = [operand for operand in operands if operand is not None]
    # Constants alone are computed once and not by row.
    if len(found) < len(operands) or all(isinstance(values, pa.Scalar) for _, values in found):
        return None
    return _OPERATIONS[expr.name](expr, found)


def _calculate(expr: Call, operands: Sequence[Operand]) -> Operand | None:
    kinds = {kind for kind, _ in operands}
    if not kinds <= {*_NUMBERS, Kind.NULL} or kinds == {Kind.NULL}:
        return None
    if Kind.FLOAT not in kinds:
        left, right = (values.cast(pa.int64()) for _, values in operands)
        return Kind.BIGINT, _CHECKED[expr.name](left, _null_zeros(right) if expr.name == "/" else right)
    numbers = [_as_float(operand) for operand in operands]
    if any(number is None for number in numbers):
        return None
    left, right = numbers
    return Kind.FLOAT, _OF_FLOATS[expr.name](left, _null_zeros(right) if expr.name == "/" else right)


def _negate(expr: Call, operands: Sequence[Operand]) -> Operand | None:
    ((kind, values),) = operands
    if kind is Kind.FLOAT:
        return kind, pc.negate(values)
    return (kind, pc.negate_checked(values)) if kind is Kind.BIGINT else None


def _compare(expr: Call, operands: Sequence[Operand]) -> Operand | None:
    return _compare_with(_COMPARISONS[expr.name], expr.args, operands)


def _compare_with(compare: Callable[..., pa.Array], args: Sequence[Expr], operands: Sequence[Operand]) -> Operand | None:
    """Compare two operands, those of *args*."""
    kinds = {kind for kind, _ in operands} - {Kind.NULL}
    if len(kinds) == 2 and kinds == {*_NUMBERS} and any(map(_is_small, args)):
        kinds = {Kind.FLOAT}
    if len(kinds) > 1 or not kinds <= {*_COMPARED}:
        return None
    if not kinds or any(kind is Kind.NULL for kind, _ in operands):
        (length,) = {len(values) for _, values in operands if isinstance(values, pa.Array)}
        return Kind.BIT, pa.nulls(length, pa.bool_())
    found = [_as_float(operand) if kinds == {Kind.FLOAT} else operand[1] for operand in operands]
    values = [value for value in found if value is not None]
    if len(values) < len(found) or len({value.type for value in values}) > 1:
        return None
    return Kind.BIT, compare(*values)


def _between(expr: Call, operands: Sequence[Operand]) -> Operand | None:
    value, low, high = operands
    # With constant bounds the value alone decides whether a row is NULL.
    if not all(isinstance(bound, Literal) for bound in expr.args[1:]) or len({kind for kind, _ in operands} - {Kind.NULL}) > 1:
        return None
    above = _compare_with(pc.greater_equal, (expr.args[0], expr.args[1]), (value, low))
    below = _compare_with(pc.less_equal, (expr.args[0], expr.args[2]), (value, high))
    return None if above is None or below is None else (Kind.BIT, pc.and_kleene(above[1], below[1]))


def _is_in(expr: Call, operands: Sequence[Operand]) -> Operand | None:
    value, *options = operands
    if not all(isinstance(option, Literal) for option in expr.args[1:]) or len({kind for kind, _ in operands} - {Kind.NULL}) > 1:
        return None
    found = [_compare_with(pc.equal, (expr.args[0], arg), (value, option)) for arg, option in zip(expr.args[1:], options, strict=True)]
    equal = [operand[1] for operand in found if operand is not None]
    return (Kind.BIT, reduce(pc.or_kleene, equal)) if len(equal) == len(found) else None


def _combine(expr: Call, operands: Sequence[Operand]) -> Operand | None:
    if any(kind not in (Kind.BIT, Kind.NULL) for kind, _ in operands):
        return None
    return Kind.BIT, reduce(_LOGIC[expr.name], (values.cast(pa.bool_()) for _, values in operands))


def _invert(expr: Call, operands: Sequence[Operand]) -> Operand | None:
    ((kind, values),) = operands
    return (kind, pc.invert(values)) if kind is Kind.BIT else None


def _is_null(expr: Call, operands: Sequence[Operand]) -> Operand | None:
    ((kind, values),) = operands
    if kind is Kind.FLOAT and not _is_finite(values):
        return None
    return Kind.BIT, pc.is_null(values)


_OPERATIONS: dict[str, Callable[[Call, Sequence[Operand]], Operand | None]] = {
    **dict.fromkeys(_CHECKED, _calculate),
    **dict.fromkeys(_COMPARISONS, _compare),
    **dict.fromkeys(_LOGIC, _combine),
    "negate": _negate,
    "between": _between,
    "in": _is_in,
    "not": _invert,
    "is null": _is_null,
}
# The kinds that meet each requirement.
_REQUIREMENTS = {
    Requirement.CONDITION: (Kind.BIT,),
    Requirement.NUMBER: (*_NUMBERS, Kind.NULL),
    Requirement.COMPARABLE: (*_COMPARED, Kind.BIT, Kind.NULL),
}


def _as_float(operand: Operand) -> pa.Array | pa.Scalar | None:
    """Return a number as a float; None if some is not finite, with which DuckDB computes by rules of its own."""
    kind, values = operand
    if kind is Kind.FLOAT:
        return values if _is_finite(values) else None
    # The nearest float, as in DuckDB.
    return values.cast(pa.float64(), safe=False)


def _is_finite(values: pa.Array | pa.Scalar) -> bool:
    finite_values = pc.is_finite(values)
    return (finite_values if isinstance(finite_values, pa.Scalar) else pc.all(finite_values)).as_py() is not False


def _null_zeros(divisor: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    return pc.if_else(pc.equal(divisor, pa.scalar(0, divisor.type)), pa.scalar(None, divisor.type), divisor)


def _is_small(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, int | float) and abs(expr.value) < _SMALL


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
