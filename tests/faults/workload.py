"""
The producer of a campaign: seeded disorder without an end, sent while everything else is failing.

Late, early and out-of-order events, records that cannot be read, records of hundreds of kilobytes, duplicates, stamps that go
back; now and then a partition falls silent, or all of them do. Every record bears in a header which one it is, so that the
log can be told from what Kafka holds, whatever the producer or the broker did with it.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, Producer
from support.stack.drawn_logs import Raw, draw
from support.stack.topics import header, records

from ordering.policies import Shape
from tidegate.basics.dead_letter_reasons import IngestReason

ID_HEADER = "id"
_TICK_S = 0.1
_KEYS = ("a", "bb", "ccc", 7, 7.5, True, None, "Zürich", *(f"key{number}" for number in range(20)))
_BIG_BYTES = (20_000, 300_000)
# The limit of the raw topic, and so of events.
LARGEST_BYTES = 2_000_000
_POISON_BYTES = (1_000, 4_000, 100_000, 5_000_000)
_SPEAKS_S, _SILENT_S = (2.0, 8.0), (1.5, 6.0)
_STAMP_GAPS_MS = (0, 0, 0, 1, 3)
_STEADY = {"enable.idempotence": True, "queue.buffering.max.messages": 1_000_000, "linger.ms": 5}
_SLOPPY = {"enable.idempotence": False, "message.timeout.ms": 900, "request.timeout.ms": 300, "linger.ms": 5, "retries": 10}


@dataclass(frozen=True, slots=True)
class Manner:
    """
    What a producer sends.

    Args:
        partitions: Of the raw topic.
        per_s: Records a second.
        shape: Of the events.
        source_ctis: Share of records that are CTIs.
        silences: Whether single partitions fall silent now and then.
        all_silent: Whether all of them do, now and then, at once: without estimates time stands still then.
        ahead: Whether stamps far ahead are among what cannot be read: a broker that stamps records itself lets none through.
    """

    partitions: int
    per_s: int = 300
    shape: Shape = Shape.POINT
    source_ctis: float = 0.0
    silences: bool = False
    all_silent: bool = False
    ahead: bool = True


class Workload:
    """
    Sends records until it is stopped.

    Attributes:
        said: Every record handed to a producer; its place is its id.
        undelivered: How many of them a producer gave up on.
    """

    def __init__(self, bootstrap: str, topic: str, manner: Manner, seed: int) -> None:
        self.said: list[Raw] = []
        self.undelivered = 0
        self._bootstrap, self._topic, self._manner, self._dice = bootstrap, topic, manner, random.Random(seed)
        self._producer = self._new_producer(_STEADY)
        self._stop, self._held, self._big_due = threading.Event(), threading.Event(), threading.Event()
        self._poison_due = threading.Event()
        self._silent: set[int] = set()
        self._change_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending; return once everything sent is acknowledged or given up."""
        self._stop.set()
        self._thread.join()
        self._drain()

    def hold(self, held: bool) -> None:
        """Send nothing until told otherwise."""
        (self._held.set if held else self._held.clear)()

    def send_a_big_one(self) -> None:
        """Make the next event a big one."""
        self._big_due.set()

    def send_poison(self) -> None:
        """Send records that cannot be used: one is larger than the largest event, but small on the wire; the next ones are refused."""
        self._poison_due.set()

    def be_sloppy(self, sloppy: bool) -> None:
        """Send as a careless producer does: it gives up on records after a second, and repeats others."""
        self.hold(True)
        time.sleep(2 * _TICK_S)
        self._drain()
        self._producer = self._new_producer(_SLOPPY if sloppy else _STEADY)
        self.hold(False)

    def _new_producer(self, properties: dict[str, Any]) -> Producer:
        common = {"bootstrap.servers": self._bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0, "message.max.bytes": LARGEST_BYTES}
        return Producer({**common, **properties, "on_delivery": self._on_delivery})

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        self.undelivered += error is not None

    def _drain(self) -> None:
        deadline_s = time.monotonic() + 120
        while self._producer.flush(1.0):
            assert time.monotonic() < deadline_s, "the producer of the campaign cannot get rid of its records"

    def _run(self) -> None:
        while not self._stop.wait(_TICK_S):
            self._producer.poll(0)
            if self._held.is_set():
                continue
            self._choose_who_speaks()
            if self._poison_due.is_set():
                self._poison_due.clear()
                self._send_poison()
            for raw in self._draw():
                if raw.partition not in self._silent:
                    for _ in range(2 if self._dice.random() < 0.01 else 1):
                        self._send(raw)

    def _choose_who_speaks(self) -> None:
        now_s, manner = time.monotonic(), self._manner
        if not manner.silences or now_s < self._change_s:
            return
        kind = self._dice.random()
        everybody = set(range(manner.partitions))
        if self._silent or kind < 0.4:
            self._silent = set()
        else:
            alone = {self._dice.randrange(manner.partitions)} if manner.partitions > 1 else set()
            self._silent = everybody if kind > 0.7 and manner.all_silent else alone
        self._change_s = now_s + self._dice.uniform(*(_SILENT_S if self._silent else _SPEAKS_S))

    def _draw(self) -> list[Raw]:
        manner, dice = self._manner, self._dice
        count = dice.randrange(round(2 * manner.per_s * _TICK_S) + 1)
        drawn = draw(
            dice.randrange(2**32),
            count,
            manner.partitions,
            bad=0.02,
            keys=_KEYS,
            shape=manner.shape,
            source_ctis=manner.source_ctis,
            start_ms=time.time_ns() // 1_000_000,
            gaps_ms=_STAMP_GAPS_MS,
        )
        return [self._sized(raw) for raw in drawn if manner.ahead or raw.reason != "arrival_ahead"]

    def _sized(self, raw: Raw) -> Raw:
        """Make a record in a thousand a big one, and one that was asked for."""
        plain = raw.reason or raw.source_cti_us is not None or raw.value is None
        if plain or raw.value is None or not (self._big_due.is_set() or self._dice.random() < 0.001):
            return raw
        self._big_due.clear()
        padding = b"x" * self._dice.randrange(*_BIG_BYTES)
        return replace(raw, value=raw.value[:-1] + b',"pad":"' + padding + b'"}')

    def _send_poison(self) -> None:
        self._drain()
        stamp_ms = time.time_ns() // 1_000_000
        packing = Producer({"bootstrap.servers": self._bootstrap, "compression.type": "gzip", "message.max.bytes": 10**8})
        for size in _POISON_BYTES:
            reason = IngestReason.OVERSIZED if size > LARGEST_BYTES else IngestReason.MALFORMED
            self._send(Raw(0, b"poison", b"{" * size, stamp_ms, reason=reason), packing)
        assert packing.flush(120) == 0

    def _send(self, raw: Raw, producer: Producer | None = None) -> None:
        headers = [(ID_HEADER, b"%d" % len(self.said)), *raw.headers]
        self.said.append(raw)  # before it is sent: whoever meets it in the topic asks here what it is
        try:
            (producer or self._producer).produce(self._topic, raw.value, raw.key, raw.partition, timestamp=raw.stamp_ms, headers=headers)
        except BufferError:
            self.undelivered += 1


def log_of(bootstrap: str, topic: str, partitions: int, said: list[Raw]) -> list[list[Raw]]:
    """
    Return what the raw topic holds, each partition's records in their order, stamped as the broker keeps them.

    A record's place is its offset: raw topics of the campaign have no holes.
    """
    logs: list[list[Raw]] = [[] for _ in range(partitions)]
    for message in records(bootstrap, topic):
        log = logs[message.partition() or 0]
        assert message.offset() == len(log), f"{topic} has a hole at {len(log)}"
        log.append(replace(said[int(header(message, ID_HEADER))], stamp_ms=message.timestamp()[1]))
    return logs
