"""
The results of a topic: each accepted once, in one order whatever batches, repetitions and restarts wrote them.

Law: the results come by (System.Timestamp, partition, key, channel, seq). A result comes once every partition has promised that nothing
before it follows, so what a follower gets is what a later reader gets (level 3); at the end of the topic the rest comes too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ordering.ticks import INFINITY, NEVER
from sinks.stores.base import Rows
from tidegate.ordered_topic.compare.sides import complete_from_us, make_side
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.walk import PartitionWalk
from tidegate.platform.kafka.admin import Admin, Topic

_PIECE_ROWS = 50_000
_POLL_S = 0.5


@dataclass
class Waiting:
    """Results that were accepted and have not come yet, with the partition of each."""

    _pieces: list[tuple[int, OrderedEvents]] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(piece) for _, piece in self._pieces)

    def add(self, partition: int, events: OrderedEvents) -> None:
        if len(events):
            self._pieces.append((partition, events))

    def take_below(self, instant_us: int) -> Rows | None:
        """Remove and return the results before *instant_us*, in their order; None if there are none."""
        if not len(self):
            return None
        events = OrderedEvents.concat([piece for _, piece in self._pieces])
        partition = np.concatenate([np.full(len(piece), number, dtype=np.int64) for number, piece in self._pieces])
        is_due = events.system_us < instant_us
        late = np.flatnonzero(~is_due)
        self._pieces = [(int(number), events.take_rows(late[partition[late] == number])) for number in np.unique(partition[late])]
        due = np.flatnonzero(is_due)
        if not len(due):
            return None
        chosen = events.take_rows(due)
        # numpy sorts by its last key first; keys sort as bytes, a null key first.
        keys = pa.array(chosen.key).fill_null(b"").to_numpy(zero_copy_only=False).astype(object)
        _, key_rank = np.unique(keys, return_inverse=True)
        order = np.lexsort((chosen.seq, chosen.number, key_rank, partition[due], chosen.system_us))
        in_order = chosen.take_rows(order)
        return Rows(in_order.seq, in_order.log_offset, in_order.system_us, in_order.key, in_order.value)


def read_topic(
    admin: Admin,
    kafka: Mapping[str, str],
    topic: Topic,
    since_us: int | None,
    until_us: int | None,
    *,
    follow: bool,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Rows]:
    """
    Yield the results from *since_us* on and before *until_us*, microseconds (None: no limit), in pieces. With *follow* until the topic
    has ended, or *until_us* is passed, or *is_stopped*. If retention has deleted the beginning, all that is complete is read.
    """
    if since_us is None and any(admin.starts(topic.all_partitions).values()):
        since_us = complete_from_us(admin, kafka, topic)
    side = make_side("A", admin, kafka, topic, since_us)
    walks = [PartitionWalk(side, number) for number in range(topic.partitions)]
    limit_us = INFINITY if until_us is None else until_us
    waiting = Waiting()
    while True:
        ends = admin.ends(topic.all_partitions)
        for number, events in _walk_evenly(walks, [ends[place] for place in topic.all_partitions], until_us):
            waiting.add(number, events.take_rows(np.flatnonzero(events.system_us < limit_us)))
            if len(waiting) >= _PIECE_ROWS and (rows := waiting.take_below(_frontier(walks))) is not None:
                yield rows
        has_ended = all(walk.reader.finished or walk.has_passed(until_us) for walk in walks)
        if (rows := waiting.take_below(_frontier(walks) if follow and not has_ended else INFINITY)) is not None:
            yield rows
        if not follow or has_ended or is_stopped():
            return
        time.sleep(_POLL_S)


def _walk_evenly(walks: list[PartitionWalk], ends: list[int], until_us: int | None) -> Iterator[tuple[int, OrderedEvents]]:
    """Yield accepted events with their partition, always next of the partition whose promises are least, so that few have to wait."""
    pieces = {number: walk.run(until_us, ends[number]) for number, walk in enumerate(walks)}
    while pieces:
        number = min(pieces, key=lambda each: walks[each].reader.frontier)
        piece = next(pieces[number], None)
        if piece is None:
            del pieces[number]
        else:
            yield number, piece.events


def _frontier(walks: list[PartitionWalk]) -> int:
    return min((walk.reader.frontier for walk in walks), default=NEVER)
