"""
Events of an ordered topic as one columnar table, with the bytes that level 1 of the law fixes: header, key, value and Kafka timestamp.

Law: rows are selected, cut and concatenated, but never converted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints
from ordering.protocol.wire import EVENT_HEADER, EVENT_HEADER_BYTES


@dataclass(slots=True)
class OrderedEvents:
    """Events as columns: what the reader's rule needs of each, and the bytes that the law fixes."""

    # Offsets in the ordered partition.
    log_offset: Ints
    # The channels: roster numbers of the input partitions.
    number: Ints
    seq: Ints
    # System timestamps, microseconds.
    system_us: Ints
    # Kafka timestamps, milliseconds.
    stamp_ms: Ints
    # The values of the headers ``tg``, 48 bytes each.
    header: pa.FixedSizeBinaryArray
    key: pa.BinaryArray
    value: pa.BinaryArray
    # Whether values have frames before them (:mod:`ordering.columns.framed_payloads`).
    is_framed: bool = field(default=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.log_offset)

    @property
    def fields(self) -> NDArray[Any]:
        """The headers as a structured array (``EVENT_HEADER``), not copied; decoding has checked them."""
        data = self.header.buffers()[1]
        if not len(self) or data is None:
            return np.empty(0, dtype=EVENT_HEADER)
        return np.frombuffer(data, dtype=EVENT_HEADER, count=len(self), offset=self.header.offset * EVENT_HEADER_BYTES)

    def take_rows(self, rows: Ints) -> OrderedEvents:
        """Return the chosen rows, without copying if they are all rows in order."""
        if len(rows) == len(self) and (len(rows) == 0 or (rows[0] == 0 and (np.diff(rows) == 1).all())):
            return self
        chosen = pa.array(rows)
        plain = (getattr(self, name)[rows] for name in _PLAIN)
        return OrderedEvents(*plain, *(getattr(self, name).take(chosen) for name in _BYTES), is_framed=self.is_framed)

    def slice(self, start: int, end: int) -> OrderedEvents:
        plain = (getattr(self, name)[start:end] for name in _PLAIN)
        return OrderedEvents(*plain, *(getattr(self, name).slice(start, end - start) for name in _BYTES), is_framed=self.is_framed)

    def without_numbers(self, *names: str) -> OrderedEvents:
        """Return the events with 0 for the seq, and other fields of these *names*, in their headers."""
        table = self.fields.copy()
        for name in ("seq", *names):
            table[name] = 0
        return replace(self, header=pa.FixedSizeBinaryArray.from_buffers(self.header.type, len(self), [None, pa.py_buffer(table)]))

    @staticmethod
    def concat(parts: list[OrderedEvents]) -> OrderedEvents:
        filled = [part for part in parts if len(part)] or parts[:1]
        if len(filled) == 1:
            return filled[0]
        plain = (np.concatenate([getattr(part, name) for part in filled]) for name in _PLAIN)
        data = (pa.concat_arrays([getattr(part, name) for part in filled]) for name in _BYTES)
        return OrderedEvents(*plain, *data, is_framed=filled[0].is_framed)


_PLAIN = ("log_offset", "number", "seq", "system_us", "stamp_ms")
_BYTES = ("header", "key", "value")
