"""From records to columns: events and CTIs come apart in log order, and a record that is neither is passed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.errors import ProtocolError
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import VERSION, Flag, encode_cti, encode_event_headers
from query.columns.decoded_range import DecodedRange
from query.columns.events import DECODED_SCHEMA, EVENTS_SCHEMA, NO_EVENTS, end_edges, for_operators, take_events
from tidegate.ordered_topic.decode import decode as decode_records
from tidegate.platform.kafka.ranges import Records


@dataclass(frozen=True)
class Event:
    """An event as its writer knows it."""

    number: int
    seq: int
    system_us: int
    origin: int
    key: bytes | None
    value: bytes
    flags: int = 0

    @property
    def header(self) -> bytes:
        """Its header's bytes."""
        times = [np.array([time]) for time in (self.seq, self.system_us, 1, 2, self.origin)]
        return encode_event_headers(*times, np.array([self.flags], dtype=np.uint16), self.number)[0]


def cti(number: int, c: int, n: int, listed: dict[bytes, int] | None = None) -> Cti:
    """A CTI of output partition 3; *listed* are substreams and how far they are ahead of c."""
    ahead = tuple((key, c + by) for key, by in (listed or {}).items())
    return Cti(number, 3, c, n, 0, 7, c, 5, Roster(1, 4, Spread.ALL, True), Cause.EVENT, ahead)


Written = tuple[bytes | None, bytes | None, bytes | None]
"""Key, value and header of a record."""


def written(item: Event | Cti) -> Written:
    """A record as it is read."""
    if isinstance(item, Event):
        return item.key, item.value, item.header
    header, body = encode_cti(item)
    return None, body, header


def records_of(rows: list[Written], offsets: list[int]) -> Records:
    """Records as the range reader gives them."""
    columns = [pa.array([row[place] for row in rows], type=pa.binary()) for place in range(3)]
    return Records(np.array(offsets, dtype=np.int64), np.zeros(len(rows), dtype=np.int64), *columns)


def decode(records: Records, topic: str, partition: int) -> DecodedRange:
    """A range as buckets take it."""
    return DecodedRange.of(decode_records(records, topic, partition))


def listed(events: pa.Table) -> list[tuple[Any, ...]]:
    """Events row by row."""
    return list(zip(*(column.to_pylist() for column in events.columns), strict=True))


_INT = st.integers(0, 2**62)
_FLAGS = st.integers(0, sum(Flag))
_EVENTS = st.builds(Event, st.integers(0, 9), _INT, _INT, _INT, st.none() | st.binary(max_size=4), st.binary(max_size=4), _FLAGS)
_CTIS = st.builds(cti, st.integers(0, 9), _INT, _INT, st.dictionaries(st.binary(max_size=4), st.integers(1, 99), max_size=3))


@given(st.lists(st.tuples(_EVENTS | _CTIS, st.integers(1, 3)), max_size=12))
def test_what_was_written_is_read(items: list[tuple[Event | Cti, int]]) -> None:
    """Level 1: every field of versions 1 and 2 comes back, each with its own log offset."""
    offsets = np.cumsum([0, *(gap for _, gap in items)])[1:].tolist()
    decoded = decode(records_of([written(item) for item, _ in items], offsets), "rides.ordered", 3)
    log, events = decoded.log, decoded.events
    mine = [(offset, item) for offset, (item, _) in zip(offsets, items, strict=True) if isinstance(item, Event)]
    assert listed(events) == [(each.number, each.origin, each.system_us, each.key, each.value, each.flags, 2) for _, each in mine]
    assert decoded.next_offset == (offsets[-1] + 1 if offsets else 0)
    assert events.schema == DECODED_SCHEMA
    assert end_edges(events).tolist() == [bool(each.flags & Flag.EDGE_END) for _, each in mine]
    columns = (log.log_offset, log.number, log.seq, log.system_us)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [
        (offset, each.number, each.seq, each.system_us) for offset, each in mine
    ]
    assert log.ctis == [(offset, item) for offset, (item, _) in zip(offsets, items, strict=True) if isinstance(item, Cti)]


