"""
The world outside the job: the raw log, the ordered topic, the journal, and what may happen to each of them.

Law: nothing that was appended to a log is ever changed. A producer's queue reaches each partition as a prefix, whatever
happens to the producer (PROTOCOL.md, what a writer must do).
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from simulation.clock import BrokerClock, MonotonicClock, TrueTime
from simulation.scenario import START_US, Message, Scenario
from support.journals import MemoryJournal

from ingest.skips import Skip, skip_at
from ordering.errors import UnreachableError
from ordering.protocol.facts import Fact, decode_facts
from ordering.protocol.journal import JournalKey
from ordering.protocol.wire import encode_source_cti
from ordering.ticks import NEVER
from tidegate.platform.kafka.writer import Columns


@dataclass(frozen=True, slots=True)
class RawRecord:
    """
    A record of an input partition.

    Args:
        stamp_us: Its Kafka timestamp in microseconds, whole milliseconds.
        message: What was sent: event time, key, shape.
        header: The header of a CTI that the source enqueued, else None.
    """

    offset: int
    stamp_us: int
    message: Message
    header: bytes | None
    value: bytes

    @property
    def event_time_us(self) -> int | None:
        """When it happened; None: nobody can tell."""
        return self.message.event_time_us

    @property
    def key(self) -> bytes | None:
        """Its key."""
        return self.message.key


@dataclass(slots=True)
class RawPartition:
    """One partition of the raw topic; what lies at ``open_from`` or above belongs to an open transaction."""

    records: list[RawRecord] = field(default_factory=list)
    end: int = 0
    open_from: int | None = None

    def append(self, message: Message, stamp_us: int, payload: bytes) -> RawRecord:
        """Append a message; return the record it became."""
        header, value = (None, payload) if message.source_cti_us is None else encode_source_cti(message.source_cti_us)
        record = RawRecord(self.end + message.hole, stamp_us, message, header, value)
        self.records.append(record)
        self.end = record.offset + 1
        return record

    def visible_end(self, committed: bool) -> int:
        """Return the end offset: of what is committed, or of everything."""
        return self.end if self.open_from is None or not committed else self.open_from

    def read(self, start: int, end: int) -> list[RawRecord]:
        """Return the records with start <= offset < end."""
        return [record for record in self.records if start <= record.offset < end]

    def first_since(self, arrival_us: int) -> int:
        """Return the first offset stamped at that time or later, as the broker's time index knows it; the end if there is none."""
        return next((record.offset for record in self.records if record.stamp_us >= arrival_us), self.end)

    def newest(self, latest_us: int) -> RawRecord | None:
        """Return the first record with the largest timestamp up to *latest_us*."""
        return max((one for one in self.records if one.stamp_us <= latest_us), key=lambda record: record.stamp_us, default=None)


Row = tuple[int, bytes | None, bytes, bytes]
"""A record of the ordered topic: Kafka timestamp in ms, key, header, value."""


class Carrier(tuple[Any, ...]):
    """A row that carries facts of the journal in a header that readers ignore."""

    facts: tuple[Fact, ...]


def row_of(stamp_ms: int, key: Any, value: Any, headers: list[tuple[str, bytes]]) -> Row:
    """Return a CTI's row; its second header has facts."""
    row: Row = (stamp_ms, key, headers[0][1], value)
    if len(headers) > 1 and headers[1][1]:
        carrier = Carrier(row)
        carrier.facts = tuple(decode_facts(headers[1][1]))
        return cast(Row, carrier)
    return row


class Producer:
    """A gapless producer: what it was handed reaches each partition in order, and after a crash only a prefix of it."""

    def __init__(self, topic: list[list[Row]], chance: random.Random) -> None:
        self._topic, self._chance = topic, chance
        self._queues: defaultdict[int, deque[Row]] = defaultdict(deque)

    def send_columns(self, topic: str, events: Columns) -> None:
        """Queue events as ``ChannelWriter`` hands them over."""
        places = zip(events.partition.tolist(), events.stamp_ms.tolist(), strict=True)
        for (partition, stamp_ms), key, header, value in zip(places, events.key, events.headers.to_pylist(), events.value, strict=True):
            self._queues[partition].append((stamp_ms, key, header, value))

    def send(self, topic: str, rows: Iterable[tuple[Any, Any, int, int, list[tuple[str, bytes]]]]) -> None:
        """Queue CTIs as ``ChannelWriter`` hands them over: value, key, partition, timestamp in ms, headers."""
        for value, key, partition, stamp_ms, headers in rows:
            self._queues[partition].append(row_of(stamp_ms, key, value, headers))

    def trickle(self) -> int:
        """Let some prefix of each queue arrive; return how many rows are still on their way."""
        for partition, queue in self._queues.items():
            for _ in range(self._chance.randint(0, len(queue))):
                self._topic[partition].append(queue.popleft())
        return sum(map(len, self._queues.values()))

    def tear(self) -> int:
        """Let some rows of each queue arrive and lose the others; return how many were passed over. No writer may do that."""
        holes = 0
        for partition, queue in self._queues.items():
            arrived = [self._chance.random() < 0.5 for _ in queue]
            self._topic[partition] += [row for row, arrives in zip(queue, arrived, strict=True) if arrives]
            holes += sum(not before and after for before, after in pairwise(arrived))
            queue.clear()
        return holes

    def flush(self) -> None:
        """Return when everything was acknowledged."""
        for partition, queue in self._queues.items():
            self._topic[partition].extend(queue)
            queue.clear()

    def waits(self) -> bool:
        """Whether something has not arrived."""
        return any(self._queues.values())

    def purge(self) -> None:
        """Forget what has not arrived."""
        self._queues.clear()


