"""The parts of ``tidegate compare``: digests that know no cuts, promises held against events, differences told by their kind."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.naive_reader import Event, Line
from support.written_topics import Written, written

from ordering.columns.framed_payloads import frame_payload
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import encode_event_header_column
from ordering.ticks import INFINITY
from tidegate.ordered_topic.compare.difference import ChannelExcerpt, Difference, events_of
from tidegate.ordered_topic.compare.digest import BLOCK_EVENTS, ChannelDigest, find_differing_block
from tidegate.ordered_topic.compare.promises import RECENT_EVENTS, PromiseCheck
from tidegate.ordered_topic.compare.sides import Side
from tidegate.ordered_topic.compare.topics import PartitionSummary, add_piece
from tidegate.ordered_topic.decode import OrderedPiece
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.walk import PartitionWalk

ROSTER = Roster(1, 1, Spread.ONE, False)


def columns(system_us: list[int], first: int = 0, value: list[bytes | None] | None = None, key: bytes | None = b"k") -> OrderedEvents:
    """Events of channel 0 numbered from *first* on, each made of the raw record with its number."""
    count, seq = len(system_us), np.arange(first, first + len(system_us), dtype=np.int64)
    times = np.array(system_us, dtype=np.int64)
    header = encode_event_header_column(seq, times, times, times, seq, np.zeros(count, dtype=np.uint16), 0)
    payload = value or [b"v%d" % number for number in seq]
    zeros = np.zeros(count, dtype=np.int64)
    key_column = pa.array([key] * count, type=pa.binary())
    return OrderedEvents(seq + 100, zeros, seq, times, times // 1000, header, key_column, pa.array(payload, type=pa.binary()))


def digest(events: OrderedEvents, cuts: list[int] | None = None) -> ChannelDigest:
    """The digests of a sequence that comes in pieces."""
    made = ChannelDigest()
    for first, past in zip([0, *(cuts or [])], [*(cuts or []), len(events)], strict=True):
        made.add(events.slice(first, past))
    return made


EVENTS = columns(
    list(range(2 * BLOCK_EVENTS + 500)), value=[None if n % 7 == 0 else b"x" * (n % 11) for n in range(2 * BLOCK_EVENTS + 500)]
)


@given(st.lists(st.integers(0, len(EVENTS)), max_size=6).map(sorted))
def test_where_a_log_is_cut_changes_no_digest(cuts: list[int]) -> None:
    """The same events have the same digests, whole blocks and the rest."""
    one, other = digest(EVENTS), digest(EVENTS, cuts)
    assert one.blocks == other.blocks
    assert one.block_starts == other.block_starts
    assert find_differing_block(one, other) is None


@given(st.integers(0, len(EVENTS) - 1), st.sampled_from(["value", "key", "stamp_ms", "header"]))
def test_one_field_of_one_event_changes_the_digest_of_its_block(place: int, name: str) -> None:
    """Whatever differs, and wherever: a null is no empty value either."""
    changed: Any = replace(EVENTS)
    if name == "stamp_ms":
        changed.stamp_ms = EVENTS.stamp_ms.copy()
        changed.stamp_ms[place] += 1
    else:
        column = getattr(EVENTS, name)
        octets = column.to_pylist()
        octets[place] = {None: b"", b"": None}.get(octets[place], (octets[place] or b"")[:-1] + b"!")
        setattr(changed, name, pa.array(octets, type=column.type))
    assert find_differing_block(digest(EVENTS), digest(changed)) == (place // BLOCK_EVENTS, False)


@given(st.integers(0, len(EVENTS)))
def test_a_beginning_is_no_difference_until_it_is_looked_at(length: int) -> None:
    """Whole blocks are told by their digests; of the last block of the shorter one only a look can tell."""
    found = find_differing_block(digest(EVENTS), digest(EVENTS.slice(0, length)))
    expected = None if length % BLOCK_EVENTS == 0 or length == len(EVENTS) else (length // BLOCK_EVENTS, True)
    assert found == expected


def cti(c: int, n: int, ahead: int = 0, largest_us: int = 0, listed: tuple[tuple[bytes, int], ...] = ()) -> Cti:
    """A CTI of channel 0."""
    return Cti(0, 0, c, n, ahead, 0, 0, largest_us, ROSTER, Cause.EVENT, listed)


def check(*story: OrderedEvents | Cti, whole: bool = True) -> PromiseCheck:
    """Walk a channel's events and CTIs."""
    made = PromiseCheck(0, 0, whole)
    for offset, each in enumerate(story):
        if isinstance(each, OrderedEvents):
            made.add_events(each)
        else:
            made.add_cti(offset, each)
    return made


