"""
Reorder: hold events until the watermark has passed them, release them in one total order.

Law: an event is released at the first step after which its system timestamp is below its timeline's watermark
``max(largest - reorder, floor)``; events released at one step leave in the order (system timestamp, offset).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordering.segments import first_above

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Steps:
    """
    The running maximum of each touched timeline, step by step, sorted by timeline.

    ``segment`` numbers the touched timelines 0, 1, ...; ``starts`` their first rows and the end; ``timeline`` the table
    row of each segment; ``index`` the batch index of each row; ``largest_us`` the maximum after it.
    """

    segment: Ints
    starts: Ints
    timeline: Ints
    index: Ints
    largest_us: Ints


def first_steps(system_us: Ints, timeline: Ints, floor: Ints, steps: Steps, reorder_us: int) -> Ints:
    """
    Return the step that releases each event; ``len(floor)`` for those that stay held.

    Args:
        system_us: System timestamps.
        timeline: Table row of each event's timeline.
        floor: The floor after each step, never falling.
        steps: The touched timelines' maxima.
        reorder_us: Reorder tolerance.
    """
    by_floor: Ints = np.searchsorted(floor, system_us, side="right").astype(np.int64)
    if not len(steps.timeline):
        return by_floor
    top = int(max(timeline.max(initial=0), steps.timeline.max())) + 1
    segment_of = np.full(top, -1, dtype=np.int64)
    segment_of[steps.timeline] = np.arange(len(steps.timeline))
    segment = segment_of[timeline]
    touched = np.flatnonzero(segment >= 0)
    found = first_above(steps.largest_us, steps.segment, steps.starts, system_us[touched] + reorder_us, segment[touched])
    passed = found < steps.starts[segment[touched] + 1]
    rows = touched[passed]
    by_floor[rows] = np.minimum(by_floor[rows], steps.index[found[passed]])
    return by_floor


def release_order(steps: Ints, system_us: Ints, never: int) -> Ints:
    """Return the rows that are released, in release order. Rows must come in offset order: that breaks the last ties."""
    rows = np.flatnonzero(steps < never)
    if not len(rows):
        return rows
    when, stamp = steps[rows], system_us[rows]
    low = int(stamp.min())
    span = int(stamp.max()) - low + 1
    if span < (2**62) // (never + 1):
        return rows[np.argsort(when * span + (stamp - low), kind="stable")]
    return rows[np.lexsort((stamp, when))]
