"""
Verdicts: the action of each policy on each event of a batch, in the order in which policies apply.

The early, source CTI and late policies need the event, its arrival time and the CTIs met so far: :func:`judge_arrivals` judges whole
columns. The out-of-order policy needs the events that the timeline has accepted before: :class:`TimelineWalk` sorts the events by timeline.

Law: an event is out of order if its system timestamp is below its timeline's largest so far minus the reorder tolerance. Adjusting or
dropping it does not change that maximum, so it is a plain running maximum. (With a reorder of -1 tick an adjusted event is lifted above all
earlier ones and raises it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask
from ordering.columns.segments import group_order, running_max
from ordering.model.timelines import Timelines
from ordering.policies import Action, Policies
from ordering.protocol.wire import Flag
from ordering.ticks import NEVER


class Reason(IntEnum):
    """The policy that dropped an event."""

    EARLY = 1
    LATE = 2
    OUT_OF_ORDER = 3
    CTI_VIOLATION = 4


@dataclass(slots=True)
class Judgement:
    """The verdicts, one entry a record of the batch: ``system_us`` as the policies applied so far have left it, bits of ``Flag``."""

    system_us: Ints
    flags: NDArray[np.uint16]
    # :class:`Reason` of dropped events, 0 for others.
    reason: NDArray[np.int8]


def judge_arrivals(
    policies: Policies,
    event_time_us: Ints,
    early_checked_us: Ints,
    readable: Mask,
    arrival_us: Ints,
    promise_met_us: Ints | None,
    span_end_us: Ints | None,
) -> Judgement:
    """
    Apply the early, source CTI and late policies to columns with one entry a record; times are microseconds.

    Args:
        early_checked_us: The time that may be early: the event time; of an end edge its start's if that is later.
        readable: Which records have an event time.
        arrival_us: Clamped arrival times.
        promise_met_us: The largest source or imported CTI before each record; None: there never was one.
        span_end_us: The end of each event's span: the end of an interval, infinity for an edge; None for points.
    """
    steps = len(event_time_us)
    judgement = Judgement(event_time_us, np.zeros(steps, dtype=np.uint16), np.zeros(steps, dtype=np.int8))
    if promise_met_us is not None:
        _judge_violations(policies, judgement, event_time_us, readable, promise_met_us, span_end_us)
    if policies.late_us is not None:
        lifted = arrival_us - policies.late_us
        late = (event_time_us < lifted) & readable
        if late.any():
            if policies.late_action is Action.DROP:
                judgement.reason[late & (judgement.reason == 0)] = Reason.LATE
            else:
                judgement.flags[late & (judgement.reason == 0)] |= np.uint16(Flag.LATE)
                judgement.system_us = np.where(late, np.maximum(judgement.system_us, lifted), judgement.system_us)
    # Early is the first policy; its reason is entered last, over all others.
    if policies.early_us is not None:
        early = (early_checked_us > arrival_us + policies.early_us) & readable
        if early.any() and policies.early_action is Action.DROP:
            judgement.reason[early] = Reason.EARLY
        elif early.any():
            _adjust_early(policies, judgement, early, arrival_us + policies.early_us, promise_met_us)
    return judgement


def _adjust_early(policies: Policies, judgement: Judgement, early: Mask, latest_us: Ints, promise_met_us: Ints | None) -> None:
    """Move early events back to the latest time allowed. An event that an earlier CTI has moved, or dropped, stays so."""
    judgement.flags[early] |= np.uint16(Flag.EARLY)
    moved = early & (judgement.flags & np.uint16(Flag.CTI_VIOLATION) == 0)
    judgement.system_us = np.where(moved, latest_us, judgement.system_us)
    if promise_met_us is None:
        return
    # An imported CTI may lie above arrival + early. The event's own time does not violate it, but its system timestamp is below the
    # watermark: out of order. Of its timeline's events alone, :class:`TimelineWalk` could not tell.
    below = moved & (judgement.reason == 0) & (latest_us < promise_met_us)
    if policies.out_of_order_action is Action.DROP:
        judgement.reason[below] = Reason.OUT_OF_ORDER
    else:
        judgement.flags[below] |= np.uint16(Flag.OUT_OF_ORDER)
        judgement.system_us = np.where(below, promise_met_us, judgement.system_us)


def _judge_violations(
    policies: Policies, judgement: Judgement, event_time_us: Ints, readable: Mask, promise_met_us: Ints, span_end_us: Ints | None
) -> None:
    violating = (event_time_us < promise_met_us) & readable
    if not violating.any():
        return
    movable = np.zeros(len(violating), dtype=np.bool_)
    if policies.cti_violation_action is Action.ADJUST and span_end_us is not None:
        movable = violating & (span_end_us > promise_met_us)
    judgement.reason[violating & ~movable] = Reason.CTI_VIOLATION
    judgement.flags[movable] |= np.uint16(Flag.CTI_VIOLATION)
    judgement.system_us = np.where(movable, promise_met_us, judgement.system_us)


class TimelineWalk:
    """
    The out-of-order policy: the kept events of a batch, sorted by timeline, and the maximum after each.

    Columns are in *walk order*: timeline by timeline, each timeline's events in offset order.

    Args:
        timeline: Table row of each kept event's timeline; None if there is only one timeline.
        adjusted_us: System timestamps after the earlier policies.
        rows: Batch row of each kept event, rising; the attribute has them in walk order.
        joined_us: When the input partition joined: an event below is out of order.

    Attributes:
        starts: First index of each timeline's events, then the number of events.
        segment: Number of each event's timeline among the touched ones.
        touched: Table rows of the touched timelines.
        system_us: System timestamps after this policy.
        largest_us: Largest system timestamp accepted on the timeline after each event.
        bound_us: The timeline's watermark that each event met, as far as its events alone moved it.
        largest_before_us: Without OVER, the largest system timestamp accepted before the batch.
    """

    def __init__(
        self, timeline: Ints | None, adjusted_us: Ints, rows: Ints, table: Timelines, reorder_us: int, action: Action, joined_us: int
    ) -> None:
        self._table, self._reorder_us, self._action = table, reorder_us, action
        count = len(adjusted_us)
        if timeline is None:
            self.rows, own = rows, adjusted_us
            first = np.zeros(min(count, 1), dtype=np.int64)
            self.touched = np.zeros(len(first), dtype=np.int64)
        else:
            order = group_order(timeline)
            ordered, own, self.rows = timeline[order], adjusted_us[order], rows[order]
            first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if count else np.zeros(0, dtype=np.int64)
            self.touched = ordered[first]
        self._first = first
        self.starts = np.append(first, count)
        self._lengths = np.diff(self.starts)
        self.segment = np.repeat(np.arange(len(first)), self._lengths)
        self.largest_before_us = int(table.largest_us[0]) if timeline is None and len(table) else NEVER
        self._judge(own, NEVER if joined_us == NEVER else joined_us + reorder_us)

    def _judge(self, own: Ints, joined_us: int) -> None:
        # A maximum far below anything in this batch compares like one just below it, and keeps the numbers small.
        bottom = int(own.min()) - 2 if len(own) else 0
        previous = np.maximum(self._table.largest_us[self.touched], max(bottom, joined_us))
        if self._reorder_us < 0 and self._action is Action.ADJUST:
            self._lift_above_equals(own, previous)
            return
        largest = self._running_max(own, previous)
        bound = np.empty_like(largest)
        bound[1:] = largest[:-1]
        bound[self._first] = previous
        bound -= self._reorder_us
        self.bound_us = bound
        self.is_out_of_order = own < bound
        self.system_us = own if self._action is Action.DROP else np.maximum(own, bound)
        self.largest_us = largest

    def _lift_above_equals(self, own: Ints, previous: Ints) -> None:
        """Apply a reorder of -1 tick: move each event above all earlier ones of its timeline."""
        place = np.arange(len(own)) - np.repeat(self._first, self._lengths)
        # The k-th event must exceed the maximum before the batch by k + 1 ticks and each earlier one by their distance.
        self.largest_us = self._running_max(own - place, previous + 1) + place
        self.system_us = self.largest_us
        before = np.empty_like(own)
        before[1:] = self.largest_us[:-1]
        before[self._first] = previous
        self.bound_us = before + 1
        self.is_out_of_order = own <= before

    def _running_max(self, own: Ints, previous: Ints) -> Ints:
        raised = own.copy()
        raised[self._first] = np.maximum(raised[self._first], previous)
        return running_max(raised, self.segment)

    @property
    def is_dropped(self) -> Mask:
        return self.is_out_of_order if self._action is Action.DROP else np.zeros(len(self.is_out_of_order), dtype=np.bool_)

    def store(self) -> None:
        if len(self.touched):
            self._table.largest_us[self.touched] = self.largest_us[self.starts[1:] - 1]
