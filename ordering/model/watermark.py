"""
The watermark of a timeline. It is the larger of two values: the largest system timestamp of its events less the reorder tolerance, and the
floor.

Law: no later event of the timeline has a system timestamp below its watermark. A timeline without events has the floor.

>>> watermark_of(largest_us=100, reorder_us=30, floor_us=60), watermark_of(largest_us=100, reorder_us=30, floor_us=80)
(70, 80)
"""

from __future__ import annotations

from typing import overload

import numpy as np

from ordering.arrays import Ints
from ordering.ticks import NEVER


@overload
def watermark_of(largest_us: int, reorder_us: int, floor_us: int) -> int: ...


@overload
def watermark_of(largest_us: Ints, reorder_us: int, floor_us: int | Ints) -> Ints: ...


def watermark_of(largest_us: int | Ints, reorder_us: int, floor_us: int | Ints) -> int | Ints:
    """Return the watermark of a timeline, or of each, microseconds; *largest_us* is ``NEVER`` without events."""
    if isinstance(largest_us, int) and isinstance(floor_us, int):
        return max(events_watermark_of(largest_us, reorder_us), floor_us)
    return np.maximum(events_watermark_of(largest_us, reorder_us), floor_us)


@overload
def events_watermark_of(largest_us: int, reorder_us: int) -> int: ...


@overload
def events_watermark_of(largest_us: Ints, reorder_us: int) -> Ints: ...


def events_watermark_of(largest_us: int | Ints, reorder_us: int) -> int | Ints:
    """Return the watermark by events alone, microseconds; ``NEVER`` without events."""
    if isinstance(largest_us, int):
        return largest_us - reorder_us if largest_us > NEVER else NEVER
    return np.where(largest_us > NEVER, largest_us - reorder_us, NEVER)


def largest_at_release(system_us: Ints, reorder_us: int) -> Ints:
    """Return for each event the timestamp that its timeline's largest must exceed for the watermark by events to pass the event."""
    return system_us + reorder_us
