"""Copies of events are compared with the accepted one, wherever each stands; only the blocks that have copies are read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ordering.protocol.wire import encode_event_header_column
from tidegate.ordered_topic.compare.copies import ContradictingCopy, Copies
from tidegate.ordered_topic.events import OrderedEvents

EVENTS, BLOCK = 60, 4


def events(seqs: list[int], first_offset: int, number: int = 0, mark: bytes = b"") -> OrderedEvents:
    """Events of a channel by their numbers, at rising log offsets; *mark* changes their values."""
    seq, count = np.array(seqs, dtype=np.int64), len(seqs)
    header = encode_event_header_column(seq, seq, seq, seq, seq, np.zeros(count, dtype=np.uint16), number)
    offset = np.arange(first_offset, first_offset + count)
    value = pa.array([b"v%d" % each + mark for each in seqs], pa.binary())
    return OrderedEvents(offset, np.full(count, number), seq, seq, seq, header, pa.nulls(count, pa.binary()), value)


class Topic:
    """Channels whose accepted events stand at offsets 1000 and up; which of their blocks were read."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []

    def find(self, copies: Copies) -> list[ContradictingCopy]:
        """Return the contradicting copies."""
        starts = {number: list(range(0, EVENTS, BLOCK)) for number in range(2)}
        return list(copies.find_contradictions("t", 3, self._read, starts))

    def _read(self, number: int, block: int, seq: int) -> Iterator[OrderedEvents]:
        for first in range(block * BLOCK, EVENTS, BLOCK):
            self.read.append((number, first // BLOCK))
            yield events(list(range(first, first + BLOCK)), 1_000 + first, number)
            if first + BLOCK > seq:
                return


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, EVENTS - 1), st.booleans()), max_size=12))
def test_exactly_the_copies_with_other_bytes_are_told_with_both_places(drawn: list[tuple[int, int, bool]]) -> None:
    """Torn and repeated writes of honest writers are copies with the same bytes."""
    copies = Copies()
    for place, (number, seq, is_forged) in enumerate(drawn):
        copies.add(events([seq], place, number, b"!" if is_forged else b""))
    found = Topic().find(copies)
    told = sorted((each.log_offset, each.number, each.seq, each.accepted_offset) for each in found)
    assert told == [(place, number, seq, 1_000 + seq) for place, (number, seq, is_forged) in enumerate(drawn) if is_forged]
    assert all(f"t-3@{each.log_offset}" in each.text and f"t-3@{each.accepted_offset}" in each.text for each in found)


def test_any_byte_counts() -> None:
    """Header, key, value, Kafka timestamp; null and empty are apart."""
    one = events([7], 0)
    same = pa.array([b""], pa.binary())
    others = [
        replace(one, stamp_ms=one.stamp_ms + 1),
        replace(one, key=same),
        replace(one, value=same),
        replace(one, value=pa.nulls(1, pa.binary())),
        replace(one, header=events([8], 0).header),
    ]
    copies = Copies()
    for other in (one, *others):
        copies.add(other)
    assert len(Topic().find(copies)) == len(others)


def test_only_blocks_with_copies_are_read() -> None:
    """Near ones together, far ones by themselves; a copy of an event that was never accepted is none."""
    copies, topic = Copies(), Topic()
    copies.add(events([1, 2], 0))
    copies.add(events([EVENTS + 5], 9))
    assert topic.find(copies) == []
    assert topic.read[0] == (0, 0)
    assert (1, 0) not in topic.read
    assert Topic().find(Copies()) == []
