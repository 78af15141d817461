"""
The explanation of one event: the action of each policy, the watermark it met and its setter, and the record that released it.

Law: times are those at the event's arrival, and every named record is of the event's input partition. :mod:`ordering.proof.explain` makes
explanations from a log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from ordering.policies import Action
from ordering.protocol.elements import OF_ELEMENTS
from ordering.ticks import NEVER, format_tick

# The name of a partition in explanations: its number, or the user's own name.
Label = str | int | float | bool | None


class Verdict(StrEnum):
    """The fate of a record: an event kept unchanged, adjusted or dropped; no event; or a source CTI."""

    KEPT = "kept"
    ADJUSTED = "adjusted"
    DROPPED = "dropped"
    UNREADABLE = "unreadable"
    SOURCE_CTI = "source_cti"


class Policy(StrEnum):
    """The policies that move or reject an event, in order. ``SHAPE`` moves the end of a span after its start."""

    EARLY = "early"
    CTI_VIOLATION = "cti_violation"
    LATE = "late"
    OUT_OF_ORDER = "out_of_order"
    SHAPE = "shape"


class Mover(StrEnum):
    """The causes of a watermark's rise."""

    # An event of the same timeline, by its system timestamp.
    EVENT = "event"
    # Any record of the input partition, by its arrival.
    ARRIVAL = "arrival"
    ESTIMATE = "estimate"
    SOURCE_CTI = "source_cti"
    IMPORT = "import"
    JOINING = "joining"
    END = "end"


