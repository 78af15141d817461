"""
How time moves through a batch: the arrival frontier, the CTIs met, the floor, record by record.

Law (spec sections 2 to 4): none of them ever goes back. What stands in the journal at a position is heard just before the
record there; a CTI of the source counts for what follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ordering.model.events import Batch
from ordering.model.state import State
from ordering.policies import Policies
from ordering.protocol.punctuation import Cause
from ordering.ticks import INFINITY, NEVER

Ints = NDArray[np.int64]

_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class BatchTime:
    """
    How time moves through a batch, in microseconds: after each record, and once more after what follows the last.

    Args:
        arrival: The arrival frontier A.
        recorded: What A were without the estimates; None where no estimate is in play.
        promise: The largest source or imported CTI met, the record's own included; None: there never was any.
        sourced, imported: The largest of either kind alone, since the batch began.
        standing: The largest before the batch, and whether it was imported.
        promised: Largest source or imported CTI met *before* each record.
        floor: ``max(A - late, promise, joined)``.
        early_ctis, source_ctis: Batch rows that are CTIs of the source: too early to count, and those that count.
    """

    arrival_us: Ints
    floor_us: Ints
    recorded_us: Ints | None = None
    promise_us: Ints | None = None
    source_us: Ints = field(default_factory=lambda: _NO_ROWS)
    import_us: Ints = field(default_factory=lambda: _NO_ROWS)
    promise_before: tuple[int, bool] = (NEVER, False)
    promise_met_us: Ints | None = None
    early_ctis: Ints = field(default_factory=lambda: _NO_ROWS)
    source_ctis: Ints = field(default_factory=lambda: _NO_ROWS)

    def cause(self, row: int, watermark_us: int, own_us: int) -> Cause:
        """Return what moved time to *watermark_us* after a row; *own_us* is the watermark that events alone have set."""
        if watermark_us == INFINITY:
            return Cause.SHUTDOWN
        if own_us >= watermark_us:
            return Cause.EVENT
        if self.promise_us is not None and self.promise_us[row] >= watermark_us:
            return Cause.IMPORT if self.is_imported(watermark_us) else Cause.SOURCE
        return Cause.EVENT if self.recorded_us is None or self.recorded_us[row] >= self.arrival_us[row] else Cause.IDLE

    def is_imported(self, promise_us: int) -> bool:
        """Return whether an imported CTI was the first to reach *promise_us*; at one place what was imported comes first."""
        standing_us, imported = self.promise_before
        if standing_us >= promise_us:
            return imported
        return bool(np.searchsorted(self.import_us, promise_us) <= np.searchsorted(self.source_us, promise_us))

    def store(self, state: State) -> None:
        """Leave in *state* where time stands after the batch."""
        state.arrival_us, state.floor_us = int(self.arrival_us[-1]), int(self.floor_us[-1])
        state.is_estimated = self.recorded_us is not None and bool(self.recorded_us[-1] < self.arrival_us[-1])
        if self.promise_us is not None:
            state.promise_us = int(self.promise_us[-1])
            state.is_imported = self.is_imported(state.promise_us)


def trace_time(policies: Policies, joined_us: int, state: State, batch: Batch) -> BatchTime:
    """Return how time moves through *batch*, which begins where *state* stands."""
    steps = len(batch.offset)
    arrival = np.empty(steps + 1, dtype=np.int64)
    arrival[:steps], arrival[steps] = batch.arrival_us, NEVER
    recorded: Ints | None = None
    if state.is_estimated or batch.estimates:
        recorded = arrival.copy()
        recorded[0] = max(int(recorded[0]), NEVER if state.is_estimated else state.arrival_us)
        np.maximum.accumulate(recorded, out=recorded)
    arrival[0] = max(int(arrival[0]), state.arrival_us)
    _raise_at(arrival, batch.offset, batch.estimates)
    np.maximum.accumulate(arrival, out=arrival)
    late_us = policies.late_us
    floor = np.full(steps + 1, NEVER, dtype=np.int64) if late_us is None else np.maximum(arrival - late_us, NEVER)
    time = BatchTime(arrival, floor, recorded)
    if state.promise_us > NEVER or batch.imports or batch.source_cti_us is not None:
        _apply_ctis(time, policies.early_us, state, batch)
    if joined_us > NEVER:
        np.maximum(floor, joined_us, out=floor)
    if batch.finish:
        floor[steps] = INFINITY
    return time


def _raise_at(column: Ints, offset: Ints, facts: tuple[tuple[int, int], ...]) -> None:
    """Raise *column* at the records before which the journal's (position, time) *facts* are heard."""
    for position, time_us in facts:
        index = int(np.searchsorted(offset, position))
        column[index] = max(int(column[index]), time_us)


def _apply_ctis(time: BatchTime, early_us: int | None, state: State, batch: Batch) -> None:
    steps = len(batch.offset)
    imported, sourced = np.full(steps + 1, NEVER, dtype=np.int64), np.full(steps + 1, NEVER, dtype=np.int64)
    _raise_at(imported, batch.offset, batch.imports)
    if batch.source_cti_us is not None:
        told = np.flatnonzero(batch.source_cti_us > NEVER)
        if early_us is not None:
            early = batch.source_cti_us[told] > time.arrival_us[told] + early_us
            time.early_ctis, told = told[early], told[~early]
        time.source_ctis = told
        sourced[told] = batch.source_cti_us[told]
    np.maximum.accumulate(imported, out=imported)
    np.maximum.accumulate(sourced, out=sourced)
    time.import_us, time.source_us, time.promise_before = imported, sourced, (state.promise_us, state.is_imported)
    time.promise_us = np.maximum(np.maximum(imported, sourced), state.promise_us)
    # A record meets what was imported at its place, but its own CTI counts only for what follows it.
    time.promise_met_us = np.maximum(imported[:steps], state.promise_us)
    time.promise_met_us[1:] = np.maximum(time.promise_met_us[1:], sourced[: max(steps - 1, 0)])
    np.maximum(time.floor_us, time.promise_us, out=time.floor_us)
