"""
Ranks: the places of values in ORDER BY, as integers that are compared instead of the values.

NULL comes first, then bit < number < datetime < nvarchar, as with MIN and MAX; texts are ordered by their UTF-8 bytes. Numbers are compared
exactly, also a bigint with a float.

Law: which of two rows comes first depends on these two rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from query.columns.large_tables import is_text
from query.columns.same_values import canonicalize
from tidegate.basics.budget import BUDGET
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant, valid_mask

Floats = npt.NDArray[np.float64]

# Larger than any row's number.
NOWHERE = np.iinfo(np.int64).max
_TWO_63 = 2.0**63


def order_places(keys: Sequence[tuple[Variant, bool]]) -> Ints:
    """
    Return an integer for each row: smaller for rows that come earlier in ORDER BY, equal for rows with equal values.

    *keys* are the values to order by, each with whether the largest come first (DESC).
    """
    places = _directed_ranks(*keys[0])
    for column, descending in keys[1:]:
        minor = _directed_ranks(column, descending)
        # Neither exceeds the number of rows, so their combination fits one integer.
        places = np.unique(places * (int(minor.max(initial=0)) + 1) + minor, return_inverse=True)[1].astype(np.int64, copy=False)
    return places


def _directed_ranks(column: Variant, descending: bool) -> Ints:
    rising = ranks(column)
    return int(rising.max(initial=0)) - rising if descending else rising


def ranks(column: Variant) -> Ints:
    """Return an integer for each value: equal for equal values, greater for greater ones, 0 for NULL."""
    numbers = np.zeros(column.length, dtype=np.int64)
    next_rank = 1
    for rows, dense in _classes(column):
        numbers[rows] = dense + next_rank
        next_rank += int(dense.max(initial=-1)) + 1
    return numbers


def previous_equals(column: Variant) -> Ints:
    """Return for each row the number of the last row before it with the same value: -1 without one, ``NOWHERE`` for NULL."""
    previous = np.full(column.length, NOWHERE, dtype=np.int64)
    for part in canonicalize(column).parts.values():
        rows = np.flatnonzero(valid_mask(part))
        codes = part.take(pa.array(rows)).dictionary_encode().indices.to_numpy().astype(np.int64)
        order = np.argsort(codes * column.length + rows)
        codes, rows = codes[order], rows[order]
        is_repeated = codes[1:] == codes[:-1]
        previous[rows] = -1
        previous[rows[1:][is_repeated]] = rows[:-1][is_repeated]
    return previous


def nearest_floats(column: Variant) -> Floats:
    """Return numbers as floats, 0 for other values; a bigint beyond 53 bits becomes the float nearest to it."""
    floats = np.zeros(column.length)
    for kind in (Kind.BIGINT, Kind.FLOAT):
        if kind in column.parts:
            part = column.parts[kind]
            floats += part.fill_null(0).to_numpy().astype(np.float64)
    return floats


def remainders(column: Variant, floats: Floats) -> Ints:
    """Return each bigint minus the float nearest to it; 0 for other values."""
    if Kind.BIGINT not in column.parts:
        return np.zeros(column.length, dtype=np.int64)
    part = column.parts[Kind.BIGINT]
    integers = part.fill_null(0).to_numpy()
    # 2**63 is not a bigint, but can be the float nearest to one: subtracting it would overflow.
    is_beyond = floats >= _TWO_63
    nearest = np.where(is_beyond | ~valid_mask(part), 0.0, floats).astype(np.int64)
    rest: Ints = np.where(is_beyond & valid_mask(part), integers + np.iinfo(np.int64).min, integers - nearest)
    return rest


def _classes(column: Variant) -> Iterable[tuple[Ints, Ints]]:
    """Yield, from the lowest class of kinds to the highest, its rows and the dense rank of each."""
    numbers = Variant.of(column.length, {kind: part for kind, part in column.parts.items() if kind in (Kind.BIGINT, Kind.FLOAT)})
    for kind, part in column.parts.items():
        if kind not in numbers.parts:
            yield np.flatnonzero(valid_mask(part)), _dense(part.drop_null() if part.null_count else part)
        elif kind is numbers.kinds[0]:
            rows = np.flatnonzero(numbers.valid_mask())
            yield rows, _dense_numbers(numbers.take_rows(rows))


def _dense(values: pa.Array) -> Ints:
    # Distinct values are few and soon sorted, as a rule; of gigabytes of text they would be a copy.
    if is_text(values) and values.nbytes > BUDGET.repeated_bytes:
        ranked: Ints = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64)
        return ranked - 1
    distinct = values.dictionary_encode()
    rank_of_code = np.empty(len(distinct.dictionary), dtype=np.int64)
    rank_of_code[pc.sort_indices(distinct.dictionary).to_numpy()] = np.arange(len(rank_of_code))
    dense: Ints = rank_of_code[distinct.indices.to_numpy()]
    return dense


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
