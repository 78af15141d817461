"""
Old and new programs on one topic: what an older reader reads of a newer writer, and the other way round.

The older ones are frozen in ``version1.py``; the newer ones are today's with the next version's number on their records.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.version1 import Event1, Reader1, Refused, cti_record, event_header

from ordering.errors import ProtocolError
from ordering.model.step import Model, Step
from ordering.policies import Policies, Shape
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.reader import Log, PartitionReader
from ordering.protocol.wire import VERSION, decode_cti, decode_event_headers, encode_ctis, encode_event_headers
from ordering.testing import batch_of, log_of
from ordering.ticks import INFINITY, SECOND_US

ROWS = [(100 + (7 * number) % 40, 100 + number, "") for number in range(60)]
POLICIES = Policies(early_us=30 * SECOND_US, late_us=20 * SECOND_US, reorder_us=5 * SECOND_US)


def written(step: Step) -> list[tuple[bytes, bytes | None]]:
    """The records of one output partition as today's writer sends them: events, then CTIs."""
    out = step.released
    headers = encode_event_headers(out.seq, out.system_us, out.event_time_us, out.arrival_us, out.offset, out.flags, out.number)
    records: list[tuple[bytes, bytes | None]] = [(header, b"%d" % offset) for header, offset in zip(headers, out.offset, strict=True)]
    return records + [record for cti in step.ctis for record in encode_ctis(cti)]


def steps() -> list[Step]:
    """Two batches of events and the end."""
    model = Model(POLICIES, False, 1, 0)
    state = model.new_state()
    log = log_of([(at * SECOND_US, then * SECOND_US, key) for at, then, key in ROWS], first_offset=0)
    return [model.step(state, batch_of(part)) for part in (log[:25], log[25:])] + [
        model.step(state, model.time_only_batch(len(log), finish=True))
    ]


def test_an_older_reader_reads_a_newer_writer_whose_input_needs_nothing_new() -> None:
    """Each record bears the lowest version that describes it: every event, its flags, its time and the end."""
    reader, made = Reader1(), steps()
    for header, value in (record for step in made for record in written(step)):
        reader.take(header, value)
    seen = [event for event, _ in reader.accepted]
    assert [event.seq for event in seen] == list(range(len(seen)))
    assert [event.system_us for event in seen] == np.concatenate([step.released.system_us for step in made]).tolist()
    assert {event.flags for event in seen} == {0, 1, 2, 3}
    assert reader.c == {0: INFINITY}


@pytest.mark.parametrize("shape", [Shape.INTERVAL, Shape.EDGE])
def test_what_only_the_newer_version_can_say_is_refused_by_an_older_reader_not_misread(shape: Shape) -> None:
    """A span is no point, whatever else its header says."""
    flags = np.array([{Shape.INTERVAL: 8, Shape.EDGE: 16}[shape]], dtype=np.uint16)
    one = np.array([5_000], dtype=np.int64)
    header = encode_event_headers(np.array([0]), one, one, one, one, flags, 0)[0]
    reader = Reader1()
    with pytest.raises(Refused, match="version 2: this program reads version 1"):
        reader.take(header, b"")
    assert not reader.accepted


def test_a_list_is_refused_by_an_older_reader_not_misread() -> None:
    """Its time would be right, but it cannot know that."""
    cti = Cti(0, 0, 5_000, 0, 0, 0, 0, 1_000, Roster(1, 1, Spread.ALL, True), Cause.EVENT, ((b"key", 6_000),))
    reader = Reader1()
    with pytest.raises(Refused, match="version 2"):
        reader.take(*encode_ctis(cti)[0])
    assert reader.c == {}


def test_a_newer_writers_records_are_refused_by_name_and_it_is_said_who_is_upgraded_first() -> None:
    """Events and CTIs of the next version: an error of its own, with the order of upgrades."""
    event = bytes([VERSION + 1]) + event_header(Event1(0, 0, 5_000, 5_000, 5_000, 0))[1:]
    header, body = cti_record(0, c=5_000, n=0)
    with pytest.raises(ProtocolError) as of_event:
        decode_event_headers([event])
    with pytest.raises(ProtocolError) as of_cti:
        decode_cti(bytes([VERSION + 1]) + header[1:], body, 0)
    for error in (of_event.value, of_cti.value):
        assert error.code == "TG-PROTOCOL-VERSION"
        assert f"version {VERSION + 1}" in error.what
        assert "before" in error.fix
        assert "reads" in error.fix


def test_an_older_writers_records_are_read_as_it_meant_them() -> None:
    """Events, a gap that a rewrite closes, and a promise."""
    events = [Event1(0, seq, 5_000 + seq, 5_000, 6_000, seq, seq % 4) for seq in (0, 1, 3, 2, 3)]
    table = decode_event_headers([event_header(event) for event in events])
    cti = decode_cti(*cti_record(0, c=5_003, n=4, ahead=1, largest_us=5_003), 0)
    columns = [table[name].astype(np.int64) for name in ("number", "seq", "system_us")]
    reader = PartitionReader(0, 1)
    accepted = reader.accept(Log(np.arange(5), *columns, [(5, cti)]))
    assert accepted.rows.tolist() == [0, 1, 3, 4]
    assert table["flags"].tolist() == [0, 1, 3, 2, 3]
    assert reader.frontier == 5_003
