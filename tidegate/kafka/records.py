"""
Records of a partition as columns.

Law: nothing is interpreted and nothing is lost. Bytes stay bytes, null differs from zero bytes, and columns have one entry a record, in
offset order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError
from numpy.typing import NDArray

# One header for each record to write, if any.
HeaderColumn = pa.FixedSizeBinaryArray | None
# The headers of one record to write, in order.
Headers = list[tuple[str, bytes | None]]
UNASSIGNED = -1  # as a record's partition: the client chooses it


@dataclass(slots=True)
class Records:
    """
    Records of one partition as columns, in offset order.

    Args:
        offset: Rising offsets, possibly with gaps.
        timestamp_ms: Kafka timestamps, milliseconds; -1 if a record has none.
        key, value: Arrow binary columns with nulls.
        header: The value of each record's first header ``tg``, null if absent; None if headers were not read.
        facts: The same for header ``tf``.
    """

    offset: NDArray[np.int64]
    timestamp_ms: NDArray[np.int64]
    key: pa.Array
    value: pa.Array
    header: pa.Array | None = None
    facts: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.offset)

    def select(self, mask_of_rows: NDArray[np.bool_]) -> Records:
        mask = pa.array(mask_of_rows)
        columns = [None if column is None else column.filter(mask) for column in (self.key, self.value, self.header, self.facts)]
        return Records(self.offset[mask_of_rows], self.timestamp_ms[mask_of_rows], *columns)


# The records, if any; whether a record at or beyond the end has arrived; the next error and its offset.
Fetched = tuple[Records | None, bool, KafkaError | None, int]
