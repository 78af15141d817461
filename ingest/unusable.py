"""
Raw records that are no events: CTIs that the source enqueued among them, and what cannot be used at all.

Law: every record is exactly one of three: an event with the times its shape needs, a CTI, or unusable for one reason.
A record whose header says that it is a CTI is one or is unusable, whatever its value looks like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.fields import Fields
from ordering.errors import ProtocolError
from ordering.ticks import NEVER
from ordering.wire import HEADER_NAME, Kind, decode_source_cti
from tidegate.runtime.kafka.ranges import Records


@dataclass(frozen=True, slots=True)
class SourceCtis:
    """
    The CTIs among some records.

    Args:
        c_us: The ``c`` of each record that is a valid CTI, ``NEVER`` for all others; None where there is none.
        absent: Which records do not claim to be CTIs.
    """

    c_us: NDArray[np.int64] | None
    absent: NDArray[np.bool_]


def source_ctis(records: Records) -> SourceCtis:
    """Return the CTIs among *records*; none where they were read without headers."""
    absent = np.ones(len(records), dtype=np.bool_)
    rows = [row for row, headers in enumerate(records.headers or ()) if headers and _cti_header(headers) is not None]
    if not rows:
        return SourceCtis(None, absent)
    c_us = np.full(len(records), NEVER, dtype=np.int64)
    absent[rows] = False
    for row in rows:
        assert records.headers is not None, "the rows were found in them"
        c_us[row] = _c_us(_cti_header(records.headers[row]) or b"", records.value[row])
    return SourceCtis(c_us, absent)


def _cti_header(headers: list[tuple[str, Any]]) -> bytes | None:
    """Return the header that makes its record a CTI, None where there is none."""
    octets = next((value for name, value in headers if name == HEADER_NAME), None)
    return octets if isinstance(octets, bytes) and octets[1:2] == bytes([Kind.CTI]) else None


def _c_us(header: bytes, value: bytes | None) -> int:
    try:
        return decode_source_cti(header, value)
    except ProtocolError:
        return NEVER


def unusable(records: Records, fields: Fields, ctis: SourceCtis) -> Iterator[tuple[int, str]]:
    """Yield the (row, reason) of each record that is neither event nor CTI."""
    told = ctis.c_us if ctis.c_us is not None else np.full(len(records), NEVER, dtype=np.int64)
    for row in np.flatnonzero(~fields.readable & (told == NEVER)).tolist():
        if not ctis.absent[row]:
            yield row, "cti"
        elif records.value[row] is None:
            yield row, "no_payload"
        elif not fields.well_formed[row]:
            yield row, "malformed"
        else:
            yield row, "end" if fields.timed[row] else "timestamp"
