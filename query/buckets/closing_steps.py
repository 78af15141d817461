"""
Steps of a query with OVER: a slice of time that has become final is closed in parts, if its results do not fit in memory together.

Results leave in the order (record, s, key). So a slice (``sub``, ``from_us``, ``to_us``) is divided by the records that made its parts
final. If one record made too much final, its part is divided by instants, and the part of one instant by keys. One key at one instant is
never too much. Law: the parts together are the slice, and all results of a part come before those of the next part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from query.plan.row_tables import between


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
        closing, (first, last) = self.slices(*progress), places
        if closing is None:
            return
        if not self.is_too_much(closing):
            yield closing
        elif last - first <= 1:
            yield from self._divide_record(closing)
        else:
            middle = (first + last) // 2
            halfway = self.progress_before(middle)
            yield from self.divide((first, middle), (progress[0], halfway))
            yield from self.divide((middle, last), (halfway, progress[1]))

    def _divide_record(self, closing: pa.Table) -> Iterator[pa.Table]:
        """Yield the parts of the slice that one record has made final."""
        if not closing.num_rows:
            return
        if not self.is_too_much(closing):
            yield closing
            return
        low_us, high_us = int(pc.min(closing["from_us"]).as_py()), int(pc.max(closing["to_us"]).as_py())
        if high_us - low_us == 1:
            subs = sorted(closing["sub"].to_pylist(), key=self.key_of)
            is_first = pc.is_in(closing["sub"], value_set=pa.array(subs[: len(subs) // 2]))
            halves = closing.filter(is_first), closing.filter(pc.invert(is_first))
        else:
            middle_us = self._middle_instant(low_us, high_us)
            halves = between(closing, low_us, middle_us), between(closing, middle_us, high_us)
        for half in halves:
            yield from self._divide_record(half)

    def _middle_instant(self, low_us: int, high_us: int) -> int:
        """Return an instant in (low, high), so that about as many instants with results are on each side."""
        # Few slices are divided: the instants are sorted only then.
        within = np.unique(self.instants_us[(self.instants_us >= low_us) & (self.instants_us < high_us)])
        if not len(within):
            return low_us + (high_us - low_us) // 2
        middle_us = int(within[len(within) // 2])
        return middle_us if middle_us > low_us else middle_us + 1