class ShownPlace(int):
    """The place of an element (:mod:`ordering.protocol.elements`), shown as ``offset[index]``."""

    def __str__(self) -> str:
        return OF_ELEMENTS.text(int(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


@dataclass(frozen=True, slots=True)
class TimeCause:
    """
    The cause of a time: *offset* is the record's in the explained event's input partition, the position of an estimate or an imported CTI,
    or None; *time_us* is its system timestamp, arrival time, estimate or CTI.
    """

    mover: Mover
    offset: int | None
    time_us: int

    def as_dict(self) -> dict[str, Any]:
        """Return the mover (as ``what``), the offset and the time as ISO-8601."""
        return {"what": self.mover.value, "offset": _offset(self.offset), "time": _time(self.time_us)}

    def __str__(self) -> str:
        names = {
            Mover.EVENT: f"event {self.offset} (system timestamp {_time(self.time_us)})",
            Mover.ARRIVAL: f"record {self.offset} (arrival {_time(self.time_us)})",
            Mover.ESTIMATE: f"an idle estimate before {self.offset} (arrival {_time(self.time_us)})",
            Mover.SOURCE_CTI: f"the source's CTI {self.offset} ({_time(self.time_us)})",
            Mover.IMPORT: f"a CTI imported before {self.offset} ({_time(self.time_us)})",
            Mover.JOINING: f"the partition's joining at {_time(self.time_us)}",
            Mover.END: "the end of the input",
        }
        return names[self.mover]


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """
    One policy that adjusted or dropped an event. Times are microseconds: the limit is the latest time allowed for ``EARLY``, the earliest
    for all others; ``before_us`` and ``after_us`` are the system timestamp before and after, None if dropped.
    """

    policy: Policy
    action: Action
    limit_us: int
    limit_set_by: TimeCause | None
    before_us: int
    after_us: int | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy.value,
            "action": self.action.value,
            "limit": _time(self.limit_us),
            "limit_set_by": _dict(self.limit_set_by),
            "before": _time(self.before_us),
            "after": _time(self.after_us),
        }

    def __str__(self) -> str:
        side = "after the latest" if self.policy is Policy.EARLY else "before the earliest"
        by = f", set by {self.limit_set_by}" if self.limit_set_by else ""
        test = f"{self.policy.value}: {_time(self.before_us)} lies {side} time allowed, {_time(self.limit_us)}{by}"
        if self.after_us is None:
            return f"{test}; dropped."
        if self.after_us == self.before_us:  # late by its event time, but a CTI had moved it past that limit already
            return f"{self.policy.value}: its event time lies before {_time(self.limit_us)}{by}; it had been moved further already."
        return f"{test}; moved to {_time(self.after_us)}."


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    The fate of one record. Times are microseconds.

    Args:
        partition: The input partition of the record, and of every record named here.
        event_time_us: The event time; the ``c`` of a source CTI; None if unreadable.
        stamped_us: The arrival time as stamped.
        arrival_us: The arrival time used; above ``stamped_us`` if clamped.
        clamped_by: The cause of the clamp; None if not clamped.
        watermark_us: The watermark that the event met; ``NEVER`` if none, None if the event was not compared with it.
        watermark_set_by: The first cause of that watermark; None if there was none.
        steps: Every policy that adjusted it, in order; if it was dropped, the last step dropped it.
        system_us: The final system timestamp; None if not kept.
        end_us: The end of a kept interval, after its system timestamp.
        released_by: The cause of the watermark that released it; None: not kept, or still held.
    """

    partition: Label
    offset: int
    verdict: Verdict
    event_time_us: int | None
    stamped_us: int
    arrival_us: int
    clamped_by: TimeCause | None = None
    watermark_us: int | None = None
    watermark_set_by: TimeCause | None = None
    steps: tuple[PolicyStep, ...] = ()
    system_us: int | None = None
    end_us: int | None = None
    released_by: TimeCause | None = None

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(step.policy.value for step in self.steps)

    def with_places(self) -> Explanation:
        """Return the explanation with its offsets, which are places of elements, shown as such."""
        return replace(
            self,
            offset=ShownPlace(self.offset),
            clamped_by=_shown(self.clamped_by),
            watermark_set_by=_shown(self.watermark_set_by),
            steps=tuple(replace(step, limit_set_by=_shown(step.limit_set_by)) for step in self.steps),
            released_by=_shown(self.released_by),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON: times as ISO-8601, None if there is none."""
        return {
            "partition": self.partition,
            "offset": _offset(self.offset),
            "verdict": self.verdict.value,
            "policies": list(self.policies),
            "event_time": _time(self.event_time_us),
            "arrival": {"stamped": _time(self.stamped_us), "counted": _time(self.arrival_us), "clamped_by": _dict(self.clamped_by)},
            "watermark": {"met": _time(self.watermark_us), "set_by": _dict(self.watermark_set_by)},
            "steps": [step.as_dict() for step in self.steps],
            "system_timestamp": _time(self.system_us),
            "end": _time(self.end_us),
            "released_by": _dict(self.released_by),
        }

    def __str__(self) -> str:
        return " ".join(part for part in (self._head(), self._arrival(), self._watermark(), *map(str, self.steps), self._outcome()) if part)

    def _head(self) -> str:
        where = f"partition {self.partition}, offset {self.offset}"
        if self.verdict is Verdict.UNREADABLE:
            return f"The record at {where} is unreadable: it has no valid event time."
        kind = "CTI of the source" if self.verdict is Verdict.SOURCE_CTI else "event"
        words = {Verdict.KEPT: "kept as it was", Verdict.SOURCE_CTI: "accepted"}
        verdict = words.get(self.verdict, f"{self.verdict.value} ({', '.join(self.policies)})")
        return f"The {kind} at {where}, of {_time(self.event_time_us)}, was {verdict}."

    def _arrival(self) -> str:
        if self.arrival_us <= NEVER:
            return ""
        if self.clamped_by is None:
            return f"It arrived at {_time(self.arrival_us)}."
        return f"It arrived at {_time(self.stamped_us)}, which counts as {_time(self.arrival_us)} because of {self.clamped_by}."

    def _watermark(self) -> str:
        if self.watermark_us is None:
            return ""
        if self.watermark_set_by is None:
            return "It met no watermark."
        return f"It met the watermark {_time(self.watermark_us)}, set by {self.watermark_set_by}."

    def _outcome(self) -> str:
        if self.system_us is None:
            return ""
        span = f", with its end at {_time(self.end_us)}," if self.end_us is not None else ""
        fate = f"was released by {self.released_by}" if self.released_by else "is still held"
        return f"With the system timestamp {_time(self.system_us)}{span} it {fate}."


@lru_cache(maxsize=1_024)  # an explanation names the same few times again and again
def _time(time_us: int | None) -> str | None:
    return None if time_us is None or time_us <= NEVER else format_tick(time_us)


def _dict(setter: TimeCause | None) -> dict[str, Any] | None:
    return setter.as_dict() if setter else None


def _shown(cause: TimeCause | None) -> TimeCause | None:
    return cause if cause is None or cause.offset is None else replace(cause, offset=ShownPlace(cause.offset))


def _offset(offset: int | None) -> int | str | None:
    return str(offset) if isinstance(offset, ShownPlace) else offset
