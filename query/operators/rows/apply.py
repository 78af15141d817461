"""
Apply: each row with each element of an array, or each member of a record, in one of its columns.

Law: a row gives one row for each element, at its own System.Timestamp, in the order (row, element), independently of other rows. If the
array is empty or NULL, it gives no row, or with OUTER APPLY one in which the element's columns are NULL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from query.columns.large_tables import text_bytes
from query.operators.rows.instant_rows import InstantRows
from query.operators.rows.row_stage import RowStage
from query.plan.nodes import Apply, predicates_of
from query.plan.row_tables import BAD_SCHEMA, append_values
from tidegate.basics.budget import TooMuchAtOnce
from tidegate.basics.dead_letter_reasons import QueryReason, with_place
from tidegate.language.expressions.evaluation.value_sizes import RETURNED_BYTES_MAX
from tidegate.language.expressions.functions.column_functions import RowNumbers
from tidegate.language.expressions.functions.records import elements, properties
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Requirement
from tidegate.language.expressions.variant import Variant, gather

# What an element takes beside the texts of its row.
_ELEMENT_BYTES = 64


@dataclass(frozen=True)
class Expansion(InstantRows):
    """The operator of a :class:`query.plan.nodes.Apply`."""

    node: Apply

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        kept, (values,), bad = RowStage(predicates_of(self.node), (self.node.value,)).apply(below)
        owner, added = self._elements(values)
        # Each element repeats the row's other columns: a megabyte beside an array of thousands would need gigabytes.
        if np.sum((text_bytes(kept) + _ELEMENT_BYTES)[owner]) > RETURNED_BYTES_MAX:
            if below.num_rows > 1:
                raise TooMuchAtOnce
            reason = with_place(
                QueryReason.VALUE_TOO_LARGE.text(f"more than {RETURNED_BYTES_MAX} bytes with all elements"), self.node.value
            )
            return kept.slice(0, 0), pa.table({"position": below["position"], "reason": [reason]}, schema=BAD_SCHEMA)
        rows = kept.take(pa.array(owner))
        for place, column in enumerate(added, start=len(self.node.child.columns)):
            rows = append_values(rows, f"s{place}", column)
        return rows, bad

    def _elements(self, values: Variant) -> tuple[RowNumbers, tuple[Variant, Variant]]:
        """Return the number of the input row of each output row, and the element's columns."""
        if self.node.value.requirement is Requirement.ARRAY:
            owner, index, contents = elements(values)
            names = Variant.of(len(owner), {Kind.BIGINT: pa.array(index)})
        else:
            owner, names, contents = properties(values)
        if not self.node.outer:
            return owner, (names, contents)
        without = np.setdiff1d(np.arange(values.length, dtype=np.int64), owner)
        owners = np.concatenate([owner, without])
        order = np.argsort(owners, kind="stable")
        # The places of the elements among all output rows; at other places their columns are NULL.
        places = np.argsort(order, kind="stable")[: len(owner)]
        return owners[order], (gather(len(owners), [(places, names)]), gather(len(owners), [(places, contents)]))
