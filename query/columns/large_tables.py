"""
Tables with many bytes, split to fit memory and Arrow arrays with offsets of 32 bits.

How much is due at once cannot be chosen: gigabytes may wait for one silent partition, and a long window may close for millions of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.columns.payload_columns import BYTES_MAX, concat_columns, to_arrow
from tidegate.language.expressions.evaluation.value_sizes import TooMuchAtOnce, too_much
from tidegate.language.expressions.variant import Variant

# This many bytes of payload are evaluated at once; more than a whole batch of small events has.
AT_ONCE_BYTES = 2**28
# The most bytes of text in a column of results computed at once, if results repeat the texts of their rows: each is copied several times
# later.
REPEATED_BYTES = 2**26
Result = TypeVar("Result")
_WIDE = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}


def split_by_bytes(table: pa.Table, bytes_max: int) -> Iterator[pa.Table]:
    """Yield a table's rows in their order, in parts of at most *bytes_max*, but of at least one row."""
    if table.nbytes <= bytes_max or table.num_rows < 2:
        yield table
    else:
        half = table.num_rows // 2
        yield from split_by_bytes(table.slice(0, half), bytes_max)
        yield from split_by_bytes(table.slice(half), bytes_max)


def take_rows(table: pa.Table, rows: Ints) -> pa.Table:
    """Return the rows with these numbers, in as many chunks as they need; the table itself if it has them in this order."""
    if len(rows) == table.num_rows and (rows == np.arange(len(rows))).all():
        return table
    if not _exceeds_narrow_arrays(table):
        return table.take(pa.array(rows))
    return pa.concat_tables(take_rows_in_parts(table, rows, AT_ONCE_BYTES))


def take_values(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Return the values in these rows, null for null; the column may have more bytes than one narrow array, these values may not."""
    if column.type not in _WIDE or column.nbytes <= BYTES_MAX:
        return column.take(rows)
    return column.cast(_WIDE[column.type]).take(rows).cast(column.type)


def take_rows_in_parts(table: pa.Table, rows: Ints, bytes_max: int) -> Iterator[pa.Table]:
    """Yield the rows with these numbers in parts of *bytes_max* of binaries and texts, and at most a row more."""
    if table.nbytes <= bytes_max:
        yield table.take(pa.array(rows))
        return
    ends = np.cumsum(text_bytes(table)[rows])
    cuts = np.flatnonzero(np.diff(ends // bytes_max)) + 1
    source = _widen(table) if len(cuts) or _exceeds_narrow_arrays(table) else table
    for part in np.split(rows, cuts):
        yield source.take(pa.array(part)).cast(table.schema)


def in_parts(rows: Ints, compute: Callable[[Ints], Result]) -> Iterator[Result]:
    """Yield what *compute* makes of rows in their order: of all at once, or of parts if it says that they are too much."""
    try:
        result = compute(rows)
    except too_much():
        if len(rows) < 2:
            raise
        middle = len(rows) // 2
        yield from in_parts(rows[:middle], compute)
        yield from in_parts(rows[middle:], compute)
        return
    yield result


def check_repeated(values: pa.Array | pa.ChunkedArray, rows: Ints) -> None:
    """
    Check that a column with the values in these rows, which may repeat, fits into memory; that of one row does.

    Raises:
        TooMuchAtOnce: It would have more than ``REPEATED_BYTES`` of text.
    """
    # No value is longer than all values together, whose size is known without reading them.
    if len(rows) < 2 or not is_text(values) or values.nbytes * len(rows) <= REPEATED_BYTES:
        return
    if value_bytes(values)[rows].sum() > REPEATED_BYTES:
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
