"""From Kafka records of an ordered partition to columns: events, and the CTIs between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.columns import to_objects
from ordering.errors import ProtocolError
from ordering.reader import Log
from ordering.wire import CTI_HEADER_BYTES, EVENT_HEADER_BYTES, Flag, decode_cti, decode_event_headers
from tidegate.runtime.kafka.ranges import Records

Ints = NDArray[np.int64]
Objects = NDArray[np.object_]


@dataclass(slots=True)
class Events:
    """Events of an ordered partition as columns: roster number, origin offset, s, key, payload, flags, arrival; times in microseconds."""

    number: Ints
    offset: Ints
    system_us: Ints
    key: Objects
    value: Objects
    flags: NDArray[np.uint16]
    arrival_us: Ints

    def __len__(self) -> int:
        return len(self.number)

    @property
    def end_edges(self) -> NDArray[np.bool_]:
        """Which of them end the span that a start edge began, and so are no events of their own to CTI generation."""
        found: NDArray[np.bool_] = (self.flags & Flag.EDGE_END) != 0
        return found

    def take(self, rows: Any) -> Events:
        """Return the chosen rows."""
        return Events(*(getattr(self, name)[rows] for name in _COLUMNS))

    @staticmethod
    def concat(parts: list[Events]) -> Events:
        """Return all rows of *parts*, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        return Events(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))

    @staticmethod
    def none() -> Events:
        """Return no events."""
        ints, objects = np.empty(0, dtype=np.int64), np.empty(0, dtype=object)
        return Events(ints, ints, ints, objects, objects, np.empty(0, dtype=np.uint16), ints)


_COLUMNS = ("number", "offset", "system_us", "key", "value", "flags", "arrival_us")


def decode(records: Records, topic: str, partition: int) -> tuple[Log, Events]:
    """
    Split *records* into what the reader's rule needs and the events themselves, row by row alike.

    Raises:
        ProtocolError: A record is neither an event nor a CTI of a version that this program reads; it names the record.
    """
    assert records.header is not None, "an ordered topic is read with its headers"
    header = records.header.fill_null(b"")
    size = pc.binary_length(header).to_numpy()
    rows = np.flatnonzero(size == EVENT_HEADER_BYTES)
    others = np.flatnonzero(size != EVENT_HEADER_BYTES).tolist()
    try:
        ctis = [(int(records.offset[row]), decode_cti(header[row].as_py(), records.value[row].as_py(), partition)) for row in others]
        events = header.take(pa.array(rows)) if others else header
        table = decode_event_headers(events.cast(pa.binary(EVENT_HEADER_BYTES)))
    except ProtocolError as error:
        raise _first_foreign(records, header.to_pylist(), topic, partition) or error from None
    number, system_us = table["number"].astype(np.int64), table["system_us"].astype(np.int64)
    log = Log(records.offset[rows], number, table["seq"].astype(np.int64), system_us, ctis)
    key, value = to_objects(records.key), to_objects(records.value)
    if others:
        key, value = key[rows], value[rows]
    flags, arrival_us = table["flags"].astype(np.uint16), table["arrival_us"].astype(np.int64)
    return log, Events(number, table["offset"].astype(np.int64), system_us, key, value, flags, arrival_us)


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
