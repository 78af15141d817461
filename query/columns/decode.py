"""From Kafka records of an ordered partition to columns: events, and the CTIs between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.columns.payload_columns import concat_columns, take_rows
from ordering.errors import ProtocolError
from ordering.protocol.reader import Log
from ordering.protocol.wire import CTI_HEADER_BYTES, EVENT_HEADER_BYTES, Flag, decode_cti, decode_event_headers
from tidegate.kafka.ranges import Records

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Events:
    """
    Events of an ordered partition as columns: roster number, origin offset, s, key, payload, flags, arrival; times in microseconds.

    Keys and payloads are binary Arrow columns with nulls.
    """

    number: Ints
    offset: Ints
    system_us: Ints
    key: pa.Array
    value: pa.Array
    flags: NDArray[np.uint16]
    arrival_us: Ints

    def __len__(self) -> int:
        return len(self.number)

    @property
    def end_edges(self) -> NDArray[np.bool_]:
        """Which of them end the span that a start edge began, and so are no events of their own to CTI generation."""
        found: NDArray[np.bool_] = (self.flags & Flag.EDGE_END) != 0
        return found

    def take(self, rows: Ints) -> Events:
        """Return the chosen rows."""
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(rows))):
            return self
        return Events(*(take_rows(getattr(self, name), rows) for name in _COLUMNS))

    def rows(self, sub: Ints | None = None, position: Ints | None = None) -> pa.Table:
        """
        Return them as operators take events (``query.engine.compile.EVENTS_SCHEMA``).

        Args:
            sub: Their substreams; default: all are of one.
            position: Their positions; default: 0, 1, ...
        """
        return pa.table(
            {
                "position": np.arange(len(self)) if position is None else position,
                "sub": np.zeros(len(self), dtype=np.int64) if sub is None else sub,
                "system_us": self.system_us,
                "partition_id": self.number.astype(np.int32),
                "value": self.value,
                "arrival_us": self.arrival_us,
            }
        )

    @staticmethod
    def concat(parts: list[Events]) -> Events:
        """Return all rows of *parts*, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        return Events(*(concat_columns([getattr(part, name) for part in parts]) for name in _COLUMNS))

    @staticmethod
    def none() -> Events:
        """Return no events."""
        ints, octets = np.empty(0, dtype=np.int64), pa.array([], pa.binary())
        return Events(ints, ints, ints, octets, octets, np.empty(0, dtype=np.uint16), ints)


_COLUMNS = ("number", "offset", "system_us", "key", "value", "flags", "arrival_us")


def decode(records: Records, topic: str, partition: int) -> tuple[Log, Events]:
    """
    Split *records* into what the reader's rule needs and the events themselves, row by row alike.

    Raises:
        ProtocolError: A record is neither an event nor a CTI of a version that this program reads; it names the record.
    """
    assert records.header is not None, "an ordered topic is read with its headers"
    header = records.header.fill_null(b"") if records.header.null_count else records.header
    size = pc.binary_length(header).to_numpy()
    rows = np.flatnonzero(size == EVENT_HEADER_BYTES)
    others = np.flatnonzero(size != EVENT_HEADER_BYTES).tolist()
    try:
        ctis = [(int(records.offset[row]), decode_cti(header[row].as_py(), records.value[row].as_py(), partition)) for row in others]
        table = decode_event_headers(_joined(header, others))
    except ProtocolError as error:
        raise _first_foreign(records, header.to_pylist(), topic, partition) or error from None
    number, system_us = table["number"].astype(np.int64), table["system_us"].astype(np.int64)
    log = Log(records.offset[rows], number, table["seq"].astype(np.int64), system_us, ctis)
    key, value = _without(records.key, others), _without(records.value, others)
    flags, arrival_us = table["flags"].astype(np.uint16), table["arrival_us"].astype(np.int64)
    return log, Events(number, table["offset"].astype(np.int64), system_us, key, value, flags, arrival_us)


def _joined(header: pa.Array, others: list[int]) -> pa.FixedSizeBinaryArray:
    """Return the headers of events, those of all rows but *others*, without looking at each of them: they lie end to end."""
    _, ends, octets = header.buffers()
    at = np.frombuffer(ends, dtype=np.int32)[header.offset : header.offset + len(header) + 1]
    parts = [octets.slice(at[first], at[last] - at[first]) for first, last in _stretches(others, len(header))]
    joined = parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))
    return pa.Array.from_buffers(pa.binary(EVENT_HEADER_BYTES), len(header) - len(others), [None, joined])


def _without(column: pa.Array, others: list[int]) -> pa.Array:
    """Return the entries of all rows but *others*."""
    parts = [column.slice(first, last - first) for first, last in _stretches(others, len(column))]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else column[:0]


def _stretches(others: list[int], length: int) -> list[tuple[int, int]]:
    """Return the stretches of rows between *others*: the first row of each, and the row after its last."""
    between = zip([0, *(row + 1 for row in others)], [*others, length], strict=True)
    return [(first, last) for first, last in between if first < last]


def _first_foreign(records: Records, octets: list[bytes], topic: str, partition: int) -> ProtocolError | None:
    """Return the error of the first record that cannot be read, with its place."""
    for row, header in enumerate(octets):
        where = f"{topic}-{partition}@{records.offset[row]}"
        try:
            if len(header) == EVENT_HEADER_BYTES:
                decode_event_headers([header])
            elif len(header) == CTI_HEADER_BYTES:
                decode_cti(header, records.value[row].as_py(), partition)
            else:
                return ProtocolError(
                    "a record has no tidegate header",
                    where=where,
                    fix="only tidegate may write to an ordered topic: is another producer using it?",
                )
        except ProtocolError as error:
            return ProtocolError(error.what, code=error.code, where=where, fix=error.fix)
    return None
