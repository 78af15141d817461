"""
Writing channels of an ordered topic: numbered events in order, and CTIs once the events below them are acknowledged.

Law (PROTOCOL.md): a partition always holds a prefix of the records queued for it, whatever fails: the producer is idempotent and
gapless and never gives up on a record. After any error it is discarded. A CTI is sent only when the broker has acknowledged every event
queued before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pyarrow as pa
from confluent_kafka import KafkaError

from ordering.columns.framed_payloads import Headers
from ordering.errors import TidegateError, UnreachableError
from ordering.model.step import Released
from ordering.protocol.facts import FACTS_HEADER_NAME, encode_facts
from ordering.protocol.punctuation import Cti
from ordering.protocol.wire import CTI_BYTES_MAX, HEADER_NAME, encode_ctis, encode_event_header_column
from ordering.ticks import MILLISECOND_US
from tidegate.basics.access_rights import Right
from tidegate.platform.kafka import native
from tidegate.platform.kafka.admin import raise_if_hopeless
from tidegate.platform.kafka.client_properties import PRODUCER, STEADY
from tidegate.platform.kafka.failures import is_denial, kafka_failure
from tidegate.platform.kafka.messages import MessageProducer
from tidegate.platform.kafka.native import NativeProducer
from tidegate.platform.kafka.records import Columns
from tidegate.platform.observe.logs import get_logger

# Errors of records that are consequences of an earlier failure of the producer.
_CONSEQUENCES = {KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._GAPLESS_GUARANTEE}
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
TOO_LARGE = "TG-RECORD-TOO-LARGE"
_WARN_AFTER_S = 10.0
_FLUSH_MS = 1_000
_ROOM_MS = 20

# Value, key, partition, Kafka timestamp in milliseconds, headers.
Row = tuple[bytes | None, bytes | None, int, int, Headers]

_log = get_logger("kafka.writer")


class GaplessProducer:
    """Delivers everything in order or fails as a whole. It overrides *properties* that would break this, but not *own_properties*."""

    def __init__(self, properties: Mapping[str, str], own_properties: Mapping[str, str] = MappingProxyType({})) -> None:
        self._properties, self._topics = properties, set[str]()
        own = {**STEADY, **properties, **PRODUCER, **own_properties}
        library = native.usable_library()
        self._producer: NativeProducer | MessageProducer = MessageProducer(own) if library is None else NativeProducer(library, own)

    def send_columns(self, topic: str, events: Columns) -> None:
        """Queue events, waiting while the queue is full. Raises TidegateError: a record was refused for good."""
        next_row, since_s = 0, self._start_sending(topic)
        while True:
            next_row = self._producer.send(topic, events, next_row)
            if next_row == len(events.value):
                break
            since_s = self._wait_for_room(topic, since_s)
        self._producer.poll(0)
        self._raise_failure(topic)

    def send(self, topic: str, rows: Iterable[Row]) -> None:
        since_s = self._start_sending(topic)
        for value, key, partition, stamp_ms, headers in rows:
            while not self._producer.send_one(topic, value, key, headers, partition, stamp_ms):
                since_s = self._wait_for_room(topic, since_s)
        self._producer.poll(0)
        self._raise_failure(topic)

    def send_plain(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> None:
        """Queue one record outside of channels; the partitioner chooses its partition."""
        since_s = self._start_sending(topic)
        while not self._producer.send_one(topic, value, key, headers):
            since_s = self._wait_for_room(topic, since_s)
        self._raise_failure(topic)

    def flush(self, topic: str) -> None:
        """Return when the broker has acknowledged everything queued. Raises TidegateError: a record was refused for good."""
        warned_s = time.monotonic()
        while left := self._producer.flush(_FLUSH_MS):
            self._raise_failure(topic)
            if time.monotonic() - warned_s > _WARN_AFTER_S:
                raise_if_hopeless(self._properties, Right("Write", topic))
                _log.warning("waiting for acknowledgements", topic=topic, records=left)
                warned_s = time.monotonic()
        self._raise_failure(topic)

    def discard(self) -> None:
        """Forget everything queued; the producer cannot be used afterwards."""
        self._producer.close()

    def _start_sending(self, topic: str) -> float:
        self._topics.add(topic)
        return time.monotonic()

    def _wait_for_room(self, topic: str, since_s: float) -> float:
        """Wait briefly while the queue is full; return the start of the wait, which is reset after each check of rights."""
        self._producer.poll(_ROOM_MS)
        self._raise_failure(topic)
        if time.monotonic() - since_s < _WARN_AFTER_S:
            return since_s
        raise_if_hopeless(self._properties, Right("Write", topic))
        return time.monotonic()

    def _raise_failure(self, topic: str) -> None:
        failed = self._producer.failed
        if failed is None:
            return
        if is_denial(failed) or failed.code() in _CONSEQUENCES:
            # The first failure may concern another topic, or the producer itself.
            for written in (topic, *self._topics - {topic}):
                raise_if_hopeless(self._properties, Right("Write", written))
        if failed.code() in _GONE:
            what = "a topic is not found: it was deleted, or its brokers are coming back"
            fix = "start again: a dead-letter topic is made anew; of any other topic the start says what can be done"
            raise UnreachableError(what, code="TG-TOPIC-MISSING", where=", ".join(sorted(self._topics)), fix=fix)
        raise _record_error(failed, topic, self._properties)


def _record_error(error: KafkaError, topic: str, properties: Mapping[str, str]) -> TidegateError:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return TidegateError(
            "the broker refuses a record as too large", code=TOO_LARGE, where=topic, fix="raise max.message.bytes of the topic"
        )
    return kafka_failure(error, topic, "Write", properties=properties)


def event_headers(released: Released) -> pa.FixedSizeBinaryArray:
    """Return the header of each event as it is written (PROTOCOL.md)."""
    return encode_event_header_column(
        released.seq,
        released.system_us,
        released.event_time_us,
        released.arrival_us,
        released.offset,
        released.flags,
        released.number,
    )


class ChannelWriter:
    """
    Writes one input partition's channels; the producer may be shared. A CTI with a body above *cti_bytes_max* is split. If values
    *are_framed*, the headers before them become headers of their records.
    """

    def __init__(self, producer: GaplessProducer, topic: str, cti_bytes_max: int = CTI_BYTES_MAX, *, are_framed: bool = False) -> None:
        self._producer, self._topic, self._cti_bytes_max, self._are_framed = producer, topic, cti_bytes_max, are_framed

    def write_events(self, released: Released) -> None:
        if not len(released):
            return
        headers = event_headers(released)
        stamp_ms = released.system_us // MILLISECOND_US
        columns = Columns(released.value, released.key, released.output_partition, stamp_ms, HEADER_NAME, headers, self._are_framed)
        self._producer.send_columns(self._topic, columns)

    def write_ctis(self, ctis: Iterable[Cti]) -> None:
        """Queue CTIs, the parts of each together; call it only after :meth:`GaplessProducer.flush` for the events below them."""
        rows: list[Row] = []
        for cti in ctis:
            # A timestamp of 0 would let the client choose one.
            stamp_ms = max(cti.largest_us // MILLISECOND_US, 1)
            parts = encode_ctis(cti, self._cti_bytes_max)
            rows += [(body, None, cti.output_partition, stamp_ms, [(HEADER_NAME, header)]) for header, body in parts]
            # The header of a CTI's last part carries its facts.
            if cti.facts is not None:
                rows[-1][-1].append((FACTS_HEADER_NAME, encode_facts(cti.facts)))
        self._producer.send(self._topic, rows)
