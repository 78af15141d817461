"""
Reading exact ranges of a Kafka partition, with a consumer that keeps its position between batches.

Law: ``read(start, end)`` yields exactly the partition's records with ``start <= offset < end``, in offset order, whatever was read before.
A new consumer costs 50 to 100 ms, so each worker process keeps its connections for all partitions. Records fetched beyond a range are kept
for the next one.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from confluent_kafka import KafkaError

from ordering.errors import RefusedError, UnreachableError
from tidegate.basics.access_rights import Right
from tidegate.platform.kafka import native
from tidegate.platform.kafka.admin import raise_if_hopeless
from tidegate.platform.kafka.batch_probe import find_unreadable_batch
from tidegate.platform.kafka.client_properties import CONSUMER, STEADY
from tidegate.platform.kafka.failures import is_denial, kafka_failure
from tidegate.platform.kafka.messages import MessageConsumer
from tidegate.platform.kafka.native import NativeConsumer, NativeSource
from tidegate.platform.kafka.records import Framed, Records
from tidegate.platform.kafka.unreadable import is_unreadable, unreadable_error
from tidegate.platform.observe.logs import get_logger

__all__ = ["CHUNK_BYTES", "CHUNK_EVENTS", "RangeReader", "Records", "SharedConnections", "wait_for_any"]

CHUNK_EVENTS = 50_000
CHUNK_BYTES = 16 * 2**20
PREFETCH_BYTES = 16 * 2**20
PREFETCH_BYTES_ALL = 128 * 2**20  # most bytes fetched ahead in one worker, however many partitions it reads
# The most records fetched ahead, with PREFETCH_BYTES; in proportion with fewer bytes. A record takes some 300 bytes more than its payload.
_PREFETCH_EVENTS = 50_000
_CHUNK_EVENTS_MAX = 100_000
_NEAR = 50_000  # a range that begins at most this many offsets ahead is reached by reading on instead of a seek
_NO_END = 2**62
_NOWHERE = -(2**62)  # no offset, not even one that a broker makes up
_WAIT_MS = 500
_MORE_MS = 50
# How often readers are looked at that have no connection in common.
_LOOK_MS = 5
_WARN_AFTER_S = 10.0
# After this silence, doubled each time, a reader looks for broken bytes and reconnects; large records on slow lines still arrive.
_RECONNECT_AFTER_S, _RECONNECT_AFTER_MAX_S = 20.0, 120.0

_log = get_logger("kafka.reader")


class SharedConnections:
    """Connections that readers of many partitions share. A source has one consumer for each partition, so other headers need another."""

    def __init__(self) -> None:
        self._sources: dict[Any, NativeSource] = {}

    def source(self, library: ctypes.CDLL, properties: Mapping[str, str], headers: bool, framed: Framed) -> NativeSource:
        name = headers, framed, *sorted(properties.items())
        if name not in self._sources:
            self._sources[name] = NativeSource(library, properties)
        return self._sources[name]

    def forget(self, source: NativeSource) -> None:
        """Make later readers open new connections instead of *source*."""
        self._sources = {name: known for name, known in self._sources.items() if known is not source}

    def close(self) -> None:
        """Disconnect; all readers are closed before."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()


def wait_for_any(readers: Sequence[RangeReader], wait_ms: int, other: int = -1) -> None:
    """
    Wait up to *wait_ms* until one of *readers*, in none of which :meth:`RangeReader.read_on` has found a record, may have one, or until the
    descriptor *other* can be read.
    """
    sources = {reader.source for reader in readers}
    source = sources.pop()
    if source is None or sources:
        time.sleep(min(wait_ms, _LOOK_MS) / 1_000)
    else:
        source.wait(wait_ms, other)


