"""
Gathered rows: the retained rows of one side that results can need, before they are read.

Most operators read all of them as one table. One whose rows never meet across groups may read them in portions, each with all rows of its
groups; so closing a long window takes the memory of its largest group, not of all its rows.

Law: whichever way rows are read, each comes once, and rows of one portion come in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from query.plan.row_tables import Retained, concat_rows
from tidegate.basics.budget import BUDGET

# A portion's number is one byte.
_PORTIONS_MAX = 255


class KeptRows(Protocol):
    """Rows that are kept together, perhaps packed."""

    @property
    def num_rows(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """The bytes in which they are kept."""

    def rows(self) -> pa.Table: ...

    def filter_rows(self, mask: pa.Array) -> pa.Table: ...


class Gathered:
    """The rows of one side, of which there is at least one, in pieces that follow one another."""

    def __init__(self, pieces: Sequence[KeptRows]) -> None:
        self._pieces = pieces

    @property
    def portions(self) -> int:
        """How many portions fit the budget of a step."""
        rows, size = sum(piece.num_rows for piece in self._pieces), sum(piece.nbytes for piece in self._pieces)
        return min(BUDGET.portions(rows, size), _PORTIONS_MAX)

    def table(self) -> pa.Table:
        """Return all rows, numbered in their order (``position``)."""
        return number_rows([piece.rows() for piece in self._pieces])

    def read_portions(self, portion_of: Callable[[pa.Table], npt.NDArray[np.uint8]], count: int) -> Iterator[pa.Table]:
        """Yield the rows in *count* portions, without those that have none; *portion_of* returns the number of each row's portion."""
        portions = [portion_of(piece.rows()) for piece in self._pieces]
        for number in range(count):
            chosen = [piece.filter_rows(pa.array(portion == number)) for piece, portion in zip(self._pieces, portions, strict=True)]
            if any(rows.num_rows for rows in chosen):
                yield number_rows(chosen)


class GatheredTable(Gathered):
    """Rows that have been read already, and are numbered."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(())
        self._table = table

    @property
    def portions(self) -> int:
        return 1

    def table(self) -> pa.Table:
        return self._table


def tables_of(gathered: Sequence[Gathered | None]) -> Retained:
    """Return the rows of each side as one table; None for a side without rows."""
    return [None if side is None else side.table() for side in gathered]


def number_rows(parts: Sequence[pa.Table]) -> pa.Table:
    """Return rows in one table, numbered in their order."""
    rows = concat_rows(list(parts))
    return rows.add_column(0, "position", pa.array(np.arange(rows.num_rows)))
