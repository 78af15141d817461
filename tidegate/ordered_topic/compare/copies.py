"""
Copies of events: records whose number a reader has accepted already, or will accept later.

A writer may write an event again at any time, and readers skip it by its number. Law: each copy has the bytes of the accepted event.
One with other bytes contradicts it: once retention has deleted the accepted record, and for a reader that starts behind that, the copy is
the event. A walk keeps a digest of each copy; at its end the accepted events are read again, only the blocks that have copies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ordering.arrays import Ints
from tidegate.ordered_topic.events import OrderedEvents

# Contradicting copies that are reported with their place; the others are counted.
SHOWN_COPIES = 20
# Blocks with copies are read together if no more blocks lie between them: a new read costs as much as some thousand events.
_NEAR_BLOCKS = 16
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class ContradictingCopy:
    """A copy with other bytes than the accepted event: the channel, the number, the log offsets of both, and the fields that differ."""

    topic: str
    partition: int
    number: int
    seq: int
    log_offset: int
    accepted_offset: int
    names: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        place = {"topic": self.topic, "partition": self.partition, "number": self.number, "seq": self.seq}
        return {**place, "log_offset": self.log_offset, "accepted_log_offset": self.accepted_offset, "fields": list(self.names)}

    @property
    def text(self) -> str:
        other = f"other {', '.join(self.names)}" if self.names else "other bytes"
        place, accepted = (f"{self.topic}-{self.partition}@{offset}" for offset in (self.log_offset, self.accepted_offset))
        what = f"number {self.seq} of channel {self.number} again, with {other} than the record accepted at {accepted}"
        return f"contradicting copy at {place}: {what}"


@dataclass(slots=True)
class Copies:
    """The records of one partition that were not accepted when they were met, as columns."""

    log_offset: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.seq)

    def add(self, events: OrderedEvents) -> None:
        self.log_offset += events.log_offset.tolist()
        self.number += events.number.tolist()
        self.seq += events.seq.tolist()
        self.digests += _digests(events)

    def find_contradictions(
        self, topic: str, partition: int, read: Callable[[int, int, int], Iterator[OrderedEvents]], starts: Mapping[int, Sequence[int]]
    ) -> Iterator[ContradictingCopy]:
        """
        Yield the copies that contradict the accepted event of their number, by channel and number.

        Args:
            read: Yields the accepted events of a channel from a block on, at least up to a number: ``read(number, block, seq)``.
            starts: By channel, the number of the first event of each block.
        """
        for number in sorted(set(self.number)):
            rows_by_seq: dict[int, list[int]] = {}
            for row in np.flatnonzero(np.array(self.number) == number).tolist():
                rows_by_seq.setdefault(self.seq[row], []).append(row)
            for block, wanted in _group_by_block(sorted(rows_by_seq), starts.get(number, ())):
                for events in read(number, block, wanted[-1]):
                    for row in np.flatnonzero(np.isin(events.seq, wanted)).tolist():
                        seq, (digest,) = int(events.seq[row]), _digests(events.slice(row, row + 1))
                        for copy in rows_by_seq[seq]:
                            if self.digests[copy] != digest:
                                accepted_offset = int(events.log_offset[row])
                                yield ContradictingCopy(topic, partition, number, seq, self.log_offset[copy], accepted_offset)


def _group_by_block(seqs: Sequence[int], starts: Sequence[int]) -> Iterator[tuple[int, Ints]]:
    """Yield (block, rising numbers in it and the next ones) for numbers that are read together."""
    wanted = np.array(seqs, dtype=np.int64)
    blocks = np.maximum(np.searchsorted(np.array(starts, dtype=np.int64), wanted, side="right") - 1, 0)
    for rows in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(blocks) > _NEAR_BLOCKS) + 1):
        if len(rows):
            yield int(blocks[rows[0]]), wanted[rows]


def _digests(events: OrderedEvents) -> list[bytes]:
    columns = events.header.to_pylist(), events.key.to_pylist(), events.value.to_pylist(), events.stamp_ms.tolist()
    # The representation of the four keeps null and empty, and the bytes of one field and the next, apart.
    return [hashlib.blake2b(repr(fields).encode(), digest_size=_DIGEST_BYTES).digest() for fields in zip(*columns, strict=True)]
