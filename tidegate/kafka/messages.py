"""
Kafka record by record, through confluent-kafka's message objects: the fallback if the native part is unavailable.

Law: :class:`MessageConsumer` and :class:`MessageProducer` give the same results as the classes in :mod:`tidegate.kafka.native`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ordering.columns.payload_columns import Payload
from ordering.protocol.facts import FACTS_HEADER_NAME
from ordering.protocol.wire import HEADER_NAME
from tidegate.kafka.records import UNASSIGNED, Fetched, HeaderColumn, Headers, Records


class MessageConsumer:
    """Reads the records of one partition as columns; see :class:`~tidegate.kafka.native.NativeConsumer`."""

    def __init__(self, properties: Mapping[str, str], topic: str, partition: int, headers: bool) -> None:
        self._topic, self._partition, self._headers = topic, partition, headers
        self._consumer = Consumer(dict(properties))
        self._fetched: list[Message] = []

    def assign(self, offset: int) -> None:
        self._fetched = []
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])

    def fetch(self, end: int, rows_max: int, bytes_max: int, wait_ms: int, more_ms: int) -> Fetched:
        ready, size, wait = 0, 0, wait_ms
        while True:
            while ready < len(self._fetched):
                message = self._fetched[ready]
                error = message.error()
                if error is not None and ready == 0:
                    del self._fetched[0]
                    return None, False, error, message.offset() or 0
                added = len(message.value() or b"") + len(message.key() or b"") if error is None else 0
                is_beyond = error is None and _offset(message) >= end
                if error is not None or is_beyond or ready == rows_max or (ready and size + added > bytes_max):
                    return self._pop(ready), is_beyond, None, 0
                ready, size, wait = ready + 1, size + added, more_ms
            # Do not wait for records after the range.
            if ready == rows_max or (ready and _offset(self._fetched[ready - 1]) + 1 >= end):
                return self._pop(ready), False, None, 0
            # One record first: a call for many would wait until all of them have arrived.
            fetched = self._consumer.consume(1, wait / 1000)
            if not fetched:
                return self._pop(ready), False, None, 0
            self._fetched += fetched + self._consumer.consume(rows_max - ready - 1, 0) if rows_max - ready > 1 else fetched

    def close(self) -> None:
        self._consumer.close()

    def _pop(self, count: int) -> Records | None:
        messages, self._fetched = self._fetched[:count], self._fetched[count:]
        if not messages:
            return None
        offset = np.fromiter(map(_offset, messages), dtype=np.int64, count=count)
        stamp = np.fromiter([message.timestamp()[1] for message in messages], dtype=np.int64, count=count)
        key = pa.array([message.key() for message in messages], type=pa.binary())
        value = pa.array([message.value() for message in messages], type=pa.binary())
        if not self._headers:
            return Records(offset, stamp, key, value)
        headers: Any = [message.headers() or () for message in messages]
        return Records(offset, stamp, key, value, *(_header_column(name, headers) for name in (HEADER_NAME, FACTS_HEADER_NAME)))


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a fetched record has an offset"
    return offset


def _header_column(name: str, headers: Iterable[Iterable[tuple[str, Any]]]) -> pa.Array:
    values = [next((value for other, value in of_record if other == name), None) for of_record in headers]
    return pa.array([value.encode() if isinstance(value, str) else value for value in values], type=pa.binary())


class MessageProducer:
    """Queues events one by one; see :class:`~tidegate.kafka.native.NativeProducer`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.failed: KafkaError | None = None
        quiet = {"delivery.report.only.error": True}  # a bool, as confluent-kafka reads this one itself
        self._producer = Producer({**properties, **quiet, "on_delivery": self._on_failure, "error_cb": self._on_error})

    def send(
        self, topic: str, value: Payload, key: Payload, partition: Any, stamp_ms: Any, name: str, headers: HeaderColumn, first_row: int = 0
    ) -> int:
        produce: Any = self._producer.produce  # called millions of times: positional arguments, in the order of its signature
        carried = [None] * len(value) if headers is None else [[(name, header)] for header in headers.to_pylist()]
        columns = _as_objects(value), _as_objects(key), partition.tolist(), stamp_ms.tolist(), carried
        for payload, key_octets, to, stamp, header in zip(*(column[first_row:] for column in columns), strict=True):
            try:
                produce(topic, payload, key_octets, to, None, None, stamp, header)
            except BufferError:
                return first_row
            except KafkaException as refused:
                self.failed = self.failed or refused.args[0]
                return first_row
            first_row += 1
        return first_row

    def send_one(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Headers, partition: int = UNASSIGNED, stamp_ms: int = 0
    ) -> bool:
        try:
            self._producer.produce(topic, value, key, partition, timestamp=stamp_ms, headers=list(headers))
        except BufferError:
            return False
        except KafkaException as refused:
            self.failed = self.failed or refused.args[0]
        return True

    def poll(self, wait_ms: int) -> None:
        self._serve(lambda: self._producer.poll(wait_ms / 1000))

    def flush(self, wait_ms: int) -> int:
        return self._serve(lambda: self._producer.flush(wait_ms / 1000))

    def close(self) -> None:
        """Discard the queue; the producer cannot be used afterwards."""
        self._producer.purge()

    def _serve(self, serve: Callable[[], int]) -> int:
        """Return the result of *serve*, or 0 after a fatal error, which is then in :attr:`failed`."""
        try:
            return serve()
        except (KafkaException, SystemError) as raised:
            # confluent-kafka raises a fatal error here instead of calling error_cb. If _on_failure runs while that exception is pending,
            # Python turns it into a SystemError, whose cause is lost if several records failed; then _on_failure has recorded the error.
            cause = raised if isinstance(raised, KafkaException) else raised.__cause__
            if isinstance(cause, KafkaException):
                self.failed = self.failed or cause.args[0]
            elif self.failed is None:
                raise
            return 0

    def _on_failure(self, error: KafkaError | None, message: Message) -> None:
        self.failed = self.failed or error

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failed = self.failed or error


def _as_objects(column: Payload) -> Any:
    return column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
