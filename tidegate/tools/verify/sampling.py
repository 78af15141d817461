"""
The short spans that ``tidegate verify --sample`` checks instead of the whole history.

Law: the history is divided into equal parts, and one span is drawn in each, so nobody knows beforehand which results are checked. The same
seed, extent and number give the same spans.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ordering.ticks import MILLISECOND_US, MINUTE_US
from tidegate.platform.kafka.admin import MAX_TIMESTAMP, Admin
from tidegate.platform.kafka.ranges import RangeReader

# A span covers this share of its part of the history, but no less than a minute.
_SHARE = 0.02
# The oldest timestamp is looked for among the first records of each partition: later ones may be older.
_FIRST_RECORDS = 1_000


def draw_spans(from_us: int, until_us: int, count: int, seed: int) -> list[tuple[int, int]]:
    """Return *count* spans [start, end) between two instants, microseconds; fewer if there is no room."""
    rng = random.Random(seed)
    part_us = max((until_us - from_us) // count, MINUTE_US)
    span_us = min(max(int(part_us * _SHARE), MINUTE_US), part_us)
    part_starts_us = range(from_us, max(until_us, from_us + 1), part_us)[:count]
    starts_us = [part_start_us + rng.randrange(part_us - span_us + 1) for part_start_us in part_starts_us]
    # Kafka finds records by whole milliseconds.
    return [(start_us, start_us + span_us) for start_us in (us // MILLISECOND_US * MILLISECOND_US for us in starts_us)]


def find_extent(admin: Admin, kafka: dict[str, str], topic: str, partitions: Sequence[int]) -> tuple[int, int] | None:
    """Return [first, last) of the timestamps of a topic's records, microseconds; None if it has no records."""
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
