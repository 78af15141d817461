"""
What must hold after every fault, held against the oracle, which hears the raw topic as Kafka holds it and nothing of faults.

- *Same bytes*: by the reader's rule every channel of the ordered topic is a beginning of what the oracle tells; at the end of
  the run it is all of it (law, level 1).
- *Promises*: every CTI in the log, an old driver's too, is true of everything told before and after; those of one driver rise.
- *Nothing is lost or made up*: input = output + dropped by reason + dead-lettered + CTIs of the source, exactly, and each of
  these is what the oracle counts; what is dead-lettered has the bytes and the origin of what could not be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import Message
from support.law_breaches import demand
from support.poison import mistake_in
from support.stack.drawn_logs import Raw, expected, story_of
from support.stack.topics import Channel, Event, Ordered, exists, header, records
from support.story import Story

from ordering.policies import Policies
from ordering.ticks import INFINITY, NEVER

Estimates = Mapping[int, Mapping[int, int]]
"""Input partition -> position -> arrival frontier, microseconds."""
DROPPED = ("early", "cti_violation_dropped", "late_dropped", "out_of_order_dropped")


@dataclass(frozen=True, slots=True)
class Truth:
    """What the oracle tells of a raw topic read to its present end and finished there."""

    topic: str
    logs: list[list[Raw]]
    channels: dict[Channel, list[Event]]
    stories: list[Story]

    @property
    def records(self) -> int:
        """How many records the raw topic holds."""
        return sum(map(len, self.logs))

    @property
    def unreadable(self) -> dict[str, Raw]:
        """What belongs into the dead-letter topic, by origin."""
        bad = ((partition, offset, raw) for partition, log in enumerate(self.logs) for offset, raw in enumerate(log) if raw.reason)
        return {f"{self.topic}-{partition}@{offset}": raw for partition, offset, raw in bad}

    def counts(self) -> Counter[str]:
        """What a job that heard everything has counted."""
        counts: Counter[str] = Counter()
        for story in self.stories:
            counts.update(story.counts)
            counts["released"] += len(story.ordered)
        return counts


def truth_of(
    topic: str, logs: list[list[Raw]], policies: Policies, outputs: int, *, over: bool, estimates: Estimates, **told: Any
) -> Truth:
    """Let the oracle tell what must come out; *told* is what else it must know, by name."""
    channels = expected(logs, policies, outputs, over=over, estimates=estimates, finish=True)
    stories = [
        story_of(log, policies, number, outputs, over=over, finish=True, estimates=estimates.get(number, {}), **told)
        for number, log in enumerate(logs)
    ]
    return Truth(topic, logs, channels, stories)


def check_bytes(found: Ordered, truth: Truth, whole: bool) -> None:
    """Every channel is a beginning of what the oracle tells, with *whole* all of it."""
    for channel, events in found.events.items():
        told = truth.channels.get(channel, [])
        for place, (one, other) in enumerate(zip(events, told, strict=False)):
            demand(one == other, "same bytes", f"channel {channel} at {place}: {_short(one)}, the oracle tells {_short(other)}")
        demand(len(events) <= len(told), "nothing is made up", f"channel {channel} has {len(events)} events, the oracle tells {len(told)}")
    for channel, told in truth.channels.items() if whole else ():
        accepted = len(found.events.get(channel, []))
        demand(accepted == len(told), "nothing is lost", f"channel {channel} has {accepted} events, the oracle tells {len(told)}")


def _short(event: Event) -> str:
    return str(event if event.value is None or len(event.value) < 300 else event._replace(value=event.value[:100] + b"..."))


def check_promises(found: Ordered, truth: Truth, rising: bool) -> int:
    """
    Every CTI is true; with *rising* they rise in the log too. Return how many stand below one before them.

    An old driver's CTI may come after newer ones: readers take the largest, so it is harmless, and no less true.
    """
    stale = 0
    for channel, ctis in found.ctis.items():
        system_us = np.array([event.system_us for event in truth.channels.get(channel, [])], dtype=np.int64)
        later_us = np.minimum.accumulate(np.append(system_us, INFINITY)[::-1])[::-1]
        before = (NEVER, 0)
        for cti, accepted in ctis:
            where = f"channel {channel}: CTI with c = {cti.c}, n = {cti.n}, next offset {cti.next_offset}"
            demand(cti.n <= len(system_us), "CTI promises", f"{where} counts events that never come")
            demand(accepted >= cti.n, "CTIs wait", f"{where} stands before an event it counts")
            demand(int(later_us[cti.n]) >= cti.c, "CTI promises", f"{where} is belied by a later event")
            ahead = int(np.count_nonzero(system_us[: cti.n] >= cti.c))
            demand(cti.ahead == ahead, "CTI fields", f"{where} says ahead = {cti.ahead}, not {ahead}")
            falls = (cti.c, cti.n) < before
            demand(not (falls and rising), "CTIs only rise", f"{where} after {before}")
            stale += falls
            before = max(before, (cti.c, cti.n))
    return stale


def read_dead_letters(bootstrap: str, topic: str) -> list[Message]:
    """Return what stands in a dead-letter topic."""
    return list(records(bootstrap, topic)) if exists(bootstrap, topic) else []


def check_dead_letters(found: Iterable[Message], truth: Truth, whole: bool) -> None:
    """What was dead-lettered could not be read, bytes and all; with *whole* nothing unreadable is missing."""
    met: set[str] = set()
    unreadable = truth.unreadable
    for message in found:
        origin = header(message, "origin").decode()
        raw = unreadable.get(origin)
        demand(raw is not None, "nothing is made up", f"{origin} was dead-lettered but can be read: {message.headers()}")
        assert raw is not None
        same = header(message, "reason").decode() == raw.reason and not mistake_in(message, raw.key, raw.value)
        demand(same, "same bytes", f"{origin} was dead-lettered with other bytes or another reason than {raw.reason}: {message.headers()}")
        met.add(origin)
    missing = unreadable.keys() - met if whole else ()
    demand(not missing, "nothing is lost", f"not dead-lettered: {sorted(missing)[:5]}")


def check_accounts(summary: Mapping[str, Any], truth: Truth) -> None:
    """Input = output + dropped by reason + dead-lettered + CTIs of the source, and each is what the oracle counts."""
    counts = truth.counts()
    for name in ("released", "early", "late_adjusted", "out_of_order_adjusted", "source_ctis", *DROPPED[1:]):
        demand(summary.get(name, 0) == counts[name], "counts", f"{name} is {summary.get(name, 0)}, the oracle counts {counts[name]}")
    reasons = Counter(raw.reason for log in truth.logs for raw in log if raw.reason)
    for reason, count in reasons.items():
        told = summary.get(f"dead_letter_{reason}", 0)
        demand(told == count, "counts", f"dead_letter_{reason} is {told}, the raw topic holds {count}")
    gone = sum(summary.get(name, 0) for name in DROPPED) + reasons.total() + summary.get("source_ctis", 0)
    out = summary["released"]
    demand(truth.records == out + gone, "accounts", f"{truth.records} records in, {out} + {gone} accounted for")


def first_difference(one: Sequence[Event], other: Sequence[Event]) -> str:
    """Say where two sequences part."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f"at {place}: {_short(left)} against {_short(right)}"
    return f"{len(one)} events against {len(other)}"
