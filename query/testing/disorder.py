"""
The events of a query under test, drawn: fields as in the user's examples, at times that are as bad as a log's can be.

Times rise with ties, gaps from a fraction of the query's windows to several of them (silence), and events that come late. Each field has
the values that the examples have, or others of their kind: a number that rounds, the same text with another ending.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ordering.ticks import SECOND_US, format_tick, parse_tick
from query.local.inputs import ARRIVAL, PARTITION
from query.plan.nodes import Scan
from query.testing.input_files import Row
from tidegate.language.expressions.tree import Field

START_US = parse_tick("2026-01-01T00:00:00Z")
EVENTS_MAX = 12
_FLOATS = (0.1, 0.2, 0.7, 1e16, -1e16, 3.3)


def draw_events(chance: random.Random, scan: Scan, examples: Sequence[Row], reach_us: int) -> list[dict[str, Any]]:
    """Draw the events of an input, in the order in which they come; *reach_us*: how long events count, microseconds."""
    unit_us = max(reach_us // 4, SECOND_US)
    gaps_us = (unit_us // 3 // 1000 * 1000, 0, 0, unit_us, 3 * unit_us, 11 * unit_us)
    lateness_us = (0, 0, unit_us // 2 // 1000 * 1000, 2 * unit_us)
    values = _values(examples)
    timed = [part for part in scan.timestamp_by.walk() if isinstance(part, Field)] if scan.timestamp_by is not None else []
    arrival_us, rows = START_US, []
    for _ in range(chance.randint(1, EVENTS_MAX)):
        arrival_us += chance.choice(gaps_us)
        event_us = arrival_us - chance.choice(lateness_us)
        drawn = {name: chance.choice(of_field) for name, of_field in values.items()}
        row = {name: value for name, value in drawn.items() if value is not _ABSENT}
        for field in timed:
            _set(row, field.path, format_tick(event_us))
        rows.append({**row, ARRIVAL: format_tick(arrival_us), PARTITION: chance.randint(0, 1)})
    return rows


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _values(examples: Sequence[Row]) -> Mapping[str, list[Any]]:
    names = dict.fromkeys(name for row in examples for name in row if name not in (ARRIVAL, PARTITION))
    return {name: _like([row.get(name, _ABSENT) for row in examples]) for name in names}


def _like(seen: Sequence[Any]) -> list[Any]:
    values = [value for place, value in enumerate(seen) if not any(value is other for other in seen[:place])]
    if any(isinstance(value, float) for value in values):
        values += _FLOATS
    elif any(isinstance(value, int) and not isinstance(value, bool) for value in values):
        values += [value + 1 for value in values if isinstance(value, int)] + [0, 7]
    texts = [value for value in values if isinstance(value, str)]
    return values + [f"{texts[0]}{ending}" for ending in ("1", "2", "3")] if texts else values


def _set(row: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        inner = row.get(name)
        row[name] = row = dict(inner) if isinstance(inner, Mapping) else {}
    row[path[-1]] = value
