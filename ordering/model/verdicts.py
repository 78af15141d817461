"""
Verdicts: what each policy says of each event of a batch, in the order of spec section 2.

Early, source CTI and late need the event, its arrival and the CTIs met so far; :func:`judge_arrivals` judges whole
columns. Out of order needs what the event's timeline has accepted before; a :class:`TimelineWalk` lays each timeline's
events side by side.

Law: an event is out of order when its system timestamp is below its timeline's largest so far minus the reorder
tolerance; adjusting or dropping it leaves that maximum as it was, so the maximum is a plain running maximum. (Only with
a reorder of minus one tick an adjusted event is lifted above all before it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordering.columns.segments import group_order, running_max
from ordering.model.timelines import Timelines
from ordering.policies import Action, Policies
from ordering.protocol.wire import Flag
from ordering.ticks import NEVER

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Reason(IntEnum):
    """Which policy dropped an event."""

    EARLY = 1
    LATE = 2
    OUT_OF_ORDER = 3
    CTI_VIOLATION = 4


@dataclass(slots=True)
class Judgement:
    """
    One entry a record of the batch.

    Args:
        system_us: System timestamp as judged so far, microseconds.
        flags: Bits of :class:`~ordering.protocol.wire.Flag`.
        reason: :class:`Reason` of those dropped, 0 for others.
    """

    system_us: Ints
    flags: NDArray[np.uint16]
    reason: NDArray[np.int8]


def judge_arrivals(
    policies: Policies,
    event_time_us: Ints,
    claimed_us: Ints,
    readable: Mask,
    arrival_us: Ints,
    promise_met_us: Ints | None,
    span_end_us: Ints | None,
) -> Judgement:
    """
    Apply the early, source CTI and late policies.

    Args:
        policies: The input's.
        event_time_us: Event times.
        claimed_us: The latest time that an event names, which must not be early: of an end edge its start if that is later.
        readable: Which records have an event time.
        arrival_us: Clamped arrivals.
        promise_met_us: The largest source or imported CTI met before each record; None: there never was any.
        span_end_us: How far a span reaches beyond its event time: the end of an interval, infinity for an edge; None for points.
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
        early = (claimed_us > arrival_us + policies.early_us) & readable
        if early.any():
            judgement.reason[early] = Reason.EARLY
    return judgement


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
    The kept events of a batch on their timelines: what each met, and the maximum each left behind.

    Columns are in *walk order*: timeline by timeline, each timeline's events in offset order.

    Args:
        timeline: Table row of each kept event's timeline; None if there is but one timeline.
        own_us: System timestamps as judged so far.
        rows: Batch row of each kept event, rising.
        table: The timelines.
        reorder_us: Reorder tolerance.
        action: What happens to an event out of order.
        joined_us: No event may come out below this: when the input partition joined.

    Attributes:
        order: Walk order of the kept events, or a slice of all.
        rows: Batch rows in walk order.
        starts: First place of each timeline's events, and the end.
        segment: Number of each event's timeline among those touched.
        touched: Table rows of the timelines touched.
        system_us: System timestamps after judging.
        largest_us: Largest system timestamp accepted by the timeline after each event.
        is_out_of_order: Which events were out of order.
        largest_before_us: Without OVER, the largest system timestamp accepted before the batch.
    """

    def __init__(
        self, timeline: Ints | None, own_us: Ints, rows: Ints, table: Timelines, reorder_us: int, action: Action, joined_us: int
    ) -> None:
        self._table, self._reorder_us, self._action = table, reorder_us, action
        count = len(own_us)
        self.order: Any
        if timeline is None:
            self.order, self.rows, own = slice(None), rows, own_us
            first = np.zeros(min(count, 1), dtype=np.int64)
            self.touched = np.zeros(len(first), dtype=np.int64)
        else:
            self.order = group_order(timeline)
            ordered, own, self.rows = timeline[self.order], own_us[self.order], rows[self.order]
            first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if count else np.zeros(0, dtype=np.int64)
            self.touched = ordered[first]
        self._first = first
        self.starts = np.append(first, count)
        self._lengths = np.diff(self.starts)
        self.segment = np.repeat(np.arange(len(first)), self._lengths)
        self.largest_before_us = int(table.largest_us[0]) if timeline is None and len(table) else NEVER
        self._judge(own, _largest_for_watermark(joined_us, reorder_us))

    def _judge(self, own: Ints, joined_us: int) -> None:
        """Apply the out-of-order policy."""
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
        self.is_out_of_order = own < bound
        self.system_us = own if self._action is Action.DROP else np.maximum(own, bound)
        self.largest_us = largest

    def _lift_above_equals(self, own: Ints, previous: Ints) -> None:
        """Reorder of minus one tick: move each event above all before it on its timeline."""
        place = np.arange(len(own)) - np.repeat(self._first, self._lengths)
        # The k-th event must exceed the maximum before the batch by k + 1 ticks and each earlier one by their distance.
        self.largest_us = self._running_max(own - place, previous + 1) + place
        self.system_us = self.largest_us
        before = np.empty_like(own)
        before[1:] = self.largest_us[:-1]
        before[self._first] = previous
        self.is_out_of_order = own <= before

    def _running_max(self, own: Ints, previous: Ints) -> Ints:
        raised = own.copy()
        raised[self._first] = np.maximum(raised[self._first], previous)
        return running_max(raised, self.segment)

    @property
    def is_dropped(self) -> Mask:
        """Which events the out-of-order policy rejects."""
        return self.is_out_of_order if self._action is Action.DROP else np.zeros(len(self.is_out_of_order), dtype=np.bool_)

    def store(self) -> None:
        """Leave the new maxima in the table."""
        if len(self.touched):
            self._table.largest_us[self.touched] = self.largest_us[self.starts[1:] - 1]


def _largest_for_watermark(watermark_us: int, reorder_us: int) -> int:
    """Return the largest system timestamp at which a timeline's watermark is *watermark_us*."""
    return NEVER if watermark_us == NEVER else watermark_us + reorder_us
