"""
Decoding: records of an ordered partition become events as columns, and the CTIs between them.

This is the only decoder of ordered and result topics. Law: what the topic's writer wrote is decoded unchanged, each record with its log
offset, wherever a log is cut. Records that are none of the protocol are passed over and returned by their places
(:mod:`tidegate.ordered_topic.foreign_records`). No event is looked at by itself: the cost of one is that of some numpy and Arrow calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.protocol.punctuation import Cti
from ordering.protocol.reader import Log
from ordering.protocol.wire import EVENT_HEADER_BYTES, decode_cti, decode_event_headers
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.foreign_records import ForeignRecords, read_own

if TYPE_CHECKING:  # queries on files decode nothing, and run without a client of Kafka
    from tidegate.platform.kafka.records import Records

# Rows between so many CTIs are copied as stretches; between more of them, choosing them one by one is faster.
_STRETCHES_MAX = 256


@dataclass(frozen=True, slots=True)
class OrderedPiece:
    """A contiguous range of one ordered partition, decoded."""

    events: OrderedEvents
    # The CTIs with their log offsets.
    ctis: list[tuple[int, Cti]]
    # The first offset beyond the range; 0 if it has no records.
    next_offset: int
    # The records that are none of the protocol, which are passed over.
    foreign: ForeignRecords = field(default_factory=ForeignRecords)

    @property
    def log(self) -> Log:
        """The range as the reader's rule takes it; its rows are those of ``events``."""
        events = self.events
        return Log(events.log_offset, events.number, events.seq, events.system_us, self.ctis)


class CtiRecord(NamedTuple):
    """The record of a CTI: its log offset, the CTI, and its header ``tf``, which holds facts of the journal."""

    log_offset: int
    cti: Cti
    facts: bytes | None


def decode(records: Records, topic: str, partition: int) -> OrderedPiece:
    """
    Return the events and CTIs of *records*, which were read with headers. ProtocolError (TG-PROTOCOL-VERSION) names a record that a newer
    program has written.

    >>> from ordering.protocol.punctuation import Cause, Roster, Spread
    >>> from ordering.protocol.wire import encode_cti, encode_event_headers
    >>> from tidegate.platform.kafka.records import Records
    >>> one = np.array([0])
    >>> (event,) = encode_event_headers(seq=one, system_us=one + 20, event_time_us=one + 20, arrival_us=one + 25, offset=one + 7,
    ...     flags=np.zeros(1, dtype=np.uint16), number=3)
    >>> header, body = encode_cti(Cti(3, 0, 30, 1, 0, 8, 25, 20, Roster(1, 4, Spread.ALL, False), Cause.EVENT))
    >>> columns = (pa.array(column, pa.binary()) for column in ([b"k", None], [b"{}", body], [event, header]))
    >>> piece = decode(Records(np.array([40, 41]), np.array([0, 0]), *columns), "flights.ordered", 0)
    >>> piece.events.number, piece.events.fields["offset"], piece.events.key.to_pylist(), piece.events.value.to_pylist()
    (array([3]), array([7]), [b'k'], [b'{}'])
    >>> [(offset, cti.c, cti.n) for offset, cti in piece.ctis], piece.next_offset
    ([(41, 30, 1)], 42)
    """
    piece, foreign = read_own(records, topic, partition, lambda own: _decode(own, partition))
    if not foreign.count:
        return piece
    return replace(piece, next_offset=int(records.offset[-1]) + 1, foreign=foreign)


def decode_ctis(records: Records, topic: str, partition: int) -> list[CtiRecord]:
    """Return the CTIs of *records* alone: their events are not looked at. Raises ProtocolError like :func:`decode`."""
    return read_own(records, topic, partition, lambda own: _decode_ctis(own, _split_rows(own)[1], partition))[0]


def _decode(records: Records, partition: int) -> OrderedPiece:
    event_rows, cti_rows = _split_rows(records)
    ctis = [(found.log_offset, found.cti) for found in _decode_ctis(records, cti_rows, partition)]
    chosen = _EventRows(event_rows, cti_rows, len(records))
    header = chosen.headers(records.header)
    fields = decode_event_headers(header)
    events = OrderedEvents(
        chosen.integers(records.offset),
        fields["number"].astype(np.int64),
        fields["seq"].astype(np.int64),
        fields["system_us"].astype(np.int64),
        chosen.integers(records.timestamp_ms),
        header,
        chosen.data(records.key),
        chosen.data(records.value),
        is_framed=records.is_framed,
    )
    return OrderedPiece(events, ctis, int(records.offset[-1]) + 1 if len(records) else 0)


def _split_rows(records: Records) -> tuple[Ints, Ints]:
    """Return the rows of events, known by the length of their headers, and those of all other records."""
    assert records.header is not None, "an ordered topic is read with its headers"
    header = records.header.fill_null(b"") if records.header.null_count else records.header
    is_event = pc.binary_length(header).to_numpy() == EVENT_HEADER_BYTES
    return np.flatnonzero(is_event), np.flatnonzero(~is_event)


def _decode_ctis(records: Records, rows: Ints, partition: int) -> list[CtiRecord]:
    assert records.header is not None, "an ordered topic is read with its headers"
    found = []
    for row in rows.tolist():
        cti = decode_cti(records.header[row].as_py() or b"", records.payload(row) or b"", partition)
        found.append(CtiRecord(int(records.offset[row]), cti, None if records.facts is None else records.facts[row].as_py()))
    return found


class _EventRows:
    """The rows of events among *count* records; *other_rows* are the others."""

    def __init__(self, rows: Ints, other_rows: Ints, count: int) -> None:
        self._rows = rows
        self._stretches = _stretches(other_rows.tolist(), count) if len(other_rows) <= _STRETCHES_MAX else None

    def integers(self, column: Ints) -> Ints:
        if self._stretches is None:
            return column[self._rows]
        parts = [column[first:last] for first, last in self._stretches]
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else column[:0]

    def data(self, column: pa.Array) -> pa.Array:
        if self._stretches is None:
            return column.take(pa.array(self._rows))
        parts = [column.slice(first, last - first) for first, last in self._stretches]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else column[:0]

    def headers(self, column: pa.Array) -> pa.FixedSizeBinaryArray:
        if self._stretches is None:
            return column.take(pa.array(self._rows)).cast(pa.binary(EVENT_HEADER_BYTES))
        # Event headers have one length, so those of a stretch are one piece of the buffer; no header is read separately.
        _, ends, data = column.buffers()
        edges = np.frombuffer(ends, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
        parts = [data.slice(int(edges[first]), int(edges[last] - edges[first])) for first, last in self._stretches]
        joined = parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))
        return pa.Array.from_buffers(pa.binary(EVENT_HEADER_BYTES), len(self._rows), [None, joined])


def _stretches(other_rows: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Return the stretches of rows between *other_rows*: the first row of each, and the row after its last."""
    edges = zip([0, *(row + 1 for row in other_rows)], [*other_rows, length], strict=True)
    return [(first, last) for first, last in edges if first < last]
