"""Events of an ordered topic as columns, with the bytes that level 1 of the law fixes: header, key, value and Kafka timestamp."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.protocol.wire import decode_event_headers


@dataclass(slots=True)
class EventColumns:
    """Events as columns: log offset, channel, seq and s of each, and the bytes that the law fixes; values may be framed."""

    log_offset: Ints
    number: Ints
    seq: Ints
    system_us: Ints
    stamp_ms: Ints
    header: pa.FixedSizeBinaryArray
    key: pa.BinaryArray
    value: pa.BinaryArray
    is_framed: bool = field(default=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.log_offset)

    def take_rows(self, rows: Ints) -> EventColumns:
        """Return the chosen rows, without copying if they are all rows in order."""
        if len(rows) == len(self) and (len(rows) == 0 or (rows[0] == 0 and (np.diff(rows) == 1).all())):
            return self
        chosen = pa.array(rows)
        plain = (getattr(self, name)[rows] for name in _PLAIN)
        return EventColumns(*plain, *(getattr(self, name).take(chosen) for name in _BYTES), is_framed=self.is_framed)

    def slice(self, start: int, end: int) -> EventColumns:
        plain = (getattr(self, name)[start:end] for name in _PLAIN)
        return EventColumns(*plain, *(getattr(self, name).slice(start, end - start) for name in _BYTES), is_framed=self.is_framed)

    def without_numbers(self, *names: str) -> EventColumns:
        """Return the events with 0 for the seq, and other fields of these *names*, in their headers."""
        table = decode_event_headers(self.header).copy()
        for name in ("seq", *names):
            table[name] = 0
        return replace(self, header=pa.FixedSizeBinaryArray.from_buffers(self.header.type, len(self), [None, pa.py_buffer(table)]))

    @staticmethod
    def concat(parts: list[EventColumns]) -> EventColumns:
        filled = [part for part in parts if len(part)] or parts[:1]
        if len(filled) == 1:
            return filled[0]
        plain = (np.concatenate([getattr(part, name) for part in filled]) for name in _PLAIN)
        octets = (pa.concat_arrays([getattr(part, name) for part in filled]) for name in _BYTES)
        return EventColumns(*plain, *octets, is_framed=filled[0].is_framed)


_PLAIN = ("log_offset", "number", "seq", "system_us", "stamp_ms")
_BYTES = ("header", "key", "value")
