"""The end of an ordered topic: which CTIs are final, and which record is at fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ordering.errors import ProtocolError
from ordering.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY
from ordering.wire import HEADER_NAME, encode_cti
from tidegate.runtime.kafka.ranges import Records
from tidegate.runtime.kafka.tails import final_ctis


def cti(number: int, c: int) -> Cti:
    """A CTI of one of four channels."""
    return Cti(number, 1, c, 7, 0, 9, 5, 5, Roster(1, 4, Spread.ALL, True), Cause.SHUTDOWN)


def tail(*written: tuple[list[tuple[str, bytes | None]] | None, bytes | None]) -> Records:
    """Records (headers, value) from offset 40 on."""
    count = len(written)
    value = np.empty(count, dtype=object)
    value[:] = [each for _, each in written]
    headers: list[Any] = [each for each, _ in written]
    return Records(np.arange(40, 40 + count), np.zeros(count, dtype=np.int64), np.full(count, None, dtype=object), value, headers)


def record(promise: Cti) -> tuple[list[tuple[str, bytes | None]], bytes]:
    """The record that carries a CTI."""
    header, body = encode_cti(promise)
    return [(HEADER_NAME, header)], body


def test_only_ctis_at_infinity_are_final() -> None:
    """Events, foreign records and other CTIs are passed over."""
    last = cti(2, INFINITY)
    records = tail(([(HEADER_NAME, b"e" * 48)], b"{}"), (None, b"foreign"), ([("x", None)], None), record(cti(1, 5)), record(last))
    assert list(final_ctis(records, "flights", 1)) == [last]


@pytest.mark.parametrize("value", [b"", b"\xff" * 30, None])
def test_a_cti_that_cannot_be_read_is_named(value: bytes | None) -> None:
    """The error says topic, partition and offset."""
    headers, _ = record(cti(0, INFINITY))
    with pytest.raises(ProtocolError) as caught:
        list(final_ctis(tail(record(cti(1, 5)), (headers, value)), "flights", 1))
    assert caught.value.where == "flights-1@41"
