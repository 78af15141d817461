"""
Results as a table with the query's columns and types.

Law: the table is that of :func:`sinks.parquet_columns.make_table`, row for row; it is only made faster where every column has a type of
its own. Rows that do not fit are refused, each with the reason, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sinks.parquet_columns import Column, make_schema, make_table
from sinks.stores.base import Rows, RowsRefused, find_refusals

# The kinds of column that pyarrow reads as we do; of others (any, record, array) the text counts, which it does not keep.
_FAST_KINDS = {"bigint", "float", "datetime", "nvarchar(max)", "bit"}
_NEWLINE = pa.scalar(b"\n", pa.binary())


def make_typed_table(rows: Rows, columns: Sequence[Column]) -> pa.Table:
    """Return *rows* as a table. Raises RowsRefused: some have a value that is not of its column's type, or a column too many."""
    if len(rows) and all(kind in _FAST_KINDS for _, kind in columns):
        try:
            return _read_json(rows.value, columns)
        except pa.ArrowException:
            # The slow way says which rows are wrong, or reads them after all.
            pass
    try:
        return make_table(rows.value.to_pylist(), columns)
    except (pa.ArrowException, ValueError):
        raise RowsRefused(find_refusals(rows, lambda part: _why_wrong(part, columns))) from None


def _why_wrong(rows: Rows, columns: Sequence[Column]) -> str | None:
    try:
        make_table(rows.value.to_pylist(), columns)
    except (pa.ArrowException, ValueError) as error:
        return str(error)
    return None


def _read_json(values: pa.Array, columns: Sequence[Column]) -> pa.Table:
    schema = make_schema(columns)
    # Times are text in JSON, and pyarrow would read numbers as times.
    read_as = pa.schema([(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type) for field in schema])
    lines = pa.LargeListArray.from_arrays(np.array([0, len(values)]), values.cast(pa.large_binary()))
    text = pc.binary_join(lines, _NEWLINE.cast(pa.large_binary()))[0].as_buffer()
    table = pa.json.read_json(
        pa.BufferReader(text),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=max(text.size, 1)),
        parse_options=pa.json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="error"),
    )
    if table.num_rows != len(values):
        raise pa.ArrowInvalid("a value is not one line")
    return table.cast(schema)