class RangeReader:
    """
    Reads ranges of one partition.

    Args:
        headers: Whether to read Tidegate's own headers.
        prefetch_bytes: How much is fetched ahead, at most.
        connections: Connections that it shares; it must be their only reader of the partition with these headers. None: it connects by
            itself.
        framed: The headers to put before each value.
        overrides: Properties of its client that differ from those of other readers.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        partition: int,
        headers: bool = False,
        prefetch_bytes: int = PREFETCH_BYTES,
        connections: SharedConnections | None = None,
        framed: Framed = (),
        overrides: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._topic, self._partition, self._properties = topic, partition, properties
        events = min(max(_PREFETCH_EVENTS * prefetch_bytes // PREFETCH_BYTES, 1_000), _PREFETCH_EVENTS)
        ahead = {
            "queued.max.messages.kbytes": str(max(prefetch_bytes // 1024, 1)),
            "queued.min.messages": str(events),
            "fetch.message.max.bytes": str(min(max(prefetch_bytes // 8, 2**14), 2**20)),
        }
        self._consumer_properties, self._connections = {**STEADY, **properties, **CONSUMER, **ahead, **overrides}, connections
        self._headers, self._framed = headers, framed
        self._connect()
        self._position = _NOWHERE

    def _connect(self) -> None:
        # Where the partition has ended, which the consumer says once: all records before it have come.
        self._ended_at = -1
        library, properties = native.usable_library(), self._consumer_properties
        self._consumer: NativeConsumer | MessageConsumer
        # The consumer, or the source of its own, that this reader has opened and must close.
        self._opened: NativeConsumer | MessageConsumer | NativeSource
        if library is None:
            own = {**properties, "group.id": "tidegate"}
            self._consumer = self._opened = MessageConsumer(own, self._topic, self._partition, self._headers, self._framed)
        else:
            shared = self._connections
            source = (
                NativeSource(library, properties) if shared is None else shared.source(library, properties, self._headers, self._framed)
            )
            self._consumer = source.open_consumer(self._topic, self._partition, self._headers, _CHUNK_EVENTS_MAX, self._framed)
            self._opened = source if shared is None else self._consumer

    @property
    def source(self) -> NativeSource | None:
        """The connections that it reads from, if they can be waited for."""
        return self._consumer.source if isinstance(self._consumer, NativeConsumer) else None

    def seek(self, offset: int) -> None:
        """Go to an offset without reading the records before it."""
        # A consumer that could not go there fetches nothing until it is told where to begin.
        self._position = _NOWHERE
        self._consumer.assign(offset)
        self._position, self._ended_at = offset, -1

    def read(
        self, start: int, end: int, chunk: int = CHUNK_EVENTS, chunk_bytes: int = CHUNK_BYTES, silence_max_s: float = math.inf
    ) -> Iterator[Records]:
        """
        Yield the range in pieces of at most *chunk* records, and of *chunk_bytes* unless one record is larger. Raises RefusedError: the
        range (or its topic) has been deleted, it may not be read (TG-KAFKA-DENIED), or its bytes are broken (TG-RECORD-UNREADABLE);
        UnreachableError: the brokers refuse the connection (TG-KAFKA-AUTH, TG-KAFKA-TLS), or nothing came for *silence_max_s*.
        """
        if start >= end:
            return
        if 0 <= self._position < start <= self._position + _NEAR:
            self._skip(start, chunk, chunk_bytes)
        if self._position != start:
            self.seek(start)
        yield from self._read_chunks(end, chunk, chunk_bytes, silence_max_s)

    def read_on(self, start: int, wait_ms: int, chunk: int = CHUNK_EVENTS, chunk_bytes: int = CHUNK_BYTES) -> Records | None:
        """
        Return the next records from offset *start* on, wherever the partition ends; None if none comes within *wait_ms*. Raises as
        :meth:`read` does.
        """
        if self._position != start:
            self.seek(start)
        fetched = self._consumer.fetch(_NO_END, min(chunk, _CHUNK_EVENTS_MAX), chunk_bytes, wait_ms, 0)
        records, self._ended_at = fetched.records, max(self._ended_at, fetched.ended_at)
        if fetched.error is not None:
            self._handle_error(fetched.error, fetched.error_offset, _NO_END)
        if records is not None:
            self._position = int(records.offset[-1]) + 1
        return records

    def _skip(self, start: int, chunk: int, chunk_bytes: int) -> None:
        """Read past records that another worker has read: most of them are already fetched, and a seek would wait for the broker."""
        try:
            for _ in self._read_chunks(start, chunk, chunk_bytes):
                pass
        except RefusedError as error:
            if error.code not in ("TG-RETENTION", "TG-RECORD-UNREADABLE"):
                raise

    def _read_chunks(self, end: int, chunk: int, chunk_bytes: int, silence_max_s: float = math.inf) -> Iterator[Records]:
        warned_s = since_s = time.monotonic()
        patience_s = _RECONNECT_AFTER_S
        if end <= self._ended_at:
            self._position = end
        while self._position < end:
            rows_max = min(chunk, _CHUNK_EVENTS_MAX)
            records, is_beyond, error, error_offset, _ = self._consumer.fetch(end, rows_max, chunk_bytes, _WAIT_MS, _MORE_MS)
            if error is not None:
                self._handle_error(error, error_offset, end)
            if records is not None:
                self._position = int(records.offset[-1]) + 1
            if is_beyond:
                # Offsets between the last record and `end` are gaps: transaction markers or compacted records.
                self._position = end
            now_s = time.monotonic()
            if records is not None:
                yield records
                warned_s = since_s = time.monotonic()
                patience_s = _RECONNECT_AFTER_S
            elif now_s - since_s > silence_max_s:
                what = f"no records came for {silence_max_s:g} s"
                raise UnreachableError(what, code="TG-KAFKA-UNREACHABLE", where=f"{self._topic}-{self._partition}@{self._position}")
            elif now_s - since_s > patience_s:
                self._raise_if_unreadable(self._position)
                self._reconnect()
                since_s, patience_s = now_s, min(2 * patience_s, _RECONNECT_AFTER_MAX_S)
            elif now_s - warned_s > _WARN_AFTER_S:
                raise_if_hopeless(self._properties, Right("Read", self._topic))
                _log.warning("waiting for records", topic=self._topic, partition=self._partition, offset=self._position)
                warned_s = time.monotonic()

    def _reconnect(self) -> None:
        # Every record of a range existed when the range was planned. If a broker lost its partitions and regained them, librdkafka
        # sometimes fetches nothing more, which looks like a slow broker: so the reader reconnects after a long silence.
        _log.warning("connecting anew", topic=self._topic, partition=self._partition, offset=self._position)
        self.close()
        if isinstance(self._consumer, NativeConsumer) and self._connections is not None:
            self._connections.forget(self._consumer.source)
        self._connect()
        self._consumer.assign(self._position)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def _handle_error(self, error: KafkaError, error_offset: int, end: int) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            # The partition ends at or beyond the range: the rest of the range has no records.
            self._ended_at = error_offset
            if error_offset >= end:
                self._position = end
        elif is_unreadable(error):
            # The broken bytes lie behind the range and were fetched ahead.
            if error_offset >= end:
                self._position = end
                return
            self._raise_if_unreadable(max(error_offset, self._position))
        elif code in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            what = "retention has deleted records that are still to be read"
            fix = "give the topic a longer retention; ingest, started again, says how to continue after the gap"
            raise RefusedError(what, code="TG-RETENTION", where=f"{self._topic}-{self._partition}@{self._position}", fix=fix)
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
            raise RefusedError("the topic is gone", code="TG-TOPIC-MISSING", where=f"{self._topic}-{self._partition}")
        elif error.fatal() or code == KafkaError._FATAL or is_denial(error):
            raise kafka_failure(error, f"{self._topic}-{self._partition}", "Read", self._topic, properties=self._properties)

    def _raise_if_unreadable(self, offset: int) -> None:
        """Raise TG-RECORD-UNREADABLE if broken bytes hide the records from *offset* on; librdkafka reports only broken compressed bytes."""
        batch = find_unreadable_batch(self._consumer_properties, self._topic, self._partition, offset)
        if batch is not None:
            raise unreadable_error(self._topic, self._partition, offset, batch.end, batch.reason)
