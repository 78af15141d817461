"""Each raw record is an event, a CTI, or unusable for one reason."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ingest.stage.dead_letters import source_ctis, unusable_rows
from ordering.policies import Shape
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import encode_cti, encode_source_cti
from ordering.ticks import NEVER, TICK_MAX
from tidegate.platform.kafka.ranges import Records
from tidegate.records.fields import FieldReader

EVENT = b'{"t":2000,"e":3000}'
CTI_HEADER, CTI = encode_source_cti(5_000)
OUT_OF_RANGE = encode_cti(Cti(0, 0, TICK_MAX + 1, 0, 0, 0, 0, 0, Roster(1, 1, Spread.ONE, False), Cause.SOURCE))

Row = tuple[bytes | None, bytes | None]
"""Value, and header of ours."""


def told(*rows: Row, headers: bool = True) -> tuple[list[int] | None, dict[int, str]]:
    """The c of each record (None: no CTI among them), and the reasons of those that are neither event nor CTI."""
    value, header = (pa.array([row[place] for row in rows], type=pa.binary()) for place in (0, 1))
    ints = np.arange(len(rows), dtype=np.int64)
    records = Records(ints, ints, pa.nulls(len(rows), pa.binary()), value, header if headers else None)
    fields, ctis = FieldReader("t", "us", None, Shape.INTERVAL, "e").read(value), source_ctis(records)
    fields.readable &= ctis.is_no_cti
    return None if ctis.c_us is None else ctis.c_us.tolist(), dict(unusable_rows(records, fields, ctis))


def test_a_record_with_the_header_of_a_cti_is_one() -> None:
    """Its neighbours stay events."""
    assert told((EVENT, None), (CTI, CTI_HEADER), (EVENT, None)) == ([NEVER, 5_000, NEVER], {})


@pytest.mark.parametrize(
    ("value", "header"),
    [(EVENT, CTI_HEADER), (None, CTI_HEADER), (CTI[:1], CTI_HEADER), (CTI, b"\x09" + CTI_HEADER[1:]), OUT_OF_RANGE[::-1]],
)
def test_a_record_that_claims_to_be_a_cti_and_is_none_is_unusable(value: bytes | None, header: bytes) -> None:
    """Also one whose value looks like an event, or whose time no event could have: it moves no time and is no event."""
    assert told((value, header), (EVENT, None)) == ([NEVER, NEVER], {0: "cti"})


@pytest.mark.parametrize("header", [b"", b"\x01", b"\x01\x01" + bytes(46), None, b"text"])
def test_any_other_header_of_that_name_makes_no_cti(header: bytes | None) -> None:
    """An event that was copied out of an ordered topic is an event again."""
    assert told((EVENT, header)) == (None, {})


def test_without_headers_no_record_is_a_cti() -> None:
    """``source_ctis = false``: headers are not even read, and the bytes of a CTI are no JSON."""
    assert told((CTI, None), (EVENT, None), headers=False) == (None, {0: "malformed"})


def test_each_reason_is_told() -> None:
    """What is missing first counts: a value, JSON, the event time, the end."""
    values = [None, b"{", b'{"e":3000}', b'{"t":2000}', b'{"t":"soon","e":"soon"}', EVENT]
    assert told(*[(value, None) for value in values]) == (None, {0: "no_payload", 1: "malformed", 2: "timestamp", 3: "end", 4: "timestamp"})
