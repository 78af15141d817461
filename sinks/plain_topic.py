"""
Results in a plain topic, for consumers that know nothing of Tidegate: one transaction for each sheet.

Law: a consumer with ``isolation.level=read_committed`` sees the rows of every sheet once, in order within (partition, key), and never
a part of a sheet. The transaction with a sheet's rows also moves a consumer group's offset for the sheet's partition to the number of
the next span. So the rows and the note that they are published appear together, and the note is read before a sheet is published. The
producer's transactional id belongs to (topic, partition): the broker fences off an earlier writer that still lives. That may be another
worker of the same job, whose turn comes again: it begins anew, and finds by the note what has been published.

A sheet is published once its span is final, so this topic is behind the ordered one by up to a span (``file_span``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from ordering.ticks import MILLISECOND_US
from sinks.base import Row, SinkError, sort_rows
from tidegate.platform.kafka.admin import ANY_TIMESTAMP_CONFIG

_ANSWER_S = 60.0
_BATCH_BYTES = 1_000_000
_COORDINATOR_ERRORS = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
# What the client says of rows that it gave up because of another, or because of its own end.
_GIVEN_UP = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._STATE}
# How long a refusal may be on its way after the transaction has failed by it.
_REFUSAL_S = 0.2
# Another writer of the partition has begun since.
_FENCED_ERRORS = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class PlainTopicSink:
    """
    The :class:`~sinks.base.Sink` that writes into a plain topic.

    Args:
        topic: The topic; it has at least as many partitions as a span has sheets.
        span_us: Length of a span, microseconds. Another length changes the numbers of spans: use a new topic for it.
        row_bytes_max: Most bytes of a row; the topic takes batches of this size.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, span_us: int, row_bytes_max: int | None = None) -> None:
        self._properties, self._topic, self._span_us = dict(properties), topic, span_us
        # The topic's limit applies to batches.
        self._batch_bytes = str(max(min(row_bytes_max or _BATCH_BYTES, _BATCH_BYTES), 1))
        self._producers: dict[int, Producer] = {}

    @property
    def group(self) -> str:
        """The consumer group whose offsets record which spans are published."""
        return f"{self._topic}.published"

    @cached_property
    def _consumer(self) -> Consumer:
        own = {"group.id": self.group, "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 2}
        return Consumer({**self._properties, **own})

    def publish(self, span_start_us: int, partition: int, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        """See :meth:`sinks.base.Sink.publish`; a broker that does not accept the rows raises SinkError (TG-SINK-TOPIC)."""
        ordered = sort_rows(rows, span_start_us, self._span_us)
        # A zombie fences off the producer that this call has just made, and is fenced off in turn by the next one.
        if ordered and not self._try_publish(span_start_us, partition, ordered, may_be_fenced=True):
            self._try_publish(span_start_us, partition, ordered, may_be_fenced=False)

    def _try_publish(self, span_start_us: int, partition: int, ordered: Sequence[Row], *, may_be_fenced: bool) -> bool:
        """Publish a sheet unless it is; return False if another writer began meanwhile (*may_be_fenced*; else that is an error)."""
        number = span_start_us // self._span_us
        refused: list[KafkaError] = []

        def note(error: KafkaError | None, _: object) -> None:
            if error is not None:
                refused.append(error)

        try:
            producer = self._producer(partition)
            if number < self.first_unpublished([partition])[partition]:
                return True
            producer.begin_transaction()
            for row in ordered:
                self._queue(producer, row, note)
            offset = [TopicPartition(self._topic, partition, number + 1)]
            producer.send_offsets_to_transaction(offset, self._consumer.consumer_group_metadata(), _ANSWER_S)
            producer.commit_transaction(_ANSWER_S)
            return True
        except (KafkaException, SystemError) as raised:
            # The next producer finds out whether the transaction was committed.
            broken = self._producers.pop(partition, None)
            errors = [*_kafka_errors(raised), *_last_words(broken), *refused]
            if not errors:
                raise
            if may_be_fenced and any(error.code() in _FENCED_ERRORS for error in errors):
                return False
            # Of a refused row the calls of the transaction say only that it failed.
            reason = next((error for error in refused if error.code() not in _GIVEN_UP), errors[0])
            what = f"{self._topic} does not take results: {reason.str()}"
            fix = "see whether the topic is there, has enough partitions, and whether this client may write transactions to it"
            if reason.code() == KafkaError.INVALID_TIMESTAMP:
                fix = f"set {', '.join(f'{key}={value}' for key, value in ANY_TIMESTAMP_CONFIG.items())} on the topic"
            raise SinkError(what, code="TG-SINK-TOPIC", where=f"{self._topic}-{partition}", fix=fix) from raised

    def close(self) -> None:
        self._producers.clear()
        if "_consumer" in self.__dict__:
            self._consumer.close()
            del self._consumer

    def _producer(self, partition: int) -> Producer:
        producer = self._producers.get(partition)
        if producer is None:
            own = {
                "transactional.id": f"{self._topic}-{partition}",
                "partitioner": "murmur2",
                "compression.type": "lz4",
                "message.max.bytes": "1000000000",
                "allow.auto.create.topics": "false",
                "batch.size": self._batch_bytes,
                "log_level": 2,
            }
            producer = Producer({**self._properties, **own})
            # Fences off an earlier writer of this partition, and ends its open transaction.
            producer.init_transactions(_ANSWER_S)
            self._producers[partition] = producer
        return producer

    def first_unpublished(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, the number of the first span that is not published yet: its start divided by the length of a span."""
        # A busy broker may still be making the group's coordinator, or moving it.
        retry = Retrying(retry=retry_if_exception(_is_passing), stop=stop_after_delay(_ANSWER_S), wait=wait_fixed(0.2), reraise=True)
        committed = retry(self._consumer.committed, [TopicPartition(self._topic, partition) for partition in partitions], _ANSWER_S)
        return {place.partition: max(int(place.offset), 0) for place in committed}

    def _queue(self, producer: Producer, row: Row, note: Callable[[KafkaError | None, object], None]) -> None:
        # To the client a timestamp of 0 means the current time.
        stamp_ms = max(row.system_us // MILLISECOND_US, 1)
        while True:
            try:
                producer.produce(self._topic, row.value, row.key or None, timestamp=stamp_ms, on_delivery=note)
                return
            except BufferError:
                # The local queue is full: wait for deliveries.
                producer.poll(0.1)


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _COORDINATOR_ERRORS


def _last_words(producer: Producer | None) -> list[KafkaError]:
    """Have a producer that has failed tell of the rows that were refused, each to its own callback; return the fatal error it may have."""
    if producer is not None:
        try:
            producer.poll(_REFUSAL_S)
        except (KafkaException, SystemError) as raised:
            return _kafka_errors(raised)
    return []


def _kafka_errors(raised: BaseException) -> list[KafkaError]:
    """Return the error in *raised*. A callback that runs while the client's exception is pending has it wrapped in a SystemError."""
    cause = raised if isinstance(raised, KafkaException) else raised.__cause__
    return [cause.args[0]] if isinstance(cause, KafkaException) else []
