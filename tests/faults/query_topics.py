"""
Ordered topics for the query campaign, written into Kafka record by record as crashing ingest jobs leave them: events twice,
numbers that are missing until they are written again, CTIs of old drivers after newer ones, holes between offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from confluent_kafka import Producer
from support.bucket_oracle import Event
from support.bucket_topics import Line, Topic
from support.stack.topics import ANY_TIME, create

from ordering.protocol.punctuation import Cti
from ordering.protocol.wire import HEADER_NAME, encode_cti, encode_event_headers

_WAIT_S = 60.0
TRANSACTION_RECORDS = 40
"""So many records stand between two holes: what ends a transaction takes an offset and is no record."""


class Writer:
    """
    Writes a topic piece by piece, as it becomes due.

    Args:
        bootstrap: Kafka's address.
        name: What the topic is called; it is made.
        topic: What it must hold in the end.
        pieces: In how many pieces it comes.
    """

    def __init__(self, bootstrap: str, name: str, topic: Topic, pieces: int) -> None:
        self.name = create(bootstrap, name, len(topic.partitions), {**ANY_TIME, "max.message.bytes": "1100000"})
        self._left = [
            [lines[low:high] for lines, (low, high) in zip(topic.partitions, bounds, strict=True)]
            for bounds in zip(*(_cut(len(lines), pieces) for lines in topic.partitions), strict=True)
        ]
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
        self._producer.init_transactions(_WAIT_S)

    @property
    def pieces(self) -> int:
        """How many pieces are still to come."""
        return len(self._left)

    def write(self) -> None:
        """Write the next piece."""
        left = self._left.pop(0)
        while any(left):
            self._producer.begin_transaction()
            for partition, lines in enumerate(left):
                for _, record in lines[:TRANSACTION_RECORDS]:
                    self._send(partition, record)
            self._producer.commit_transaction(_WAIT_S)
            left = [lines[TRANSACTION_RECORDS:] for lines in left]

    def _send(self, partition: int, record: Event | Cti) -> None:
        if isinstance(record, Cti):
            header, value = encode_cti(record)
            key, stamp_us = None, record.largest_us
        else:
            ints = [np.array([each], dtype=np.int64) for each in (record.seq, record.system_us, record.system_us, record.system_us)]
            origin, flags = np.array([record.origin], dtype=np.int64), np.zeros(1, dtype=np.uint16)
            header = encode_event_headers(*ints, origin, flags, record.number)[0]
            key, value, stamp_us = record.key, record.value, record.system_us
        self._producer.produce(self.name, value, key, partition, timestamp=max(stamp_us // 1000, 1), headers=[(HEADER_NAME, header)])


def _cut(count: int, pieces: int) -> Sequence[tuple[int, int]]:
    return list(pairwise(round(count * at / pieces) for at in range(pieces + 1)))


def faults_of(topic: Topic) -> tuple[int, int]:
    """Return how many events stand in a topic more than once, and how often a channel goes back or leaves numbers out."""
    repeated, jumps = 0, 0
    for lines in topic.partitions:
        met: set[tuple[int, int]] = set()
        last: dict[int, int] = {}
        for event in events_of(lines):
            repeated += (event.number, event.seq) in met
            met.add((event.number, event.seq))
            jumps += event.seq != last.get(event.number, -1) + 1
            last[event.number] = event.seq
    return repeated, jumps


def events_of(lines: Sequence[Line]) -> list[Event]:
    """Return the events of a log."""
    return [record for _, record in lines if isinstance(record, Event)]
