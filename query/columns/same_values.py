"""
The same value: one form for all values that count as one in GROUP BY, PARTITION BY, COUNT(DISTINCT), sessions, exchanges and result keys.

Numbers that are equal by ``=`` are one value. A whole number that a bigint can hold is a bigint, any other one is a float: 1.0 is 1, -0.0
is 0. Records and arrays are written without spaces and with members sorted by name; numbers in them have the same form. Only numbers meet
across kinds: 1, '1' and true are three values, and NULL is not ''.

Law: two values have the same form exactly if they are the same value. The form depends on the value alone, so what is shown of a group does
not depend on which of its rows came first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.protocol import keys
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant

_NESTED = {Kind.RECORD, Kind.ARRAY}
# A bigint lies in [-2**63, 2**63).
_TWO_63 = 2.0**63


def canonicalize(column: Variant, *, keeps_floats: bool = False) -> Variant:
    """Return the column with each value in its form. If *keeps_floats*, floats stay floats: for a column that has no other numbers."""
    if not keeps_floats and Kind.FLOAT in column.parts:
        column = _unify_numbers(column)
    if not _NESTED & set(column.kinds):
        return column
    parts = {kind: map_distinct(part, keys.canonical) if kind in _NESTED else part for kind, part in column.parts.items()}
    return Variant.of(column.length, parts)


def whole_numbers(floats: pa.Array) -> pa.Array:
    """Return floats as bigints, null for those that no bigint equals."""
    values = floats.fill_null(0.5).to_numpy()
    is_whole = (values == np.floor(values)) & (values >= -_TWO_63) & (values < _TWO_63)
    return pa.array(np.where(is_whole, values, 0.0).astype(np.int64), mask=~is_whole)


def map_distinct(part: pa.Array, write: Callable[..., str]) -> pa.Array:
    """Return the text of each value; each value is written once."""
    distinct = part.dictionary_encode()
    return pa.array([write(value) for value in distinct.dictionary.to_pylist()], pa.string()).take(distinct.indices)


def _unify_numbers(column: Variant) -> Variant:
    floats = column.parts[Kind.FLOAT]
    whole = whole_numbers(floats)
    if whole.null_count == column.length:
        return column
    bigints = column.parts.get(Kind.BIGINT)
    rest = pc.if_else(whole.is_valid(), pa.scalar(None, pa.float64()), floats)
    numbers = {Kind.BIGINT: whole if bigints is None else pc.coalesce(bigints, whole), Kind.FLOAT: rest}
    return Variant.of(column.length, {**column.parts, **numbers})
