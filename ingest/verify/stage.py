"""
The verification of an ordered topic as a stage of a larger one, and what is said of it as JSON and as text.

Law: a stage is equal if every standing event is the computed one, every due event stands, and no promise of a CTI is broken. Its notes say
what was not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ingest.replay.plan import Replay
from ingest.verify.ordered import OrderedCheck, OrderedVerifier
from ordering.ticks import NEVER, format_tick
from tidegate.ordered_topic.compare.difference import Difference, Event, format_field
from tidegate.ordered_topic.compare.sides import describe_since
from tidegate.ordered_topic.compare.strange_records import strange_dict, strange_lines


@dataclass
class OrderedStage:
    """The verification of an ordered topic; *notes* say what is not checked."""

    name: str
    topic: str
    replay: Replay
    since_us: int | None
    # None: the topic is taken as it stands.
    verifier: OrderedVerifier | None = None
    check: OrderedCheck | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.check is None or self.check.is_equal

    @property
    def vouched_from_us(self) -> int | None:
        """The instant from which on its events follow from the raw topics, microseconds; None: not known, ``NEVER``: all do."""
        return None if self.verifier is None else NEVER if self.since_us is None else self.since_us

    def as_dict(self) -> dict[str, Any]:
        """Return what was found, for ``--format json``."""
        return _ordered_dict(self)

    def as_lines(self) -> Iterator[str]:
        """Yield what was found as lines of text."""
        return _ordered_lines(self)


def _ordered_dict(stage: OrderedStage) -> dict[str, Any]:
    check = stage.check
    fields: dict[str, Any] = {
        "kind": "ordered topic",
        "name": stage.name,
        "topic": stage.topic,
        "topic_id": stage.replay.ordered.topic_id,
        "vouched_from": describe_since(stage.vouched_from_us),
        "settings": dict(stage.replay.fingerprint),
        "notes": stage.notes,
    }
    if check is None:
        return {**fields, "checked": False, "differences": [], "broken": []}
    return {
        **fields,
        "checked": True,
        "events": check.events,
        "ahead": check.ahead,
        "duplicates": check.duplicates,
        **strange_dict(check.summaries),
        "unusable": dict(sorted(check.unusable.items())),
        "until": None if check.largest_us == NEVER else format_tick(check.largest_us),
        "differences": [_event_difference_dict(stage, difference) for difference in check.differences],
        "broken": [promise.as_dict(stage.topic) for promise in check.broken],
    }


def _event_difference_dict(stage: OrderedStage, difference: Difference) -> dict[str, Any]:
    def raw(number: int, offset: int) -> str:
        return raw_place(stage, number, offset)

    fields = difference.as_dict(raw)
    return {
        "partition": difference.partition,
        "channel": difference.number,
        "equal_before": difference.index,
        "kind": _event_kind(difference),
        "fields": fields["fields"],
        "found": fields["a"],
        "expected": fields["b"],
    }


def _event_kind(difference: Difference) -> str:
    kinds = {"missing in A": "missing", "missing in B": "extra", "swapped": "moved", "fields": "changed"}
    if difference.kind == "ended":
        return "missing" if difference.a is None else "extra"
    return kinds.get(difference.kind, difference.kind)


def raw_place(stage: OrderedStage, number: int, offset: int) -> str:
    """Return the place of a raw record by the roster number of its partition."""
    partitions = stage.replay.plan.partitions
    if number >= len(partitions):
        return f"input partition {number} @{offset}"
    topic, partition = partitions[number]
    return f"{topic}-{partition}@{stage.replay.plan.settings.places.text(offset)}"


def _ordered_lines(stage: OrderedStage) -> Iterator[str]:
    check, reads = stage.check, ", ".join(sorted({topic for topic, _ in stage.replay.plan.partitions}))
    if check is None:
        yield f"ordered topic {stage.topic}: not checked"
        return
    until = "" if check.largest_us == NEVER else f" until {format_tick(check.largest_us)}"
    state = "as computed" if check.is_equal else "are as computed, and then they differ"
    ahead = f"; {check.ahead:,} more are due later" if check.ahead else ""
    yield f"ordered topic {stage.topic} from {reads}: {check.events:,} events {state}{until}{ahead}"
    for difference in check.differences:
        yield from _event_lines(stage, difference)
    yield from (f"  broken promise at {stage.topic}-{each.partition}@{each.log_offset}: {each.description}" for each in check.broken)
    yield from (f"  {line}" for line in strange_lines(check.summaries))


def _event_lines(stage: OrderedStage, difference: Difference) -> Iterator[str]:
    names = ", ".join(difference.as_dict(lambda *_: "")["fields"]) if difference.kind == "fields" else ""
    what = f"{_event_kind(difference)}{f' ({names})' if names else ''}"
    yield f"  channel {difference.number} -> partition {difference.partition}, after {difference.index:,} equal events: {what}"
    for label, event, other in (("found", difference.a, difference.b), ("expected", difference.b, difference.a)):
        yield f"    {label}: {'nothing' if event is None else _event_text(stage, difference, event, other)}"


def _event_text(stage: OrderedStage, difference: Difference, event: Event, other: Event | None) -> str:
    place = f" at {stage.topic}-{difference.partition}@{event.log_offset}" if event is difference.a else ""
    shown = difference.names if difference.kind == "fields" else ("system_us", "value")
    values = [f"{name} = {format_field(name, event.fields[name], None if other is None else other.fields[name])}" for name in shown]
    return f"raw record {raw_place(stage, difference.number, event.origin)}{place}: {'; '.join(values)}"
