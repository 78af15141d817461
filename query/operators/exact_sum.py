"""
Exact sums of floats: the float nearest to the true sum, whatever the order and the grouping of the additions.

Each float is an integer times a power of two. It is cut into three pieces of 18 bits, each filed under a *limb*, a
multiple of sixteen binary places. Pieces of one limb are added as 64-bit integers, which is exact for 2**30 rows; only at
the end are the limbs put together and rounded, once. So sums of panes can be added to - and taken from - sums of windows,
and no result depends on how rows were cut into batches or panes (a plain float sum does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

PIECES = 3
_PIECE_BITS = 18
_BLOCK = 16_384
LIMB_BITS = 16
"""Between two limbs lie so many binary places."""
_LIMB_SHIFT = 4
SCALE = 1_136
"""The smallest positive float is 2**-1074 and its mantissa has 53 bits: no bit lies below 2**-1126. Limb 0 stands for 2**-SCALE."""


def pieces(values: Floats, places: Whole | int = 0) -> list[tuple[npt.NDArray[np.int16], Whole]]:
    """
    Cut finite floats into pieces: pairs (limb, piece), three per value, whose sum of ``piece * 2**(16 * limb - 1136)`` is it.

    Args:
        values: The floats.
        places: By how many binary places each is to be shifted up first; so a float may stand for what no float can hold.
    """
    found = [(np.empty(len(values), dtype=np.int16), np.empty(len(values), dtype=np.int64)) for _ in range(PIECES)]
    # Block by block, because what fits the cache takes a tenth of the time.
    for start in range(0, len(values), _BLOCK):
        shift = places if isinstance(places, int) else places[start : start + _BLOCK]
        for (limbs, amounts), (limb, amount) in zip(found, _pieces(values[start : start + _BLOCK], shift), strict=True):
            limbs[start : start + _BLOCK], amounts[start : start + _BLOCK] = limb, amount
    return found


def _pieces(values: Floats, shift: Whole | int) -> list[tuple[Whole, Whole]]:
    mantissa, exponent = np.frexp(values)
    whole = (mantissa * 2.0**53).astype(np.int64)
    place = exponent.astype(np.int64) + (SCALE - 53) + shift
    size, sign = np.abs(whole), np.sign(whole)
    found = []
    for number in range(PIECES):
        bits = (size >> (_PIECE_BITS * number)) & ((1 << _PIECE_BITS) - 1)
        at = place + _PIECE_BITS * number
        found.append((at >> _LIMB_SHIFT, sign * (bits << (at & (LIMB_BITS - 1)))))
    return found


def rounded(limbs: Mapping[int, Whole], whole: Sequence[int]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """
    Put sums of pieces together, add integers, and round each total once.

    Args:
        limbs: For each limb the sums of its pieces, one per total.
        whole: The integers, one per total.

    Returns:
        The nearest floats, and which of them are finite.
    """
    lowest = min([*limbs, SCALE // LIMB_BITS])
    exact = np.array(whole, dtype=object) << (SCALE - LIMB_BITS * lowest)
    for limb, sums in limbs.items():
        exact = exact + (sums.astype(object) << (LIMB_BITS * (limb - lowest)))
    divisor = 1 << (SCALE - LIMB_BITS * lowest)
    floats = [divided(value, divisor) for value in exact.tolist()]
    finite = np.array([value is not None for value in floats], dtype=np.bool_)
    return np.array([value or 0.0 for value in floats]), finite


def divided(value: int, divisor: int) -> float | None:
    """Return the float nearest to a fraction, None beyond all floats."""
    try:
        # True division of integers rounds correctly, subnormal results included.
        return value / divisor
    except OverflowError:
        return None
