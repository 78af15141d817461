"""
Records that move time further than ``watermark_jump_warn``: jobs log each cause once for an input partition, commands on files tell of
each in their summary, and both count.

Law: nothing here changes an event. With the default policies no record puts time so far ahead: ``early`` and ``arrival_max_ahead`` are
smaller than the bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from ordering.arrays import Ints
from ordering.model.step import Batch, Released
from ordering.policies import Action, Policies
from ordering.protocol.wire import Flag
from ordering.ticks import NEVER, SECOND_US, format_duration


class JumpCause(StrEnum):
    """
    How a record moves time: by its event time, by its arrival, or (shown by this record) by the arrival of an earlier one. ``MOVED`` is for
    files without arrivals: shown by this event, an earlier event of its timeline has moved time.
    """

    EVENT = "event_time"
    ARRIVAL = "arrival"
    BEHIND = "arrival_behind"
    MOVED = "event_behind"


EFFECTS = {
    JumpCause.EVENT: "an event's time is far ahead of its arrival: later events of its timeline are out of order until time has caught up",
    JumpCause.ARRIVAL: "a record is stamped far ahead of the clock: later events are late until the clock has caught up",
    JumpCause.BEHIND: "a record is stamped far behind an earlier one: it counts as arrived with that one, and its event as late",
    JumpCause.MOVED: "it lies far behind an earlier event of its timeline, and counts as out of order",
}

_FIXES = {
    JumpCause.EVENT: "give --early how far event times may really lie ahead of their arrival",
    JumpCause.ARRIVAL: "correct the stamp, or take the record out",
    JumpCause.MOVED: "if the earlier event's time is wrong, correct it; if the file is not in order of time, raise --reorder",
    JumpCause.BEHIND: "sort the file by arrival, name the field with the arrival (--arrival), or its partitions",
}


@dataclass(frozen=True, slots=True)
class TimeJump:
    """A jump of time in one batch."""

    cause: JumpCause
    # The offset of the first record that moves time too far.
    offset: int
    # How far that record moves time, microseconds.
    by_us: int
    # How many records of the batch move time too far.
    count: int

    @property
    def in_words(self) -> str:
        """The duration in whole seconds."""
        return _in_words(self.by_us)


def find_time_jumps(batch: Batch, policies: Policies, frontier_us: int, clock_us: Ints | int | None, bound_us: int) -> Iterator[TimeJump]:
    """
    Yield for each cause the jumps of *batch* beyond *bound_us*.

    Args:
        frontier_us: The arrival frontier before the batch.
        clock_us: The latest time at which records may have been stamped, for each or for all; None: stamps are not judged.
    """
    if not len(batch.offset):
        return
    jumps = {
        JumpCause.EVENT: _ahead_of_arrival(batch, policies, bound_us),
        JumpCause.ARRIVAL: None if clock_us is None else batch.arrival_us - clock_us,
        JumpCause.BEHIND: np.maximum(np.maximum.accumulate(batch.arrival_us), frontier_us) - batch.arrival_us,
    }
    for cause, by_us in jumps.items():
        if by_us is None:
            continue
        rows = np.flatnonzero(by_us > bound_us)
        if len(rows):
            yield TimeJump(cause, int(batch.offset[rows[0]]), int(by_us[rows[0]]), len(rows))


def find_moved_events(released: Released, bound_us: int) -> Iterator[TimeJump]:
    """Yield a jump if events were out of order by more than *bound_us*, with the first of *released*. For files without arrivals."""
    by_us = released.system_us - released.event_time_us
    rows = np.flatnonzero((by_us > bound_us) & (released.flags & np.uint16(Flag.OUT_OF_ORDER) > 0))
    if len(rows):
        yield TimeJump(JumpCause.MOVED, int(released.offset[rows[0]]), int(by_us[rows[0]]), len(rows))


@dataclass(slots=True)
class JumpsByCause:
    """The jumps of a file: by cause how many records moved time too far, and the first of them with the partition that it is of."""

    counts: Counter[JumpCause] = field(default_factory=Counter)
    first: dict[JumpCause, tuple[str, TimeJump]] = field(default_factory=dict)

    def add(self, partition: str, jumps: Iterable[TimeJump]) -> None:
        for jump in jumps:
            self.counts[jump.cause] += jump.count
            self.first.setdefault(jump.cause, (partition, jump))

    def as_dict(self) -> dict[str, Any]:
        """Return for each cause the count, and of the first record its partition, its line and how far it moves time, microseconds."""
        return {
            cause.value: {"count": self.counts[cause], "partition": partition, "line": jump.offset, "by_us": jump.by_us}
            for cause, (partition, jump) in self.first.items()
        }


def describe_file_jumps(jumps: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence about each cause of :meth:`JumpsByCause.as_dict`: the record, and the fix."""
    for name, found in jumps.items():
        cause = JumpCause(name)
        others = f", and {found['count'] - 1:,} more" if found["count"] > 1 else ""
        place = f"line {found['line']} of partition {found['partition']}"
        yield f"time jump: {place} moves time by {_in_words(found['by_us'])}{others}: {EFFECTS[cause]}; {_FIXES[cause]}"


def _in_words(by_us: int) -> str:
    return format_duration(by_us // SECOND_US * SECOND_US) if by_us >= SECOND_US else format_duration(by_us)


def _ahead_of_arrival(batch: Batch, policies: Policies, bound_us: int) -> Ints | None:
    """Return how far each accepted time puts the watermark ahead of its record's arrival; None if ``early`` allows no jump."""
    if batch.event_time_us is None or (policies.early_us is not None and policies.early_us <= bound_us):
        return None
    time_us, is_usable = batch.event_time_us, batch.readable
    if batch.source_cti_us is not None:
        is_cti = batch.source_cti_us > NEVER
        time_us, is_usable = np.where(is_cti, batch.source_cti_us, time_us), is_usable | is_cti
    early_by_us = np.where(is_usable, time_us, batch.arrival_us) - batch.arrival_us
    if policies.early_us is None:
        return early_by_us - policies.reorder_us
    # An early event is dropped, or moved back to the latest time allowed; an early CTI is dropped in any case.
    is_moved = np.zeros_like(batch.readable) if policies.early_action is Action.DROP else batch.readable
    early_by_us = np.where(is_moved, np.minimum(early_by_us, policies.early_us), early_by_us)
    return np.where(early_by_us <= policies.early_us, early_by_us - policies.reorder_us, 0)
