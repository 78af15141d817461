"""
Operators that scripts call by name in FROM, ``shift(flights, second, 5)``: Tidegate's own and those of other packages.

An operator is made when a script is bound, from the columns of its input rows and the arguments of the call. Its maker also returns the
columns of its results.

Law: results obey the law of all operators (:mod:`query.plan.operator`). Rows outside the slice of time that was asked for are not final, so
they stop the query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordering.errors import QueryError
from query.plan.operator import Operator
from query.plan.row_tables import in_slice, ticks
from tidegate.basics.package_offers import Registry


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of rows: its name in scripts, and the ASA type of its values, ``any`` if it differs."""

    # ``*`` is a record whose members stand in its place in results.
    name: str
    kind: str = "any"


@dataclass(frozen=True, slots=True)
class ColumnArgument:
    """A column of the input rows as an argument: its values are ``from_columns(rows, f"s{index}")``."""

    index: int


@dataclass(frozen=True, slots=True)
class Length:
    """A length of time as an argument, written ``second, 5``; in microseconds, above 0."""

    us: int


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column given by name, written ``ends = column``; the name is in lower case and given once."""

    name: str
    index: int


Argument = ColumnArgument | Length | NamedColumn | str | int | float | bool | None
# Columns of the input rows, arguments -> the columns of the results, the operator. Raises ValueError if the arguments do not fit.
MakeOperator = Callable[[Sequence[RowColumn], Sequence[Argument]], tuple[Sequence[RowColumn], Operator]]


@dataclass(frozen=True, slots=True)
class OperatorExtension:
    """An operator that FROM can call."""

    make: MakeOperator
    # An example call, for messages.
    example: str
    # The names, in lower case, of the columns that it takes by name.
    named_columns: tuple[str, ...] = ()


REGISTERED: Registry[OperatorExtension] = Registry()


def check_rows_in_slice(name: str, rows: pa.Table, closing: pa.Table) -> None:
    """Raise QueryError (TG-QUERY-EXTENSION) if a row is outside the slice of time asked for, or before a preceding row of its substream."""
    subs, system_us = ticks(rows, "sub"), ticks(rows, "system_us")
    is_outside = ~in_slice(subs, system_us, closing)
    order = np.argsort(subs, kind="stable")
    is_out_of_order = (np.diff(system_us[order]) < 0) & (np.diff(subs[order]) == 0)
    if is_outside.any() or is_out_of_order.any():
        problem = "outside of the slice of time that it was asked for" if is_outside.any() else "out of the order of time"
        message, fix = f"the operator {name} gave rows {problem}: they are not final", "repair or remove the package that offers it"
        raise QueryError(message, code="TG-QUERY-EXTENSION", where=name, fix=fix)
