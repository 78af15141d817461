"""
The newest stretch of a topic, kept while somebody looks: each look reads on from where the last one ended.

Law: what a look returns is what :func:`~tidegate.tools.staircase.read.read_staircase` would read at that moment, up to the size of one
piece at its beginning. Keys and values are not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.tools.staircase.read import RECORDS_MAX, Stretch, read_stretches

Piece = TypeVar("Piece")
# Reads a range of a partition in pieces, each with how many offsets it covers.
ReadRange = Callable[[Mapping[str, str], tuple[str, int], int, int], Sequence[tuple[Piece, int]]]


@dataclass
class _Kept(Generic[Piece]):
    next_offset: int = -1
    records: int = 0
    pieces: deque[tuple[Piece, int]] = field(default_factory=deque)


class Follower(Generic[Piece]):
    """The newest records of one topic, *records_max* of them, as *read* returns them."""

    def __init__(self, read: ReadRange[Piece], records_max: int) -> None:
        self._read, self._records_max = read, records_max
        self._topic_id = ""
        self._kept: dict[tuple[str, int], _Kept[Piece]] = {}

    def look(self, admin: Admin, kafka: Mapping[str, str], topic: Topic) -> list[Piece]:
        """Read what has come since the last look; return the newest records."""
        if topic.topic_id != self._topic_id:
            # The topic was made anew: its offsets begin again.
            self._topic_id, self._kept = topic.topic_id, {}
        starts, ends = admin.starts(topic.all_partitions), admin.ends(topic.all_partitions)
        share = max(self._records_max // topic.partitions, 1)
        for place in topic.all_partitions:
            kept = self._kept.setdefault(place, _Kept())
            start = max(starts[place], ends[place] - share)
            if kept.next_offset < start:
                # Between this look and the last one more has come than is looked at.
                kept.pieces.clear()
                kept.records, kept.next_offset = 0, start
            if kept.next_offset < ends[place]:
                found = self._read(kafka, place, kept.next_offset, ends[place])
                kept.pieces.extend(found)
                kept.records += sum(count for _, count in found)
                kept.next_offset = ends[place]
            while kept.pieces and kept.records - kept.pieces[0][1] >= share:
                kept.records -= kept.pieces.popleft()[1]
        return [piece for kept in self._kept.values() for piece, _ in kept.pieces]


def read_before(admin: Admin, kafka: Mapping[str, str], topic: Topic, time_us: int) -> list[Stretch]:
    """Return the records that lie before the first event of *time_us* or later, as many as a look returns."""
    starts, ends = admin.starts(topic.all_partitions), admin.offsets_from(topic.all_partitions, time_us)
    share = max(RECORDS_MAX // topic.partitions, 1)
    return [
        stretch
        for place in topic.all_partitions
        for stretch, _ in read_stretches(kafka, place, max(starts[place], ends[place] - share), ends[place])
    ]
