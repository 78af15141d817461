"""
Reorder: hold events until the watermark has passed them, release them in one total order.

Law: an event is released at the first step after which its system timestamp is below its timeline's watermark
``max(largest - reorder, floor)``; events released at one step leave in the order (system timestamp, offset).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ordering.columns.segments import first_above, places_above
from ordering.model.verdicts import TimelineWalk

Ints = NDArray[np.int64]


def find_release_rows(system_us: Ints, segment: Ints, floor: Ints, walk: TimelineWalk, reorder_us: int) -> Ints:
    """
    Return the step that releases each event: a batch row, or the last entry of *floor*.

    Args:
        system_us: System timestamps of events that this batch does release.
        segment: Number of each event's timeline among those the walk touched; -1 if it touched another.
        floor: The floor after each step, never falling.
        walk: The touched timelines' maxima.
        reorder_us: Reorder tolerance.
    """
    low = np.flatnonzero(system_us < floor[-1])
    if 2 * len(low) > len(system_us):
        steps = places_above(floor, system_us)
    else:
        steps = np.full(len(system_us), len(floor), dtype=np.int64)
        steps[low] = places_above(floor, system_us[low])
    if not len(walk.rows):
        return steps
    # Those on other timelines are looked up like the rest, and what was found is left out: cheaper than picking them out.
    own = np.maximum(segment, 0)
    found = first_above(walk.largest_us, walk.segment, walk.starts, system_us + reorder_us, own)
    passed = (found < walk.starts[own + 1]) & (segment >= 0)
    steps_of_own = walk.rows[np.minimum(found, len(walk.rows) - 1)]
    np.minimum(steps, steps_of_own, out=steps, where=passed)
    return steps
