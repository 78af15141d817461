"""
Reading exact ranges of a Kafka partition, with a consumer that stays at its position between batches.

Law: ``read(start, end)`` yields exactly the records with ``start <= offset < end`` that the partition holds, in offset
order, however often and in whatever pieces it is asked. A new consumer costs 50 to 100 ms, so each worker process
keeps one per partition; what it fetched beyond a range waits for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ordering.errors import RefusedError
from ordering.wire import HEADER_NAME
from tidegate.runtime.kafka.admin import kafka_failure
from tidegate.runtime.kafka.records import Records
from tidegate.runtime.logs import get_logger

__all__ = ["CHUNK_EVENTS", "FACTS_HEADER_NAME", "RangeReader", "Records", "cached_reader", "drop_reader"]

FACTS_HEADER_NAME = "tf"
CHUNK_EVENTS = 20_000
PREFETCH_BYTES = 16 * 2**20
_POLL_S = 0.5
_COMPLAIN_AFTER_S = 10.0

_CONSUMER = {
    "group.id": "tidegate",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    "queued.min.messages": "30000",
    "fetch.message.max.bytes": "1048576",
    "fetch.error.backoff.ms": "100",
    # After a full queue librdkafka waits a whole second by default, and the reader runs dry meanwhile.
    "fetch.queue.backoff.ms": "5",
    "check.crcs": "false",
    "log_level": "2",
}

_log = get_logger(__name__)


class RangeReader:
    """
    Reads ranges of one partition.

    Args:
        properties: librdkafka properties, with ``bootstrap.servers``.
        topic: Topic name.
        partition: Partition number.
        headers: Whether record headers are wanted.
        prefetch_bytes: Most bytes fetched ahead.
    """

    def __init__(
        self, properties: Mapping[str, str], topic: str, partition: int, headers: bool = False, prefetch_bytes: int = PREFETCH_BYTES
    ) -> None:
        self._topic, self._partition, self._headers = topic, partition, headers
        self._consumer = Consumer({**properties, **_CONSUMER, "queued.max.messages.kbytes": str(max(prefetch_bytes // 1024, 1))})
        self._position = -1
        self._ahead: list[Message] = []

    def read(self, start: int, end: int, chunk: int = CHUNK_EVENTS) -> Iterator[Records]:
        """
        Yield the range in pieces of at most about *chunk* records. Waits as long as the brokers do not answer.

        Raises:
            RefusedError: The range (or its topic) has been deleted.
        """
        if self._position != start:
            self._seek(start)
        while self._position < end:
            messages = self._next(end, chunk)
            if messages:
                yield self._columns(messages)

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def _seek(self, offset: int) -> None:
        self._ahead = []
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])
        self._position = offset

    def _next(self, end: int, chunk: int) -> list[Message]:
        """Return the next records below *end*, moving the position; empty when a hole was skipped or nothing came."""
        messages = self._ahead or self._poll(end, chunk)
        inside = len(messages)
        while inside and _offset(messages[inside - 1]) >= end:
            inside -= 1
        self._ahead = messages[inside:]
        if inside:
            self._position = _offset(messages[inside - 1]) + 1
        if self._ahead:
            # What lies between the last record and `end` are holes: transaction markers or compacted records.
            self._position = max(self._position, end)
        return messages[:inside]

    def _poll(self, end: int, chunk: int) -> list[Message]:
        silent_since = time.monotonic()
        while True:
            messages = self._consumer.consume(min(chunk, max(end - self._position, 1)), timeout=_POLL_S)
            clean = [message for message in messages if message.error() is None]
            for message in messages if len(clean) < len(messages) else ():
                if message.error() is not None:
                    self._meet(message, end)
            if clean or self._position >= end:
                return clean
            if time.monotonic() - silent_since > _COMPLAIN_AFTER_S:
                _log.warning("waiting for records", topic=self._topic, partition=self._partition, offset=self._position)
                silent_since = time.monotonic()

    def _meet(self, message: Message, end: int) -> None:
        error = message.error()
        code = error.code() if error is not None else None
        if code == KafkaError._PARTITION_EOF:
            reached = message.offset()
            if reached is not None and reached >= end:
                self._position = end
        elif code in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            raise RefusedError(
                "retention has deleted records that are still to be read",
                code="TG-RETENTION",
                where=f"{self._topic}-{self._partition}@{self._position}",
                fix="start a new ordered topic from what is left, and give the raw topic a longer retention",
            )
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
            raise RefusedError("the topic is gone", code="TG-TOPIC-MISSING", where=f"{self._topic}-{self._partition}")
        elif error is not None and error.fatal():
            raise kafka_failure(error, f"{self._topic}-{self._partition}")

    def _columns(self, messages: list[Message]) -> Records:
        count = len(messages)
        first, last = _offset(messages[0]), _offset(messages[-1])
        if last - first == count - 1:  # offsets rise, so nothing is missing between
            offset = np.arange(first, last + 1)
        else:
            offset = np.fromiter(map(_offset, messages), dtype=np.int64, count=count)
        stamp = np.fromiter([message.timestamp()[1] for message in messages], dtype=np.int64, count=count)
        key = pa.array([message.key() for message in messages], type=pa.binary())
        value = pa.array([message.value() for message in messages], type=pa.binary())
        if not self._headers:
            return Records(offset, stamp, key, value)
        headers: Any = [message.headers() or () for message in messages]
        return Records(offset, stamp, key, value, *(_named(name, headers) for name in (HEADER_NAME, FACTS_HEADER_NAME)))


def _named(name: str, headers: Iterable[Iterable[tuple[str, Any]]]) -> pa.Array:
    """Return the value of each record's first header of that name."""
    found = [next((value for other, value in each if other == name), None) for each in headers]
    return pa.array([value.encode() if isinstance(value, str) else value for value in found], type=pa.binary())


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a fetched record has an offset"
    return offset


_readers: dict[tuple[str, str, int, bool], RangeReader] = {}


def cached_reader(
    properties: Mapping[str, str], topic: str, partition: int, headers: bool = False, prefetch_bytes: int = PREFETCH_BYTES
) -> RangeReader:
    """Return this process's reader of a partition, made at first use."""
    name = (properties["bootstrap.servers"], topic, partition, headers)
    if name not in _readers:
        _readers[name] = RangeReader(properties, topic, partition, headers, prefetch_bytes)
    return _readers[name]


def drop_reader(properties: Mapping[str, str], topic: str, partition: int, headers: bool = False) -> None:
    """Close this process's reader of a partition: after an error its position is unknown."""
    reader = _readers.pop((properties["bootstrap.servers"], topic, partition, headers), None)
    if reader is not None:
        reader.close()
