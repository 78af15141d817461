"""
How far ahead of its inputs a query knows its results. An operator that shifts rows by d later knows each result d before its time.

Law (docs/queries/queries.md#when-results-come): an operator's output CTI is the least System.Timestamp that a later result can have. That
is the least of its inputs' CTIs, plus d if it shifts by d. So with inputs at c a node knows its rows below c + ``ahead_of(node)``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ordering.ticks import INFINITY, NEVER
from query.plan.nodes import Custom, Node


def ahead_of(node: Node) -> int:
    """Return how far ahead of its inputs *node* knows its rows, microseconds."""
    below_us = min((ahead_of(child) for child in node.children), default=0)
    operator_us = node.operator.ahead_us if isinstance(node, Custom) else 0
    return below_us + operator_us


def shift_slices(slices: pa.Table, by_us: int, until_us: int = INFINITY) -> pa.Table:
    """Move slices or horizons of time (``from_us``, ``to_us``) by *by_us*, but not beyond *until_us*; ``NEVER`` and ``INFINITY`` stay."""
    if not by_us and until_us == INFINITY:
        return slices
    for column in {"from_us", "to_us"} & {*slices.column_names}:
        us = slices[column]
        ends = pc.is_in(us, pa.array([NEVER, INFINITY]))
        later = us if not by_us else pc.if_else(ends, us, pc.add(us, pa.scalar(by_us, pa.int64())))
        place = slices.schema.get_field_index(column)
        slices = slices.set_column(place, column, pc.min_element_wise(later, pa.scalar(until_us, pa.int64())))
    return slices
