"""
Exact sums of floats: the float nearest to the true sum, whatever the order and the grouping of the additions.

Each float is an integer times a power of two. It is cut into three pieces of 18 bits, and each piece belongs to a *limb*, a multiple of
sixteen binary places. Pieces of one limb are added as 64-bit integers, which is exact for 2**30 rows. Only at the end are the limbs added
and rounded, once. So sums of panes can be added to and subtracted from sums of windows, and unlike with a plain sum of floats, no result
depends on how rows were cut into batches or panes.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    # Four limbs more below, because _round_digits reads five limbs from the top one downwards.
    lowest = min([*limbs, _ONES]) - 4
    highest = max([*limbs, _ONES + 4]) + _CARRY_LIMBS
    totals = np.zeros(len(high))
    # Block by block: see split_floats.
    for start in range(0, len(high), _BLOCK):
        part = slice(start, start + _BLOCK)
        digits = np.zeros((highest - lowest + 1, len(high[part])), dtype=np.int64)
        for limb, sums in limbs.items():
            digits[limb - lowest] = sums[part]
        digits[_ONES - lowest] += low[part]
        digits[_ONES + 2 - lowest] += high[part] & 0xFFFFFFFF
        digits[_ONES + 4 - lowest] += high[part] >> 32
        totals[part] = _round_digits(digits, lowest)
    is_finite = np.isfinite(totals)
    return np.where(is_finite, totals, 0.0), is_finite


def _round_digits(digits: Ints, lowest: int) -> Floats:
    """Round totals to floats: row i of *digits* counts limb *lowest* + i; *digits* are overwritten."""
    negative = _carry(digits) < 0
    if negative.any():
        digits[:, negative] *= -1
        _carry(digits)
    count, totals = digits.shape
    top, bottom = np.full(totals, 4), np.full(totals, 4)
    for limb in range(4, count):
        top[digits[limb] != 0] = limb
        bottom[digits[count + 3 - limb] != 0] = count + 3 - limb
    first, *following = (digits[top - back, np.arange(totals)].view(np.uint64) for back in range(5))
    # 64 bits from the first set bit on; the last of them is also set if any later bit is: enough to round once.
    size = np.frexp(first.astype(np.float64))[1].astype(np.uint64)
    spare = np.uint64(LIMB_BITS) - size
    mantissa = (first << np.uint64(48)) | (following[0] << np.uint64(32)) | (following[1] << np.uint64(16)) | following[2]
    mantissa = (mantissa << spare) | (following[3] >> size)
    more = ((following[3] & ((np.uint64(1) << size) - np.uint64(1))) != 0) | (bottom < top - 4)
    mantissa |= more.astype(np.uint64)
    place = LIMB_BITS * (top + lowest - 3) - SCALE - spare.astype(np.int64)
    # Below the normal floats nothing is rounded: no total has a bit that the smallest float does not have.
    with np.errstate(over="ignore"):
        totals_rounded: Floats = np.ldexp(mantissa.astype(np.float64), place)
    totals_rounded[negative] *= -1
    return totals_rounded


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
