"""Looking at the end of an ordered topic: has its run ended?"""

from __future__ import annotations

from collections.abc import Mapping

from ordering.ticks import INFINITY
from ordering.wire import CTI_HEADER_BYTES, decode_cti
from tidegate.runtime.kafka.ranges import RangeReader


def finished(properties: Mapping[str, str], topic: str, ends: Mapping[tuple[str, int], int]) -> bool:
    """Return whether the last record of every partition of *topic* is a final CTI."""
    return all(end > 0 and _ends_in_final_cti(properties, topic, partition, end) for (_, partition), end in ends.items())


def _ends_in_final_cti(properties: Mapping[str, str], topic: str, partition: int, end: int) -> bool:
    reader = RangeReader(properties, topic, partition, headers=True)
    try:
        for records in reader.read(end - 1, end):
            header = records.headers[-1][0][1] if records.headers and records.headers[-1] else b""
            return len(header) == CTI_HEADER_BYTES and decode_cti(header, records.value[-1], partition).c == INFINITY
    finally:
        reader.close()
    return False
