"""
A dead letter of ingest, produced again: the record goes to the partition that it came from, and is judged as a new one.

Law: what is produced has the key, the bytes and the headers of the raw record; those of the letter only if the raw topic no longer has it,
or if the letter is one event of an array. It moves no time by its stamp: that is the broker's, or where producers stamp, that of the newest
record there. Only what ingest could not use is produced: an event that it has ordered would be there twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ordering.columns.framed_payloads import Headers
from ordering.errors import RefusedError, UnreachableError
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.platform.kafka.admin import MAX_TIMESTAMP, Admin
from tidegate.platform.kafka.client_properties import CONSUMER, STEADY
from tidegate.platform.kafka.failures import kafka_failure
from tidegate.platform.kafka.messages import read_headers
from tidegate.tools.peek.decoding import ORIGIN, REASON

_PLACE = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})@(?P<offset>\d{1,18})(?P<index>\[\d{1,9}\])?")
_CUT = {"key_sha256", "value_sha256"}
_ANSWER_S = 10.0
_PRODUCER = {
    "acks": "all",
    "enable.idempotence": "true",
    "allow.auto.create.topics": "false",
    "message.timeout.ms": "10000",
    "log_level": "2",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A record's place; *index* is that of an event in an array, with brackets, or empty."""

    topic: str
    partition: int
    offset: int
    index: str = ""

    @classmethod
    def parse(cls, text: str) -> Place | None:
        match = _PLACE.fullmatch(text)
        return None if match is None else cls(match["topic"], int(match["partition"]), int(match["offset"]), match["index"] or "")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}{self.index}"


def read_record(admin: Admin, kafka: Mapping[str, str], place: Place) -> Message | None:
    """Return one record with all its headers; None: its topic does not have it, or has deleted it. UnreachableError: no answer."""
    found = admin.find(place.topic)
    if found is None or place.partition >= found.partitions:
        return None
    log = (place.topic, place.partition)
    if not admin.starts([log])[log] <= place.offset < admin.ends([log])[log]:
        return None
    with closing(Consumer({**STEADY, **kafka, **CONSUMER, "group.id": "tidegate"})) as consumer:
        consumer.assign([TopicPartition(*log, place.offset)])
        message = consumer.poll(_ANSWER_S)
    if message is None or message.error() is not None:
        raise UnreachableError(f"{place} was not read within {_ANSWER_S:.0f} s", code="TG-KAFKA-UNREACHABLE", where=str(place))
    # A compacted topic may have only a later one.
    return message if message.offset() == place.offset else None


def produce_again(admin: Admin, kafka: Mapping[str, str], letter: Place, raw_topics: frozenset[str]) -> Place:
    """
    Produce the record of the dead letter at *letter* again; return where it is now. *raw_topics* are those of the pipeline. RefusedError
    (TG-UI-LETTER): it is no letter of ingest, or its record is not whole any more.
    """
    found = read_record(admin, kafka, letter)
    headers = {name: (data or b"").decode("utf-8", "replace") for name, data in ([] if found is None else read_headers(found))}
    origin, reason = Place.parse(headers.get(ORIGIN, "")), headers.get(REASON, "")
    if found is None or origin is None or origin.topic not in raw_topics or reason not in set(IngestReason):
        what = f"{letter} is no dead letter of an input of this pipeline"
        fix = "produce again what ingest could not use; what a query could not use is ordered already: correct the query"
        raise RefusedError(what, code="TG-UI-LETTER", where=str(letter), fix=fix)
    raw = None if origin.index else read_record(admin, kafka, origin)
    if raw is None and _CUT & headers.keys():
        what = f"{letter} was cut, and its raw record {origin} is no longer there"
        raise RefusedError(what, code="TG-UI-LETTER", where=str(letter), fix="produce the record from where it came from")
    source = raw or found
    return _produce(admin, kafka, origin, source.key(), source.value(), [] if raw is None else read_headers(raw))


def _produce(admin: Admin, kafka: Mapping[str, str], origin: Place, key: Any, value: Any, headers: Headers) -> Place:
    topic, log = admin.require(origin.topic), (origin.topic, origin.partition)
    stamp_ms = 0 if topic.uses_log_append_time else int(admin.offsets([log], MAX_TIMESTAMP)[log].timestamp)
    offsets: list[int] = []
    refusals: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refusals.append(error)
        else:
            offsets.append(message.offset() or 0)

    producer = Producer({**STEADY, **kafka, **_PRODUCER})
    producer.produce(
        origin.topic,
        value,
        key,
        partition=origin.partition,
        on_delivery=on_delivery,
        # Without a timestamp, 0, librdkafka takes the present moment.
        timestamp=max(stamp_ms, 0),
        headers=list(headers),
    )
    producer.flush(_ANSWER_S * 2)
    if refusals:
        raise kafka_failure(refusals[0], origin.topic, "Write", properties=kafka)
    if not offsets:
        raise UnreachableError(
            f"the record was not acknowledged; it may be in {origin.topic} all the same", code="TG-KAFKA-UNREACHABLE", where=origin.topic
        )
    return Place(*log, offsets[0])
