"""
A second opinion on the clocks of places: Python's ``zoneinfo`` over the same files, and cells of local time found by looking.

It shares no code with the engine. A cell ends where the reading of the clock enters another division of its length, and where the clock is
set back by a length or more; that is looked for step by step.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from tidegate.language.time_zones.database import find_zone
from tidegate.language.time_zones.zone import Zone

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Changes of clocks of every kind, each with the step at which they can be seen.
CHANGES = [
    ("Europe/Berlin", "2024-03-31", 15 * MINUTE),  # an hour forward
    ("Europe/Berlin", "2024-10-27", 15 * MINUTE),  # and back
    ("America/New_York", "2024-11-03", 15 * MINUTE),  # at another instant of UTC
    ("America/Sao_Paulo", "2018-02-18", 15 * MINUTE),  # back at midnight, in autumn of the south
    ("America/Sao_Paulo", "2018-11-04", 15 * MINUTE),  # forward at midnight: no 00:00
    ("Australia/Lord_Howe", "2024-04-07", 15 * MINUTE),  # 30 minutes back
    ("Australia/Lord_Howe", "2024-10-06", 15 * MINUTE),
    ("Pacific/Apia", "2011-12-30", 15 * MINUTE),  # a day skipped
    ("Pacific/Kwajalein", "1969-10-01", 15 * MINUTE),  # a day twice
    ("Pacific/Kwajalein", "1993-08-21", 15 * MINUTE),
    ("Asia/Kolkata", "2024-01-01", 15 * MINUTE),  # half an hour, no change
    ("Asia/Kathmandu", "1986-01-01", 15 * MINUTE),  # 15 minutes forward
    ("Pacific/Chatham", "2024-04-07", 15 * MINUTE),  # 45 minutes, an hour back
    ("Antarctica/Troll", "2024-10-27", 15 * MINUTE),  # two hours back
    ("Europe/Dublin", "2024-10-27", 15 * MINUTE),  # winter is the exception there
    ("Africa/Casablanca", "2024-03-10", 15 * MINUTE),
    ("Africa/Monrovia", "1972-01-07", 30 * SECOND),  # 44 minutes and 30 seconds forward
    ("America/Juneau", "1983-10-30", 15 * MINUTE),  # two changes in one
    ("Europe/Berlin", "9998-10-31", 15 * MINUTE),
]


@cache
def naive_zone(name: str) -> ZoneInfo:
    """The zone of Python, read from the same bytes."""
    return ZoneInfo.from_file(io.BytesIO(zone(name).data), key=name)


def zone(name: str) -> Zone:
    """A zone that there is."""
    found = find_zone(name)
    assert found is not None
    return found


def us_of(text: str) -> int:
    """The instant of an ISO text in UTC."""
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def reading_of(name: str, instant_us: int) -> int:
    """What the clock shows, as microseconds since 1970 of the same clock."""
    local = (_EPOCH + timedelta(microseconds=instant_us)).astimezone(naive_zone(name))
    return (local.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def instant_of(name: str, reading_us: int) -> int:
    """The instant at which the clock shows a reading: Python's first of two, and its answer for a skipped one."""
    local = (_EPOCH + timedelta(microseconds=reading_us)).replace(tzinfo=naive_zone(name), fold=0)
    return (local.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def ends_of_cells(name: str, from_us: int, to_us: int, length_us: int, offset_us: int, step_us: int) -> Iterator[int]:
    """The ends of cells in (from, to], both multiples of the step."""
    for instant_us in range(from_us + step_us, to_us + 1, step_us):
        before, after = reading_of(name, instant_us - 1), reading_of(name, instant_us)
        is_other = (before - offset_us) // length_us != (after - offset_us) // length_us
        if is_other or before + 1 - after >= length_us:
            yield instant_us
