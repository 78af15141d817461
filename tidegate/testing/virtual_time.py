"""
Time in a test that goes on only when the test says so: events arrive at its present, and happened earlier if they are late.

Law: nothing reads a clock, so a test gives the same events on every run.
"""

from __future__ import annotations

from typing import Any

from ordering.ticks import format_tick, parse_duration, parse_tick
from query.local.inputs import ARRIVAL


class VirtualTime:
    """The time of a test; it begins on 2026-01-01 and moves by :meth:`advance` alone."""

    def __init__(self, start: str = "2026-01-01T00:00:00Z") -> None:
        self.now_us = parse_tick(start)

    @property
    def now(self) -> str:
        """The present moment as text."""
        return format_tick(self.now_us)

    def advance(self, duration: str) -> str:
        """Let a duration such as ``5s`` pass; return the present moment after it."""
        self.now_us += parse_duration(duration)
        return self.now

    def event(self, timestamp_by: str = "at", late: str = "0s", **fields: Any) -> dict[str, Any]:
        """Return an event that arrives now and happened *late* ago, by its field *timestamp_by*; an input of ``run_query``."""
        return {timestamp_by: format_tick(self.now_us - parse_duration(late)), **fields, ARRIVAL: self.now}
