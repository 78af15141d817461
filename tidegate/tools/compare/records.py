"""
One topic of a comparison: its records, and the events that a reader accepts.

Law: :meth:`PartitionWalk.run` yields exactly the events that a reader of the topic accepts (:mod:`ordering.protocol.reader`), each once,
with the bytes that level 1 of the law fixes: header, key, value and Kafka timestamp. It yields the CTIs as they are in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.errors import ProtocolError
from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.reader import Log, PartitionReader, gap_error
from ordering.protocol.wire import EVENT_HEADER_BYTES, decode_cti, decode_event_headers
from ordering.ticks import NEVER
from tidegate.platform.kafka.foreign_records import ForeignRecords, read_own
from tidegate.platform.kafka.ranges import RangeReader, Records
from tidegate.platform.kafka.records import Framed
from tidegate.tools.compare.columns import EventColumns
from tidegate.tools.compare.copies import Copies

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


def split_records(records: Records, partition: int) -> tuple[EventColumns, list[tuple[int, Cti]]]:
    """Return the events as columns, and the CTIs with their log offsets. Raises ProtocolError: a record is neither."""
    assert records.header is not None, "an ordered topic is read with its headers"
    header = records.header.fill_null(b"") if records.header.null_count else records.header
    is_event = pc.binary_length(header).to_numpy(zero_copy_only=False) == EVENT_HEADER_BYTES
    rows, others = np.flatnonzero(is_event), np.flatnonzero(~is_event).tolist()
    ctis = [(int(records.offset[row]), decode_cti(header[row].as_py(), records.payload(row) or b"", partition)) for row in others]
    key, value = records.key, records.value
    if others:
        chosen = pa.array(rows)
        header, key, value = header.take(chosen), key.take(chosen), value.take(chosen)
    fixed = header.cast(pa.binary(EVENT_HEADER_BYTES))
    offset, stamp_ms = records.offset[rows], records.timestamp_ms[rows]
    table = decode_event_headers(fixed)
    number, seq, system_us = (table[name].astype(np.int64) for name in ("number", "seq", "system_us"))
    return EventColumns(offset, number, seq, system_us, stamp_ms, fixed, key, value, is_framed=records.is_framed), ctis


class LogPiece(NamedTuple):
    """A piece of the log: accepted events, for each the log offset of the record at which it was accepted, and the CTIs."""

    events: EventColumns
    log_position: Ints
    ctis: list[tuple[int, Cti]]


class PartitionWalk:
    """
    The walk of one partition of one topic by the reader's rule. ``records`` counts the records walked so far, ``position`` is the log
    offset of the next one, ``foreign`` has the records that are none of the protocol, and ``copies``, if *keeps_copies*, those that were
    not accepted. With *resume* (log offset, roster number, seq of the last accepted event) the walk begins in the middle and accepts the
    events of that channel alone.
    """

    def __init__(self, side: Side, partition: int, resume: tuple[int, int, int] | None = None, *, keeps_copies: bool = False) -> None:
        self._side, self._partition = side, partition
        self.position = side.starts[partition] if resume is None else resume[0]
        self.reader = PartitionReader(partition, side.partitions, side.start_us)
        if resume is not None:
            self.reader = PartitionReader.in_channel(partition, side.partitions, *resume[1:])
        self._carried: EventColumns | None = None
        self.records = 0
        self.foreign = ForeignRecords()
        self.copies: Copies | None = Copies() if keeps_copies else None

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
        split, foreign = read_own(records, self._side.topic, self._partition, lambda own: split_records(own, self._partition))
        self.foreign.add(foreign)
        return self._accept(*split)

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
        if self.copies is not None and len(accepted.rows) + len(accepted.carried) < len(candidates):
            is_copy = np.ones(len(candidates), dtype=np.bool_)
            is_copy[accepted.rows] = is_copy[accepted.carried] = False
            # A start in the middle takes no notice of events before it.
            is_copy &= candidates.system_us >= (NEVER if self._side.start_us is None else self._side.start_us)
            self.copies.add(candidates.take_rows(np.flatnonzero(is_copy)))
        return LogPiece(candidates.take_rows(accepted.rows), accepted.position, ctis)
