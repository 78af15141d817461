"""
The frontier of another input, followed by the CTIs of its ordered topic, for an input that imports them.
Law: the imported frontier only rises, and every channel of the other input has promised it. Final CTIs do not count: after the end of the
other input the imported frontier no longer rises.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ordering.protocol.punctuation import Cti
from ordering.protocol.reader import Log, PartitionReader
from ordering.ticks import INFINITY, TICK_MIN
from tidegate.ordered_topic.decode import decode_ctis
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader

# The first read begins this many records before the end; so does a later one that would begin more than LEAP_RECORDS before it.
TAIL_RECORDS = 50_000
LEAP_RECORDS = 500_000
_LOOK_S = 0.5
_PREFETCH_BYTES = 2**20
_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ImportedInput:
    """The input whose CTIs are imported: its name, and the ordered topic with all its partitions."""

    name: str
    topic: str
    partitions: int


class CtiFrontier:
    """
    The frontier over all channels of an ordered topic, by its CTIs alone. The events that a CTI promises stand before it in the log, so a
    CTI counts as soon as it is read, without its events.
    """

    def __init__(self, partitions: int) -> None:
        self._readers = [PartitionReader(partition, partitions, start_us=INFINITY) for partition in range(partitions)]

    def accept_ctis(self, partition: int, ctis: list[tuple[int, Cti]]) -> None:
        """Accept (log offset, CTI) pairs of a partition, offsets rising; final CTIs are ignored."""
        finite_ctis = [(offset, cti) for offset, cti in ctis if cti.c != INFINITY]
        self._readers[partition].accept(Log(_NOTHING, _NOTHING, _NOTHING, _NOTHING, finite_ctis))

    @property
    def c_us(self) -> int | None:
        """The least c over the channels of the newest roster, microseconds; None until each has a CTI."""
        least = min(reader.frontier for reader in self._readers)
        return least if least >= TICK_MIN else None


class ImportedFrontier:
    """Follows the CTIs of another input's ordered topic. Far behind the end it skips ahead: newer CTIs include older promises."""

    def __init__(self, properties: Mapping[str, str], admin: Admin, imported: ImportedInput) -> None:
        self._properties, self._admin, self._imported = properties, admin, imported
        self._frontier = CtiFrontier(imported.partitions)
        self._readers: dict[int, RangeReader] = {}
        self._position: dict[int, int] = {}

    def read_frontier(self) -> int | None:
        """Return the other input's frontier, microseconds, None if it is unknown; TidegateError if the topic cannot be read."""
        topic, deadline_s = self._imported.topic, time.monotonic() + _LOOK_S
        ends = self._admin.ends([(topic, partition) for partition in range(self._imported.partitions)])
        for (_, partition), end in sorted(ends.items()):
            for ctis, next_offset in self._read(partition, self._start_of(partition, end), end):
                self._frontier.accept_ctis(partition, ctis)
                self._position[partition] = next_offset
                if time.monotonic() > deadline_s:
                    break
        return self._frontier.c_us

    def forget_positions(self) -> None:
        """Start the next read near the topic's end: after an error the positions may be wrong."""
        self._position.clear()

    def _start_of(self, partition: int, end: int) -> int:
        position = self._position.get(partition, -1)
        if max(end - LEAP_RECORDS, 0) <= position <= end:
            return position
        first = self._admin.starts([(self._imported.topic, partition)])[self._imported.topic, partition]
        return max(end - TAIL_RECORDS, first)

    def _read(self, partition: int, start: int, end: int) -> Iterator[tuple[list[tuple[int, Cti]], int]]:
        topic = self._imported.topic
        if partition not in self._readers:
            self._readers[partition] = RangeReader(self._properties, topic, partition, headers=True, prefetch_bytes=_PREFETCH_BYTES)
        for records in self._readers[partition].read(start, end) if start < end else ():
            ctis = [(found.log_offset, found.cti) for found in decode_ctis(records, topic, partition)]
            yield ctis, int(records.offset[-1]) + 1
