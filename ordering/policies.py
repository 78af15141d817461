"""
Policies: how far an event may stray in time, and what is done to one that strays further.

Four tests are applied to every event in the offset order of its input partition: early, source CTI, late, out of
order (spec section 2). The values here are frozen and checked on construction, so no later code asks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ordering.errors import SettingError
from ordering.ticks import DAY_US, DURATION_US_MAX, MINUTE_US, SECOND_US, format_duration

# Largest late tolerance (spec section 2), in microseconds.
LATE_US_MAX = 20 * DAY_US


class Action(StrEnum):
    """What happens to an event outside a tolerance: moved to the nearest allowed time, or rejected and counted."""

    ADJUST = "adjust"
    DROP = "drop"


class Shape(StrEnum):
    """
    What an event is in time: an instant, a span with both ends known, or one end of a span.

    An interval's system timestamp is its start, an edge's its own end of the span. An interval's end that is not after its
    (adjusted) start, and an end edge that is not after its start edge's adjusted system timestamp, become that start plus
    one tick (spec section 4).
    """

    POINT = "point"
    INTERVAL = "interval"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Generation:
    """
    When CTIs are written, and what they say (spec section 4). Durations are microseconds.

    Without ``every_events`` and ``every_us``: at the end of each batch that changed something. With one or both of them
    instead: at each record that completes so many accepted events, or carries the watermark so far past the last CTI; and
    always after an idle estimate, a CTI of the source, an imported one and the end. End edges count for neither.

    Args:
        every_events: A CTI after this many accepted events of the input partition.
        every_us: A CTI whenever application time has advanced this far.
        delay_us: How far a CTI stays behind the watermark: ``c = W - delay``. Release does not wait for it.
        list_substreams: Whether CTIs list the substreams whose watermark is ahead of what their released events show.

    Raises:
        SettingError: A number is not positive, or the delay is negative (a negative delay of one tick is ``reorder_us = -1``).
    """

    every_events: int | None = None
    every_us: int | None = None
    delay_us: int = 0
    list_substreams: bool = False

    def __post_init__(self) -> None:
        for name, value in (("cti_every_events", self.every_events), ("cti_every", self.every_us)):
            if value is not None and not 0 < value <= DURATION_US_MAX:
                raise SettingError(f"{name} must be positive", where=name, fix="give a number above zero, or leave it out")
        if not 0 <= self.delay_us <= DURATION_US_MAX:
            raise SettingError(
                "cti_delay must be 0s or more, and below ten thousand years", where="cti_delay", fix="give a duration like 5s"
            )

    @property
    def is_per_batch(self) -> bool:
        """Whether CTIs follow batches, not events."""
        return self.every_events is None and self.every_us is None


@dataclass(frozen=True, slots=True)
class Policies:
    """
    The time policies of one input. All durations are microseconds.

    Args:
        early_us: An event whose event time exceeds its arrival by more than this is dropped; None switches the test off.
        late_us: An event whose arrival exceeds its event time by more than this is late; None switches the test off,
            and with it the floor: silence then advances no time. Must not be None where timelines are substreams.
        late_action: What happens to a late event.
        cti_violation_action: What happens to an event whose time lies before a CTI that its source enqueued or that was
            imported. ``DROP`` rejects it. ``ADJUST`` has an interval or a start edge that reaches past the CTI start at
            it, and an end edge end at it; a point, and an interval wholly before the CTI, are rejected all the same.
        reorder_us: How far below the largest system timestamp of its timeline an event may lie and still be put in
            order unchanged. ``-1`` is the one negative value allowed: a point event is then committed by itself, and
            an equal of the largest is out of order (spec section 4, CTI generation).
        out_of_order_action: What happens to an event further below.

    Raises:
        SettingError: A tolerance is negative (but for ``reorder_us = -1``), no whole number, or too long (``late_us``: 20 days;
            others ten thousand years), or an action is none of ``adjust`` and ``drop``.
    """

    early_us: int | None = 5 * MINUTE_US
    late_us: int | None = 5 * SECOND_US
    late_action: Action = Action.ADJUST
    reorder_us: int = 0
    out_of_order_action: Action = Action.ADJUST
    cti_violation_action: Action = Action.ADJUST

    def __post_init__(self) -> None:
        for name in ("late_action", "out_of_order_action", "cti_violation_action"):
            try:
                object.__setattr__(self, name, Action(getattr(self, name)))
            except ValueError:
                raise SettingError(f"{name} is none of adjust and drop", where=name, fix="write adjust or drop", example="drop") from None
        for name, least_us, most_us in (("early", 0, DURATION_US_MAX), ("late", 0, LATE_US_MAX), ("reorder", -1, DURATION_US_MAX)):
            self._check(name, getattr(self, f"{name}_us"), least_us, most_us)

    @staticmethod
    def _check(name: str, duration_us: int | None, least_us: int, most_us: int) -> None:
        if duration_us is None and name != "reorder":
            return
        if not isinstance(duration_us, int) or isinstance(duration_us, bool):
            fix = "give a whole number of microseconds, as ordering.ticks.parse_duration('5s') does"
            raise SettingError(f"{name}_us is no whole number of microseconds", where=name, fix=fix, example="5_000_000")
        if duration_us < least_us and name != "late":
            raise SettingError(f"{name} must not be negative", where=name, fix="give 0s or more" + (", or off" if name == "early" else ""))
        if not least_us <= duration_us <= most_us:
            until = format_duration(most_us)
            raise SettingError(f"{name} must lie between 0s and {until}", where=name, fix="give a duration in that range, or off")

    @classmethod
    def arrival_order(cls) -> Policies:
        """Without TIMESTAMP BY: event time is arrival time, so nothing is early, late or out of order."""
        return cls(early_us=None, late_us=0, reorder_us=0)
