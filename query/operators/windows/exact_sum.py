"""
Exact sums of floats: the float nearest to the true sum, whatever the order and the grouping of the additions.

Each float is an integer times a power of two. It is cut into three pieces of 18 bits, and each piece belongs to a *limb*, a multiple of
sixteen binary places. Pieces of one limb are added as 64-bit integers, which is exact for 2**30 rows. Only at the end are the limbs added
and rounded, once. So sums of panes can be added to and subtracted from sums of windows, and unlike with a plain sum of floats, no result
depends on how rows were cut into batches or panes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ordering.arrays import Ints, Mask

Floats = npt.NDArray[np.float64]

# Three pieces of 18 bits cover the 53 bits of a float.
PIECES = 3
_PIECE_BITS = 18
# Values computed at once: their arrays fit the cache of a core.
_BLOCK = 16_384
# The binary places between two limbs, and their logarithm.
LIMB_BITS = 16
_LIMB_SHIFT = 4
# A sum of 64 bits reaches so many limbs beyond its own.
_CARRY_LIMBS = 5
# The most values of a mean: a rest and one more digit fit 64 bits.
COUNT_MAX = 2**46
# The smallest float of 53 bits.
_NORMAL_MIN = 2.0**-1022
# Limb 0 stands for 2**-SCALE. The smallest positive float is 2**-1074, a mantissa has 53 bits: no bit lies below 2**-1126.
SCALE = 1_136
# The limb of whole numbers.
_ONES = SCALE // LIMB_BITS


def split_floats(values: Floats, places: Ints | int = 0) -> list[tuple[npt.NDArray[np.int16], Ints]]:
    """
    Cut finite floats into pieces: pairs (limb, piece), three per value. The value is the sum of ``piece * 2**(16 * limb - 1136)``.

    Each float is first shifted up by *places* binary places, so that it can stand for a number beyond all floats.
    """
    pieces = [(np.empty(len(values), dtype=np.int16), np.empty(len(values), dtype=np.int64)) for _ in range(PIECES)]
    # Block by block: arrays that fit the cache take a tenth of the time.
    for start in range(0, len(values), _BLOCK):
        shift = places if isinstance(places, int) else places[start : start + _BLOCK]
        for (limbs, amounts), (limb, amount) in zip(pieces, _split_block(values[start : start + _BLOCK], shift), strict=True):
            limbs[start : start + _BLOCK], amounts[start : start + _BLOCK] = limb, amount
    return pieces


def _split_block(values: Floats, shift: Ints | int) -> list[tuple[Ints, Ints]]:
    mantissa, exponent = np.frexp(values)
    integers = (mantissa * 2.0**53).astype(np.int64)
    place = exponent.astype(np.int64) + (SCALE - 53) + shift
    size, sign = np.abs(integers), np.sign(integers)
    pieces = []
    for number in range(PIECES):
        bits = (size >> (_PIECE_BITS * number)) & ((1 << _PIECE_BITS) - 1)
        piece_place = place + _PIECE_BITS * number
        pieces.append((piece_place >> _LIMB_SHIFT, sign * (bits << (piece_place & (LIMB_BITS - 1)))))
    return pieces


def round_sums(limbs: Mapping[int, Ints], high: Ints, low: Ints) -> tuple[Floats, Mask]:
    """
    Add up sums of pieces and integers, and round each total once; return the nearest floats, and which of them are finite.

    *limbs* has for each limb the sums of its pieces, one per total. An integer is ``high * 2**32 + low``, with low from 0 to ``2**32 - 1``.
    """
    totals = np.zeros(len(high))
    for part, digits, lowest in _digits(limbs, high, low):
        negative = _make_positive(digits)
        totals[part] = _round_digits(digits, lowest)
        totals[part][negative] *= -1
    is_finite = np.isfinite(totals)
    return np.where(is_finite, totals, 0.0), is_finite


def round_means(limbs: Mapping[int, Ints], high: Ints, low: Ints, counts: Ints) -> Floats:
    """
    Add up sums of pieces and integers as :func:`round_sums` does, divide each total by its count, and round each quotient once.

    Counts are from 1 to ``COUNT_MAX``.
    """
    means = np.zeros(len(high))
    for part, digits, lowest in _digits(limbs, high, low):
        negative, divisor = _make_positive(digits), counts[part]
        top = _top_rows(digits)
        some = np.flatnonzero(top >= 0)
        if not len(some):
            continue
        if len(some) < len(top):
            digits, divisor, negative, top = digits[:, some], divisor[some], negative[some], top[some]
        quotients, rest, base = _divide(digits, divisor, top)
        found = _round_digits(quotients, lowest + base, rest)
        for row in np.flatnonzero(found < _NORMAL_MIN).tolist():
            # The floats below the normal ones have fewer bits: a quotient rounded to 53 bits must not be rounded again.
            found[row] = _divide_tiny(digits[:, row].tolist(), lowest, int(divisor[row]))
        found[negative] *= -1
        means[part][some] = found
    return means


def _digits(limbs: Mapping[int, Ints], high: Ints, low: Ints) -> Iterator[tuple[slice, Ints, int]]:
    """Yield totals block by block: which they are, and their digits, of which row i counts limb *lowest* + i."""
    # Four limbs more below, because _round_digits reads five limbs from the top one downwards.
    lowest = min([*limbs, _ONES]) - 4
    highest = max([*limbs, _ONES + 4]) + _CARRY_LIMBS
    # Block by block: see split_floats.
    for start in range(0, len(high), _BLOCK):
        part = slice(start, start + _BLOCK)
        digits = np.zeros((highest - lowest + 1, len(high[part])), dtype=np.int64)
        for limb, sums in limbs.items():
            digits[limb - lowest] = sums[part]
        digits[_ONES - lowest] += low[part]
        digits[_ONES + 2 - lowest] += high[part] & 0xFFFFFFFF
        digits[_ONES + 4 - lowest] += high[part] >> 32
        yield part, digits, lowest


def _make_positive(digits: Ints) -> Mask:
    """Carry, and make each total positive; return which were negative."""
    negative: Mask = _carry(digits) < 0
    if negative.any():
        digits *= np.where(negative, -1, 1)
        _carry(digits)
    return negative


class _Quotients(NamedTuple):
    """The digits of quotients that are needed to round them, which have something below these digits, and the row of the lowest."""

    digits: Ints
    has_rest: Mask
    base: int


def _divide(digits: Ints, divisor: Ints, top: Ints) -> _Quotients:
    """Divide positive totals by hand, from the top digit down; *top* is the row of each one's top digit."""
    shorter = -(-int(divisor.max()).bit_length() // LIMB_BITS)
    first, base = int(top.max()), int(top.min()) - shorter - 4
    quotients = np.zeros((first - base + 1, len(divisor)), dtype=np.int64)
    rest = np.zeros(len(divisor), dtype=np.int64)
    for row in range(first, base - 1, -1):
        rest <<= LIMB_BITS
        if row >= 0:
            rest += digits[row]
        np.floor_divide(rest, divisor, out=quotients[row - base])
        rest -= quotients[row - base] * divisor
    for row in range(base):
        rest |= digits[row]
    has_rest: Mask = rest != 0
    return _Quotients(quotients, has_rest, base)


def _divide_tiny(digits: list[int], lowest: int, divisor: int) -> float:
    total = sum(digit << (LIMB_BITS * place) for place, digit in enumerate(digits))
    return total / (divisor << (SCALE - LIMB_BITS * lowest))


def _round_digits(digits: Ints, lowest: int, has_rest: Mask | bool = False) -> Floats:
    """Round positive totals to floats: row i of *digits* counts limb *lowest* + i; *has_rest*: there is more below all digits."""
    count, totals = digits.shape
    top, bottom = np.maximum(_top_rows(digits), 4), np.full(totals, 4)
    for limb in range(count - 1, -1, -1):
        np.putmask(bottom, digits[limb] != 0, limb)
    first, *following = (digits[top - back, np.arange(totals)].view(np.uint64) for back in range(5))
    # 64 bits from the first set bit on; the last of them is also set if any later bit is: enough to round once.
    size = np.frexp(first.astype(np.float64))[1].astype(np.uint64)
    spare = np.uint64(LIMB_BITS) - size
    mantissa = (first << np.uint64(48)) | (following[0] << np.uint64(32)) | (following[1] << np.uint64(16)) | following[2]
    mantissa = (mantissa << spare) | (following[3] >> size)
    more = ((following[3] & ((np.uint64(1) << size) - np.uint64(1))) != 0) | (bottom < top - 4) | has_rest
    mantissa |= more.astype(np.uint64)
    place = LIMB_BITS * (top + lowest - 3) - SCALE - spare.astype(np.int64)
    # Below the normal floats no sum is rounded: it has no bit that the smallest float does not have.
    with np.errstate(over="ignore"):
        totals_rounded: Floats = np.ldexp(mantissa.astype(np.float64), place)
    return totals_rounded


def _top_rows(digits: Ints) -> Ints:
    """Return the row of the highest digit of each total that is not 0; -1 for a total of 0."""
    top = np.full(digits.shape[1], -1)
    for row in range(len(digits)):
        np.putmask(top, digits[row] != 0, row)
    return top


def _carry(digits: Ints) -> Ints:
    """Carry, so that all digits but the last lie in [0, 2**16); return the last, which has the sign of the total."""
    for limb in range(len(digits) - 1):
        digits[limb + 1] += digits[limb] >> LIMB_BITS
        digits[limb] &= (1 << LIMB_BITS) - 1
    last: Ints = digits[-1]
    return last


def divide_exactly(value: int, divisor: int) -> float | None:
    """Return the float nearest to a fraction, None if it is beyond all floats."""
    try:
        # True division of integers rounds correctly, subnormal results included.
        return value / divisor
    except OverflowError:
        return None


def root_exactly(value: int, divisor: int) -> float | None:
    """Return the float nearest to the root of a fraction, which is not negative; None if it is beyond all floats."""
    # Two bits more than a float has, and the last is set if any later bit is: enough to round once.
    places = (value.bit_length() - divisor.bit_length() - 109) // 2
    scaled, by = (value, divisor << 2 * places) if places > 0 else (value << -2 * places, divisor)
    root = isqrt(scaled // by)
    root |= root * root * by != scaled
    return divide_exactly(root << max(places, 0), 1 << max(-places, 0))
