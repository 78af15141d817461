"""
Writing raw topics and reading ordered ones in tests.

An ordered topic is read as every reader must: by the rule of :mod:`ordering.protocol.reader`, whatever duplicates the log holds.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from ordering.protocol.punctuation import Cti
from ordering.protocol.reader import Log, PartitionReader
from ordering.protocol.wire import CTI_HEADER_BYTES, HEADER_NAME, decode_cti, decode_event_headers
from ordering.ticks import INFINITY, NEVER
from tidegate.platform.kafka.admin import Admin

ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Settings of a raw topic that takes records of any age, also from the future."""
APPEND_TIME = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
_WAIT_S = 30.0

Channel = tuple[int, int]
"""(roster number of the input partition, output partition)."""


class Event(NamedTuple):
    """One event of an ordered topic with everything the law fixes; times in microseconds, *stamp* in ms."""

    seq: int
    system_us: int
    event_time_us: int
    arrival_us: int
    offset: int
    flags: int
    key: bytes | None
    value: bytes | None
    stamp_ms: int


class Sendable(Protocol):
    """What can be produced."""

    @property
    def partition(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def stamp_ms(self) -> int: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]: ...


@dataclass
class Ordered:
    """
    What an ordered topic holds.

    Attributes:
        events: The accepted events of each channel.
        ctis: Every CTI of each channel in log order, with how many of the channel's events a reader had accepted by then.
        arrived: (partition, channel number, event or CTI) of every record in log order, duplicates included.
        duplicates: Events a reader skips.
    """

    events: dict[Channel, list[Event]] = field(default_factory=dict)
    ctis: dict[Channel, list[tuple[Cti, int]]] = field(default_factory=dict)
    arrived: dict[int, list[tuple[int, Event | Cti]]] = field(default_factory=dict)
    duplicates: int = 0

    def c(self, channel: Channel) -> int:
        """Return how far a channel's time has come."""
        return max((cti.c for cti, _ in self.ctis.get(channel, [])), default=NEVER)

    @property
    def ended(self) -> bool:
        """Whether some channel has a final CTI."""
        return any(cti.c == INFINITY for ctis in self.ctis.values() for cti, _ in ctis)

    def all_events(self) -> list[Event]:
        """Return the events of all channels."""
        return [event for events in self.events.values() for event in events]


def fresh(name: str) -> str:
    """Return a topic name nobody has."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def create(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str] = ANY_TIME) -> str:
    """Make a topic; return its name once the broker knows of it: the controller answers a moment before."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, partitions, 1, config=dict(config))])[topic].result(_WAIT_S)
    admin = Admin({"bootstrap.servers": bootstrap})
    _until(lambda: admin.topic_ids([topic])[topic] != "", f"{topic} to be known")
    return topic


def widen(bootstrap: str, topic: str, partitions: int) -> None:
    """Give a topic more partitions; return once the broker knows of them."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(_WAIT_S)
    admin = Admin({"bootstrap.servers": bootstrap})
    _until(lambda: admin.partition_counts()[topic] == partitions, f"{topic} to have {partitions} partitions")


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic; return once the broker has forgotten it."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.delete_topics([topic])[topic].result(_WAIT_S)
    admin = Admin({"bootstrap.servers": bootstrap})
    _until(lambda: admin.topic_ids([topic])[topic] == "", f"{topic} to be forgotten")


def topic_id(bootstrap: str, topic: str) -> str:
    """Return the topic's id, empty where the broker knows of none."""
    return Admin({"bootstrap.servers": bootstrap}).topic_ids([topic])[topic]


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {_WAIT_S:g} s for {what}"
        time.sleep(0.02)


def exists(bootstrap: str, topic: str) -> bool:
    """Tell whether there is a topic."""
    return topic in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=_WAIT_S).topics


