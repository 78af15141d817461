"""
Reorder: hold events until the watermark has passed them, release them in one total order.

Law: an event is released at the first step after which its system timestamp is below its timeline's watermark
``max(largest - reorder, floor)``; events released at one step leave in the order (system timestamp, offset).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ordering.segments import first_above, places_above
from ordering.verdicts import Walk

Ints = NDArray[np.int64]


def first_steps(system_us: Ints, segment: Ints, floor: Ints, walk: Walk, reorder_us: int) -> Ints:
    """
    Return the step that releases each event: a batch row, or the last entry of *floor*.

    Args:
        system_us: System timestamps of events that this batch does release.
        segment: Number of each event's timeline among those the walk touched; -1 if it touched another.
        floor: The floor after each step, never falling.
        walk: The touched timelines' maxima.
        reorder_us: Reorder tolerance.
    """
    steps = np.full(len(system_us), len(floor), dtype=np.int64)
    low = np.flatnonzero(system_us < floor[-1])
    steps[low] = places_above(floor, system_us[low])
    own = np.flatnonzero(segment >= 0)
    found = first_above(walk.largest_us, walk.segment, walk.starts, system_us[own] + reorder_us, segment[own])
    passed = found < walk.starts[segment[own] + 1]
    rows = own[passed]
    steps[rows] = np.minimum(steps[rows], walk.rows[found[passed]])
    return steps
