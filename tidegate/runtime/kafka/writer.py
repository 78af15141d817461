"""
Writing channels of an ordered topic: numbered events in order, and CTIs once the events below them are safe.

Law (spec section 4, writer): what reaches a partition is a prefix of what was handed over, whatever fails: the producer
is idempotent and gapless and never gives up on a record. After any error it is thrown away. A CTI is sent only when
the broker has acknowledged every event handed over before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from ordering.errors import TidegateError
from ordering.punctuation import Cti
from ordering.step import Released
from ordering.wire import CTI_BYTES_MAX, HEADER_NAME, encode_ctis, encode_event_headers
from tidegate.runtime.kafka.admin import kafka_failure
from tidegate.runtime.logs import get_logger

_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": "true",
    "enable.gapless.guarantee": "true",
    "message.timeout.ms": "0",
    "delivery.report.only.error": True,
    "linger.ms": "20",
    "batch.size": "1000000",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "65536",
    "message.max.bytes": "104857600",
    "compression.type": "lz4",
    "log_level": "2",
}
_COMPLAIN_AFTER_S = 10.0

_log = get_logger(__name__)


class GaplessProducer:
    """
    A producer that delivers everything in order or fails as a whole.

    Args:
        properties: librdkafka properties, with ``bootstrap.servers``; those the law fixes are set here.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._failed: KafkaError | None = None
        self._producer = Producer({**properties, **_PRODUCER, "on_delivery": self._on_failure, "error_cb": self._on_error})

    def send(self, topic: str, rows: Iterable[tuple[Any, Any, int, int, bytes]]) -> None:
        """Queue records (value, key, partition, timestamp in ms, header bytes), waiting while the queue is full."""
        produce: Any = self._producer.produce  # called millions of times: positional arguments, in the order of its signature
        for value, key, partition, stamp_ms, header in rows:
            try:
                produce(topic, value, key, partition, None, None, stamp_ms, [(HEADER_NAME, header)])
            except BufferError:
                row = value, key, partition, None, None, stamp_ms, [(HEADER_NAME, header)]
                self._until_room(topic, partial(produce, topic, *row))
        self._producer.poll(0)
        self._check(topic)

    def send_plain(self, topic: str, value: bytes | None, key: bytes | None, headers: list[tuple[str, str | bytes | None]]) -> None:
        """Queue one record that is no part of a channel, wherever the partitioner puts it."""
        self._until_room(topic, lambda: self._producer.produce(topic, value, key, headers=headers))

    def _until_room(self, topic: str, produce: Callable[[], Any]) -> None:
        """Queue a record, waiting while the queue is full."""
        while True:
            try:
                produce()
                return
            except BufferError:
                self._producer.poll(0.05)
                self._check(topic)

    def flush(self, topic: str) -> None:
        """
        Return when the broker has acknowledged everything queued; as long as none answers, wait and say so.

        Raises:
            TidegateError: A record was refused for good.
        """
        said = time.monotonic()
        while self._producer.flush(1.0):
            self._check(topic)
            if time.monotonic() - said > _COMPLAIN_AFTER_S:
                _log.warning("waiting for acknowledgements", topic=topic, records=len(self._producer))
                said = time.monotonic()
        self._check(topic)

    def discard(self) -> None:
        """Forget everything queued; the producer is of no use afterwards."""
        self._producer.purge()

    def _on_failure(self, error: KafkaError | None, message: Message) -> None:
        self._failed = self._failed or error

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._failed = self._failed or error

    def _check(self, topic: str) -> None:
        if self._failed is not None:
            raise _refused(self._failed, topic)


def _refused(error: KafkaError, topic: str) -> TidegateError:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return TidegateError(
            "the broker refuses a record as too large", code="TG-RECORD-TOO-LARGE", where=topic, fix="raise max.message.bytes of the topic"
        )
    return kafka_failure(error, topic)


class ChannelWriter:
    """
    Writes one input partition's channels of an ordered topic through a producer that others may share.

    Args:
        producer: Where records go.
        topic: The ordered topic.
        cti_bytes_max: A CTI whose body would be larger is split; well below the topic's ``max.message.bytes``.
    """

    def __init__(self, producer: GaplessProducer, topic: str, cti_bytes_max: int = CTI_BYTES_MAX) -> None:
        self._producer, self._topic, self._cti_bytes_max = producer, topic, cti_bytes_max

    def events(self, released: Released) -> None:
        """Queue released events in their order."""
        if not len(released):
            return
        headers = encode_event_headers(
            released.seq,
            released.system_us,
            released.event_time_us,
            released.arrival_us,
            released.offset,
            released.flags,
            released.number,
        )
        stamps = (released.system_us // 1000).tolist()
        rows = zip(released.value, released.key, released.output_partition.tolist(), stamps, headers, strict=True)
        self._producer.send(self._topic, rows)

    def ctis(self, ctis: Iterable[Cti]) -> None:
        """Queue CTIs, the parts of each together; only after :meth:`GaplessProducer.flush` returned for the events below them."""
        rows = []
        for cti in ctis:
            stamp_ms = max(cti.largest_us // 1000, 1)
            rows += [(body, None, cti.output_partition, stamp_ms, header) for header, body in encode_ctis(cti, self._cti_bytes_max)]
        self._producer.send(self._topic, rows)


_producers: dict[str, GaplessProducer] = {}


def cached_producer(properties: Mapping[str, str]) -> GaplessProducer:
    """Return this process's producer for a cluster, made at first use."""
    bootstrap = properties["bootstrap.servers"]
    if bootstrap not in _producers:
        _producers[bootstrap] = GaplessProducer(properties)
    return _producers[bootstrap]


def drop_producer(properties: Mapping[str, str]) -> None:
    """Throw this process's producer away: after an error what it still holds must never be sent."""
    producer = _producers.pop(properties["bootstrap.servers"], None)
    if producer is not None:
        producer.discard()
