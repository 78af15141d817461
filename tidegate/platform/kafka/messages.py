"""
Kafka record by record, through confluent-kafka's message objects: the fallback if the native part is unavailable.

Law: :class:`MessageConsumer` and :class:`MessageProducer` give the same results as the classes in :mod:`tidegate.platform.kafka.native`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ordering.columns.framed_payloads import Headers, frame_payload, headers_of, payload_of
from ordering.columns.payload_columns import Payload
from tidegate.platform.kafka.records import ALL_HEADERS, OWN_HEADERS, UNASSIGNED, Columns, Fetched, Framed, Records


class _FetchedRecord(NamedTuple):
    """A record of the client's queue: its headers, empty unless they are needed, and its value, framed if frames are asked for."""

    message: Message
    headers: Headers
    value: bytes | None


class MessageConsumer:
    """Reads the records of one partition as columns; see :class:`~tidegate.platform.kafka.native.NativeConsumer`."""

    def __init__(self, properties: Mapping[str, str], topic: str, partition: int, headers: bool, framed: Framed = ()) -> None:
        self._topic, self._partition, self._headers, self._framed = topic, partition, headers, framed
        self._consumer = Consumer(dict(properties))
        self._fetched: list[_FetchedRecord] = []

    def assign(self, offset: int) -> None:
        self._fetched = []
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])

    def fetch(self, end: int, rows_max: int, bytes_max: int, wait_ms: int, more_ms: int) -> Fetched:
        ready, size, wait, ended_at = 0, 0, wait_ms, 0
        while True:
            while ready < len(self._fetched):
                message, _, value = self._fetched[ready]
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) < end:
                    # The partition ended here when it was asked; what is behind it in the queue has come since.
                    ended_at = message.offset() or 0
                    del self._fetched[ready]
                    continue
                if error is not None and ready == 0:
                    del self._fetched[0]
                    return Fetched(None, error=error, error_offset=message.offset() or 0)
                added = len(value or b"") + len(message.key() or b"") if error is None else 0
                is_beyond = error is None and _offset(message) >= end
                if error is not None or is_beyond or ready == rows_max or (ready and size + added > bytes_max):
                    return Fetched(self._pop(ready), is_beyond, ended_at=ended_at)
                ready, size, wait = ready + 1, size + added, more_ms
            # Do not wait for records after the range.
            if ready == rows_max or (ready and _offset(self._fetched[ready - 1].message) + 1 >= end):
                return Fetched(self._pop(ready), ended_at=ended_at)
            # One record is fetched first: a call for many would wait until all of them have arrived.
            consumed = self._consumer.consume(1, wait / 1000)
            if not consumed:
                return Fetched(self._pop(ready), ended_at=ended_at)
            consumed += self._consumer.consume(rows_max - ready - 1, 0) if rows_max - ready > 1 else []
            self._fetched += map(self._read, consumed)

    def close(self) -> None:
        self._consumer.close()

    def _pop(self, count: int) -> Records | None:
        fetched, self._fetched = self._fetched[:count], self._fetched[count:]
        if not fetched:
            return None
        messages = [message for message, _, _ in fetched]
        offset = np.fromiter(map(_offset, messages), dtype=np.int64, count=count)
        stamp = np.fromiter([message.timestamp()[1] for message in messages], dtype=np.int64, count=count)
        key = pa.array([message.key() for message in messages], type=pa.binary())
        value = pa.array([value for _, _, value in fetched], type=pa.binary())
        own = [_header_column(name, [headers for _, headers, _ in fetched]) if self._headers else None for name in OWN_HEADERS]
        return Records(offset, stamp, key, value, *own, is_framed=bool(self._framed))

    def _read(self, message: Message) -> _FetchedRecord:
        headers = read_headers(message) if self._headers or self._framed else []
        value = message.value()
        if not self._framed:
            return _FetchedRecord(message, headers, value)
        if self._framed == ALL_HEADERS:
            framed = [header for header in headers if header[0] not in OWN_HEADERS]
        else:
            last = dict(headers)
            framed = [(name, data) for name in self._framed if (data := last.get(name)) is not None]
        return _FetchedRecord(message, headers, frame_payload(framed, value))


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a fetched record has an offset"
    return offset


# methodcaller calls from C, where Python checks for an exception after each call; in its own loops it may miss one.
_call_headers = methodcaller("headers")


def read_headers(message: Message) -> Headers:
    """Return a record's headers, without those whose names are no UTF-8. To be called once for each message."""
    try:
        headers: Any = _call_headers(message) or ()
    except SystemError:
        # A name is no UTF-8. confluent-kafka has put a null pointer in its place, and reading the pair that holds it crashes. The garbage
        # collector passes over null pointers; it returns the contents of a pair or list from the last to the first.
        pairs = [gc.get_referents(pair)[::-1] for pair in reversed(gc.get_referents(_call_headers(message)))]
        headers = [pair for pair in pairs if len(pair) > 1]
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]


def _header_column(name: str, headers: Iterable[Headers]) -> pa.Array:
    return pa.array([next((value for other, value in of_record if other == name), None) for of_record in headers], type=pa.binary())


class MessageProducer:
    """Queues events one by one; see :class:`~tidegate.platform.kafka.native.NativeProducer`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.failed: KafkaError | None = None
        quiet = {"delivery.report.only.error": True}  # a bool, as confluent-kafka reads this one itself
        self._producer = Producer({**properties, **quiet, "on_delivery": self._on_failure, "error_cb": self._on_error})

    def send(self, topic: str, events: Columns, first_row: int = 0) -> int:
        produce: Any = self._producer.produce  # called millions of times: positional arguments, in the order of its signature
        own = [None] * len(events.value) if events.headers is None else [[(events.name, header)] for header in events.headers.to_pylist()]
        columns = _as_objects(events.value), _as_objects(events.key), events.partition.tolist(), events.stamp_ms.tolist(), own
        for payload, key_bytes, to, stamp, header in zip(*(column[first_row:] for column in columns), strict=True):
            if events.is_framed and payload is not None:
                payload, header = bytes(payload_of(payload)), [*(header or ()), *headers_of(payload)]
            try:
                produce(topic, payload, key_bytes, to, None, None, stamp, header)
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
