"""Looking at the end of an ordered topic: has its run ended?"""

from __future__ import annotations

from collections.abc import Mapping

from ordering.ticks import INFINITY
from ordering.wire import CTI_HEADER_BYTES, decode_cti
from tidegate.runtime.kafka.ranges import RangeReader

TAIL_RECORDS = 1_000


def finished(properties: Mapping[str, str], topic: str, ends: Mapping[tuple[str, int], int]) -> bool:
    """Return whether every channel of *topic* ends in a final CTI; *ends* are the ends of all its partitions."""
    return all(_has_ended(properties, topic, partition, end, len(ends)) for (_, partition), end in ends.items())


def _has_ended(properties: Mapping[str, str], topic: str, partition: int, end: int, partitions: int) -> bool:
    reader = RangeReader(properties, topic, partition, headers=True)
    ended: set[int] = set()
    roster = None
    try:
        for records in reader.read(max(end - TAIL_RECORDS, 0), end) if end else ():
            for headers, value in zip(records.headers or [], records.value, strict=True):
                header = headers[0][1] if headers else b""
                if len(header) == CTI_HEADER_BYTES and (cti := decode_cti(header, value, partition)).c == INFINITY:
                    ended.add(cti.number)
                    roster = cti.roster
    finally:
        reader.close()
    return roster is not None and ended.issuperset(roster.channels_of(partition, partitions))