EVENT = Event(1, 2, 3, 4, b"k", b"{}")
NEWER = bytes([VERSION + 1])
FOREIGN: dict[str, Written] = {
    "no header of ours": (b"k", b"{}", None),
    "an empty header": (b"k", b"{}", b""),
    "a header of another length": (b"k", b"{}", b"x" * 47),
    "an event of a newer version": (b"k", b"{}", NEWER + EVENT.header[1:]),
    "an event that says it is something else": (b"k", b"{}", b"\x01\x02" + EVENT.header[2:]),
    "a CTI of a newer version": (None, encode_cti(cti(0, 1, 1))[1], NEWER + encode_cti(cti(0, 1, 1))[0][1:]),
    "a CTI with half a body": (None, encode_cti(cti(0, 1, 1))[1][:5], encode_cti(cti(0, 1, 1))[0]),
    "a CTI without a body": (None, None, encode_cti(cti(0, 1, 1))[0]),
}


@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if "newer" not in kind])
def test_a_strangers_record_is_passed_over_and_told_by_its_place(kind: str) -> None:
    """Level 1: what is read is what the topic's writer wrote, wherever a stranger's record stands, also at the end of a range."""
    own = [written(cti(0, 1, 1)), written(EVENT), written(EVENT)]
    clean = decode(records_of(own, [10, 11, 14]), "rides.ordered", 3)
    decoded = decode(records_of([own[0], own[1], FOREIGN[kind], own[2], FOREIGN[kind]], [10, 11, 13, 14, 15]), "rides.ordered", 3)
    assert [(each.where, bool(each.reason)) for each in decoded.foreign.first] == [
        ("rides.ordered-3@13", True),
        ("rides.ordered-3@15", True),
    ]
    assert decoded.foreign.count == 2
    assert listed(decoded.events) == listed(clean.events)
    assert decoded.log.log_offset.tolist() == [11, 14]
    assert decoded.log.ctis == clean.log.ctis
    assert (decoded.next_offset, clean.next_offset, clean.foreign.count) == (16, 15, 0)


def test_a_range_of_strangers_alone_is_empty_and_still_read() -> None:
    """The next range begins behind it."""
    decoded = decode(records_of([FOREIGN["no header of ours"]] * 3, [7, 8, 9]), "rides.ordered", 3)
    assert (decoded.events.num_rows, decoded.log.ctis, decoded.next_offset, decoded.foreign.count) == (0, [], 10, 3)
    assert decoded.events.schema == DECODED_SCHEMA


@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if "newer" in kind])
def test_a_record_of_a_newer_version_is_refused_by_its_place(kind: str) -> None:
    """A later version wrote it, so its events would be lost; a stranger's record before it hides it not."""
    rows = [written(cti(0, 1, 1)), FOREIGN["an empty header"], FOREIGN[kind], written(EVENT)]
    with pytest.raises(ProtocolError) as raised:
        decode(records_of(rows, [10, 11, 13, 14]), "rides.ordered", 3)
    assert (raised.value.code, raised.value.where) == ("TG-PROTOCOL-VERSION", "rides.ordered-3@13")
    assert raised.value.fix


def test_events_are_put_together_and_taken_apart() -> None:
    """Rows keep their order when they are chosen; all of them are the same table, none of them holds no memory of it."""
    events = decode(records_of([written(Event(1, seq, 10 + seq, seq, b"k", b"v")) for seq in range(3)], [1, 2, 3]), "t", 0).events
    both = pa.concat_tables([events, NO_EVENTS, take_events(events, np.array([2, 0]))])
    assert [row[1] for row in listed(both)] == [0, 1, 2, 2, 0]
    assert take_events(events, np.arange(3)) is events
    assert take_events(events, np.arange(0)).nbytes == 0


def test_operators_get_the_columns_that_were_decoded() -> None:
    """Nothing is copied, and the record's key stays behind."""
    events = decode(records_of([written(Event(1, 0, 10, 0, b"k", b"v"))], [1]), "t", 0).events
    rows = for_operators(events, position=np.array([7]))
    assert rows.schema == EVENTS_SCHEMA
    assert rows["value"].chunk(0).buffers()[2].address == events["value"].chunk(0).buffers()[2].address
    assert rows.to_pylist() == [{"position": 7, "sub": 0, "system_us": 10, "partition_id": 1, "offset": 0, "value": b"v", "arrival_us": 2}]
