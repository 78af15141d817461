"""
A second opinion on queries: windows, aggregates and JSON worked out one row at a time, by nothing but Python.

It shares no code with the engine. It knows one query - every aggregate of one field, by one key, over any window - and
answers it by looking at every window and every event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from support.same_value import key_bytes, text

NUMBERS = (int, float)


@dataclass(frozen=True)
class Event:
    """
    An event as the engine gets it: its substream, system timestamp in microseconds, payload as a Python value, and arrival
    in microseconds, None for the system timestamp.
    """

    sub: int
    system_us: int
    payload: Any
    arrival_us: int | None = None

    @property
    def bytes(self) -> bytes:
        """The payload's bytes."""
        return self.payload if isinstance(self.payload, bytes) else json.dumps(self.payload).encode()


@dataclass(frozen=True)
class Shape:
    """A window's size, hop and offset, in microseconds."""

    size_us: int
    hop_us: int
    offset_us: int

    def ends(self, low: int, high: int) -> Iterable[int]:
        """All window ends in [low, high)."""
        return (end for end in range(low, high) if (end - self.offset_us) % self.hop_us == 0)


def iso(us: int) -> str:
    """Write a time as the contract says."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    digits = "seconds" if us % 1_000_000 == 0 else "milliseconds" if us % 1_000 == 0 else "microseconds"
    return moment.isoformat(timespec=digits).replace("+00:00", "Z")


def is_bad(event: Event) -> bool:
    """The query's dead letters: unreadable payloads, and text where SUM wants a number."""
    if not isinstance(event.payload, dict):
        return True
    value = event.payload.get("v")
    return value is not None and (isinstance(value, bool) or not isinstance(value, NUMBERS))


def results(events: Sequence[Event], shape: Shape, low: int, high: int) -> list[tuple[int, int, bytes, bytes]]:
    """(sub, system_us, key, value) of every window with end in [low, high), unordered."""
    found = []
    good = [event for event in events if not is_bad(event)]
    for end in shape.ends(low, high):
        groups: dict[tuple[int, str], list[Any]] = {}
        for event in good:
            if end - shape.size_us < event.system_us <= end:
                key = event.payload.get("k")
                groups.setdefault((event.sub, text(key)), []).append(event.payload.get("v"))
        for (sub, key_text), values in groups.items():
            key = json.loads(key_text)
            found.append((sub, end, key_bytes(key), value_bytes(key, end, values)))
    return found


def exact_sum(numbers: Sequence[Any]) -> float:
    """The float nearest to the true sum."""
    return float(sum(map(Fraction, numbers)))


def value_bytes(key: Any, end: int, values: Sequence[Any]) -> bytes:
    """The result of one group in one window."""
    numbers = [value for value in values if value is not None]
    total = None
    if numbers:
        total = exact_sum(numbers) if any(isinstance(value, float) for value in numbers) else sum(numbers)
    row = {
        "k": key,
        "at": iso(end),
        "n": len(values),
        "c": len(numbers),
        "s": total,
        "a": float(sum(map(Fraction, numbers)) / len(numbers)) if numbers else None,
        "lo": min(numbers, key=lambda value: (value, isinstance(value, float)), default=None),
        "hi": max(numbers, key=lambda value: (value, isinstance(value, int)), default=None),
    }
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()
