"""
One topic of a comparison: its records as columns, and the events that a reader accepts.

Law: :meth:`PartitionWalk.run` yields exactly the events that a reader of the topic accepts (:mod:`ordering.protocol.reader`), each once,
with the bytes that level 1 of the law fixes: header, key, value and Kafka timestamp. It yields the CTIs as they are in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.errors import ProtocolError
from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.reader import Log, PartitionReader, gap_error
from ordering.protocol.wire import CTI_HEADER_BYTES, EVENT_HEADER_BYTES, decode_cti, decode_event_headers
from tidegate.kafka.ranges import RangeReader, Records
from tidegate.kafka.records import Framed

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Side:
    """
    One of the two topics, ``label`` A or B.

    Args:
        properties: librdkafka properties of its cluster, secrets included.
        starts, ends: The first offset to read of each partition, and the offset after the last.
        start_us: Only events with s >= this are compared, microseconds; None: all.
        is_trimmed: Whether retention has deleted the beginning of a partition.
        has_own_numbers: Whether the seq of an event may differ from that in the other topic, because one was begun in the middle.
        framed: The headers to put before each value, so that they are compared too.
    """

    label: str
    topic: str
    properties: Mapping[str, str] = field(repr=False)
    partitions: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    start_us: int | None = None
    is_trimmed: bool = False
    has_own_numbers: bool = False
    framed: Framed = ()


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


def split_records(records: Records, topic: str, partition: int) -> tuple[EventColumns, list[tuple[int, Cti]]]:
    """Return the events as columns, and the CTIs with their log offsets. Raises ProtocolError with its offset: a record is neither."""
    assert records.header is not None, "an ordered topic is read with its headers"
    header = records.header.fill_null(b"") if records.header.null_count else records.header
    is_event = pc.binary_length(header).to_numpy(zero_copy_only=False) == EVENT_HEADER_BYTES
    rows, others = np.flatnonzero(is_event), np.flatnonzero(~is_event).tolist()
    ctis = [(int(records.offset[row]), _cti(records, header[row].as_py(), row, topic, partition)) for row in others]
    key, value = records.key, records.value
    if others:
        chosen = pa.array(rows)
        header, key, value = header.take(chosen), key.take(chosen), value.take(chosen)
    fixed = header.cast(pa.binary(EVENT_HEADER_BYTES))
    offset, stamp_ms = records.offset[rows], records.timestamp_ms[rows]
    try:
        table = decode_event_headers(fixed)
    except ProtocolError as error:
        # The decoder checks whole columns and cannot say which row is wrong: the rows are searched one by one.
        raise _find_foreign_record(fixed, offset, topic, partition) or error from None
    number, seq, system_us = (table[name].astype(np.int64) for name in ("number", "seq", "system_us"))
    return EventColumns(offset, number, seq, system_us, stamp_ms, fixed, key, value, is_framed=records.is_framed), ctis


def _cti(records: Records, header: bytes, row: int, topic: str, partition: int) -> Cti:
    where = f"{topic}-{partition}@{records.offset[row]}"
    if len(header) != CTI_HEADER_BYTES:
        fix = "name a topic that ingest or a query writes, and nobody else"
        raise ProtocolError("a record has no tidegate header", where=where, fix=fix)
    return decode_cti(header, records.payload(row) or b"", partition, where)


def _find_foreign_record(headers: pa.Array, offset: Ints, topic: str, partition: int) -> ProtocolError | None:
    for row, header in enumerate(headers.to_pylist()):
        try:
            decode_event_headers([header])
        except ProtocolError as error:
            return ProtocolError(error.what, code=error.code, where=f"{topic}-{partition}@{offset[row]}", fix=error.fix)
    return None


class LogPiece(NamedTuple):
    """A piece of the log: accepted events, for each the log offset of the record at which it was accepted, and the CTIs."""

    events: EventColumns
    log_position: Ints
    ctis: list[tuple[int, Cti]]


class PartitionWalk:
    """
    The walk of one partition of one topic by the reader's rule. ``records`` counts the records walked so far, ``position`` is the log
    offset of the next one. With *resume* (log offset, roster number, seq of the last accepted event) the walk begins in the middle and
    accepts the events of that channel alone.
    """

    def __init__(self, side: Side, partition: int, resume: tuple[int, int, int] | None = None) -> None:
        self._side, self._partition = side, partition
        self.position = side.starts[partition] if resume is None else resume[0]
        self.reader = PartitionReader(partition, side.partitions, side.start_us)
        if resume is not None:
            self.reader = PartitionReader.in_channel(partition, side.partitions, *resume[1:])
        self._carried: EventColumns | None = None
        self.records = 0

    @property
    def roster(self) -> Roster | None:
        return self.reader.roster

    def run(self, until_us: int | None = None, end: int | None = None) -> Iterator[LogPiece]:
        """Yield the log in pieces, to its end, or before the log offset *end*, or until no event with s < *until_us* can come."""
        side, partition = self._side, self._partition
        end = side.ends[partition] if end is None else end
        if self.position >= end or self.has_passed(until_us):
            return
        with RangeReader(side.properties, side.topic, partition, headers=True, framed=side.framed) as kafka:
            for records in kafka.read(self.position, end):
                yield self.accept(records)
                if self.has_passed(until_us):
                    return

    def has_passed(self, until_us: int | None) -> bool:
        """Return whether no event with s < *until_us* can come."""
        return until_us is not None and self.reader.frontier >= until_us

    def accept(self, records: Records) -> LogPiece:
        """Walk the next records of the log."""
        self.records += len(records)
        self.position = int(records.offset[-1]) + 1
        return self._accept(*split_records(records, self._side.topic, self._partition))

    def unmet_promise(self) -> ProtocolError | None:
        """Return the error of a reader at the end of the topic, if a CTI promises events that are missing there."""
        waiting = self.reader.blocked_channels()
        return gap_error(self._side.topic, self._partition, *waiting[0]) if waiting else None

    def _accept(self, events: EventColumns, ctis: list[tuple[int, Cti]]) -> LogPiece:
        log = Log(events.log_offset, events.number, events.seq, events.system_us, ctis)
        accepted = self.reader.accept(log)
        # After a start in the middle, events are carried until the CTI that proves them complete, perhaps in the next piece.
        candidates = events if self._carried is None else EventColumns.concat([self._carried, events])
        self._carried = candidates.take_rows(accepted.carried) if len(accepted.carried) else None
        return LogPiece(candidates.take_rows(accepted.rows), accepted.position, ctis)