def test_promises_that_hold_are_found_to_hold() -> None:
    """Counts ahead and the largest time too, and a final CTI."""
    walked = check(
        columns([2_000, 9_000, 4_000]),
        cti(4_000, 3, 2, 9_000),
        columns([5_000], 3),
        cti(5_000, 4, 2, 9_000),
        cti(INFINITY, 4, 0, 9_000),
    )
    assert walked.broken is None
    assert (walked.ctis, walked.stale, walked.unproven) == (3, 0, 0)


@pytest.mark.parametrize(
    ("story", "what"),
    [
        ([columns([2_000]), cti(5_000, 1, 0, 2_000), columns([4_999], 1)], "number 1 at 1970-01-01T00:00:00.004999Z follows"),
        ([columns([2_000]), cti(5_000, 2, 0, 2_000)], "numbers events below 2, but the last one before it has number 0"),
        ([columns([2_000, 6_000]), cti(5_000, 2, 0, 6_000)], "it says that 0 events below 2"),
        ([columns([2_000, 6_000]), cti(5_000, 2, 1, 7_000)], "largest time"),
        ([columns([2_000, 3_000]), cti(2_500, 1)], ""),
        ([columns([2_000, 3_000]), cti(3_001, 1)], "events from number 1 on are not before"),
        ([columns([2_000]), cti(INFINITY, 1, 0, 2_000), columns([9_000], 1)], "had come to infinity"),
        ([columns([2_000]), cti(2_000, 1, 1, 2_000, ((b"k", 3_000),)), columns([2_500], 1)], "of substream b'k'"),
        ([columns([2_000]), cti(2_000, 1, 1, 2_000, ((b"other", 3_000),)), columns([2_500], 1)], ""),
    ],
)
def test_a_promise_that_does_not_hold_is_told_with_what_belies_it(story: list[OrderedEvents | Cti], what: str) -> None:
    """Whichever of its parts is broken, and whether the event came before it or after it."""
    broken = check(*story).broken
    assert (broken is not None) == bool(what)
    assert broken is None or what in broken.description


def test_a_stale_promise_is_harmless_if_true_and_told_if_nobody_can_know() -> None:
    """A writer that should be gone repeats what was said; of long ago it must be what others imply."""
    walked = check(columns([2_000]), cti(2_500, 1, 0, 2_000), columns([3_000, 4_000], 1), cti(2_500, 1), cti(2_400, 1), cti(2_999, 1))
    assert walked.broken is None
    assert walked.stale == 1
    long_ago = columns([2_000]), cti(2_500, 1, 0, 2_000), columns([5_000], 1), columns([6_000] * RECENT_EVENTS, 2)
    assert check(*long_ago, cti(2_501, 1)).unproven == 1
    assert check(*long_ago, cti(2_500, 1)).unproven == 0
    assert check(*long_ago, cti(5_001, 2)).unproven == 0


def test_a_walk_from_the_middle_checks_what_follows() -> None:
    """What it has not met it does not miss; what it meets must still hold."""
    assert check(cti(2_000, 50), columns([3_000], 50), whole=False).broken is None
    assert check(cti(2_000, 50), columns([1_999], 50), whole=False).broken is not None


