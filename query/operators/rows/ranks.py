"""
Ranks: where values stand in ORDER BY, as integers that can be compared instead of the values.

NULL stands lowest, then bit < number < datetime < nvarchar, as with MIN and MAX; text by its UTF-8 bytes. Numbers are
compared exactly, a bigint with a float too. Law: which of two rows comes first depends on these two rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from query.columns.encode import canonicalize
from tidegate.expressions.kinds import Kind
from tidegate.expressions.variant import Variant, valid_mask

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NOWHERE = np.iinfo(np.int64).max
"""No row's number."""
_TWO_63 = 2.0**63


def order_places(keys: Sequence[tuple[Variant, bool]]) -> Ints:
    """
    Return an integer for each row: the smaller the earlier ORDER BY has it, equal where nothing tells rows apart.

    Args:
        keys: The values to order by, and whether the largest come first (DESC).
    """
    found = _directed(*keys[0])
    for column, descending in keys[1:]:
        minor = _directed(column, descending)
        # No place is beyond the number of rows, so two of them fit one integer.
        found = np.unique(found * (int(minor.max(initial=0)) + 1) + minor, return_inverse=True)[1].astype(np.int64, copy=False)
    return found


def _directed(column: Variant, descending: bool) -> Ints:
    rising = ranks(column)
    return int(rising.max(initial=0)) - rising if descending else rising


def ranks(column: Variant) -> Ints:
    """Return an integer for each value: equal for equal values, greater for greater ones, 0 for NULL."""
    found = np.zeros(column.length, dtype=np.int64)
    above = 1
    for rows, dense in _classes(column):
        found[rows] = dense + above
        above += int(dense.max(initial=-1)) + 1
    return found


def previous_equals(column: Variant) -> Ints:
    """Return for each row the number of the last row before it that has the same value: -1 without one, ``NOWHERE`` for NULL."""
    found = np.full(column.length, NOWHERE, dtype=np.int64)
    for kind, part in _by_equality(column).parts.items():
        rows = np.flatnonzero(valid_mask(part))
        values = pc.add(part, 0.0) if kind is Kind.FLOAT else part
        codes = values.take(pa.array(rows)).dictionary_encode().indices.to_numpy().astype(np.int64)
        order = np.argsort(codes * column.length + rows)
        codes, rows = codes[order], rows[order]
        again = codes[1:] == codes[:-1]
        found[rows] = -1
        found[rows[1:][again]] = rows[:-1][again]
    return found


def nearest_floats(column: Variant) -> Floats:
    """Return numbers as floats, 0 where there is none; a bigint beyond 53 bits becomes the float nearest to it."""
    found = np.zeros(column.length)
    for kind in (Kind.BIGINT, Kind.FLOAT):
        if kind in column.parts:
            part = column.parts[kind]
            found += part.fill_null(0).to_numpy().astype(np.float64)
    return found


def remainders(column: Variant, floats: Floats) -> Ints:
    """Return what each bigint is more than the float nearest to it; 0 for anything else."""
    if Kind.BIGINT not in column.parts:
        return np.zeros(column.length, dtype=np.int64)
    part = column.parts[Kind.BIGINT]
    whole = part.fill_null(0).to_numpy()
    # 2**63 itself is no bigint, but may be the float nearest to one.
    beyond = floats >= _TWO_63
    nearest = np.where(beyond | ~valid_mask(part), 0.0, floats).astype(np.int64)
    found: Ints = np.where(beyond & valid_mask(part), whole + np.iinfo(np.int64).min, whole - nearest)
    return found


def _classes(column: Variant) -> Iterable[tuple[Ints, Ints]]:
    """Yield, from the lowest class of kinds to the highest, its rows and the dense rank of each."""
    numbers = Variant.of(column.length, {kind: part for kind, part in column.parts.items() if kind in (Kind.BIGINT, Kind.FLOAT)})
    for kind, part in column.parts.items():
        if kind not in numbers.parts:
            rows = np.flatnonzero(valid_mask(part))
            yield rows, _dense(part.take(pa.array(rows)))
        elif kind is numbers.kinds[0]:
            rows = np.flatnonzero(numbers.valid_mask())
            yield rows, _dense_numbers(numbers.take_rows(rows))


def _dense(values: pa.Array) -> Ints:
    distinct = values.dictionary_encode()
    rank = np.empty(len(distinct.dictionary), dtype=np.int64)
    rank[pc.sort_indices(distinct.dictionary).to_numpy()] = np.arange(len(rank))
    found: Ints = rank[distinct.indices.to_numpy()]
    return found


def _dense_numbers(numbers: Variant) -> Ints:
    if numbers.kinds == (Kind.BIGINT,):
        return _dense(numbers.parts[Kind.BIGINT])
    floats = nearest_floats(numbers)
    if numbers.kinds == (Kind.FLOAT,):
        return np.unique(floats, return_inverse=True)[1].astype(np.int64, copy=False)
    # A bigint lies between the same floats as the float nearest to it, so only among equals the remainder decides.
    rest = remainders(numbers, floats)
    order = np.lexsort((rest, floats))
    floats, rest = floats[order], rest[order]
    dense = np.zeros(numbers.length, dtype=np.int64)
    dense[order[1:]] = np.cumsum((floats[1:] != floats[:-1]) | (rest[1:] != rest[:-1]))
    return dense


def _by_equality(column: Variant) -> Variant:
    """Return the column so that equal values are of one kind and equal in it: whole floats as bigints, records canonically."""
    if {Kind.BIGINT, Kind.FLOAT} <= set(column.kinds):
        part = column.parts[Kind.FLOAT]
        floats = part.fill_null(0.5).to_numpy()
        whole = (floats == np.floor(floats)) & (floats >= -_TWO_63) & (floats < _TWO_63)
        bigints = pa.array(np.where(whole, floats, 0.0).astype(np.int64), mask=~whole)
        moved = {
            Kind.BIGINT: pc.coalesce(column.parts[Kind.BIGINT], bigints),
            Kind.FLOAT: pc.if_else(pa.array(whole), pa.scalar(None, pa.float64()), part),
        }
        column = Variant.of(column.length, {**column.parts, **moved})
    return canonicalize(column)
