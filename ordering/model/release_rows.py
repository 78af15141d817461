"""
The batch row that releases an event: the first row after which the event is below its timeline's watermark.

Law: watermarks only rise, so a binary search over the floor and the timeline's maxima finds the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ordering.arrays import Ints
from ordering.columns.segments import first_above, places_above
from ordering.model.verdicts import TimelineWalk
from ordering.model.watermark import largest_at_release


@dataclass(slots=True)
class ReleaseRows:
    """The batch row that releases each event. Without OVER few callers need it, so it is computed at first use."""

    rows: Ints | None
    system_us: Ints
    floor_us: Ints
    walk: TimelineWalk
    reorder_us: int

    def resolve(self) -> Ints:
        """Return the batch row of each event; the number of rows if it is released after the last."""
        if self.rows is None:
            segment = np.full(len(self.system_us), 0 if len(self.walk.touched) else -1, dtype=np.int64)
            self.rows = find_release_rows(self.system_us, segment, self.floor_us, self.walk, self.reorder_us)
        # If the walk is empty, an event that the floor never passes got the row after the last.
        return np.minimum(self.rows, len(self.floor_us) - 1)


def find_release_rows(system_us: Ints, segment: Ints, floor_us: Ints, walk: TimelineWalk, reorder_us: int) -> Ints:
    """
    Return the row that releases each event: a batch row, or the last index of *floor_us*, the floor after each row (it never
    falls). *segment* is each event's timeline, as its number among the walk's timelines; -1 if the walk did not touch it.
    """
    low = np.flatnonzero(system_us < floor_us[-1])
    if 2 * len(low) > len(system_us):
        rows = places_above(floor_us, system_us)
    else:
        rows = np.full(len(system_us), len(floor_us), dtype=np.int64)
        rows[low] = places_above(floor_us, system_us[low])
    if not len(walk.rows):
        return rows
    # Events of other timelines are searched too and ignored: cheaper than selecting the events first.
    own_segment = np.maximum(segment, 0)
    place = first_above(walk.largest_us, walk.segment, walk.starts, largest_at_release(system_us, reorder_us), own_segment)
    is_passed = (place < walk.starts[own_segment + 1]) & (segment >= 0)
    rows_of_walk = walk.rows[np.minimum(place, len(walk.rows) - 1)]
    np.minimum(rows, rows_of_walk, out=rows, where=is_passed)
    return rows
