"""
Running maxima and binary searches over many timelines at once.

A column is cut into *segments*: the consecutive rows of one timeline. Each function gives for every segment the result of the numpy
function for a single array, with a fixed number of numpy calls. For this it adds ``segment * span`` to the values, so that each segment
lies above the one before; if that would overflow int64, a slower method gives the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordering.arrays import Ints

_ROOM = 2**62


class Lift:
    """Maps the values of *segments* segments, all between *low* and *high*, to one rising range of int64."""

    def __init__(self, low: int, high: int, segments: int) -> None:
        self.low, self.span = low, high - low + 2
        self.fits = self.span * max(segments, 1) < _ROOM

    def up(self, values: Ints, segment: Ints) -> Ints:
        """Return the lifted values; they are clipped to [low, high + 1] first."""
        clipped: Ints = np.clip(values, self.low, self.low + self.span - 1) - self.low
        lifted: Ints = clipped + segment * self.span
        return lifted


def stable_order(number: Ints, count: int) -> Ints:
    """Return the stable sort order of numbers from 0 to below *count*; numpy sorts numbers below 2**16 by radix."""
    return np.argsort(number.astype(np.uint16) if count <= 1 << 16 else number, kind="stable")


def running_max(values: Ints, segment: Ints) -> Ints:
    """Return for each row the largest value of its segment up to and including the row; *segment* is 0,0,..,1,1,.. rising."""
    if len(values) == 0:
        return values
    lift = Lift(int(values.min()), int(values.max()), int(segment[-1]) + 1)
    if lift.fits:
        top: Ints = np.maximum.accumulate(lift.up(values, segment)) - segment * lift.span + lift.low
        return top
    return _running_max_by_doubling(values, segment)


def _running_max_by_doubling(values: Ints, segment: Ints) -> Ints:
    top, reach = values.copy(), 1
    while reach < len(values):
        same = segment[reach:] == segment[:-reach]
        if not same.any():
            break
        top[reach:] = np.where(same, np.maximum(top[reach:], top[:-reach]), top[reach:])
        reach *= 2
    return top


_SEARCH_BELOW = 4096
_ROUNDS_MAX = 6


def places_above(rising: Ints, values: Ints) -> Ints:
    """
    Return for each value the number of entries of *rising* that do not exceed it: ``np.searchsorted(rising, values, side="right")``.
    Searching many scattered values misses the processor's caches at every step. So the range is divided into equal stretches, a table gives
    the first entry of each stretch, and a few comparisons find the place. Values in crowded stretches are searched in the ordinary way.
    """
    if len(values) < _SEARCH_BELOW or len(rising) < 2:
        return np.searchsorted(rising, values, side="right").astype(np.int64)
    low, high = int(rising[0]), int(rising[-1])
    if high - low >= 2**63:
        return np.searchsorted(rising, values, side="right").astype(np.int64)
    shift = max((high - low).bit_length() - len(rising).bit_length(), 0)
    stretches = ((high - low) >> shift) + 1
    begins = np.zeros(stretches + 1, dtype=np.int32)
    np.cumsum(np.bincount((rising - low) >> shift, minlength=stretches), out=begins[1:])
    # A value before the first entry lies in the first stretch, where the first comparison stops it.
    stretch = np.minimum(np.maximum(values, low), high)
    stretch -= low
    stretch >>= shift
    found, ends = begins[stretch], begins[stretch + 1]
    open_ = np.flatnonzero(found < ends)
    for _ in range(_ROUNDS_MAX):
        open_ = open_[rising[found[open_]] <= values[open_]]
        found[open_] += 1
        open_ = open_[found[open_] < ends[open_]]
        if not len(open_):
            return found.astype(np.int64)
    found[open_] = np.searchsorted(rising, values[open_], side="right")
    return found.astype(np.int64)


def first_above(rising: Ints, segment: Ints, starts: Ints, values: Ints, value_segment: Ints) -> Ints:
    """
    Return for each value the first row of its segment (*value_segment*) whose entry exceeds it, or the segment's end if there is none. The
    entries, *rising*, never fall within a *segment* (0,0,..,1,1,.. rising); *starts* are its first rows, then the number of rows.
    """
    if len(values) == 0 or len(rising) == 0:
        return starts[value_segment] if len(rising) else np.zeros(len(values), dtype=np.int64)
    lift = Lift(int(rising.min()) - 1, int(rising.max()), len(starts) - 1)
    if lift.fits:
        return places_above(lift.up(rising, segment), lift.up(values, value_segment))
    low, high = starts[value_segment].copy(), starts[value_segment + 1].copy()
    while (low < high).any():
        middle = (low + high) // 2
        above = rising[np.minimum(middle, len(rising) - 1)] > values
        open_ = low < high
        high = np.where(open_ & above, middle, high)
        low = np.where(open_ & ~above, middle + 1, low)
    return low


def sort_places(primary: Ints, secondary: Ints, place: Ints, places: int) -> Ints:
    """
    Return *place* (distinct numbers below *places*) sorted by (primary, secondary, place). If the three numbers fit, they are packed into
    one int64: numpy sorts int64 values several times faster than it sorts row numbers.
    """
    if not len(place):
        return place
    low, high, start, end = (int(bound) for bound in (primary.min(), primary.max(), secondary.min(), secondary.max()))
    bits, span = max(places - 1, 1).bit_length(), end - start + 1
    if (high - low + 1) * span < 1 << (63 - bits):
        packed = secondary - start
        if high > low:
            packed += (primary - low) * span
        packed <<= bits
        packed |= place
        packed.sort()
        packed &= (1 << bits) - 1
        return packed
    return place[np.lexsort((place, secondary, primary))]


def group_order(group: NDArray[np.integer[Any]]) -> Ints:
    """Return the row numbers that sort *group* (numbers from 0) stably."""
    rows = np.arange(len(group))
    bits = max(len(group) - 1, 1).bit_length()
    if int(group.max(initial=0)) >= 1 << (63 - bits):
        return np.argsort(group, kind="stable")
    packed: Ints = (group.astype(np.int64) << bits) | rows
    packed.sort()
    packed &= (1 << bits) - 1
    return packed
