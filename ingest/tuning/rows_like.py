"""
Rows with the disorder of a profile: events with the fields that it names, and a number that only repetitions share.

Law: the rows depend on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.tuning.profile import Profile
from ordering.ticks import format_tick
from ordering.tuning.drawn_events import DrawnEvents, draw_like

ARRIVAL, PARTITION, NUMBER = "EventEnqueuedUtcTime", "PartitionId", "number"
"""The names by which files tell arrival and input partition, and the name of an event's number."""


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A record: when it arrives, in which input partition, its key (None: it has none), and its fields."""

    arrival_us: int
    partition: int
    key: str | None
    fields: dict[str, Any]

    def in_file(self) -> dict[str, Any]:
        """Return the row as a file has it: with arrival and partition."""
        return {**self.fields, ARRIVAL: format_tick(self.arrival_us), PARTITION: self.partition}


def rows_like(
    profile: Profile,
    count: int | None = None,
    *,
    start_us: int,
    seed: int = 0,
    rate_per_s: float | None = None,
    examples: Sequence[Mapping[str, Any]] = (),
) -> Iterator[DrawnRow]:
    """
    Return rows in the order of their arrival.

    Args:
        count: How many; None: as many as were measured.
        start_us: The first arrival, microseconds. On no whole step of the profile's event times, lateness is off by half a step at most.
        rate_per_s: How many come in a second on average; None: as measured.
        examples: Rows whose other fields the events get, one after the other.
    """
    return rows_of(profile, draw_events(profile, count, seed, rate_per_s), start_us, examples)


def draw_events(profile: Profile, count: int | None, seed: int, rate_per_s: float | None) -> DrawnEvents:
    """Return the events of :func:`rows_like` without their fields."""
    return draw_like(profile.disorder, profile.disorder.records if count is None else count, seed, rate_per_s)


def rows_of(profile: Profile, drawn: DrawnEvents, start_us: int, examples: Sequence[Mapping[str, Any]]) -> Iterator[DrawnRow]:
    """Yield the rows of drawn events, with what :func:`rows_like` takes."""
    unit_us = profile.disorder.resolution_us
    epoch_us = (start_us + unit_us // 2) // unit_us * unit_us
    columns = (drawn.arrival_us, drawn.event_us, drawn.number, drawn.key, drawn.partition, drawn.is_event)
    for arrival_us, event_us, number, key, partition, is_event in zip(*(column.tolist() for column in columns), strict=True):
        fields = dict(examples[number % len(examples)]) if examples else {}
        _set(fields, profile.timestamp_by, format_tick(epoch_us + event_us) if is_event else None)
        name = drawn.key_names[key] if profile.over is not None else None
        if profile.over is not None:
            _set(fields, profile.over, name)
        fields[NUMBER] = number
        yield DrawnRow(start_us + arrival_us, partition, name, fields)


def _set(fields: dict[str, Any], path: str, value: Any) -> None:
    *outer, last = path.split(".")
    for name in outer:
        inner = fields.get(name)
        fields[name] = fields = dict(inner) if isinstance(inner, Mapping) else {}
    fields[last] = value
