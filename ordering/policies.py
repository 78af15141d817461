"""
Policies: how far an event's time may deviate, and the action if it deviates further.

Every event passes four tests in the offset order of its input partition: early, source CTI, late, out of order (docs/learn/policies.md).
Policies are immutable and checked on construction, so no later code checks them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ordering.errors import SettingError
from ordering.ticks import DAY_US, DURATION_US_MAX, MINUTE_US, SECOND_US, format_duration

# Largest late tolerance, in microseconds.
LATE_US_MAX = 20 * DAY_US
# A record that moves time by more is reported unless a setting says otherwise, microseconds.
JUMP_WARN_US = 10 * MINUTE_US


class Action(StrEnum):
    """The action for an event outside a tolerance: move it to the nearest allowed time, or reject and count it."""

    ADJUST = "adjust"
    DROP = "drop"


class Shape(StrEnum):
    """
    The shape of an event in time: an instant, a span with both ends known, or one end of a span. The system timestamp of an interval is its
    start; that of an edge is its own end of the span. If an interval's end is not after its (adjusted) start, or an end edge not after its
    start edge's adjusted system timestamp, it becomes that start plus one tick.
    """

    POINT = "point"
    INTERVAL = "interval"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Cadence:
    """
    How often CTIs come, and how far behind. Durations are microseconds. SettingError: a number is not positive, the delay is negative, or
    one is too long (ten thousand years).
    """

    every_events: int | None = None
    every_us: int | None = None
    delay_us: int = 0

    def __post_init__(self) -> None:
        for name, value in (("cti_every_events", self.every_events), ("cti_every", self.every_us)):
            if value is not None and not 0 < value <= DURATION_US_MAX:
                raise SettingError(f"{name} must be positive", where=name, fix="give a number above zero, or leave it out")
        if not 0 <= self.delay_us <= DURATION_US_MAX:
            what = "cti_delay must be 0s or more, and below ten thousand years"
            raise SettingError(what, where="cti_delay", fix="give a duration like 5s")


@dataclass(frozen=True, slots=True)
class Generation(Cadence):
    """
    When CTIs are written, and their delay; for a delay of minus one tick use ``reorder_us = -1``.

    Without ``every_events`` and ``every_us`` CTIs are written at the end of each batch that changed something. With one or both, they are
    written after each record that completes the number of accepted events, or moves the watermark that far beyond the last CTI. They are
    always written after an estimate, a source CTI, an imported CTI and the end. End edges count for neither setting.

    Args:
        every_events: A CTI after this many accepted events of the input partition.
        every_us: A CTI whenever the watermark has risen by this much.
        delay_us: How far a CTI stays behind the watermark: ``c = W - delay``. The release of events is not delayed.
        list_substreams: Whether CTIs list the substreams whose watermark is ahead of their released events.
    """

    list_substreams: bool = False

    @property
    def is_per_batch(self) -> bool:
        """Whether CTIs follow batches, and long parts of one, instead of events or time."""
        return self.every_events is None and self.every_us is None


@dataclass(frozen=True, slots=True)
class Policies:
    """
    The time policies of one input. All durations are microseconds.

    Args:
        early_us: An event whose event time exceeds its arrival time by more is early; None switches the test off.
        early_action: ``DROP`` rejects an early event, so that its event time moves no watermark. ``ADJUST`` gives it the latest time
            allowed, arrival + early, which then counts like any other. An early CTI of the source is dropped either way.
        late_us: An event whose arrival time exceeds its event time by more is late. None switches the test and the floor off: a silent
            input then advances no watermark. Not None if timelines are substreams.
        cti_violation_action: The action for an event below a source CTI or an imported CTI. ``ADJUST`` moves the start of an interval, or
            an edge, up to the CTI; a point, or an interval that ends at or before the CTI, is dropped in any case.
        reorder_us: How far below the largest system timestamp of its timeline an event is still reordered unchanged. The only negative
            value is ``-1``: then each point event advances the watermark past itself, and an event equal to the largest is out of order.
        out_of_order_action: The action for an event further below.

    Raises:
        SettingError: A tolerance is negative (except ``reorder_us = -1``), not an integer, or too long (``late_us``: 20 days; others ten
            thousand years), or an action is neither ``adjust`` nor ``drop``.

    An event of 12:00 that arrives at 12:07 is late, by two minutes more than is allowed here. It gets the time 12:02, or is dropped.

    >>> from ordering.testing import log_of, transcript
    >>> log = log_of([("12:00", "12:00", "a"), ("12:00", "12:07", "b")])
    >>> print(transcript(log, Policies(late_us=5 * MINUTE_US)))
       1 12:00 arriving 12:00 a: releases nothing; c = 12:00
       2 12:00 arriving 12:07 b: releases 1 at 12:00; c = 12:02
    held: 2 at 12:02 (late)
    >>> print(transcript(log, Policies(late_us=5 * MINUTE_US, late_action=Action.DROP)))
       1 12:00 arriving 12:00 a: releases nothing; c = 12:00
       2 12:00 arriving 12:07 b: dropped as late; releases 1 at 12:00; c = 12:02
    held: nothing

    Policies are checked where they are made.

    >>> Policies(reorder_us=-2)
    Traceback (most recent call last):
        ...
    ordering.errors.SettingError: TG-SETTING: reorder must not be negative
      where: reorder
      fix: give 0s or more
    """

    early_us: int | None = 5 * MINUTE_US
    late_us: int | None = 5 * SECOND_US
    late_action: Action = Action.ADJUST
    reorder_us: int = 0
    out_of_order_action: Action = Action.ADJUST
    cti_violation_action: Action = Action.ADJUST
    early_action: Action = Action.DROP

    def __post_init__(self) -> None:
        for name in ("early_action", "late_action", "out_of_order_action", "cti_violation_action"):
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
        """Return the policies without TIMESTAMP BY: event time is arrival time, so no event is early, late or out of order."""
        return cls(early_us=None, late_us=0, reorder_us=0)
