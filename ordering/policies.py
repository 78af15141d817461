"""
Policies: how far an event may stray in time, and what is done to one that strays further.

Four tests are applied to every event in the offset order of its input partition: early, source CTI, late, out of
order (spec section 2). The values here are frozen and checked on construction, so no later code asks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ordering.errors import SettingError
from ordering.ticks import DAY_US, MINUTE_US, SECOND_US

LATE_US_MAX = 20 * DAY_US
"""Largest late tolerance (spec section 2), in microseconds."""


class Action(StrEnum):
    """What happens to an event outside a tolerance: moved to the nearest allowed time, or rejected and counted."""

    ADJUST = "adjust"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Policies:
    """
    The time policies of one input. All durations are microseconds.

    Args:
        early_us: An event whose event time exceeds its arrival by more than this is dropped; None switches the test off.
        late_us: An event whose arrival exceeds its event time by more than this is late; None switches the test off,
            and with it the floor: silence then advances no time. Must not be None where timelines are substreams.
        late_action: What happens to a late event.
        reorder_us: How far below the largest system timestamp of its timeline an event may lie and still be put in
            order unchanged. ``-1`` is the one negative value allowed: a point event is then committed by itself, and
            an equal of the largest is out of order (spec section 4, CTI generation).
        out_of_order_action: What happens to an event further below.

    Raises:
        SettingError: A tolerance is negative (but for ``reorder_us = -1``) or ``late_us`` exceeds 20 days.
    """

    early_us: int | None = 5 * MINUTE_US
    late_us: int | None = 5 * SECOND_US
    late_action: Action = Action.ADJUST
    reorder_us: int = 0
    out_of_order_action: Action = Action.ADJUST

    def __post_init__(self) -> None:
        if self.early_us is not None and self.early_us < 0:
            raise SettingError("early must not be negative", where="early", fix="give 0s or more, or off")
        if self.late_us is not None and not 0 <= self.late_us <= LATE_US_MAX:
            raise SettingError("late must lie between 0s and 20d", where="late", fix="give a duration in that range, or off")
        if self.reorder_us < -1:
            raise SettingError("reorder must not be negative", where="reorder", fix="give 0s or more")

    @classmethod
    def arrival_order(cls) -> Policies:
        """Without TIMESTAMP BY: event time is arrival time, so nothing is early, late or out of order."""
        return cls(early_us=None, late_us=0, reorder_us=0)
