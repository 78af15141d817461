"""
A recording: when events of an input happened, and when they arrived. No payloads.

Law: rows are in the order in which the input partitions are walked: partition by partition, each in offset order. Arrivals never go back
within a partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ordering.arrays import Ints, Mask
from ordering.columns.segments import running_max, stable_order


@dataclass(frozen=True)
class Recording:
    """Recorded events, one row a record; times are microseconds."""

    # The number of each record's input partition, never falling.
    partition: Ints
    # Arrival times, estimates included; within a partition never falling.
    arrival_us: Ints
    # Event times, arbitrary where not *readable*.
    event_us: Ints
    # False for records without a valid event time: they only move the arrival frontier.
    readable: Mask
    # The number of each record's timeline, from 0 without gaps; no two partitions share one.
    timeline: Ints
    # Whether timelines are substreams.
    has_substreams: bool
    # How many records were stamped below an earlier one of their partition.
    arrival_clamps: int = 0
    # The mean size of a record; None: not known.
    record_bytes: float | None = None
    # The number of each record's substream, whatever its partition; None: there are no substreams.
    key: Ints | None = None
    # Where each row stood among the records as they were given; None: they were in the order of the rows.
    order: Ints | None = None

    @classmethod
    def of(
        cls,
        partition: Ints,
        arrival_us: Ints,
        event_us: Ints,
        readable: Mask,
        substream: Ints | None = None,
        record_bytes: float | None = None,
    ) -> Recording:
        """Return the recording of records in offset order, of partitions mixed in any way; *substream* is the number of each key."""
        number = _dense(partition)
        order = stable_order(number, int(number.max(initial=-1)) + 1) if np.any(number[1:] < number[:-1]) else None
        if order is not None:
            number, arrival_us, event_us, readable = number[order], arrival_us[order], event_us[order], readable[order]
            substream = None if substream is None else substream[order]
        clamped = running_max(arrival_us, number)
        timeline = number if substream is None else _dense(number * (int(substream.max(initial=0)) + 1) + substream)
        clamps = int(np.count_nonzero(clamped != arrival_us))
        return cls(number, clamped, event_us, readable, timeline, substream is not None, clamps, record_bytes, substream, order)

    def __len__(self) -> int:
        return len(self.arrival_us)

    @cached_property
    def events(self) -> int:
        """How many records are events."""
        return int(np.count_nonzero(self.readable))

    @property
    def substreams(self) -> int:
        """How many timelines there are, also of records that are no events."""
        return int(self.timeline.max(initial=-1)) + 1

    @property
    def partitions(self) -> int:
        return int(self.partition[-1]) + 1 if len(self) else 0


def _dense(number: Ints) -> Ints:
    """Return the numbers renamed to 0, 1, ... in their own order."""
    if not len(number):
        return number.astype(np.int64)
    low, high = int(number.min()), int(number.max())
    if high - low <= 4 * len(number):
        names = np.zeros(high - low + 1, dtype=np.int64)
        names[number - low] = 1
        renamed: Ints = (np.cumsum(names) - 1)[number - low]
        return renamed
    return np.unique(number, return_inverse=True)[1].astype(np.int64)
