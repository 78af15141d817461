"""
Progress of time through a batch, record by record: the arrival frontier, the CTIs met and the floor.

Law: none of them ever goes back. A journaled fact applies just before the record at its position; a source CTI
applies to the records after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ordering.arrays import Ints
from ordering.model.events import Batch
from ordering.model.state import State
from ordering.policies import Policies
from ordering.protocol.punctuation import Cause
from ordering.ticks import INFINITY, NEVER

_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class BatchTime:
    """Progress of time through a batch in microseconds: one entry after each record, and one at the end of the batch."""

    # The arrival frontier.
    arrival_us: Ints
    # ``max(arrival frontier - late, promise, joined)``.
    floor_us: Ints
    # The arrival frontier without estimates; None if no estimate applies.
    recorded_us: Ints | None = None
    # The largest source or imported CTI up to and including the record; None: there never was one.
    promise_us: Ints | None = None
    # The largest CTI of either kind since the start of the batch.
    source_us: Ints = field(default_factory=lambda: _NO_ROWS)
    import_us: Ints = field(default_factory=lambda: _NO_ROWS)
    # The largest CTI before the batch, and whether it was imported.
    promise_before: tuple[int, bool] = (NEVER, False)
    # The largest source or imported CTI *before* each record.
    promise_met_us: Ints | None = None
    # Batch rows of source CTIs: rejected as early, and accepted.
    early_ctis: Ints = field(default_factory=lambda: _NO_ROWS)
    source_ctis: Ints = field(default_factory=lambda: _NO_ROWS)

    def cause(self, row: int, watermark_us: int, events_us: int) -> Cause:
        """Return the cause of *watermark_us* after a row; *events_us* is the watermark by events alone."""
        if watermark_us == INFINITY:
            return Cause.SHUTDOWN
        if events_us >= watermark_us:
            return Cause.EVENT
        if self.promise_us is not None and self.promise_us[row] >= watermark_us:
            return Cause.IMPORT if self._is_imported(watermark_us) else Cause.SOURCE
        return Cause.EVENT if self.recorded_us is None or self.recorded_us[row] >= self.arrival_us[row] else Cause.IDLE

    def _is_imported(self, promise_us: int) -> bool:
        """Return whether an imported CTI was the first at or above *promise_us*; at one position an imported CTI precedes a source CTI."""
        before_us, was_imported = self.promise_before
        if before_us >= promise_us:
            return was_imported
        return bool(np.searchsorted(self.import_us, promise_us) <= np.searchsorted(self.source_us, promise_us))

    def store(self, state: State) -> None:
        state.arrival_us, state.floor_us = int(self.arrival_us[-1]), int(self.floor_us[-1])
        state.is_estimated = self.recorded_us is not None and bool(self.recorded_us[-1] < self.arrival_us[-1])
        if self.promise_us is not None:
            state.promise_us = int(self.promise_us[-1])
            state.is_imported = self._is_imported(state.promise_us)


def trace_time(policies: Policies, joined_us: int, state: State, batch: Batch) -> BatchTime:
    """Return the progress of time through *batch*, which starts at the position of *state*."""
    count = len(batch.offset)
    arrival_us = np.empty(count + 1, dtype=np.int64)
    arrival_us[:count], arrival_us[count] = batch.arrival_us, NEVER
    recorded_us: Ints | None = None
    if state.is_estimated or batch.estimates:
        recorded_us = arrival_us.copy()
        recorded_us[0] = max(int(recorded_us[0]), NEVER if state.is_estimated else state.arrival_us)
        np.maximum.accumulate(recorded_us, out=recorded_us)
    arrival_us[0] = max(int(arrival_us[0]), state.arrival_us)
    # Before the running maximum, so that an estimate also holds for all later records.
    _raise_at(arrival_us, batch.offset, batch.estimates)
    np.maximum.accumulate(arrival_us, out=arrival_us)
    late_us = policies.late_us
    floor_us = np.full(count + 1, NEVER, dtype=np.int64) if late_us is None else np.maximum(arrival_us - late_us, NEVER)
    time = BatchTime(arrival_us, floor_us, recorded_us)
    if state.promise_us > NEVER or batch.imports or batch.source_cti_us is not None:
        _apply_ctis(time, policies.early_us, state, batch)
    if joined_us > NEVER:
        np.maximum(floor_us, joined_us, out=floor_us)
    if batch.finish:
        floor_us[count] = INFINITY
    return time


def _raise_at(column: Ints, offset: Ints, facts: tuple[tuple[int, int], ...]) -> None:
    """Raise *column* at the records before which the journaled *facts* (position, time) apply."""
    for position, time_us in facts:
        index = int(np.searchsorted(offset, position))
        column[index] = max(int(column[index]), time_us)


def _apply_ctis(time: BatchTime, early_us: int | None, state: State, batch: Batch) -> None:
    count = len(batch.offset)
    import_us, source_us = np.full(count + 1, NEVER, dtype=np.int64), np.full(count + 1, NEVER, dtype=np.int64)
    _raise_at(import_us, batch.offset, batch.imports)
    if batch.source_cti_us is not None:
        cti_rows = np.flatnonzero(batch.source_cti_us > NEVER)
        if early_us is not None:
            is_early = batch.source_cti_us[cti_rows] > time.arrival_us[cti_rows] + early_us
            time.early_ctis, cti_rows = cti_rows[is_early], cti_rows[~is_early]
        time.source_ctis = cti_rows
        source_us[cti_rows] = batch.source_cti_us[cti_rows]
    np.maximum.accumulate(import_us, out=import_us)
    np.maximum.accumulate(source_us, out=source_us)
    time.import_us, time.source_us, time.promise_before = import_us, source_us, (state.promise_us, state.is_imported)
    time.promise_us = np.maximum(np.maximum(import_us, source_us), state.promise_us)
    # A CTI imported at a record's position applies to that record; the record's own CTI only to later ones.
    time.promise_met_us = np.maximum(import_us[:count], state.promise_us)
    time.promise_met_us[1:] = np.maximum(time.promise_met_us[1:], source_us[: max(count - 1, 0)])
    np.maximum(time.floor_us, time.promise_us, out=time.floor_us)
