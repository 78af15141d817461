"""
Tables with many bytes, split to fit the budget of a step (:mod:`tidegate.basics.budget`) and Arrow arrays with offsets of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.columns.payload_columns import BYTES_MAX, concat_columns, to_arrow
from tidegate.basics.budget import BUDGET, TooMuchAtOnce, compute_in_halves, cut, halve_rows, halve_until_it_fits
from tidegate.language.expressions.variant import Variant

Result = TypeVar("Result")
_WIDE = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}


def split_by_bytes(table: pa.Table, bytes_max: int) -> Iterator[pa.Table]:
    """Yield a table's rows in their order, in parts of at most *bytes_max*, but of at least one row."""
    yield from halve_until_it_fits(table, lambda part: part.nbytes > bytes_max and part.num_rows > 1, halve_table)


def halve_table(table: pa.Table, error: Exception | None = None) -> Sequence[pa.Table]:
    """Return a table in halves, nothing for a single row."""
    middle = table.num_rows // 2
    return (table.slice(0, middle), table.slice(middle)) if middle else ()


def take_rows(table: pa.Table, rows: Ints) -> pa.Table:
    """Return the rows with these numbers, in as many chunks as they need; the table itself if it has them in this order."""
    if len(rows) == table.num_rows and (rows == np.arange(len(rows))).all():
        return table
    if not _exceeds_narrow_arrays(table):
        return table.take(pa.array(rows))
    return pa.concat_tables(take_rows_in_parts(table, rows, BUDGET.bytes))


def take_values(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Return the values in these rows, null for null; the column may have more bytes than one narrow array, these values may not."""
    if column.type not in _WIDE or column.nbytes <= BYTES_MAX:
        return column.take(rows)
    return column.cast(_WIDE[column.type]).take(rows).cast(column.type)


def take_rows_in_parts(table: pa.Table, rows: Ints, bytes_max: int) -> Iterator[pa.Table]:
    """Yield the rows with these numbers in parts of at most *bytes_max* of binaries and texts, or of one row that has more."""
    if table.nbytes <= bytes_max:
        yield table.take(pa.array(rows))
        return
    parts = [rows[part] for part in cut(text_bytes(table)[rows], bytes_max)] or [rows]
    source = _widen(table) if len(parts) > 1 or _exceeds_narrow_arrays(table) else table
    for part in parts:
        yield source.take(pa.array(part)).cast(table.schema)


def in_parts(rows: Ints, compute: Callable[[Ints], Result]) -> Iterator[Result]:
    """Yield what *compute* makes of rows in their order: of all at once, or of parts if it says that they are too much."""
    yield from compute_in_halves(rows, compute, halve_rows)


def check_repeated(values: pa.Array | pa.ChunkedArray, rows: Ints) -> None:
    """
    Check that a column with the values in these rows, which may repeat, fits into memory; that of one row does.

    Raises:
        TooMuchAtOnce: It would have more text than results may repeat at once (:mod:`tidegate.basics.budget`).
    """
    # No value is longer than all values together, whose size is known without reading them.
    if len(rows) < 2 or not is_text(values) or values.nbytes * len(rows) <= BUDGET.repeated_bytes:
        return
    if value_bytes(values)[rows].sum() > BUDGET.repeated_bytes:
        raise TooMuchAtOnce


def repeat_rows(column: Variant, rows: Ints) -> Variant:
    """Return the values in these rows, which may repeat. Raises TooMuchAtOnce: see :func:`check_repeated`."""
    for part in column.parts.values():
        check_repeated(part, rows)
    return column.take_rows(rows)


def value_bytes(values: pa.Array | pa.ChunkedArray) -> Ints:
    """Return how many bytes each binary or text has, 0 for null."""
    sizes: Ints = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    return sizes


def is_text(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether values are binaries or texts."""
    return values.type in _WIDE or values.type in _WIDE.values()


def variant_bytes(column: Variant) -> Ints:
    """Return how many bytes of text each value has, 0 for those of other kinds."""
    sizes = (value_bytes(part) for part in column.parts.values() if is_text(part))
    total: Ints = sum(sizes, np.zeros(column.length, dtype=np.int64))
    return total


def text_bytes(table: pa.Table) -> Ints:
    """Return how many bytes the binaries and texts of each row have."""
    texts = [name for name in table.column_names if table.schema.field(name).type in _WIDE]
    sizes = (value_bytes(table[name]) for name in texts)
    total: Ints = sum(sizes, np.zeros(table.num_rows, dtype=np.int64))
    return total


def _exceeds_narrow_arrays(table: pa.Table) -> bool:
    """Return whether a column has more bytes than one array with offsets of 32 bits can have."""
    return any(column.type in _WIDE and column.nbytes > BYTES_MAX for column in table.columns)


def _widen(table: pa.Table) -> pa.Table:
    """Return the table in one piece, with types that can hold it."""
    if _exceeds_narrow_arrays(table):
        table = table.cast(pa.schema([field.with_type(_WIDE.get(field.type, field.type)) for field in table.schema]))
    return table.combine_chunks()


def combine_column(column: pa.ChunkedArray) -> pa.Array:
    """Return a binary column in one piece, however many bytes it has."""
    if column.num_chunks < 2:
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return concat_columns([to_arrow(chunk) for chunk in column.chunks]) if column.nbytes > BYTES_MAX else pa.concat_arrays(column.chunks)
