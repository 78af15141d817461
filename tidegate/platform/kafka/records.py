"""
Records of a partition as columns.

Law: nothing is interpreted and nothing is lost. Bytes stay bytes, null differs from zero bytes, and columns have one entry a record, in
offset order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask
from ordering.columns.framed_payloads import payload_of, payloads_of
from ordering.columns.payload_columns import Payload
from ordering.protocol.facts import FACTS_HEADER_NAME
from ordering.protocol.wire import HEADER_NAME

# The names of the headers that a reader puts before each value (:mod:`ordering.columns.framed_payloads`). Of several headers of one name it
# takes the last. ALL_HEADERS: all headers but those that Tidegate writes itself.
Framed = tuple[str, ...]
ALL_HEADERS: Framed = ("*",)
OWN_HEADERS = (HEADER_NAME, FACTS_HEADER_NAME)
UNASSIGNED = -1  # a record's partition, if the client chooses it


@dataclass(slots=True)
class Records:
    """Records of one partition as columns, in offset order."""

    # Rising offsets, possibly with gaps.
    offset: Ints
    # Kafka timestamps, milliseconds; -1 if a record has none.
    timestamp_ms: Ints
    # Arrow binary columns with nulls.
    key: pa.Array
    value: pa.Array
    # The value of each record's first header ``tg``, null if absent; None if headers were not read.
    header: pa.Array | None = None
    # The same for header ``tf``.
    facts: pa.Array | None = None
    # Whether values have frames before them.
    is_framed: bool = field(default=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.offset)

    def without_frames(self) -> Records:
        """Return the records with bare values."""
        return replace(self, value=payloads_of(self.value), is_framed=False) if self.is_framed else self

    def payload(self, row: int) -> bytes | None:
        """Return the bare value of one record."""
        value: bytes | None = self.value[row].as_py()
        return bytes(payload_of(value)) if self.is_framed and value is not None else value

    def select(self, mask_of_rows: Mask) -> Records:
        mask = pa.array(mask_of_rows)
        columns = [None if column is None else column.filter(mask) for column in (self.key, self.value, self.header, self.facts)]
        return Records(self.offset[mask_of_rows], self.timestamp_ms[mask_of_rows], *columns, is_framed=self.is_framed)


class Columns(NamedTuple):
    """
    Events for a producer, one entry an event.

    Args:
        value, key: Arrow binary columns, or numpy columns of bytes objects; None and null are null.
        stamp_ms: Kafka timestamps, milliseconds.
        name: Name of the first header, whose values are *headers*.
        is_framed: Whether further headers stand before each value (:mod:`ordering.columns.framed_payloads`).
    """

    value: Payload
    key: Payload
    partition: NDArray[np.int32]
    stamp_ms: Ints
    name: str
    headers: pa.FixedSizeBinaryArray | None
    is_framed: bool = False


class Fetched(NamedTuple):
    """The result of a fetch."""

    records: Records | None
    # Whether a record at or beyond the end has arrived.
    is_beyond: bool = False
    # The error that came next, and the offset at which.
    error: KafkaError | None = None
    error_offset: int = 0
    # Where the partition has ended; 0: that was not said.
    ended_at: int = 0
