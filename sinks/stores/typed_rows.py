"""
Results as a table with the query's columns and types.

Law: the rows that do not fit are refused, each with the reason, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sinks.stores.base import Rows, RowsRefused, find_refusals
from tidegate.records.result_columns import Column, make_table, scan_values


def make_typed_table(rows: Rows, columns: Sequence[Column]) -> pa.Table:
    """Return *rows* as a table. Raises RowsRefused: a value has not the type of its column, or a row has an unknown column."""
    try:
        return make_table(pa.chunked_array([rows.value]), columns)
    except (pa.ArrowException, ValueError):
        raise RowsRefused(find_refusals(rows, lambda part: _why_wrong(part, columns))) from None


def _why_wrong(rows: Rows, columns: Sequence[Column]) -> str | None:
    try:
        scan_values(rows.value.to_pylist(), columns)
    except (pa.ArrowException, ValueError) as error:
        return str(error)
    return None
