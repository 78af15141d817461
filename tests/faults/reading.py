"""
Readers that start in the middle, inside what was torn and written again.

Law: from time X on a reader accepts every event with s >= X once, in the order of seq, whatever duplicates lie
there. X is chosen where the log shows an event for the second time; the first offset is what the broker's time index answers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from faults.checks import Truth
from support.law_breaches import demand
from support.stack.topics import Channel, Event, Ordered

from ordering.protocol.punctuation import Cti
from ordering.protocol.reader import Log, PartitionReader

READERS_MAX = 12


@dataclass(frozen=True, slots=True)
class Start:
    """Where a reader starts: output partition, X in microseconds, first offset."""

    partition: int
    start_us: int
    offset: int


def torn_starts(bootstrap: str, topic: str, found: Ordered, dice: random.Random) -> list[Start]:
    """Return starts inside stretches that were written again, and some elsewhere."""
    moments: list[tuple[int, int]] = []
    for partition, arrived in found.arrived.items():
        torn, all_us = _times(arrived)
        moments += [(partition, system_us + dice.choice((-1000, 0, 1))) for system_us in dice.sample(torn, min(6, len(torn)))]
        moments += [(partition, system_us) for system_us in dice.sample(all_us, min(2, len(all_us)))]
    chosen = dice.sample(moments, min(READERS_MAX, len(moments)))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    try:
        asked = [
            (partition, us, consumer.offsets_for_times([TopicPartition(topic, partition, us // 1000)], 30)[0]) for partition, us in chosen
        ]
    finally:
        consumer.close()
    return [Start(partition, us, at.offset if at.offset >= 0 else len(found.arrived[partition])) for partition, us, at in asked]


def _times(arrived: list[tuple[int, Event | Cti]]) -> tuple[list[int], list[int]]:
    """Return the times of events that stand there more than once, and of all."""
    seen: set[tuple[int, int]] = set()
    torn, every = [], []
    for number, record in arrived:
        if isinstance(record, Event):
            every.append(record.system_us)
            if (number, record.seq) in seen:
                torn.append(record.system_us)
            seen.add((number, record.seq))
    return torn, every


def check_readers(starts: list[Start], found: Ordered, truth: Truth, outputs: int) -> None:
    """Every reader accepts exactly what the oracle tells from its X on. The topic must have ended."""
    for start in starts:
        accepted = _read(found.arrived[start.partition], start, outputs)
        for (number, output), told in truth.channels.items():
            if output == start.partition:
                wanted = [event for event in told if event.system_us >= start.start_us]
                got = [event for event in accepted.get((number, output), []) if event.system_us >= start.start_us]
                where = f"reader from {start.start_us} at offset {start.offset} of partition {output}, channel {number}"
                demand(got == wanted, "readers from the middle", f"{where}: {len(got)} events, {len(wanted)} told")


def _read(arrived: list[tuple[int, Event | Cti]], start: Start, outputs: int) -> dict[Channel, list[Event]]:
    placed = list(enumerate(arrived))[start.offset :]
    events = [(offset, number, record) for offset, (number, record) in placed if isinstance(record, Event)]
    columns = np.array([(offset, number, event.seq, event.system_us) for offset, number, event in events], dtype=np.int64).reshape(-1, 4).T
    ctis = [(offset, record) for offset, (_, record) in placed if isinstance(record, Cti)]
    reader = PartitionReader(start.partition, outputs, start.start_us)
    taken = reader.accept(Log(columns[0], columns[1], columns[2], columns[3], ctis))
    accepted: dict[Channel, list[Event]] = {}
    for row in taken.rows.tolist():
        _, number, event = events[row]
        accepted.setdefault((number, start.partition), []).append(event)
    return accepted
