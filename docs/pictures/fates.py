"""
What the time model makes of each event of a short log, and the watermark it has after each: the data of a picture.

Law: all of it is said by ``ordering.model.step.Model`` as it walks the log record by record; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ordering.model.step import Model, Reason
from ordering.policies import Policies
from ordering.protocol.wire import Flag
from ordering.testing import Record, batch_of

POLICY_NAMES = {Flag.EARLY: "early", Flag.LATE: "late", Flag.OUT_OF_ORDER: "out of order"}


@dataclass(frozen=True)
class Fate:
    """
    What became of one event.

    Args:
        number: Its offset.
        timeline: Its substream's key; empty without ``OVER``.
        arrival_us, event_us: When it arrived and when it happened, microseconds.
        system_us: The time it carries on, microseconds; None: dropped.
        policies: The policies that adjusted or dropped it.
        left: (number, arrival in microseconds) of the record upon which it was released; None: dropped, or held at the end.
    """

    number: int
    timeline: str
    arrival_us: int
    event_us: int
    system_us: int | None
    policies: tuple[str, ...]
    left: tuple[int, int] | None


@dataclass(frozen=True)
class Walk:
    """A log's fates by number, the numbers released and held in their order, and the watermarks (arrival, W) of each timeline."""

    policies: Policies
    fates: dict[int, Fate]
    released: list[int]
    held: list[int]
    stairs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def walk(log: Sequence[Record], policies: Policies, over: bool) -> Walk:
    """Run the model over *log*, record by record, then end it to learn what is still held."""
    model = Model(policies, over, 1)
    state = model.new_state()
    system: dict[int, tuple[int, int]] = {}
    left: dict[int, tuple[int, int]] = {}
    dropped: dict[int, str] = {}
    for record in log:
        step = model.step(state, batch_of([record], over=over))
        out = step.released
        for offset, system_us, flags in zip(out.offset.tolist(), out.system_us.tolist(), out.flags.tolist(), strict=True):
            system[offset], left[offset] = (system_us, flags), (record.offset, record.arrival_us)
        for offset, reason in zip(step.dropped.offset.tolist(), step.dropped.reason.tolist(), strict=True):
            dropped[offset] = Reason(reason).name.lower().replace("_", " ")
    rest = model.step(state, batch_of([], over=over, end_offset=log[-1].offset + 1, finish=True)).released
    system |= dict(zip(rest.offset.tolist(), zip(rest.system_us.tolist(), rest.flags.tolist(), strict=True), strict=True))
    fates = {record.offset: _fate(record, over, system, dropped, left) for record in log}
    return Walk(policies, fates, list(left), rest.offset.tolist(), _stairs(log, policies, over))


def _fate(
    record: Record, over: bool, system: dict[int, tuple[int, int]], dropped: dict[int, str], left: dict[int, tuple[int, int]]
) -> Fate:
    number, event_us = record.offset, record.event_time_us
    assert event_us is not None, "a picture has no place for an event without a time"
    timeline = record.key.decode() if over else ""
    if number in dropped:
        return Fate(number, timeline, record.arrival_us, event_us, None, (dropped[number],), None)
    system_us, flags = system[number]
    policies = tuple(name for flag, name in POLICY_NAMES.items() if flags & flag)
    return Fate(number, timeline, record.arrival_us, event_us, system_us, policies, left.get(number))


def _stairs(log: Sequence[Record], policies: Policies, over: bool) -> dict[str, list[tuple[int, int]]]:
    """
    Return the watermark of each timeline after each record.

    To a substream a record of another is an arrival and nothing else, as one without a readable time is; so the model of
    one timeline, given the others' records as such, says each substream's watermark.
    """
    keys = list(dict.fromkeys(record.key for record in log)) if over else [b""]
    found = {}
    for key in keys:
        model = Model(policies, over=False, output_partitions=1)
        state, stair = model.new_state(), []
        for record in log:
            heard = record if not over or record.key == key else Record(record.offset, record.arrival_us, None)
            stair += [(record.arrival_us, cti.c) for cti in model.step(state, batch_of([heard])).ctis]
        found[key.decode()] = stair
    return found