def produce(bootstrap: str, topic: str, records: Iterable[Sendable]) -> None:
    """Send *records* in their order, and return once they are acknowledged."""
    # One request at a time keeps the order as idempotence does, without the half second a producer waits for its identity.
    sending = {"acks": "all", "max.in.flight.requests.per.connection": 1, "queue.buffering.max.messages": 1_000_000}
    lost: list[object] = []
    failed = {"delivery.report.only.error": True, "on_delivery": lambda error, _: lost.append(error)}
    producer = Producer({"bootstrap.servers": bootstrap, **sending, **failed})
    for record in records:
        producer.produce(topic, record.value, record.key, record.partition, timestamp=record.stamp_ms, headers=list(record.headers))
    assert (producer.flush(_WAIT_S), lost) == (0, [])


def records(bootstrap: str, topic: str) -> Iterator[Message]:
    """Yield what a topic holds at present, each partition in offset order."""
    # While a broker waits for more of one partition it does not answer for the next. What ends a transaction is no message:
    # only the end of the partition tells that it was the last record.
    reading = {"enable.auto.commit": False, "auto.offset.reset": "error", "fetch.wait.max.ms": 10, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", **reading})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions)
        ends = {number: _end(consumer, topic, number) for number in partitions}
        for number, end in ends.items():
            consumer.assign([TopicPartition(topic, number, 0)])
            position, heard_s = 0, time.monotonic()
            while position < end:
                messages = consumer.consume(min(10_000, end - position), timeout=0.1)
                heard_s = time.monotonic() if messages else heard_s
                assert time.monotonic() < heard_s + _WAIT_S, f"{topic}-{number} brought nothing for {_WAIT_S:g} s"
                for message in messages:
                    error = message.error()
                    assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                    position = _offset(message) + (error is None)
                    if error is None:
                        yield message
    finally:
        consumer.close()


def _end(consumer: Consumer, topic: str, partition: int) -> int:
    """Return a partition's end; a broker that has just come back is nobody's leader for a moment."""
    deadline_s = time.monotonic() + _WAIT_S
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), _WAIT_S)[1]
        except KafkaException as error:
            code = error.args[0].code()
            if code not in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def header(message: Message, name: str) -> bytes:
    """Return a header's bytes; empty if it is missing."""
    found = dict(message.headers() or []).get(name)
    return found.encode() if isinstance(found, str) else found or b""


def read_ordered(bootstrap: str, topic: str, partitions: int) -> Ordered:
    """Read all of an ordered topic by the reader's rule."""
    found = Ordered()
    logs: dict[int, list[Message]] = {number: [] for number in range(partitions)}
    for message in records(bootstrap, topic):
        logs[message.partition() or 0].append(message)
    for partition, messages in logs.items():
        _accept(found, partition, partitions, messages)
    return found


def _accept(found: Ordered, partition: int, partitions: int, messages: Sequence[Message]) -> None:
    arrived = found.arrived.setdefault(partition, [])
    headers = [header(message, HEADER_NAME) for message in messages]
    rows = iter(decode_event_headers([octets for octets in headers if len(octets) != CTI_HEADER_BYTES]).tolist())
    offsets, ctis, events = [], [], []
    for message, octets in zip(messages, headers, strict=True):
        if len(octets) == CTI_HEADER_BYTES:
            cti = decode_cti(octets, message.value() or b"", partition)
            ctis.append((_offset(message), cti))
            arrived.append((cti.number, cti))
        else:
            _, _, flags, number, seq, system_us, event_time_us, arrival_us, origin = next(rows)
            payload = message.key(), message.value(), message.timestamp()[1]
            event = Event(seq, system_us, event_time_us, arrival_us, origin, flags, *payload)
            offsets.append(_offset(message))
            events.append((number, event))
            arrived.append((number, event))
    reader = PartitionReader(partition, partitions)
    columns = np.array([(number, event.seq, event.system_us) for number, event in events], dtype=np.int64).reshape(-1, 3)
    accepted = reader.accept(Log(np.array(offsets, dtype=np.int64), columns[:, 0], columns[:, 1], columns[:, 2], ctis))
    assert not reader.blocked_channels(), "a CTI promises events that are not there"
    places = []
    for row_number in accepted.rows.tolist():
        number, event = events[row_number]
        found.events.setdefault((number, partition), []).append(event)
        places.append((offsets[row_number], number))
    found.duplicates += reader.duplicates
    _place_ctis(found, partition, ctis, places)


