"""Events as the writer of an ordered topic takes them, and records as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.protocol.wire import EVENT_HEADER_BYTES, HEADER_NAME
from tidegate.platform.kafka.ranges import Records
from tidegate.platform.kafka.records import Columns

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, Kafka timestamp in milliseconds, key, value."""


def rows_of(pieces: Iterator[Records]) -> list[Row]:
    """All records of some pieces, row by row."""
    return [
        row
        for piece in pieces
        for row in zip(piece.offset.tolist(), piece.timestamp_ms.tolist(), piece.key.to_pylist(), piece.value.to_pylist(), strict=True)
    ]


def columns(value: Any, key: Any, partition: int, stamps: Any) -> Columns:
    """Events as a producer takes them, each with a header that tells its row."""
    header = np.zeros((len(value), EVENT_HEADER_BYTES), dtype=np.uint8)
    header[:, 0] = np.arange(len(value)) % 251
    block = pa.FixedSizeBinaryArray.from_buffers(pa.binary(EVENT_HEADER_BYTES), len(value), [None, pa.py_buffer(header)])
    to = np.full(len(value), partition, dtype=np.int32)
    return Columns(value, key, to, np.asarray(stamps, dtype=np.int64), HEADER_NAME, block)
