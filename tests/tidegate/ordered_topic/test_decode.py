"""Records of ordered topics: events as columns with the bytes that the law fixes, and CTIs with their facts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import encode_cti, encode_event_headers
from ordering.ticks import INFINITY
from tidegate.ordered_topic.decode import CtiRecord, decode, decode_ctis
from tidegate.platform.kafka.ranges import Records


def cti(number: int, c: int) -> Cti:
    """A CTI of one of four channels."""
    return Cti(number, 1, c, 7, 0, 9, 5, 5, Roster(1, 4, Spread.ALL, True), Cause.SHUTDOWN)


def tail(*written: tuple[bytes | None, bytes | None]) -> Records:
    """Records (header, value) from offset 40 on."""
    count = len(written)
    value, header = (pa.array([row[place] for row in written], type=pa.binary()) for place in (1, 0))
    return Records(np.arange(40, 40 + count), np.zeros(count, dtype=np.int64), pa.nulls(count, pa.binary()), value, header)


def test_ctis_come_with_their_offsets_and_facts() -> None:
    """Events and foreign records are passed over, and their headers of facts with them."""
    last = cti(2, INFINITY)
    facts = pa.array([None, b"a stranger's", None, None, b"f"], pa.binary())
    records = replace(tail((b"e" * 48, b"{}"), (None, b"foreign"), (b"", None), encode_cti(cti(1, 5)), encode_cti(last)), facts=facts)
    assert decode_ctis(records, "flights", 1) == [CtiRecord(43, cti(1, 5), None), CtiRecord(44, last, b"f")]


@pytest.mark.parametrize("value", [b"", b"\xff" * 30, None])
def test_a_cti_that_cannot_be_read_is_passed_over(value: bytes | None) -> None:
    """What it says is unknown, so it promises nothing."""
    header, _ = encode_cti(cti(0, INFINITY))
    assert decode_ctis(tail((header, value), encode_cti(cti(1, 5))), "flights", 1) == [CtiRecord(41, cti(1, 5), None)]


def event(seq: int) -> tuple[bytes, bytes]:
    """The record of an event."""
    times = np.array([seq])
    return encode_event_headers(times, times, times, times, times, np.zeros(1, dtype=np.uint16), 2)[0], b"{%d}" % seq


@pytest.mark.parametrize("every", [1, 3, 10**6])
@pytest.mark.parametrize("cut", [0, 5])
def test_events_keep_their_bytes_however_many_ctis_stand_between_them(every: int, cut: int) -> None:
    """Level 1: header, key, value and timestamp are those of the record, also in a slice of columns that others made."""
    written = []
    for seq in range(700):
        written.append(event(seq))
        if seq % every == 0:
            written.append(encode_cti(cti(2, seq)))
    whole = tail(*written)
    keys, count = pa.array([header[:9] for header, _ in written], pa.binary()), len(written) - cut
    assert whole.header is not None
    columns = (column.slice(cut) for column in (keys, whole.value, whole.header))
    records = Records(whole.offset[cut:], np.arange(count), *columns)
    piece = decode(records, "flights", 1)
    rows = [row for row, (header, _) in enumerate(written[cut:]) if len(header) == 48]
    events = piece.events
    assert (events.log_offset.tolist(), events.stamp_ms.tolist()) == ([40 + cut + row for row in rows], rows)
    assert (events.header.to_pylist(), events.value.to_pylist()) == tuple(
        map(list, zip(*(written[cut + row] for row in rows), strict=True))
    )
    assert events.key.to_pylist() == [header[:9] for header in events.header.to_pylist()]
    assert (
        events.seq.tolist()
        == events.fields["seq"].tolist()
        == [int.from_bytes(header[8:16], "little") for header in events.header.to_pylist()]
    )
    assert [offset for offset, _ in piece.ctis] == [40 + cut + row for row in range(count) if row not in set(rows)]
    assert piece.next_offset == 40 + len(written)
