"""
The newest stretch of an ordered topic, kept while somebody looks: each look reads on from where the last one ended.

Law: what a look returns is what :func:`~tidegate.tools.staircase.read.read_staircase` would read at that moment, up to the size of one
piece at its beginning. Keys and values are not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.tools.staircase.read import RECORDS_MAX, Stretch, read_stretches


@dataclass
class _Kept:
    next_offset: int = -1
    records: int = 0
    stretches: deque[tuple[Stretch, int]] = field(default_factory=deque)


class Follower:
    """The newest records of one ordered topic."""

    def __init__(self) -> None:
        self._topic_id = ""
        self._kept: dict[tuple[str, int], _Kept] = {}

    def look(self, admin: Admin, kafka: Mapping[str, str], topic: Topic) -> list[Stretch]:
        """Read what has come since the last look; return the newest records."""
        if topic.topic_id != self._topic_id:
            # The topic was made anew: its offsets begin again.
            self._topic_id, self._kept = topic.topic_id, {}
        starts, ends = admin.starts(topic.all_partitions), admin.ends(topic.all_partitions)
        share = max(RECORDS_MAX // topic.partitions, 1)
        for place in topic.all_partitions:
            kept = self._kept.setdefault(place, _Kept())
            start = max(starts[place], ends[place] - share)
            if kept.next_offset < start:
                # Between this look and the last one more has come than is looked at.
                kept.stretches.clear()
                kept.records, kept.next_offset = 0, start
            if kept.next_offset < ends[place]:
                found = read_stretches(kafka, place, kept.next_offset, ends[place])
                kept.stretches.extend(found)
                kept.records += sum(count for _, count in found)
                kept.next_offset = ends[place]
            while kept.stretches and kept.records - kept.stretches[0][1] >= share:
                kept.records -= kept.stretches.popleft()[1]
        return [stretch for kept in self._kept.values() for stretch, _ in kept.stretches]


def read_before(admin: Admin, kafka: Mapping[str, str], topic: Topic, time_us: int) -> list[Stretch]:
    """Return the records that lie before the first event of *time_us* or later, as many as a look returns."""
    starts, ends = admin.starts(topic.all_partitions), admin.offsets_from(topic.all_partitions, time_us)
    share = max(RECORDS_MAX // topic.partitions, 1)
    return [
        stretch
        for place in topic.all_partitions
        for stretch, _ in read_stretches(kafka, place, max(starts[place], ends[place] - share), ends[place])
    ]
