"""
The planning times of a range: they are the records' arrival if ingest stamps them; else implausible timestamps are recognized by them.
Law: a record's planning time is the journal's last one at or before its offset, so all jobs and all replays use the same.
"""

from __future__ import annotations

import numpy as np

from ingest.offsets import Marks
from ordering.arrays import Ints, Mask
from ordering.protocol.facts import FactKind
from ordering.ticks import MILLISECOND_US, TICK_MAX
from tidegate.platform.kafka.records import Records


class PlanningTimes:
    """
    The planning times of one range: *spans* are (first offset, microseconds), rising; if the journal has lost them, *planned_ms* counts. A
    timestamp more than *max_ahead_us* above its record's planning time is implausible.
    """

    def __init__(self, kind: FactKind, spans: Marks, planned_ms: int, max_ahead_us: int) -> None:
        spans = spans or ((0, planned_ms * MILLISECOND_US),)
        self._stamps, self._max_ahead_us = kind is FactKind.STAMP, max_ahead_us
        self._first, self._time_us = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))

    @property
    def judges_stamps(self) -> bool:
        """Whether Kafka's timestamps are judged against the planning times, which are then clock readings."""
        return not self._stamps

    def times_at(self, offset: Ints) -> Ints:
        """Return the planning times of records, microseconds."""
        place = np.searchsorted(self._first, offset, side="right") - 1
        return self._time_us[np.maximum(place, 0)]

    def arrival_us(self, records: Records) -> Ints:
        return self.times_at(records.offset) if self._stamps else records.timestamp_ms * MILLISECOND_US

    def absurd_rows(self, records: Records) -> Mask:
        """Return which records have no arrival time, or an implausible one."""
        if self._stamps:
            return np.zeros(len(records), dtype=np.bool_)
        # Clip before adding: the limit must not exceed TICK_MAX.
        limit_us = np.minimum(self.times_at(records.offset), TICK_MAX - self._max_ahead_us) + self._max_ahead_us
        return (records.timestamp_ms <= 0) | (records.timestamp_ms > limit_us // MILLISECOND_US)
