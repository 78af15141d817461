"""
Column functions: functions whose result differs in kind from row to row, or that are written in Python.

A column function takes whole columns (:class:`~tidegate.language.expressions.variant.Variant`) and returns one. A script calls it by its
registered name, which may have a dot (``udf.name``). Law: its value in a row depends on the arguments in that row alone. A row that it
cannot compute is reported as a :class:`FailedRows`, never raised.

A row of the wrong kind becomes a dead letter; the others have their values.

>>> import pyarrow.compute as pc
>>> from tidegate.query.extending import ScalarFunction
>>> from tidegate.testing import run_query
>>> half = ScalarFunction(lambda n: pc.divide(n, 2), takes=("bigint",), gives="bigint")
>>> run = run_query("SELECT udf.half(n) AS half INTO out FROM a", {"a": [{"n": 4}, {"n": "x"}]}, functions={"half": half})
>>> run.rows, run.dead
([{'half': 2}], ['a bigint is needed, not nvarchar(max): UDF.HALF(n)'])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from tidegate.basics.dead_letter_reasons import ReasonText
from tidegate.basics.package_offers import Registry
from tidegate.language.expressions.kinds import Kind, mismatch_reason
from tidegate.language.expressions.tree import Call, Expr, OnlyKind, Property, Zoned
from tidegate.language.expressions.variant import KIND_CODES, Variant

RowNumbers = Ints


@dataclass(frozen=True, slots=True)
class FailedRows:
    """Rows in which one expression failed, and the reason, which must not depend on batch boundaries."""

    rows: RowNumbers
    reason: ReasonText


# Columns of the arguments and their length -> the column of the results, and the rows that failed, NULL in it.
ColumnRule = Callable[[Sequence[Variant], int], tuple[Variant, Sequence[FailedRows]]]


@dataclass(frozen=True, slots=True)
class ColumnFunction:
    """
    One column function. Each argument must be NULL or of a kind that is accepted (:func:`is_accepted`) for its kind in *argument_kinds*;
    None there, or an index beyond the tuple, accepts any kind.
    """

    args_min: int
    args_max: int
    compute: ColumnRule
    result_kind: Kind | None = None
    argument_kinds: tuple[Kind | None, ...] = ()
    # Whether the name of an input stands for its whole row as an argument of any kind.
    takes_rows: bool = False


REGISTERED: Registry[ColumnFunction] = Registry()


def is_column_call(expr: Expr) -> bool:
    """Return whether the outermost operation of *expr* works on whole columns."""
    return isinstance(expr, (Property, Zoned, OnlyKind)) or (isinstance(expr, Call) and expr.name in REGISTERED)


def has_column_calls(expr: Expr) -> bool:
    """Return whether anything in *expr* works on whole columns."""
    return any(map(is_column_call, expr.walk()))


def is_accepted(kind: Kind, expected: Kind) -> bool:
    """Return whether an argument of *kind* may stand where *expected* is needed. A bigint may be a float: JSON may omit the point."""
    return kind is expected or (kind is Kind.BIGINT and expected is Kind.FLOAT)


def argument_column(arg: Variant, kind: Kind) -> pa.Array:
    """Return the values of an argument that are accepted as *kind*, converted to it; others are null."""
    part, bigints = arg.of_kind(kind), arg.parts.get(Kind.BIGINT)
    if kind is not Kind.FLOAT or bigints is None:
        return part
    return pc.coalesce(part, bigints.cast(part.type, safe=False))


def wrong_kinds(args: Sequence[Variant], takes: Sequence[Kind | None]) -> list[FailedRows]:
    """Return the rows in which an argument has another kind than the function accepts."""
    failures = []
    for column, expected in zip(args, takes, strict=False):
        for kind in column.kinds if expected is not None else ():
            if expected is not None and not is_accepted(kind, expected):
                rows = np.flatnonzero(column.codes() == KIND_CODES[kind]).astype(np.int64)
                failures.append(FailedRows(rows, mismatch_reason(expected, kind)))
    return failures
