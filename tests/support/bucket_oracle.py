"""
Queries answered the slow way: the reader's rule one record at a time, every window looked at, nothing but Python.

It shares no code with readers, buckets or the engine. :class:`Walk` is level 2 of the law: it hears one ordered
partition record by record and says, after each, what became final. :func:`merged` is level 3: it knows the set of all
events and no log at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from support.same_value import form

NEVER = -(2**62)
INFINITY = 2**63 - 1

Result = tuple[int, bytes, bytes]
"""System.Timestamp in microseconds, key, value."""


@dataclass(frozen=True)
class Event:
    """An event of an ordered topic: its channel's roster number, its number there, and what it carries."""

    number: int
    seq: int
    system_us: int
    origin: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Promise:
    """As much of a CTI as a query needs: what it promises, its list, its place among its parts, and the rest, to be compared."""

    number: int
    c: int
    n: int
    listed: tuple[tuple[bytes, int], ...] = ()
    part: int = 0
    parts: int = 1
    rest: Any = None


@dataclass(frozen=True)
class SlowPace:
    """A query's own pace: it takes notice of a channel's CTI after so many events, in another span of time, and says less."""

    every_events: int | None = None
    every_us: int | None = None
    delay_us: int = 0

    def passes(self, events: int, noticed_c: int, c: int) -> bool:
        """Tell whether a rise to *c* passes, so many events after *said*."""
        if c == INFINITY or (self.every_events is None and self.every_us is None):
            return True
        if self.every_events is not None and events >= self.every_events:
            return True
        # The spans of windows: (0, every], (every, 2 * every], ...
        return self.every_us is not None and -(-c // self.every_us) != -(-noticed_c // self.every_us)


EVERY_CTI = SlowPace()
"""Each CTI is noticed at once."""


@dataclass(frozen=True)
class Question:
    """
    A query: rows with a true ``w``, grouped by ``k`` and ``g`` in windows, or, without a size, passed on one by one.

    ``size_us`` and ``hop_us`` are microseconds; ``over`` tells whether time advances along ``k``.
    """

    over: bool
    size_us: int = 0
    hop_us: int = 0

    @property
    def input(self) -> str:
        """What it reads."""
        return "keyed" if self.over else "arrivals"

    @property
    def sql(self) -> str:
        """The same question for the engine."""
        source = f"{self.input} TIMESTAMP BY t OVER k" if self.over else self.input
        if not self.size_us:
            return f"SELECT k, v, System.Timestamp() AS at FROM {source} WHERE w = 1"
        window = f"HoppingWindow(Duration(mcs, {self.size_us}), Hop(mcs, {self.hop_us}))"
        totals = "COUNT(*) AS n, SUM(v) AS s, AVG(v) AS a, MIN(v) AS lo, MAX(v) AS hi"
        return f"SELECT k, g, System.Timestamp() AS at, {totals} FROM {source} WHERE w = 1 GROUP BY k, g, {window}"

    def ends(self, system_us: int) -> Iterable[int]:
        """The instants of the results that an event counts for."""
        if not self.size_us:
            return (system_us,)
        return (end for end in range(system_us, system_us + self.size_us) if end % self.hop_us == 0)

    def counts(self, event: Event) -> bool:
        """Tell whether an event passes WHERE and can be evaluated."""
        payload = parsed(event.value)
        return isinstance(payload, dict) and is_one(payload.get("w")) and not self.is_bad(event)

    def is_bad(self, event: Event) -> bool:
        """Tell whether an event is a dead letter: no object, a condition or (where it counts) a sum over text."""
        payload = parsed(event.value)
        if not isinstance(payload, dict):
            return True
        return bool(self.size_us) and is_one(payload.get("w")) and isinstance(payload.get("v"), str)

    def at(self, end: int, events: Sequence[Event]) -> list[Result]:
        """The results at one instant out of *events*, which stand in their order, in the fixed order of rows."""
        if not self.size_us:
            return [self._passed(event) for event in events if event.system_us == end and self.counts(event)]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for event in events:
            if end - self.size_us < event.system_us <= end and self.counts(event):
                payload = parsed(event.value)
                groups.setdefault((*by_kind(form(payload.get("k"))), *by_kind(form(payload.get("g")))), []).append(payload)
        rows = [(self._key(events[0], payloads[0]), group, value_of(end, payloads)) for group, payloads in groups.items()]
        return [(end, key, value) for key, _, value in sorted(rows)]

    def _key(self, event: Event, payload: dict[str, Any]) -> bytes:
        """The result's key; with OVER all events here are of one substream."""
        return event.key if self.over else text_of([form(payload.get("k")), form(payload.get("g"))])

    def _passed(self, event: Event) -> Result:
        payload = parsed(event.value)
        row = {"k": payload.get("k"), "v": payload.get("v"), "at": iso(event.system_us)}
        return event.system_us, event.key if self.over else b"", text_of(row)


@dataclass
class Channel:
    """
    One channel, heard record by record from its beginning by the reader's rule, at a query's pace.

    ``c`` is what its CTIs say, ``said`` as much of it as the query has noticed, ``events`` how many came since.
    """

    pace: SlowPace = EVERY_CTI
    last: int = -1
    c: int = NEVER
    noticed_c: int = NEVER
    events: int = 0
    _waiting: list[Promise] = field(default_factory=list)
    _parts: list[Promise] = field(default_factory=list)

    def accept_record(self, record: Event | Promise) -> tuple[bool, list[tuple[bytes, int]]]:
        """Take the next record; tell whether it is an event that is accepted, and what lists now say."""
        accepted = isinstance(record, Event) and record.seq == self.last + 1
        if accepted:
            self.last, self.events = self.last + 1, self.events + 1
        if isinstance(record, Promise):
            self._gather(record)
        met = [promise for promise in self._waiting if promise.n <= self.last + 1]
        self._waiting = [promise for promise in self._waiting if promise.n > self.last + 1]
        before, self.c = self.c, max([self.c, *(promise.c for promise in met)])
        behind = self.c if self.c == INFINITY else self.c - self.pace.delay_us
        if self.c > before and self.pace.passes(self.events, self.noticed_c, behind):
            self.noticed_c, self.events = behind, 0
        return accepted, [entry for promise in met for entry in promise.listed]

    def _gather(self, promise: Promise) -> None:
        """A CTI counts with its last part; its list only if all parts stand together."""
        self._parts = [*self._parts, promise] if promise.part else [promise]
        if promise.part < promise.parts - 1:
            return
        whole = [part.part for part in self._parts] == [*range(promise.parts)] and len({part.rest for part in self._parts}) == 1
        listed = tuple(entry for part in self._parts for entry in part.listed) if whole else ()
        self._waiting.append(Promise(promise.number, promise.c, promise.n, listed))
        self._parts = []


@dataclass
class Walk:
    """One ordered partition, heard record by record from its beginning; ``results`` grows as they become final."""

    question: Question
    pace: SlowPace = EVERY_CTI
    results: list[Result] = field(default_factory=list)
    _channels: dict[int, Channel] = field(default_factory=dict)
    _events: dict[tuple[int, bytes], list[Event]] = field(default_factory=dict)
    _progress: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def accept_record(self, record: Event | Promise) -> None:
        """Take the next record."""
        channel = self._channels.setdefault(record.number, Channel(self.pace))
        said = channel.noticed_c
        accepted, listed = channel.accept_record(record)
        if accepted and isinstance(record, Event):
            sub = record.number, record.key
            self._events.setdefault(sub, []).append(record)
            self._progress[sub] = max(self._progress.get(sub, NEVER), said)
            self._move({sub: record.system_us})
        # Event, promise and list count as one record: what they make final is put in one order.
        for key, w in listed:
            if (record.number, key) in self._events:
                self._move({(record.number, key): w})
        self._move({sub: channel.noticed_c for sub in self._events if sub[0] == record.number})
        self.results += sorted_results(self._final)
        self._final = []

    _final: list[tuple[int, Result]] = field(default_factory=list)

    def end(self) -> None:
        """The run ends: everything is final."""
        self._move(dict.fromkeys(self._events, INFINITY))
        self.results += sorted_results(self._final)
        self._final = []

    def _move(self, reached: dict[tuple[int, bytes], int]) -> None:
        for sub, until in reached.items():
            since = self._progress[sub]
            if until > since:
                self._progress[sub] = until
                self._final += [(sub[0], result) for result in answers(self.question, self._events[sub], since, until)]


def sorted_results(final: list[tuple[int, Result]]) -> list[Result]:
    """Order what one record made final: s, key, input partition; rows of equals stay in their order."""
    return [result for _, result in sorted(final, key=lambda each: (each[1][0], each[1][1], each[0]))]


def answers(question: Question, events: Sequence[Event], since: int, until: int) -> list[Result]:
    """All results with since <= System.Timestamp < until out of *events*, instant by instant."""
    ends = {end for event in events for end in question.ends(event.system_us) if since <= end < until}
    return [result for end in sorted(ends) for result in question.at(end, events)]


def merged(question: Question, events: Iterable[Event], until: int) -> list[Result]:
    """Level 3: all results below *until* out of a set of events, without a log."""
    return answers(question, sorted(events, key=lambda event: (event.system_us, event.number, event.origin)), NEVER, until)


def parsed(value: bytes) -> Any:
    """A payload's value; its bytes where it is no JSON."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def is_one(value: Any) -> bool:
    """Whether a payload's ``w`` equals 1 as a number."""
    return isinstance(value, int) and not isinstance(value, bool) and value == 1


def by_kind(value: Any) -> tuple[tuple[bool, Any], ...]:
    """A grouping value in its form, so that values of different kinds are apart, in the fixed order bit, float, bigint, text, NULL."""
    kinds = [
        isinstance(value, bool),
        isinstance(value, float),
        isinstance(value, int) and not isinstance(value, bool),
        isinstance(value, str),
    ]
    return tuple((not is_it, value if is_it else 0) for is_it in kinds)


def key_bytes(value: Any) -> bytes:
    """One grouping value as substream key bytes."""
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def value_of(end: int, payloads: Sequence[dict[str, Any]]) -> bytes:
    """The result of one group in one window."""
    numbers = [payload["v"] for payload in payloads if payload.get("v") is not None]
    total = math.fsum(numbers) if any(isinstance(number, float) for number in numbers) else sum(numbers)
    return text_of(
        {
            "k": form(payloads[0].get("k")),
            "g": form(payloads[0].get("g")),
            "at": iso(end),
            "n": len(payloads),
            "s": total if numbers else None,
            "a": float(sum(map(Fraction, numbers)) / len(numbers)) if numbers else None,
            "lo": min(numbers, key=lambda number: (number, isinstance(number, float)), default=None),
            "hi": max(numbers, key=lambda number: (number, isinstance(number, int)), default=None),
        }
    )


def text_of(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def iso(us: int) -> str:
    """A time as the contract writes it."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    digits = "seconds" if us % 1_000_000 == 0 else "milliseconds" if us % 1_000 == 0 else "microseconds"
    return moment.isoformat(timespec=digits).replace("+00:00", "Z")
