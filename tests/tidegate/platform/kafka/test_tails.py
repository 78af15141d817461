"""The CTIs at the end of an ordered topic."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import encode_cti
from ordering.ticks import INFINITY
from tidegate.platform.kafka.channel_promises import ctis_of
from tidegate.platform.kafka.ranges import Records


def cti(number: int, c: int) -> Cti:
    """A CTI of one of four channels."""
    return Cti(number, 1, c, 7, 0, 9, 5, 5, Roster(1, 4, Spread.ALL, True), Cause.SHUTDOWN)


def tail(*written: tuple[bytes | None, bytes | None]) -> Records:
    """Records (header, value) from offset 40 on."""
    count = len(written)
    value, header = (pa.array([row[place] for row in written], type=pa.binary()) for place in (1, 0))
    return Records(np.arange(40, 40 + count), np.zeros(count, dtype=np.int64), pa.nulls(count, pa.binary()), value, header)


def test_only_ctis_are_told() -> None:
    """Events and foreign records are passed over."""
    last = cti(2, INFINITY)
    records = tail((b"e" * 48, b"{}"), (None, b"foreign"), (b"", None), encode_cti(cti(1, 5)), encode_cti(last))
    assert list(ctis_of(records, "flights", 1)) == [(43, cti(1, 5)), (44, last)]


@pytest.mark.parametrize("value", [b"", b"\xff" * 30, None])
def test_a_cti_that_cannot_be_read_is_passed_over(value: bytes | None) -> None:
    """What it says is unknown, so it promises nothing."""
    header, _ = encode_cti(cti(0, INFINITY))
    assert list(ctis_of(tail((header, value), encode_cti(cti(1, 5))), "flights", 1)) == [(41, cti(1, 5))]
