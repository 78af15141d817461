"""
Cells of local time: hours, days and other stretches of one length as the clock of a place shows them.

The readings of a clock are divided at the multiples of a length, counted from its 1970-01-01T00:00 and shifted by an offset. A *cell* is a
longest stretch of instants whose readings lie in one division; so where the clock is changed a cell is longer or shorter than its length,
or falls out. A division that the clock runs through twice as a whole (the hour from 2 to 3 on a night in autumn) is two cells. Cells are
``(start, end]``, follow each other without gaps, and are numbered in the order of time.

Examples: a day in Berlin lasts 23 or 25 hours twice a year; Apia has no 30th of December 2011; on Lord Howe Island, whose clock is set back
by 30 minutes, the hour from 1 to 2 then lasts 90 minutes, and of half hours the one from 1:30 to 2:00 comes twice.

Between two changes the ends of cells are equally spaced: for each such *span* there are the first end, the number of ends, and whether the
change itself is one. This makes the cell of an instant a search among the changes and some arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ordering.arrays import Ints, Mask
from tidegate.language.time_zones.zone import Zone

# All instants of the years 1 to 9999 lie between these; a division that begins before the first one is cut there.
_BEGIN_US, _END_US = -(2**56), 2**60


@dataclass(frozen=True, eq=False)
class ZoneSpans:
    """The cells of one zone, length and offset."""

    length_us: int
    # The instants at which spans begin and end, with one more end than spans.
    edges_us: Ints
    # For each span the first end inside of it, how many there are, whether its own end is one, and how many ends lie before the span.
    firsts_us: Ints
    counts: Ints
    ends_at_edge: Mask
    before: Ints

    @classmethod
    def of(cls, zone: Zone, length_us: int, offset_us: int) -> ZoneSpans:
        """Return the cells of a zone; the same object for the same arguments."""
        return _cells_of(zone, length_us, offset_us)

    def number_of(self, instants_us: Ints) -> Ints:
        """Return the number of the cell of each instant."""
        span = np.searchsorted(self.edges_us[1:-1], instants_us, side="left")
        # The first end at or after the instant, counted from the first of the span.
        place = np.maximum(-((self.firsts_us[span] - instants_us) // self.length_us), 0)
        # Behind the last end of a span comes the end of it, or the first end of the next span.
        numbers: Ints = self.before[span] + np.minimum(place, self.counts[span])
        return numbers

    def end_of(self, numbers: Ints) -> Ints:
        """Return the end of each cell."""
        span = np.searchsorted(self.before, numbers, side="right") - 1
        place = numbers - self.before[span]
        ends: Ints = np.where(place < self.counts[span], self.firsts_us[span] + place * self.length_us, self.edges_us[span + 1])
        return ends

    def longest_us(self, count: int, from_us: int) -> int:
        """Return a length that no *count* successive cells exceed whose last one ends after an instant."""
        changes = self.edges_us[1:-1]
        numbers = self.number_of(changes[changes >= from_us - count * self.length_us])
        # Only cells next to a change may be longer than others.
        numbers = np.unique(np.concatenate([numbers, numbers + 1]))
        excess = np.maximum(self.end_of(numbers) - self.end_of(numbers - 1) - self.length_us, 0)
        sums = np.append(0, np.cumsum(excess))
        within = sums[np.searchsorted(numbers, numbers + count)] - sums[: len(numbers)]
        return count * self.length_us + int(within.max(initial=0))


@lru_cache(maxsize=256)
def _cells_of(zone: Zone, length_us: int, offset_us: int) -> ZoneSpans:
    clock = zone.clock
    inside = (clock.changes_us > _BEGIN_US) & (clock.changes_us < _END_US)
    edges = np.concatenate([[_BEGIN_US], clock.changes_us[inside], [_END_US]])
    offsets = np.append(clock.offsets_us[:-1][inside], clock.offsets_us[-1]) - offset_us
    begins, ends = edges[:-1], edges[1:]
    firsts = begins + 1 + (-(begins + 1 + offsets)) % length_us
    counts = np.maximum(-((firsts - ends) // length_us), 0)
    ends_at_edge = np.append(_divides(ends[:-1], offsets, length_us), True)
    ends_in_span = counts + ends_at_edge
    return ZoneSpans(length_us, edges, firsts, counts, ends_at_edge, np.cumsum(ends_in_span) - ends_in_span)


def _divides(changes_us: Ints, offsets_us: Ints, length_us: int) -> npt.NDArray[np.bool_]:
    """Return whether a cell ends at each change, given the offsets before the first and after each."""
    before, after = changes_us + offsets_us[:-1], changes_us + offsets_us[1:]
    # The divisions in which the clock is up to the change, and right after it.
    is_other: Mask = -(-before // length_us) != after // length_us + 1
    return is_other | (before - after >= length_us)
