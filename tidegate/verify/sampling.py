"""
Spans of a long history that are verified instead of all of it: one drawn in each of equal parts, so that none can be known beforehand.

Law: the same seed, extent and number give the same spans.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ordering.ticks import MILLISECOND_US, MINUTE_US
from tidegate.kafka.admin import MAX_TIMESTAMP, Admin
from tidegate.kafka.ranges import RangeReader

# A span covers this share of its part of the history, but no less than a minute.
_SHARE = 0.02
_FIRST_RECORDS = 1_000


def draw_spans(from_us: int, until_us: int, count: int, seed: int) -> list[tuple[int, int]]:
    """Return *count* spans (first instant, instant after the last) between two instants, microseconds; fewer if there is no room."""
    dice = random.Random(seed)
    part_us = max((until_us - from_us) // count, MINUTE_US)
    span_us = min(max(int(part_us * _SHARE), MINUTE_US), part_us)
    parts = range(from_us, max(until_us, from_us + 1), part_us)
    starts = [part + dice.randrange(part_us - span_us + 1) for part in parts][:count]
    # Whole milliseconds: by these Kafka finds records.
    return [(start // MILLISECOND_US * MILLISECOND_US, start // MILLISECOND_US * MILLISECOND_US + span_us) for start in starts]


def find_extent(admin: Admin, kafka: dict[str, str], topic: str, partitions: Sequence[int]) -> tuple[int, int] | None:
    """Return from when to when a topic's records reach by their timestamps, microseconds; None if it has none."""
    places = [(topic, number) for number in partitions]
    newest = [int(offset.timestamp) for offset in admin.offsets(places, MAX_TIMESTAMP).values() if offset.timestamp >= 0]
    starts, ends = admin.starts(places), admin.ends(places)
    oldest = []
    for place in places:
        with RangeReader(kafka, *place) as reader:
            end = min(starts[place] + _FIRST_RECORDS, ends[place])
            oldest += [int(records.timestamp_ms.min()) for records in reader.read(starts[place], end)]
    if not newest or not oldest:
        return None
    return min(oldest) * MILLISECOND_US, (max(newest) + 1) * MILLISECOND_US
