"""
Verdicts: the kept events of a batch on their timelines - what watermark each met and the maximum each left behind.

Law: an event is out of order when its system timestamp is below its timeline's largest so far minus the reorder
tolerance; adjusting or dropping it leaves that maximum as it was, so the maximum is a plain running maximum. (Only a
reorder of minus one tick differs: there an adjusted event is lifted above all before it.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordering.policies import Action
from ordering.reorder import Steps
from ordering.segments import running_max
from ordering.state import State
from ordering.ticks import NEVER
from ordering.timeline import Timelines

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Walk:
    """The kept events of a batch on their timelines: what each met, and the maximum each left behind."""

    def __init__(self, kept: Ints, timeline: Ints, system_us: Ints, table: Timelines) -> None:
        self.kept, self.timeline, self.system_us = kept, timeline, system_us
        self.adjusted = self.dropped = np.zeros(len(kept), dtype=bool)
        single = len(table) == 1
        self._order: Any = slice(None) if single else np.argsort(timeline, kind="stable")
        ordered = timeline[self._order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.empty(0, dtype=np.int64)
        lengths = np.diff(np.append(first, len(ordered)))
        touched = ordered[first]
        segment = np.repeat(np.arange(len(first)), lengths)
        own = system_us[self._order]
        # A maximum far below anything in this batch compares like one just below it, and keeps the numbers small.
        bottom = int(own.min()) - 2 if len(own) else 0
        previous = np.maximum(table.largest_us[touched], bottom)
        self._previous, self._first, self._lengths = previous, first, lengths
        largest = running_max(_raised(own, first, previous), segment)
        before = np.empty_like(largest)
        before[1:] = largest[:-1]
        before[first] = previous
        self.before = self._unsorted(before)
        self.steps = Steps(segment, np.append(first, len(ordered)), touched, kept[self._order], largest)
        self._bottom = bottom

    def _unsorted(self, column: Ints) -> Ints:
        out = np.empty_like(column)
        out[self._order] = column
        return out

    def judge(self, reorder_us: int, action: Action) -> None:
        """Apply the out-of-order policy: set ``dropped`` or ``adjusted`` and move the adjusted system timestamps."""
        behind = self.system_us < np.maximum(self.before - reorder_us, NEVER)
        if action is Action.DROP:
            self.dropped = behind
        elif reorder_us < 0:
            self.adjusted = self._lift_above_equals()
        else:
            self.adjusted = behind
            self.system_us = np.where(behind, self.before - reorder_us, self.system_us)

    def _lift_above_equals(self) -> Mask:
        """Reorder of minus one tick: move each event above all before it on its timeline; return which were moved."""
        place = np.arange(len(self.timeline)) - np.repeat(self._first, self._lengths)
        own = self.system_us[self._order] - place
        # The k-th event must exceed the maximum before the batch by k + 1 ticks and each earlier one by their distance.
        previous = np.where(self._previous == self._bottom, self._bottom, self._previous + 1)
        largest = running_max(_raised(own, self._first, previous), self.steps.segment) + place
        self.steps.largest_us = largest
        lifted = self._unsorted(largest)
        moved = lifted > self.system_us
        self.system_us = lifted
        return moved

    def store(self, state: State) -> None:
        """Leave the new maxima in the table."""
        if len(self.steps.timeline):
            last = self.steps.starts[1:] - 1
            state.timelines.largest_us[self.steps.timeline] = self.steps.largest_us[last]
            state.touched = np.concatenate([state.touched, self.steps.timeline])


def _raised(own: Ints, first: Ints, previous: Ints) -> Ints:
    raised = own.copy()
    raised[first] = np.maximum(raised[first], previous)
    return raised