def _place_ctis(found: Ordered, partition: int, ctis: Sequence[tuple[int, Cti]], places: Sequence[tuple[int, int]]) -> None:
    at, counts = 0, dict.fromkeys((cti.number for _, cti in ctis), 0)
    for offset, cti in ctis:
        while at < len(places) and places[at][0] < offset:
            counts[places[at][1]] = counts.get(places[at][1], 0) + 1
            at += 1
        found.ctis.setdefault((cti.number, partition), []).append((cti, counts[cti.number]))


def check_promises(found: Ordered, *, killed: bool = False) -> None:
    """
    CTIs only rise, come after every event they number, and what they say of c, n and ahead holds.

    With *killed* a writer was killed while its batch was open. The batch was repeated from its beginning, with other cuts, so lower CTIs
    may come again; readers take the largest. They too must be true.
    """
    for channel, ctis in found.ctis.items():
        system_us = np.array([event.system_us for event in found.events.get(channel, [])], dtype=np.int64)
        later_us = np.minimum.accumulate(np.append(system_us, INFINITY)[::-1])[::-1]
        before = (NEVER, 0)
        for cti, accepted in ctis:
            assert killed or (cti.c >= before[0] and cti.n >= before[1]), f"{channel}: a CTI went back"
            assert accepted >= cti.n, f"{channel}: a CTI came before the events it numbers"
            assert later_us[cti.n] >= cti.c, f"{channel}: an event below {cti.c} is numbered {cti.n} or more"
            assert cti.ahead == np.count_nonzero(system_us[: cti.n] >= cti.c), f"{channel}: wrong count ahead"
            before = max(before, (cti.c, cti.n))
        assert not ctis or before[1] == max(cti.n for cti, _ in ctis), f"{channel}: the last CTI numbers fewer events than one before it"


class CtiWatch:
    """Follows the CTIs of an ordered topic as they come."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.highest: dict[Channel, int] = {}
        properties = {"bootstrap.servers": bootstrap, "group.id": "watch", "auto.offset.reset": "error", "enable.auto.commit": False}
        self._consumer = Consumer({**properties, "reconnect.backoff.max.ms": 300, "log_level": 0, "fetch.wait.max.ms": 50})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._partitions = partitions

    def drain(self) -> None:
        """Take all that stands in the topic now."""
        ends = {}
        for number in range(self._partitions):
            with contextlib.suppress(KafkaException):
                ends[number] = self._consumer.get_watermark_offsets(TopicPartition(self.topic, number), 5)[1]
        deadline_s = time.monotonic() + 20
        while time.monotonic() < deadline_s and any(self._position(number) < end for number, end in ends.items()):
            self._take(0.2)

    def rises(self, above: dict[Channel, int], timeout_s: float) -> bool:
        """Take what comes for *timeout_s* seconds at most; return whether some channel's CTI stands above *above*."""
        self._take(timeout_s)
        return any(c > above.get(channel, NEVER) for channel, c in self.highest.items())

    def least(self, channels: Iterable[Channel], timeout_s: float = 0.1) -> int:
        """Take what comes for *timeout_s* seconds at most; return how far time has come in all of these channels."""
        self._take(timeout_s)
        return min(self.highest.get(channel, NEVER) for channel in channels)

    def close(self) -> None:
        """Stop following."""
        self._consumer.close()

    def _position(self, number: int) -> int:
        return max(self._consumer.position([TopicPartition(self.topic, number)])[0].offset, 0)

    def _take(self, timeout_s: float) -> None:
        for message in self._consumer.consume(5000, timeout_s):
            octets = b"" if message.error() else header(message, HEADER_NAME)
            if len(octets) == CTI_HEADER_BYTES:
                partition = message.partition() or 0
                cti = decode_cti(octets, message.value() or b"", partition)
                channel = (cti.number, partition)
                self.highest[channel] = max(cti.c, self.highest.get(channel, NEVER))
