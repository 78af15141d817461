"""
The walk of one partition of an ordered topic by the reader's rule.

Law: :meth:`PartitionWalk.run` yields exactly the events that a reader of the topic accepts (:mod:`ordering.protocol.reader`), each once,
with the bytes that level 1 of the law fixes: header, key, value and Kafka timestamp. It yields the CTIs as they are in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ordering.arrays import Ints
from ordering.errors import ProtocolError
from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.reader import PartitionReader, gap_error
from ordering.ticks import NEVER
from tidegate.ordered_topic.decode import OrderedPiece, decode
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.foreign_records import ForeignRecords
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.records import Framed, Records


@dataclass(frozen=True, slots=True)
class TopicRange:
    """What is walked of an ordered topic."""

    topic: str
    # Librdkafka properties of its cluster, secrets included.
    properties: Mapping[str, str] = field(repr=False)
    # How many partitions the topic has.
    partitions: int
    # The first offset to read of each partition, and the offset after the last; empty if another reader reads.
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    # Only events from this system timestamp on are accepted, microseconds; None: all.
    start_us: int | None = None
    # The headers to put before each value.
    framed: Framed = ()


class ChannelPosition(NamedTuple):
    """Where a walk of one channel resumes: the next log offset, the channel's roster number, and the seq of its last accepted event."""

    log_offset: int
    number: int
    last_seq: int


class WalkedPiece(NamedTuple):
    """A piece of the log: accepted events, for each the log offset of the record at which it was accepted, and the CTIs."""

    events: OrderedEvents
    log_position: Ints
    ctis: list[tuple[int, Cti]]


class PartitionWalk:
    """
    The walk of one partition. ``records`` counts the records walked so far, ``position`` is the log offset of the next one, and ``foreign``
    has the records that are none of the protocol.

    Args:
        resume: The walk begins in the middle, and accepts the events of that channel alone.
        on_copies: Called with the events that are not accepted: copies of accepted ones, and those beyond a gap.
    """

    def __init__(
        self,
        walked: TopicRange,
        partition: int,
        resume: ChannelPosition | None = None,
        on_copies: Callable[[OrderedEvents], None] | None = None,
    ) -> None:
        self._walked, self._partition, self._on_copies = walked, partition, on_copies
        self.position = walked.starts[partition] if resume is None else resume.log_offset
        self.reader = PartitionReader(partition, walked.partitions, walked.start_us)
        if resume is not None:
            self.reader = PartitionReader.in_channel(partition, walked.partitions, resume.number, resume.last_seq)
        self._carried: OrderedEvents | None = None
        self.records = 0
        self.foreign = ForeignRecords()

    @property
    def roster(self) -> Roster | None:
        return self.reader.roster

    def run(self, until_us: int | None = None, end: int | None = None) -> Iterator[WalkedPiece]:
        """Yield the log in pieces, to its end, or before the log offset *end*, or until no event before *until_us* can come."""
        walked, partition = self._walked, self._partition
        end = walked.ends[partition] if end is None else end
        if self.position >= end or self.has_passed(until_us):
            return
        with RangeReader(walked.properties, walked.topic, partition, headers=True, framed=walked.framed) as kafka:
            for records in kafka.read(self.position, end):
                yield self.accept_records(records)
                if self.has_passed(until_us):
                    return

    def has_passed(self, until_us: int | None) -> bool:
        """Return whether no event before *until_us* can come."""
        return until_us is not None and self.reader.frontier >= until_us

    def accept_records(self, records: Records) -> WalkedPiece:
        """Walk the next records of the log."""
        self.records += len(records)
        return self.accept(decode(records, self._walked.topic, self._partition))

    def accept(self, piece: OrderedPiece) -> WalkedPiece:
        """Walk the next piece of the log."""
        self.position = max(self.position, piece.next_offset)
        self.foreign.add(piece.foreign)
        accepted = self.reader.accept(piece.log)
        # After a start in the middle, events are carried until the CTI that proves them complete, perhaps in the next piece.
        candidates = piece.events if self._carried is None else OrderedEvents.concat([self._carried, piece.events])
        self._carried = candidates.take_rows(accepted.carried) if len(accepted.carried) else None
        if self._on_copies is not None and len(accepted.rows) + len(accepted.carried) < len(candidates):
            is_copy = np.ones(len(candidates), dtype=np.bool_)
            is_copy[accepted.rows] = is_copy[accepted.carried] = False
            # A start in the middle takes no notice of events before it.
            is_copy &= candidates.system_us >= (NEVER if self._walked.start_us is None else self._walked.start_us)
            self._on_copies(candidates.take_rows(np.flatnonzero(is_copy)))
        return WalkedPiece(candidates.take_rows(accepted.rows), accepted.position, piece.ctis)

    def unmet_promise(self) -> ProtocolError | None:
        """Return the error of a reader at the end of the topic, if a CTI promises events that are missing there."""
        waiting = self.reader.blocked_channels()
        return gap_error(self._walked.topic, self._partition, *waiting[0]) if waiting else None
