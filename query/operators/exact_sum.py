"""
Exact sums of floats: the float nearest to the true sum, whatever the order and the grouping of the additions.

Each float is an integer times a power of two. It is cut into three pieces of 18 bits, each filed under a *limb*, a
multiple of eight binary places. Pieces of one limb are added as 64-bit integers, which is exact for 2**38 rows; only at
the end are the limbs put together and rounded, once. So sums of panes can be added to sums of windows, and no result
depends on how rows were cut into batches or panes (a plain float sum does).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_PIECE_BITS = 18
_LIMB_BITS = 8
_SCALE = 1_126
"""The smallest positive float is 2**-1074 and its mantissa has 53 bits: no bit lies below 2**-1126."""


def pieces(values: npt.NDArray[np.float64]) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Cut finite floats into pieces: pairs (limb, piece), three per value, whose sum of ``piece * 2**(8 * limb - 1126)`` is it."""
    mantissa, exponent = np.frexp(values)
    whole = (mantissa * 2.0**53).astype(np.int64)
    place = exponent.astype(np.int64) - 53 + _SCALE
    sign, size = np.sign(whole), np.abs(whole)
    found = []
    for number in range(3):
        bits = (size >> (_PIECE_BITS * number)) & ((1 << _PIECE_BITS) - 1)
        at = place + _PIECE_BITS * number
        found.append((at // _LIMB_BITS, sign * (bits << (at % _LIMB_BITS))))
    return found


def total(limbs: Iterable[int], sums: Iterable[int], whole: int = 0) -> float | None:
    """
    Put the sums of pieces together and add the integer *whole*; round once.

    Returns:
        The nearest float, or None when it is not finite.
    """
    exact = whole << _SCALE
    for limb, amount in zip(limbs, sums, strict=True):
        exact += amount << (_LIMB_BITS * limb)
    try:
        # True division of integers rounds correctly, subnormal results included.
        return exact / (1 << _SCALE) + 0.0
    except OverflowError:
        return None