class Journal:
    """The journal's server: it may be away, forget everything, and carry out a call whose answer never comes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.facts = MemoryJournal()
        self.away = False
        self.lives = 0
        self.unanswered = 0

    def wipe(self) -> None:
        """Die and come back empty."""
        self.facts = MemoryJournal()
        self.lives += 1

    def answer(self, life: int, call: Callable[[MemoryJournal], Any]) -> Any:
        """
        Do a call over a connection made in that *life* of the server.

        Raises:
            UnreachableError: No answer came; the call may have been carried out.
        """
        if self.away and life == self.lives and self._chance.random() < 0.5:
            call(self.facts)
            self.unanswered += 1
        if self.away or life != self.lives:
            raise UnreachableError("the journal does not answer", where="journal", fix="wait")
        return call(self.facts)


def journal_key(number: int) -> JournalKey:
    """Return the journal's key of an input partition."""
    return JournalKey("raw", "id", number)


def join_key(number: int) -> JournalKey:
    """Return the journal's key of when an input partition joined."""
    return JournalKey("raw>ordered", "id", number)


class World:
    """Everything outside the job, and the tale of what happened in it."""

    def __init__(self, scenario: Scenario, telling: bool) -> None:
        self.scenario, self.settings = scenario, scenario.settings
        self.chance = random.Random(scenario.chances)
        self.time = TrueTime(START_US)
        self.clock = BrokerClock(self.time)
        self.raw = [RawPartition() for _ in range(self.settings.inputs)]
        self.topic: list[list[Row]] = [[] for _ in range(self.settings.output_partitions)]
        self.journal = Journal(self.chance)
        self._boots = 0
        self._machine = self._booted()
        self.dead_letters: list[tuple[int, int, str]] = []
        self.broker_away = False
        self.joined: dict[int, int] = {}
        self.happened: Counter[str] = Counter()
        self.tale: list[str] = []
        self.telling = telling
        self._coming = deque(scenario.messages)
        self._count = 0
        self.saves = 0
        # Up to where open batches have ever closed an input partition.
        self.closed_to: Counter[int] = Counter()
        # By place: what the journal's server keeps of requests to skip; and the skips that have taken effect.
        self.notes: dict[str, Skip] = {}
        self.skips: dict[str, Skip] = {}
        # What the operator has asked for and undone, in turn.
        self.skip_changes: list[Skip] = []

    def skipped(self, number: int) -> set[int]:
        """Return the offsets of an input partition's records that are skipped for good."""
        return {one.offset for one in self.raw[number].records if skip_at(self.skips.values(), ("raw", number), one.offset)}

    def tell(self, text: object) -> None:
        """Add a line to the tale, if somebody wants to hear it."""
        if self.telling:
            self.tale.append(f"{(self.time.now_us - START_US) / 1e6:9.3f} s  {text}")

    def check_broker(self) -> None:
        """
        Answer a request about offsets.

        Raises:
            UnreachableError: No broker answers.
        """
        if self.broker_away:
            raise UnreachableError("no broker answers", where="broker", fix="wait")

    def advance(self, duration_us: int) -> None:
        """Let time pass and what is due arrive."""
        until_us = self.time.now_us + duration_us
        while self._coming and self._coming[0].at_us <= until_us:
            self.time.now_us = max(self.time.now_us, self._coming[0].at_us)
            self.append(self._coming.popleft())
        self.time.now_us = until_us

    def machine_clock(self) -> MonotonicClock:
        """Return the clock of the machine on which a driver is started, now and then after a reboot."""
        if self.chance.random() < 0.4:
            self._machine = self._booted()
        return self._machine

    def _booted(self) -> MonotonicClock:
        self._boots += 1
        drift = self.settings.drift_ppm
        # Time counts from an arbitrary moment.
        zero_us = self.time.now_us - self.chance.randrange(10**12)
        return MonotonicClock(self.time, zero_us, self.chance.randint(-drift, drift), f"boot {self._boots}")

    def widen(self) -> None:
        """Add one more input partition."""
        self.raw.append(RawPartition())
        self.tell(f"there is a raw {len(self.raw) - 1} now")

    def logged(self, number: int, joined_us: int) -> None:
        """Take note that an offset says when an input partition joined: for good."""
        assert self.joined.setdefault(number, joined_us) == joined_us, f"raw {number} joined at another moment"

    def imported_us(self) -> int | None:
        """Return how far the other input's time has come, None where there is none."""
        lag_us = self.settings.imported_lag_us
        return None if lag_us is None else self.time.now_us - lag_us

    def append(self, message: Message) -> None:
        """Append one message to its partition; nobody sends to one that is not there yet."""
        if message.partition >= len(self.raw):
            return
        stamp_us = self.clock.stamp_us(message.partition) if message.stamp_us is None else message.stamp_us // 1000 * 1000
        record = self.raw[message.partition].append(message, stamp_us, b"payload %d" % self._count)
        self._count += 1
        self.tell(f"raw {message.partition}: record {_told(record)}")


def _told(record: RawRecord) -> str:
    message = record.message
    what = "unreadable" if message.event_time_us is None else f"t = {message.event_time_us - START_US:+}"
    if message.source_cti_us is not None:
        what = f"CTI of the source, c = {message.source_cti_us - START_US:+}"
    if message.end_us is not None:
        what += f" to {message.end_us - START_US:+}"
    if message.start_us is not None:
        what += ", a start" if message.start_us == NEVER else f", the end of the span from {message.start_us - START_US:+}"
    return f"{record.offset} {what}, arriving {record.stamp_us - START_US:+}, key {record.key!r}"
