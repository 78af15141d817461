"""
Apply: each row with each element of an array, or each member of a record, that it holds.

Law: a row gives as many rows as it has elements, at its own System.Timestamp, in the order (row, element); without any -
the array is empty, or NULL - none, or with OUTER one in which the element's columns are NULL. It depends on the row alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from query.operators.rows.instant_rows import InstantRows, due_rows
from query.operators.rows.row_stage import RowStage
from query.plan.nodes import Apply, predicates_of
from query.plan.row_tables import Retained, only_side
from tidegate.expressions.functions.column_functions import RowNumbers
from tidegate.expressions.functions.records import elements, properties
from tidegate.expressions.kinds import Kind
from tidegate.expressions.variant import Variant, gather


@dataclass(frozen=True)
class Expansion(InstantRows):
    """The operator of a :class:`query.plan.nodes.Apply`."""

    node: Apply

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return the rows with their elements, and the bad rows."""
        kept, (values,), bad = RowStage(predicates_of(self.node), (self.node.value,)).apply(below)
        owner, added = self._elements(values)
        rows = kept.take(pa.array(owner))
        for place, column in enumerate(added, start=len(self.node.child.columns)):
            for name, part in column.columns(f"s{place}").items():
                rows = rows.append_column(name, part)
        return rows, bad

    def _elements(self, values: Variant) -> tuple[RowNumbers, tuple[Variant, Variant]]:
        """Return for each row to give the number of the row below, and the element's columns."""
        if self.node.value.name == "array":
            owner, index, found = elements(values)
            first = Variant.of(len(owner), {Kind.BIGINT: pa.array(index)})
        else:
            owner, first, found = properties(values)
        if not self.node.outer:
            return owner, (first, found)
        empty = np.setdiff1d(np.arange(values.length, dtype=np.int64), owner)
        every = np.concatenate([owner, empty])
        order = np.argsort(every, kind="stable")
        places = np.argsort(order, kind="stable")[: len(owner)]
        return every[order], (gather(len(every), [(places, first)]), gather(len(every), [(places, found)]))

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """Return the rows with from_us <= system_us < to_us, ordered by (system_us, row, element)."""
        return due_rows(only_side(retained), closing).drop_columns(["position"])
