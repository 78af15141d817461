"""Channels of an ordered topic as they are handed to the producer: CTIs in parts stay together and in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ordering.protocol.facts import Fact, FactKind, encode_facts
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import decode_cti
from tidegate.platform.kafka.writer import ChannelWriter, GaplessProducer, Row


class Handed(GaplessProducer):
    """What a producer was handed, call by call; it has no broker and sends nothing."""

    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1"})
        self.calls: list[list[Row]] = []

    def send(self, topic: str, rows: Iterable[Row]) -> None:
        """Keep the rows."""
        self.calls.append(list(rows))


def cti(partition: int, entries: int) -> Cti:
    """A CTI that lists so many substreams."""
    listed = tuple((b"substream %d" % at, 10**15 + at) for at in range(entries))
    return Cti(0, partition, 5_000_000, 3, 0, 9, 5_000_000, 4_999_999, Roster(1, 1, Spread.ALL, True), Cause.EVENT, listed)


def test_the_parts_of_a_cti_follow_each_other_in_one_go() -> None:
    """Nothing of another channel, nor of another call, comes between parts; each keeps to the bound."""
    handed, ctis = Handed(), [cti(0, 0), cti(1, 100), cti(2, 1)]
    ChannelWriter(handed, "rides.ordered", cti_bytes_max=500).write_ctis(ctis)
    (rows,) = handed.calls
    read = [decode_cti(header, body, partition) for body, _, partition, _, ((_, header), *_) in rows]
    assert [part.output_partition for part in read] == [0] + [1] * (len(read) - 2) + [2]
    assert [part.part for part in read] == [0, *range(len(read) - 2), 0]
    assert len(read) > 4
    assert max(len(body) for body, *_ in rows) <= 500
    assert tuple(entry for part in read[1:-1] for entry in part.listed) == ctis[1].listed
    assert {(key, stamp_ms) for _, key, _, stamp_ms, _ in rows} == {(None, 4_999)}


def test_facts_go_with_the_part_that_counts() -> None:
    """A CTI counts with its last part, and so do the facts beside it; a writer without facts writes no such header."""
    handed, facts = Handed(), (Fact(FactKind.ESTIMATE, 9, 5_000_000),)
    ChannelWriter(handed, "rides.ordered", cti_bytes_max=500).write_ctis(
        [replace(cti(0, 100), facts=facts), replace(cti(0, 0), facts=()), cti(1, 0)]
    )
    beside = [headers[1:] for *_, headers in handed.calls[0]]
    assert all(headers == [] for headers in beside[:-3])
    assert beside[-3:] == [[("tf", encode_facts(facts))], [("tf", b"")], []]


def test_a_cti_before_the_first_event_has_a_valid_timestamp() -> None:
    """Kafka clients read a timestamp of 0 as now."""
    handed = Handed()
    early = Cti(0, 0, 500, 0, 0, 0, 500, 0, Roster(1, 1, Spread.ONE, False), Cause.IDLE)
    ChannelWriter(handed, "rides.ordered").write_ctis([early])
    assert [row[3] for row in handed.calls[0]] == [1]
