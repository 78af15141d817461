"""
Raw records that are no events: CTIs that the source enqueued, and records that cannot be used.
Law: every record is exactly one of three: an event with the times that its shape needs, a CTI, or unusable for one reason. A record whose
header says CTI is a CTI or unusable, whatever its value is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.errors import ProtocolError
from ordering.protocol.wire import Kind, decode_source_cti
from ordering.ticks import NEVER
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.platform.kafka.ranges import Records
from tidegate.records.fields import Fields


@dataclass(frozen=True, slots=True)
class SourceCtis:
    """The CTIs among some records."""

    # The ``c`` of each record that is a valid CTI, ``NEVER`` for all others; None if no record claims to be a CTI.
    c_us: Ints | None
    # Which records do not claim to be CTIs.
    is_no_cti: Mask

    def payloads_of(self, records: Records) -> pa.Array:
        """Return the payloads of possible events, null for CTIs."""
        return records.value if self.is_no_cti.all() else pc.if_else(pa.array(self.is_no_cti), records.value, None)


def source_ctis(records: Records) -> SourceCtis:
    """Return the CTIs among *records*; none if they were read without headers."""
    absent = np.ones(len(records), dtype=np.bool_)
    if records.header is None or records.header.null_count == len(records):
        return SourceCtis(None, absent)
    headers = records.header.to_pylist()
    rows = [row for row, header in enumerate(headers) if header is not None and header[1:2] == bytes([Kind.CTI])]
    if not rows:
        return SourceCtis(None, absent)
    c_us = np.full(len(records), NEVER, dtype=np.int64)
    absent[rows] = False
    for row in rows:
        c_us[row] = _c_us(headers[row], records.value[row].as_py())
    return SourceCtis(c_us, absent)


def _c_us(header: bytes, value: bytes | None) -> int:
    try:
        return decode_source_cti(header, value)
    except ProtocolError:
        return NEVER


def unusable_rows(records: Records, fields: Fields, ctis: SourceCtis) -> Iterator[tuple[int, IngestReason]]:
    """Yield (row, reason) for each record that is neither event nor CTI."""
    c_us = ctis.c_us if ctis.c_us is not None else np.full(len(records), NEVER, dtype=np.int64)
    for row in np.flatnonzero(~fields.readable & (c_us == NEVER)).tolist():
        if not ctis.is_no_cti[row]:
            yield row, IngestReason.CTI
        elif not records.value[row].is_valid:
            yield row, IngestReason.NO_PAYLOAD
        elif not fields.well_formed[row]:
            yield row, fields.reasons.get(row, IngestReason.MALFORMED)
        else:
            yield row, IngestReason.END if fields.timed[row] else IngestReason.TIMESTAMP
