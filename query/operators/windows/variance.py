"""
Variances and deviations: the float nearest to the true variance of the values of a window, and the float nearest to its true root.

The sums of the values and of their squares are exact integers (:mod:`query.operators.windows.exact_sum`). So the sums of a window are
differences of running sums, and a result is rounded once and does not depend on the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordering.arrays import Ints, Mask
from query.operators.rows.ranks import Floats, nearest_floats, remainders
from query.operators.windows.exact_sum import LIMB_BITS, SCALE, divide_exactly, root_exactly, split_floats
from tidegate.language.expressions.variant import Variant

# Splits the 53 bits of a float into two halves (Veltkamp).
_SPLITTER = 2.0**27 + 1
# Floats, and by how many binary places each is shifted up.
Term = tuple[Floats, Ints | int]
# Integers of any size.
Integers = npt.NDArray[np.object_]


def variances(values: Variant, first: Ints, last: Ints, *, sample: bool, is_root: bool = False) -> pa.Array:
    """
    Return the variance of the numbers of each window as a float, or if *is_root* their deviation; null if they are too few or it is beyond
    all floats.

    NULL does not count. *first* and *last* are the numbers of each window's first and last row, inclusive. Divided is by the number of
    values (VARP, STDEVP), or if *sample* by one less (VAR, STDEV).
    """
    counts = _of_runs(values.valid_mask(), first, last)
    windows = np.flatnonzero(counts > int(sample))
    results = np.full(len(first), None, dtype=object)
    fractions = _exact_variances(values, first[windows], last[windows], counts[windows].astype(object), int(sample))
    results[windows] = list(map(root_exactly if is_root else divide_exactly, *fractions))
    return pa.array(results, pa.float64())


def _exact_variances(values: Variant, first: Ints, last: Ints, counts: Integers, fewer: int) -> tuple[list[int], list[int]]:
    """Return the variances as fractions: the values, and what to divide them by."""
    floats = nearest_floats(values)
    rest = remainders(values, floats).astype(np.float64)
    sums, place = _sums(list(_terms(floats, rest)), first, last)
    squares, place_of_squares = _sums(list(_squares(floats, rest)), first, last)
    # n * sum(x * x) - sum(x) ** 2 is a whole number of 2**lowest, and n * (n - 1) or n * n times the variance.
    lowest = min(2 * place, place_of_squares)
    spreads = (counts * squares << (place_of_squares - lowest)) - (sums * sums << (2 * place - lowest))
    spreads, divisors = spreads << max(lowest, 0), counts * (counts - fewer) << max(-lowest, 0)
    return spreads.tolist(), divisors.tolist()


def _terms(floats: Floats, rest: Floats) -> Iterator[Term]:
    """Yield terms that add up to the values; only a bigint beyond 53 bits differs from the float nearest to it."""
    yield floats, 0
    if rest.any():
        yield rest, 0


def _squares(floats: Floats, rest: Floats) -> Iterator[Term]:
    """Yield terms that add up to the squares of the values."""
    yield from _product(floats, floats)
    if rest.any():
        yield from _product(floats, 2 * rest)
        yield rest * rest, 0


def _product(left: Floats, right: Floats) -> Iterator[Term]:
    """Yield the float nearest to each product, and the exact rest of the product (Dekker)."""
    (a, up), (b, more) = np.frexp(left), np.frexp(right)
    places = up.astype(np.int64) + more
    # The product of mantissas alone, which lie between 1/2 and 1, can neither overflow nor underflow.
    nearest = a * b
    yield nearest, places
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = a_low * b_low - (((nearest - a_high * b_high) - a_low * b_high) - a_high * b_low)
    if error.any():
        yield error, places


def _halves(values: Floats) -> tuple[Floats, Floats]:
    shifted = _SPLITTER * values
    high = shifted - (shifted - values)
    return high, values - high


def _sums(terms: Sequence[Term], first: Ints, last: Ints) -> tuple[Integers, int]:
    """Return for each window the sum of all terms of its rows, as a whole number of 2**place, and that place."""
    all_pieces = [piece for values, places in terms for piece in split_floats(values, places)]
    limbs = sorted({limb for piece_limbs, amounts in all_pieces for limb in np.unique(piece_limbs[amounts != 0]).tolist()})
    lowest = limbs[0] if limbs else 0
    total = np.zeros(len(first), dtype=object)
    for limb in limbs:
        amounts = np.zeros(len(all_pieces[0][0]), dtype=np.int64)
        for piece_limbs, amount in all_pieces:
            amounts += np.where(piece_limbs == limb, amount, 0)
        total += _of_runs(amounts, first, last).astype(object) << (LIMB_BITS * (limb - lowest))
    return total, LIMB_BITS * lowest - SCALE


def _of_runs(amounts: Ints | Mask, first: Ints, last: Ints) -> Ints:
    """Return the sum over each run of rows; of integers, so that the difference of running sums is exact."""
    running = np.concatenate([[0], np.cumsum(amounts, dtype=np.int64)])
    sums: Ints = running[last + 1] - running[first]
    return sums
