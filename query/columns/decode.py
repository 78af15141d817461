"""
Decoding: Kafka records of an ordered partition become a table of events and the CTIs between them.

This is the only conversion of events; :mod:`query.columns.events` describes the table. Frames before the values of events stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.protocol.reader import Log
from ordering.protocol.wire import EVENT_HEADER_BYTES, decode_cti, decode_event_headers
from query.columns.events import DECODED_SCHEMA
from tidegate.platform.kafka.foreign_records import ForeignRecords, read_own

if TYPE_CHECKING:  # buckets run without Kafka too, on files
    from tidegate.platform.kafka.ranges import Records


@dataclass(frozen=True, slots=True)
class DecodedRange:
    """A range of one ordered partition, decoded."""

    # Numbers of its events and its CTIs, for the reader's rule.
    log: Log
    # The events themselves (``DECODED_SCHEMA``), row by row as in *log*.
    events: pa.Table
    # The first offset beyond the range; 0 if it has no records.
    next_offset: int
    # The bucket of each event; None if rows are not exchanged, or not routed yet.
    buckets: NDArray[np.int32] | None = None
    # The records that are none of the protocol, which are passed over.
    foreign: ForeignRecords = field(default_factory=ForeignRecords)

    @property
    def nbytes(self) -> int:
        """The bytes of the events' keys and payloads."""
        return int(self.events["key"].nbytes + self.events["value"].nbytes)


def decode(records: Records, topic: str, partition: int) -> DecodedRange:
    """
    Split records into the numbers that the reader's rule needs and the events themselves. Records that are none of the protocol are passed
    over. ProtocolError (TG-PROTOCOL-VERSION) names a record that a newer program has written.
    """
    decoded, foreign = read_own(records, topic, partition, lambda own: _decode(own, partition))
    if not foreign.count:
        return decoded
    return replace(decoded, next_offset=int(records.offset[-1]) + 1, foreign=foreign)


def _decode(records: Records, partition: int) -> DecodedRange:
    assert records.header is not None, "an ordered topic is read with its headers"
    header = records.header.fill_null(b"") if records.header.null_count else records.header
    header_bytes = pc.binary_length(header).to_numpy()
    event_rows = np.flatnonzero(header_bytes == EVENT_HEADER_BYTES)
    other_rows = np.flatnonzero(header_bytes != EVENT_HEADER_BYTES).tolist()
    ctis = [(int(records.offset[row]), decode_cti(header[row].as_py(), records.payload(row) or b"", partition)) for row in other_rows]
    fields = decode_event_headers(_join_event_headers(header, other_rows))
    number, system_us = fields["number"].astype(np.int64), fields["system_us"].astype(np.int64)
    log = Log(records.offset[event_rows], number, fields["seq"].astype(np.int64), system_us, ctis)
    next_offset = int(records.offset[-1]) + 1 if len(records.offset) else 0
    columns = [
        pa.array(number.astype(np.int32)),
        pa.array(fields["offset"].astype(np.int64)),
        pa.array(system_us),
        _drop_rows(records.key, other_rows),
        _drop_rows(records.value, other_rows),
        pa.array(fields["flags"].astype(np.uint16)),
        pa.array(fields["arrival_us"].astype(np.int64)),
    ]
    return DecodedRange(log, pa.Table.from_arrays(columns, schema=DECODED_SCHEMA), next_offset)


def _join_event_headers(header: pa.Array, other_rows: list[int]) -> pa.FixedSizeBinaryArray:
    # Event headers have one length, so those between two CTIs are one piece of the buffer; no header is read separately.
    _, ends, octets = header.buffers()
    edges = np.frombuffer(ends, dtype=np.int32)[header.offset : header.offset + len(header) + 1]
    parts = [octets.slice(edges[first], edges[last] - edges[first]) for first, last in _stretches(other_rows, len(header))]
    joined = parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))
    return pa.Array.from_buffers(pa.binary(EVENT_HEADER_BYTES), len(header) - len(other_rows), [None, joined])


def _drop_rows(column: pa.Array, other_rows: list[int]) -> pa.Array:
    parts = [column.slice(first, last - first) for first, last in _stretches(other_rows, len(column))]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else column[:0]


def _stretches(other_rows: list[int], length: int) -> list[tuple[int, int]]:
    """Return the stretches of rows between *other_rows*: the first row of each, and the row after its last."""
    edges = zip([0, *(row + 1 for row in other_rows)], [*other_rows, length], strict=True)
    return [(first, last) for first, last in edges if first < last]
