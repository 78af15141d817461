"""
Records that move time further than ``watermark_jump_warn``: each cause is logged once for an input partition, and counted.

Law: nothing here changes an event. With the default policies no record puts time so far ahead: ``early`` and ``arrival_max_ahead`` are
smaller than the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ingest.planner.arrival_stamps import PlanningTimes
from ordering.arrays import Ints
from ordering.model.step import Batch
from ordering.policies import Policies
from ordering.ticks import NEVER, SECOND_US, format_duration


class JumpCause(StrEnum):
    """How a record moves time: by its event time, by its arrival, or (shown by this record) by the arrival of an earlier one."""

    EVENT = "event_time"
    ARRIVAL = "arrival"
    BEHIND = "arrival_behind"


EFFECTS = {
    JumpCause.EVENT: "an event's time is far ahead of its arrival: later events of its timeline are out of order until time has caught up",
    JumpCause.ARRIVAL: "a record is stamped far ahead of the clock: later events are late until the clock has caught up",
    JumpCause.BEHIND: "a record is stamped far behind an earlier one: it counts as arrived with that one, and its event as late",
}


@dataclass(frozen=True, slots=True)
class TimeJump:
    """
    A jump of time in one batch.

    Args:
        offset: The offset of the first record that moves time too far.
        by_us: How far that record moves time, microseconds.
        count: How many records of the batch move time too far.
    """

    cause: JumpCause
    offset: int
    by_us: int
    count: int

    @property
    def in_words(self) -> str:
        """The duration in whole seconds."""
        return format_duration(self.by_us // SECOND_US * SECOND_US)


def find_time_jumps(
    batch: Batch, policies: Policies, frontier_us: int, planned: PlanningTimes, clock_slack_us: int, bound_us: int
) -> Iterator[TimeJump]:
    """
    Yield for each cause the jumps of *batch* beyond *bound_us*.

    Args:
        frontier_us: The arrival frontier before the batch.
        planned: The clock readings in force, each up to *clock_slack_us* old when the records were planned.
    """
    if not len(batch.offset):
        return
    jumps = {
        JumpCause.EVENT: _ahead_of_arrival(batch, policies, bound_us),
        JumpCause.ARRIVAL: batch.arrival_us - clock_slack_us - planned.times_at(batch.offset) if planned.judges_stamps else None,
        JumpCause.BEHIND: np.maximum(np.maximum.accumulate(batch.arrival_us), frontier_us) - batch.arrival_us,
    }
    for cause, by_us in jumps.items():
        if by_us is None:
            continue
        rows = np.flatnonzero(by_us > bound_us)
        if len(rows):
            yield TimeJump(cause, int(batch.offset[rows[0]]), int(by_us[rows[0]]), len(rows))


def _ahead_of_arrival(batch: Batch, policies: Policies, bound_us: int) -> Ints | None:
    """Return how far each accepted time puts the watermark ahead of its record's arrival; None if ``early`` allows no jump."""
    if batch.event_time_us is None or (policies.early_us is not None and policies.early_us <= bound_us):
        return None
    time_us, is_usable = batch.event_time_us, batch.readable
    if batch.source_cti_us is not None:
        is_cti = batch.source_cti_us > NEVER
        time_us, is_usable = np.where(is_cti, batch.source_cti_us, time_us), is_usable | is_cti
    early_by_us = np.where(is_usable, time_us, batch.arrival_us) - batch.arrival_us
    is_accepted = True if policies.early_us is None else early_by_us <= policies.early_us
    return np.where(is_accepted, early_by_us - policies.reorder_us, 0)
