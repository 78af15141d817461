"""What the channels of an ordered topic have promised: records of its tail as the reader's rule takes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ordering.errors import ProtocolError
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.resume import last_promises
from ordering.protocol.wire import VERSION, encode_cti, encode_event_headers
from tidegate.ordered_topic.decode import decode
from tidegate.ordered_topic.promises import ended_error
from tidegate.platform.kafka.ranges import Records

ROSTER = Roster(1, 2, Spread.ALL, True)


def cti(number: int, c: int, n: int) -> Cti:
    """A CTI of one of two channels."""
    return Cti(number, 0, c, n, 0, 0, 0, 0, ROSTER, Cause.EVENT)


def event(number: int, seq: int, system_us: int) -> tuple[bytes, bytes]:
    """The record of an event."""
    column = np.array([system_us])
    (header,) = encode_event_headers(np.array([seq]), column, column, column, column, np.zeros(1, dtype=np.uint16), number)
    return header, b"{}"


def records(*written: tuple[bytes | None, bytes]) -> Records:
    """Records (header, value) from offset 40 on."""
    header, value = (pa.array([row[place] for row in written], type=pa.binary()) for place in (0, 1))
    offset = np.arange(40, 40 + len(written))
    return Records(offset, np.ones(len(written), dtype=np.int64), pa.nulls(len(written), pa.binary()), value, header)


def test_a_tail_tells_the_last_valid_cti_of_each_channel() -> None:
    """Events before the tail need not be read: the first CTI there vouches for them; one with missing events does not count."""
    tail = records(
        event(0, 7, 5_000),
        encode_cti(cti(0, 5_000, 8)),
        event(0, 8, 6_000),
        encode_cti(cti(0, 6_000, 9)),
        encode_cti(cti(1, 4_000, 3)),
        encode_cti(cti(0, 9_000, 12)),
    )
    log = decode(tail, "t", 0).log
    assert log.log_offset.tolist() == [40, 42]
    assert log.seq.tolist() == [7, 8]
    assert last_promises(log, 0, 1, from_beginning=False) == {0: cti(0, 6_000, 9), 1: cti(1, 4_000, 3)}


def test_foreign_records_are_passed_over() -> None:
    """Whatever else stands in the topic has no header of ours."""
    log = decode(records((None, b"foreign"), (b"", b"x"), event(0, 0, 5_000)), "t", 0).log
    assert log.seq.tolist() == [0]


def test_an_event_of_a_version_to_come_is_refused() -> None:
    """Nobody knows what it says."""
    header, value = event(0, 0, 5_000)
    with pytest.raises(ProtocolError):
        decode(records((bytes([VERSION + 1]) + header[1:], value)), "t", 0)
    assert not len(decode(records((b"\x63" + header[1:], value)), "t", 0).log), "no version will ever have that number"


def test_an_ended_topic_names_the_ways_out() -> None:
    """A new topic, or everything anew."""
    assert ended_error("flights.ordered").code == "TG-TOPIC-ENDED"
    assert "ordered_topic" in ended_error("flights.ordered").fix
