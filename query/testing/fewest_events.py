"""
A failure of the law with the fewest events: groups of them are taken away, half of them at first, as long as the difference stays.

Law: of the events that are left none can be taken away, unless time ran out; each disturbance is tried at every place, since places move
with the events. Times of events stay, so what is left is a part of the log that failed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from query.testing.disturbance import Disturbance
from query.testing.input_files import Row
from query.testing.trial import open_trial
from query.testing.user_query import UserQuery


@dataclass(frozen=True)
class BrokenRun:
    """A log whose results differ: what differed, and after which disturbance."""

    rows: Mapping[str, Sequence[Row]]
    sentence: str
    disturbance: Disturbance


def shrink(query: UserQuery, failure: BrokenRun, limit_s: float) -> BrokenRun:
    """Return the failure with the fewest events that are found in *limit_s*."""
    until_s = time.monotonic() + limit_s
    size = _count(failure) // 2
    while size and time.monotonic() < until_s:
        start = 0
        while start < _count(failure) and time.monotonic() < until_s:
            less = _without(failure.rows, start, start + size)
            smaller = _fail_again(query, less, failure.disturbance) if any(less.values()) else None
            if smaller is None:
                start += size
            else:
                failure = smaller
        # After single events were taken away, one that was needed before may not be needed any more.
        size = min(size // 2, _count(failure) // 2) if size > 1 else 0
    return failure


def _fail_again(query: UserQuery, rows: Mapping[str, Sequence[Row]], disturbance: Disturbance) -> BrokenRun | None:
    with open_trial(query, rows) as trial:
        for nearby in disturbance.nearby(sum(map(len, rows.values()))):
            if (sentence := trial.differ(nearby)) is not None:
                return BrokenRun(rows, sentence, nearby)
    return None


def _count(failure: BrokenRun) -> int:
    return sum(map(len, failure.rows.values()))


def _without(rows: Mapping[str, Sequence[Row]], first: int, end: int) -> dict[str, list[Row]]:
    """Take away the events numbered from *first* up to *end*, counted through all inputs."""
    left: dict[str, list[Row]] = {}
    number = 0
    for name, events in rows.items():
        left[name] = [row for place, row in enumerate(events, number) if not first <= place < end]
        number += len(events)
    return left
