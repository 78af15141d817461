"""
Records that are arrays, as the records of their elements (setting ``explode``).

Law: which elements a record has depends on the record alone. Each has the key, the headers and the arrival of its record, and its own
bytes as they stand there. A record that is no array is one element. An empty array is no event, but its arrival counts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.columns.framed_payloads import FRAME_HEAD
from ordering.protocol.elements import OF_ELEMENTS
from tidegate.platform.kafka.ranges import CHUNK_EVENTS
from tidegate.platform.kafka.records import Records
from tidegate.records.payloads.json_elements import split_elements

_STARTS_AS_OBJECT = r"^[ \t\r\n]*\{"


@dataclass(frozen=True, slots=True)
class ElementRecords:
    """Some elements as records of their own, whose offsets are places (:mod:`ordering.protocol.elements`)."""

    records: Records
    # The record of each element.
    row: Ints
    # Which stand for an empty array.
    is_empty: Mask
    # Which are JSON, or bytes, that cannot be an event.
    is_no_object: Mask


def explode(records: Records, is_no_cti: Mask, at_once: int = CHUNK_EVENTS) -> Iterator[ElementRecords]:
    """Yield the elements of *records*, of which those that claim to be CTIs stay whole, in pieces of *at_once* elements."""
    bare = records.without_frames().value
    elements = split_elements(bare if is_no_cti.all() else pc.if_else(pa.array(is_no_cti), bare, None))
    for start in range(0, len(elements.row), at_once):
        piece = slice(start, start + at_once)
        row, is_empty, value = elements.row[piece], elements.is_empty[piece], elements.value[piece]
        is_cti = ~is_no_cti[row]
        if is_cti.any():
            value = pc.if_else(pa.array(is_cti), bare.take(pa.array(row)), value)
        is_object = pc.fill_null(pc.match_substring_regex(value, _STARTS_AS_OBJECT), True).to_numpy(zero_copy_only=False)
        taken = [None if column is None else column.take(pa.array(row)) for column in (records.header, records.facts)]
        exploded = Records(
            (records.offset[row] << OF_ELEMENTS.bits) | elements.index[piece],
            records.timestamp_ms[row],
            records.key.take(pa.array(row)),
            _with_frames(records.value, row, value) if records.is_framed else value,
            *taken,
            is_framed=records.is_framed,
        )
        yield ElementRecords(exploded, row, is_empty, ~is_object & ~is_cti)


def _with_frames(framed: pa.Array, row: Ints, values: pa.Array) -> pa.Array:
    """Return *values* with the frame of their record before each."""
    frames: dict[int, bytes] = {}
    for number in np.unique(row).tolist():
        data = memoryview(framed[number].as_buffer()) if framed[number].is_valid else memoryview(struct.pack("<i", 0))
        frames[number] = bytes(data[: FRAME_HEAD + struct.unpack_from("<i", data)[0]])
    joined = [None if value is None else frames[number] + value for number, value in zip(row.tolist(), values.to_pylist(), strict=True)]
    return pa.array(joined, framed.type)