def met_of(lines: list[Line], partitions: int, start_us: int | None = None) -> PartitionSummary:
    """What a walk finds in one partition of an ordered topic, read at once."""
    events = [(offset, each) for offset, each in lines if isinstance(each, Event)]
    plain = [np.array(column, dtype=np.int64) for column in zip(*((o, e.number, e.seq, e.system_us) for o, e in events), strict=True)]
    offset, number, seq, system_us = plain or [np.empty(0, dtype=np.int64)] * 4
    header = encode_event_header_column(seq, system_us, system_us, system_us, number, np.zeros(len(seq), dtype=np.uint16), 0)
    nothing = pa.nulls(len(seq), pa.binary())
    side = Side("topic", {}, partitions, (0,) * partitions, (0,) * partitions, start_us, label="A")
    walk, found = PartitionWalk(side, 0), PartitionSummary()
    ctis = [(at, each) for at, each in lines if isinstance(each, Cti)]
    met = OrderedEvents(offset, number, seq, system_us, system_us // 1000, header, nothing, nothing)
    add_piece(found, walk.accept(OrderedPiece(met, ctis, len(lines))), side, 0, None)
    return found


@given(written(), st.data())
def test_no_promise_of_honest_writers_is_called_broken_however_torn_their_topic(topic: Written, data: st.DataObject) -> None:
    """Writers that die, write again, or go on when they should be gone; read from the beginning and from the middle."""
    partition = data.draw(st.integers(0, len(topic.partitions) - 1))
    found = met_of(topic.partitions[partition], len(topic.partitions))
    for number, channel in found.channels.items():
        true = topic.truth.get((number, partition), [])
        assert channel.check.broken is None
        assert channel.check.unproven == 0
        assert channel.digest.count == len(true)
        assert channel.has_ended
    times = sorted(event.system_us for events in topic.truth.values() for event in events)
    start_us = data.draw(st.sampled_from(times)) if times else 5
    for number, channel in met_of(topic.partitions[partition], len(topic.partitions), start_us).channels.items():
        assert channel.check.broken is None
        assert channel.digest.count == sum(event.system_us >= start_us for event in topic.truth.get((number, partition), []))


def difference(a: OrderedEvents, b: OrderedEvents) -> Difference:
    """The first difference of two stretches that have one."""
    found = ChannelExcerpt(0, 0, 0, events_of(a), events_of(b)).difference()
    assert found is not None
    return found


def test_differences_are_told_by_their_kind_with_a_hint() -> None:
    """A field, an event that is missing on either side, two that change places."""
    base = columns([1_000 * n for n in range(1, 20)])
    moved = [0, 1, 2, 4, 3, *range(5, 19)]
    assert difference(base, renumbered(base.take_rows(np.array(moved)))).kind == "swapped"
    without = renumbered(base.take_rows(np.array([n for n in range(19) if n != 6])))
    assert difference(base, without).kind == "missing in B"
    assert difference(without, base).kind == "missing in A"
    payloads = base.value.to_pylist()
    payloads[4] = b"other"
    found = difference(base, replace(base, value=pa.array(payloads, type=pa.binary())))
    assert (found.kind, found.names, found.index) == ("fields", ("value",), 4)
    lines = list(found.text_lines(lambda number, offset: f"raw-{number}@{offset}", ("a", "b")))
    assert "after 4 equal events: other value" in lines[0]
    assert any("a-0@104" in line and "raw-0@4" in line for line in lines)
    late = columns([1_000 * n for n in range(1, 20)])
    late.header = columns([1_000 * n + (n == 3) * 500 for n in range(1, 20)]).header
    assert "late or reorder" not in difference(base, replace(base, stamp_ms=base.stamp_ms + 1)).hint
    assert difference(base, late).names == ("event_time_us", "arrival_us", "system_us")


def test_results_in_another_order_are_told_what_over_promises() -> None:
    """Two queries over different logs: the order between keys is that of their logs. With equal keys it is an ordinary difference."""
    base, other = columns([1_000, 2_000, 3_000]), columns([1_000, 2_000, 2_500], key=b"l")
    assert "only each key's results are the same" in difference(base, other).hint
    assert "policies judged otherwise" not in difference(base, other).hint
    assert "OVER" not in difference(base, columns([1_000, 2_000, 2_500])).hint


def test_headers_are_compared_and_told_apart_from_payloads() -> None:
    """If values are framed; their order counts, as each record has them in one order."""
    a, b = [[("x", b"1"), ("y", b"2")]] * 3, [[("x", b"1"), ("y", b"2")], [("y", b"2"), ("x", b"1")], [("x", b"1")]]
    one, other = (
        replace(columns([1_000, 2_000, 3_000], value=[frame_payload(headers, b"{}") for headers in each]), is_framed=True)
        for each in (a, b)
    )
    assert digest(one).rest_digest() != digest(other).rest_digest()
    assert digest(one.slice(0, 1)).rest_digest() == digest(other.slice(0, 1)).rest_digest()
    found = difference(one, other)
    assert (found.names, found.index) == (("headers",), 1)
    assert "another `headers`" in found.hint
    lines = "\n".join(found.text_lines(lambda number, offset: "", ("a", "b")))
    assert "headers = x b'1', y b'2'" in lines
    assert found.as_dict(lambda number, offset: "")["a"]["value"] == "b'{}'"
    assert events_of(one)[0].fields["value"] == b"{}"
    assert "headers" not in difference(columns([1_000]), columns([1_000], key=None)).as_dict(lambda number, offset: "")["a"]


def renumbered(events: OrderedEvents) -> OrderedEvents:
    """The same raw records, numbered anew in their order."""
    table = np.frombuffer(b"".join(events.header.to_pylist()), dtype="<i8").reshape(len(events), 6).copy()
    table[:, 1] = np.arange(len(events))
    header = pa.array([row.tobytes() for row in table], type=pa.binary(48))
    return replace(events, seq=np.arange(len(events)), header=header)


def test_a_byte_deep_in_a_payload_is_shown_with_its_place() -> None:
    """Long payloads are not printed whole."""
    payload = bytes(random.Random(1).randrange(65, 90) for _ in range(5_000))
    changed = payload[:4_000] + b"#" + payload[4_001:]
    found = difference(columns([1_000], value=[payload]), columns([1_000], value=[changed]))
    lines = "\n".join(found.text_lines(lambda number, offset: "", ("a", "b")))
    assert "byte 4000 of 5000" in lines
    assert "#" in lines
    assert len(lines) < 900
