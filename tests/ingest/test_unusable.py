"""Each raw record is an event, a CTI, or unusable for one reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingest.fields import FieldReader
from ingest.unusable import source_ctis, unusable
from ordering.policies import Shape
from ordering.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import NEVER, TICK_MAX
from ordering.wire import HEADER_NAME, encode_cti, encode_source_cti
from tidegate.runtime.kafka.ranges import Records

EVENT = b'{"t":2000,"e":3000}'
CTI_HEADER, CTI = encode_source_cti(5_000)
OUT_OF_RANGE = encode_cti(Cti(0, 0, TICK_MAX + 1, 0, 0, 0, 0, 0, Roster(1, 1, Spread.ONE, False), Cause.SOURCE))

Row = tuple[bytes | None, list[tuple[str, Any]] | None]


def told(*rows: Row, headers: bool = True) -> tuple[list[int] | None, dict[int, str]]:
    """The c of each record (None: no CTI among them), and the reasons of those that are neither event nor CTI."""
    value, key = np.empty(len(rows), dtype=object), np.full(len(rows), None, dtype=object)
    value[:] = [each for each, _ in rows]
    ints = np.arange(len(rows), dtype=np.int64)
    records = Records(ints, ints, key, value, [each for _, each in rows] if headers else None)
    fields, ctis = FieldReader("t", "us", None, Shape.INTERVAL, "e").read(value), source_ctis(records)
    fields.readable &= ctis.absent
    return None if ctis.c_us is None else ctis.c_us.tolist(), dict(unusable(records, fields, ctis))


def test_a_record_with_the_header_of_a_cti_is_one() -> None:
    """Other headers beside it do not matter; its neighbours stay events."""
    rows: list[Row] = [(EVENT, None), (CTI, [("trace", b"1"), (HEADER_NAME, CTI_HEADER)]), (EVENT, [("trace", None)])]
    assert told(*rows) == ([NEVER, 5_000, NEVER], {})


@pytest.mark.parametrize(
    ("value", "header"),
    [(EVENT, CTI_HEADER), (None, CTI_HEADER), (CTI[:1], CTI_HEADER), (CTI, b"\x09" + CTI_HEADER[1:]), OUT_OF_RANGE[::-1]],
)
def test_a_record_that_claims_to_be_a_cti_and_is_none_is_unusable(value: bytes | None, header: bytes) -> None:
    """Also one whose value looks like an event, or whose time no event could have: it moves no time and is no event."""
    assert told((value, [(HEADER_NAME, header)]), (EVENT, None)) == ([NEVER, NEVER], {0: "cti"})


@pytest.mark.parametrize("header", [b"", b"\x01", b"\x01\x01" + bytes(46), None, "text"])
def test_any_other_header_of_that_name_makes_no_cti(header: Any) -> None:
    """An event that was copied out of an ordered topic is an event again."""
    assert told((EVENT, [(HEADER_NAME, header)])) == (None, {})


def test_without_headers_no_record_is_a_cti() -> None:
    """``source_ctis = false``: headers are not even read, and the bytes of a CTI are no JSON."""
    assert told((CTI, None), (EVENT, None), headers=False) == (None, {0: "malformed"})


def test_each_reason_is_told() -> None:
    """What is missing first counts: a value, JSON, the event time, the end."""
    values = [None, b"{", b'{"e":3000}', b'{"t":2000}', b'{"t":"soon","e":"soon"}', EVENT]
    assert told(*[(value, None) for value in values]) == (None, {0: "no_payload", 1: "malformed", 2: "timestamp", 3: "end", 4: "timestamp"})
