"""
Offered operators: those that scripts call by name in FROM, ``shift(flights, second, 5)``; our own and those of other packages.

Each is made when a script is bound, from the columns of the rows it takes and the arguments of the call, and says which
columns it gives. Beside :class:`query.plan.operator.Operator` it may have two attributes:

``apart``    the numbers of columns of the rows it takes; rows that differ in kind or value in any of these never meet in it. None:
             no two rows meet at all. Without it, any may meet, and so its work is not spread.
``passes``   true where its columns begin with those of the rows it takes, with the values they have there.

Law: its results obey that of all operators; rows it gives outside of the slice that it was asked for stop the query, for
they could not be final.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordering.errors import QueryError
from query.plan.operator import Operator
from query.plan.row_tables import by_substream, ticks


@dataclass(frozen=True, slots=True)
class RowColumn:
    """
    A column of rows.

    Args:
        name: What scripts call it; ``*`` is a record whose members stand in its place in results.
        kind: The ASA type of its values, or ``any`` where it differs.
    """

    name: str
    kind: str = "any"


@dataclass(frozen=True, slots=True)
class ColumnArgument:
    """A column of the rows below, as an argument: its values are ``from_columns(rows, f"s{index}")``."""

    index: int


@dataclass(frozen=True, slots=True)
class Length:
    """A length of time as an argument, written ``second, 5``; microseconds, above 0."""

    us: int


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column that a call gives by a word, written ``ends = column``; the word in lower case, each once."""

    name: str
    index: int


Argument = ColumnArgument | Length | NamedColumn | str | int | float | bool | None
MakeOperator = Callable[[Sequence[RowColumn], Sequence[Argument]], tuple[Sequence[RowColumn], Operator]]
"""Columns of the rows below, and arguments -> the columns it gives, and the operator. Raises ValueError where they will not do."""


@dataclass(frozen=True, slots=True)
class OperatorExtension:
    """
    What a name in FROM stands for.

    Args:
        make: Makes the operator.
        example: How it is called, for messages.
        words: By which words it takes columns, lower case.
    """

    make: MakeOperator
    example: str
    named_columns: tuple[str, ...] = ()


_REGISTERED: dict[str, OperatorExtension] = {}


def register_operator(name: str, extension: OperatorExtension) -> None:
    """Make an operator known by *name*, whatever its case; the last one registered under a name counts."""
    _REGISTERED[name.lower()] = extension


def find_operator(name: str) -> OperatorExtension | None:
    """Return what *name* stands for, whatever its case."""
    return _REGISTERED.get(name.lower())


def operator_names() -> tuple[str, ...]:
    """Return the names (lower case) of all offered operators."""
    return tuple(_REGISTERED)


def check_rows_in_slice(name: str, rows: pa.Table, closing: pa.Table) -> None:
    """
    Check that rows lie in the slice of time that was asked for, those of each substream in order of time.

    Raises:
        QueryError: They do not (TG-QUERY-EXTENSION).
    """
    subs, system_us = ticks(rows, "sub"), ticks(rows, "system_us")
    late = (system_us < by_substream(subs, closing, "from_us", 0)) | (system_us >= by_substream(subs, closing, "to_us", 0))
    order = np.argsort(subs, kind="stable")
    turns = (np.diff(system_us[order]) < 0) & (np.diff(subs[order]) == 0)
    if late.any() or turns.any():
        what = "outside of the slice of time that it was asked for" if late.any() else "out of the order of time"
        raise QueryError(
            f"the operator {name} gave rows {what}: they are not final",
            code="TG-QUERY-EXTENSION",
            where=name,
            fix="mend or remove the package that offers it",
        )
