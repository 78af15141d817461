"""The end of an ordered topic: its last CTIs, and whether its run has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow.compute as pc

from ordering.protocol.punctuation import Cti
from ordering.protocol.wire import CTI_HEADER_BYTES, decode_cti
from ordering.ticks import INFINITY
from tidegate.kafka.ranges import RangeReader, Records

TAIL_RECORDS = 1_000


def has_ended(properties: Mapping[str, str], topic: str, ends: Mapping[tuple[str, int], int]) -> bool:
    """Return whether every channel of *topic* ends in a final CTI; *ends* has all its partitions. Raises like :func:`ctis_of`."""
    return all(_partition_has_ended(properties, topic, partition, end, len(ends)) for (_, partition), end in ends.items())


def _partition_has_ended(properties: Mapping[str, str], topic: str, partition: int, end: int, partitions: int) -> bool:
    ended_numbers: set[int] = set()
    roster = None
    with RangeReader(properties, topic, partition, headers=True) as reader:
        for records in reader.read(max(end - TAIL_RECORDS, 0), end):
            for cti in final_ctis(records, topic, partition):
                ended_numbers.add(cti.number)
                roster = cti.roster
    return roster is not None and ended_numbers.issuperset(roster.channels_of(partition, partitions))


def final_ctis(records: Records, topic: str, partition: int) -> Iterator[Cti]:
    """Yield the final CTIs among *records* of an ordered partition. Raises like :func:`ctis_of`."""
    return (cti for _, cti in ctis_of(records, topic, partition) if cti.c == INFINITY)


def ctis_of(records: Records, topic: str, partition: int) -> Iterator[tuple[int, Cti]]:
    """Yield (offset, CTI) for each CTI in an ordered partition's *records*. Raises ProtocolError: one is malformed; ``where`` names it."""
    assert records.header is not None, "CTIs are known by their headers"
    lengths = pc.binary_length(records.header).fill_null(0).to_numpy()
    for row in np.flatnonzero(lengths == CTI_HEADER_BYTES).tolist():
        offset = int(records.offset[row])
        header, value = records.header[row].as_py(), records.value[row].as_py()
        yield offset, decode_cti(header, value, partition, f"{topic}-{partition}@{offset}")
