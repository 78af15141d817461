"""
Records of any topic as what they are: raw records, ordered events and results, CTIs, dead letters.

Law: each record becomes exactly one :class:`Sight`, decided by the record alone. A record with the header of the protocol that is none of
it is a raw record with that problem. Nothing is left out and no byte of a payload is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.columns.framed_payloads import Headers, headers_of, payloads_of
from ordering.protocol.punctuation import Cti
from ordering.protocol.wire import Flag
from tidegate.ordered_topic.decode import decode
from tidegate.ordered_topic.foreign_records import find_unreadable
from tidegate.platform.kafka.records import Records

# The headers that every dead letter has.
REASON, ORIGIN = "reason", "origin"


class SightKind(StrEnum):
    """What a record is."""

    RAW = "raw"
    EVENT = "event"
    CTI = "cti"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class EventHeader:
    """What the header of an ordered event or result says: its channel and seq, times in microseconds, origin and policy flags."""

    number: int
    seq: int
    system_us: int
    event_time_us: int
    arrival_us: int
    offset: int
    flags: Flag


@dataclass(frozen=True, slots=True)
class Sight:
    """One record of a partition. ``headers`` are those that Tidegate does not write itself; ``problem``: it is none of the protocol."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    kind: SightKind
    headers: Headers = field(default_factory=list)
    event: EventHeader | None = None
    cti: Cti | None = None
    problem: str = ""
    # Whether every reader skips it: a writer that failed has written it again.
    is_repetition: bool = False

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"

    def header(self, name: str) -> str:
        """Return the text of a header, empty without it."""
        return next((data or b"" for other, data in self.headers if other == name), b"").decode("utf-8", "replace")


def decode_sights(records: Records, topic: str, partition: int, headers_of_null: Mapping[int, Headers]) -> Iterator[Sight]:
    """
    Yield the records of a range, which was read with all headers, in their order. *headers_of_null* are the headers of those without a
    payload, by offset.
    """
    assert records.header is not None, "records are read with Tidegate's headers"
    assert records.is_framed, "records are read with the headers of others"
    problems = {found.record.offset: found.record.reason for found in find_unreadable(records, topic, partition)}
    piece = decode(records.select(~np.isin(records.offset, list(problems))), topic, partition)
    events = dict(zip(piece.events.log_offset.tolist(), piece.events.fields, strict=True))
    ctis = dict(piece.ctis)
    values, framed = payloads_of(records.value).to_pylist(), records.value.to_pylist()
    columns = records.offset.tolist(), records.timestamp_ms.tolist(), records.key.to_pylist(), records.header.to_pylist()
    for offset, stamp_ms, key, own, value, frame in zip(*columns, values, framed, strict=True):
        headers = headers_of(frame) if frame is not None else headers_of_null.get(offset, [])
        place = topic, partition, offset, stamp_ms, key, value
        if own is None:
            names = {name for name, _ in headers}
            kind = SightKind.DEAD_LETTER if {REASON, ORIGIN} <= names else SightKind.RAW
            yield Sight(*place, kind, headers)
        elif offset in problems:
            yield Sight(*place, SightKind.RAW, headers, problem=problems[offset])
        elif offset in events:
            yield Sight(*place, SightKind.EVENT, headers, event=_event_header(events[offset]))
        else:
            yield Sight(*place, SightKind.CTI, headers, cti=ctis[offset])


def payload_column(sights: list[Sight]) -> pa.Array:
    """Return the payloads of records as a column; those of CTIs are null."""
    return pa.array([None if sight.kind is SightKind.CTI else sight.value for sight in sights], pa.binary())


def _event_header(row: Any) -> EventHeader:
    number, seq, offset = int(row["number"]), int(row["seq"]), int(row["offset"])
    times = int(row["system_us"]), int(row["event_time_us"]), int(row["arrival_us"])
    return EventHeader(number, seq, *times, offset, Flag(int(row["flags"])))


class Repetitions:
    """
    Which events of a partition are repetitions, by the reader's rule (:mod:`ordering.protocol.reader`) from the first event that is shown
    of each channel on: a writer that failed writes again from an earlier seq.
    """

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[int, int] = {}

    def is_repeated(self, event: EventHeader) -> bool:
        """Take the next event of the log; return whether it, or a later one of its channel, has been there before."""
        last = self._last.get(event.number)
        if last is not None and event.seq <= last:
            self.count += 1
            return True
        self._last[event.number] = event.seq
        return False
