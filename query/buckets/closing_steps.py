"""
Steps of a query with OVER: a slice of time that has become final is closed in parts, if its results do not fit in memory together.

Results leave in the order (record, s, key). So a slice (``sub``, ``from_us``, ``to_us``) is divided by the records that made its parts
final. If one record made too much final, its part is divided by instants, and the part of one instant by keys. One key at one instant is
never too much. Law: the parts together are the slice, and all results of a part come before those of the next part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from query.plan.row_tables import between
from tidegate.basics.budget import halve_until_it_fits


@dataclass(frozen=True)
class _Part:
    """A part of a slice: the time that the records at some places (half-open) have made final, and the progress before and after these."""

    closing: pa.Table
    places: tuple[int, int]
    progress: tuple[Ints, Ints]


@dataclass(frozen=True)
class ClosingSteps:
    """How one stretch of a walk is divided."""

    # Returns the slice between two states of progress; None if no substream has moved.
    slices: Callable[[Ints, Ints], pa.Table | None]
    is_too_much: Callable[[pa.Table], bool]
    # Returns the progress before a place of the walk.
    progress_before: Callable[[int], Ints]
    # The instants at which most results come, in any order.
    instants_us: Ints
    key_of: Callable[[int], bytes]

    def divide(self, places: tuple[int, int], progress: tuple[Ints, Ints]) -> Iterator[pa.Table]:
        """Yield the parts of the slice that the records at *places* (half-open) have made final; *progress*: before and after these."""
        for whole in self._part(places, progress):
            for part in halve_until_it_fits(whole, lambda part: self.is_too_much(part.closing), self._halve):
                yield part.closing

    def _part(self, places: tuple[int, int], progress: tuple[Ints, Ints]) -> Sequence[_Part]:
        """Return what the records at *places* have made final; nothing if they moved no substream."""
        closing = self.slices(*progress)
        return [] if closing is None else [_Part(closing, places, progress)]

    def _halve(self, part: _Part) -> Sequence[_Part]:
        first, last = part.places
        if last - first <= 1:
            return [_Part(half, part.places, part.progress) for half in self._halve_record(part.closing) if half.num_rows]
        middle = (first + last) // 2
        halfway = self.progress_before(middle)
        return [*self._part((first, middle), (part.progress[0], halfway)), *self._part((middle, last), (halfway, part.progress[1]))]

    def _halve_record(self, closing: pa.Table) -> Sequence[pa.Table]:
        """Return the halves of a slice that one record has made final, by instants or, of one instant, by keys."""
        low_us, high_us = int(pc.min(closing["from_us"]).as_py()), int(pc.max(closing["to_us"]).as_py())
        if high_us - low_us == 1:
            subs = sorted(closing["sub"].to_pylist(), key=self.key_of)
            is_first = pc.is_in(closing["sub"], value_set=pa.array(subs[: len(subs) // 2]))
            return closing.filter(is_first), closing.filter(pc.invert(is_first))
        middle_us = self._middle_instant(low_us, high_us)
        return between(closing, low_us, middle_us), between(closing, middle_us, high_us)

    def _middle_instant(self, low_us: int, high_us: int) -> int:
        """Return an instant in (low, high), so that about as many instants with results are on each side."""
        # Few slices are divided: the instants are sorted only then.
        within = np.unique(self.instants_us[(self.instants_us >= low_us) & (self.instants_us < high_us)])
        if not len(within):
            return low_us + (high_us - low_us) // 2
        middle_us = int(within[len(within) // 2])
        return middle_us if middle_us > low_us else middle_us + 1
