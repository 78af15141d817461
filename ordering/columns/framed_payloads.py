"""
Framed payloads: each payload with headers of its record before it, as one value, so that both travel as one column from reader to writer.
In Kafka they are headers again: a frame is never written.

A frame is the number of bytes of its entries, then for each header the number of bytes of its name, that of its value (-1: null), name
and value. Numbers are little-endian with 32 bits and sign. ``tidegate/platform/kafka/native.c`` makes and reads frames too.

Law: framing changes no byte of a payload or of a header's value. No payload, no frame: null stays null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask

Headers = list[tuple[str, bytes | None]]

FRAME_HEAD, ENTRY_HEAD = 4, 8


def frame_payload(headers: Iterable[tuple[str, bytes | None]], payload: bytes | None) -> bytes | None:
    """Return a payload with the frame of *headers* before it."""
    if payload is None:
        return None
    entries = b"".join(_entry(name.encode(), value) for name, value in headers)
    return struct.pack("<i", len(entries)) + entries + payload


def _entry(name: bytes, value: bytes | None) -> bytes:
    return struct.pack("<ii", len(name), -1 if value is None else len(value)) + name + (value or b"")


def headers_of(framed: bytes | memoryview) -> Headers:
    """Return the headers before one payload, in their order."""
    headers, place, end = Headers(), FRAME_HEAD, len(framed) - len(payload_of(framed))
    while place < end:
        name_bytes, value_bytes = struct.unpack_from("<ii", framed, place)
        value = place + ENTRY_HEAD + name_bytes
        name = bytes(framed[place + ENTRY_HEAD : value]).decode(errors="replace")
        place = value + max(value_bytes, 0)
        headers.append((name, None if value_bytes < 0 else bytes(framed[value:place])))
    return headers


def payload_of(framed: bytes | memoryview) -> memoryview:
    """Return one payload without the frame before it."""
    (entries,) = struct.unpack_from("<i", framed)
    return memoryview(framed)[FRAME_HEAD + entries :]


def payloads_of(framed: pa.Array) -> pa.Array:
    """Return the payloads of a binary column without their frames, in a column of the same type."""
    rows = _FramedRows(framed)
    return rows.take_segments([rows.payloads], 1, rows.valid).cast(framed.type)


def header_texts(framed: pa.Array, name: str) -> pa.StringArray:
    """Return the last value of each row's header *name*, null without one; bytes that are no UTF-8 become U+FFFD."""
    rows = _FramedRows(framed)
    firsts, ends = rows.find_values(np.frombuffer(name.encode(), dtype=np.uint8))
    values = rows.take_segments([firsts, ends], 1, firsts > rows.starts)
    try:
        return values.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else value.decode(errors="replace") for value in values.to_pylist()], pa.string())


class _FramedRows:
    """The rows of a framed column as places in its bytes: where each row and its payload begin, and which are not null."""

    def __init__(self, framed: pa.Array) -> None:
        _, ends, data = framed.buffers()
        kind = np.int64 if pa.types.is_large_binary(framed.type) else np.int32
        bounds = np.frombuffer(ends, dtype=kind)[framed.offset : framed.offset + len(framed) + 1] if len(framed) else np.zeros(1)
        self._bytes = np.frombuffer(data or b"", dtype=np.uint8)
        # A number may begin at any byte.
        self._words = np.ndarray(max(len(self._bytes) - 3, 0), dtype="<i4", buffer=self._bytes, strides=(1,))
        self._end, self.starts = int(bounds[-1]), bounds[:-1].astype(np.int64)
        self.valid: Mask = framed.is_valid().to_numpy(zero_copy_only=False)
        self.payloads = self.starts.copy()
        filled = self.starts[self.valid]
        self.payloads[self.valid] = filled + FRAME_HEAD + self._words[filled]

    def find_values(self, name: NDArray[np.uint8]) -> tuple[Ints, Ints]:
        """Return where the value of the header *name* begins and ends in each row; the beginning of the row if there is none."""
        firsts, ends, places = self.starts.copy(), self.starts.copy(), self.starts + FRAME_HEAD
        rows = np.flatnonzero(places < self.payloads)
        # One round for each entry of the longest frame.
        while len(rows):
            place = places[rows]
            name_bytes, value_bytes = self._words[place], self._words[place + 4]
            value = place + ENTRY_HEAD + name_bytes
            after = value + np.maximum(value_bytes, 0)
            alike = np.flatnonzero(name_bytes == len(name))
            named = self._bytes[(place[alike] + ENTRY_HEAD)[:, None] + np.arange(len(name))]
            hits = alike[(named == name).all(axis=1)]
            is_null = value_bytes[hits] < 0
            firsts[rows[hits]] = np.where(is_null, self.starts[rows[hits]], value[hits])
            ends[rows[hits]] = np.where(is_null, self.starts[rows[hits]], after[hits])
            places[rows] = after
            rows = rows[after < self.payloads[rows]]
        return firsts, ends

    def take_segments(self, cuts: Sequence[Ints], number: int, mask: Mask) -> pa.LargeBinaryArray:
        """Cut each row at places of its own; return the segment with this *number* where *mask* holds, else null."""
        # A row begins where the one before it ends: all segments together are one column over the same bytes.
        places = np.append(np.column_stack([self.starts, *cuts]).ravel(), self._end).astype(np.int64)
        buffers = [None, pa.py_buffer(places), pa.py_buffer(self._bytes)]
        segments = pa.Array.from_buffers(pa.large_binary(), len(places) - 1, buffers)
        chosen = np.arange(len(self.starts), dtype=np.int64) * (len(cuts) + 1) + number
        return segments.take(pa.array(chosen, mask=~mask))
