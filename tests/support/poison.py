"""
Records that a stage refuses: a recipe for each reason of dead letters, at any size, and what must become of them.

A new reason needs a recipe here: the poison suite (``tests/integration/poison``) compares these tables with the lists of reasons.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import string
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import fastavro
import numpy as np
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from support.registry_server import Registered
from support.stack.drawn_logs import START_MS, Raw
from support.stack.topics import header

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import HEADER_NAME, encode_cti, encode_event_headers, encode_source_cti
from ordering.ticks import DAY_US, INFINITY
from tidegate.basics.dead_letter_reasons import IngestReason, QueryReason

CODECS = ("none", "gzip", "zstd", "lz4", "snappy")
GIANT_BYTES = 120 * 10**6
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}, {"name": "n", "type": "long"}]})
REGISTERED = {1: Registered(SCHEMA), 2: Registered("syntax = 'proto3';", "PROTOBUF")}
_WAIT_S = 60.0
_LETTERS = "".join(random.Random(19).choices(string.ascii_letters, k=1_100_000))


def filler(count: int) -> str:
    """Return so many letters; up to a megabyte of them cannot be compressed much."""
    return _LETTERS[:count] if count <= len(_LETTERS) else "x" * count


def padded(before: bytes, after: bytes, size: int) -> bytes:
    """Return both parts with so many letters between them that *size* bytes come of it, or none."""
    return before + filler(max(size - len(before) - len(after), 0)).encode() + after


def framed(at: int, number: int = 0, schema: int = 1) -> bytes:
    """Return an Avro value of SCHEMA with the frame of a registry."""
    return b"\0" + schema.to_bytes(4, "big") + avro(at, number)


def avro(at: int, number: int) -> bytes:
    """Return an Avro value of SCHEMA."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(SCHEMA)), {"at": at, "n": number})
    return out.getvalue()


# Ingest

IngestRecipe = tuple[str, Callable[[int, int], Raw]]
"""The input (of test_ingest_poison.py), and what makes the record: from the bytes of key and value together, and its timestamp."""


def event(size: int, stamp_ms: int) -> Raw:
    """Return an event of the input ``plain`` of that size together with the key ``a`` of its substream."""
    value = padded(b'{"k":"a","at":%d,"pad":"' % stamp_ms, b'"}', size - 1)
    return Raw(0, None, value, stamp_ms, event_time_us=stamp_ms * 1000, substream=b"a")


def keyed_event(key_bytes: int, key_bytes_max: int, stamp_ms: int) -> Raw:
    """Return a record of the input ``plain`` whose substream key has so many bytes: an event, or refused if these are too many."""
    key = filler(key_bytes)
    value = json.dumps({"k": key, "at": stamp_ms}).encode()
    if key_bytes > key_bytes_max:
        return Raw(0, None, value, stamp_ms, reason=IngestReason.KEY_TOO_LONG)
    return Raw(0, None, value, stamp_ms, event_time_us=stamp_ms * 1000, substream=key.encode())


def span(size: int, stamp_ms: int) -> Raw:
    """Return an event of the input ``spans`` of that size."""
    value = padded(b'{"at":%d,"end":%d,"pad":"' % (stamp_ms, stamp_ms + 1), b'"}', size)
    return Raw(0, None, value, stamp_ms, event_time_us=stamp_ms * 1000, end_us=stamp_ms * 1000 + 1000)


def _refused(reason: IngestReason, before: bytes, after: bytes = b"") -> Callable[[int, int], Raw]:
    return lambda size, stamp_ms: Raw(0, None, padded(before, after, size), stamp_ms, reason=reason)


def _claimed_cti(size: int, stamp_ms: int) -> Raw:
    return Raw(0, None, b"x" * size, stamp_ms, reason=IngestReason.CTI, headers=((HEADER_NAME, encode_source_cti(START_MS)[0]),))


def _stamped(reason: IngestReason, stamp_ms: Callable[[], int]) -> Callable[[int, int], Raw]:
    return lambda size, _: Raw(0, None, event(size, START_MS).value, stamp_ms(), reason=reason)


INGEST_RECIPES: dict[IngestReason, IngestRecipe] = {
    IngestReason.NO_PAYLOAD: ("plain", lambda size, stamp_ms: Raw(0, b"k" * size, None, stamp_ms, reason=IngestReason.NO_PAYLOAD)),
    IngestReason.MALFORMED: ("plain", _refused(IngestReason.MALFORMED, b'{"k": "a", "at": "')),
    IngestReason.SCHEMA_UNKNOWN: ("framed", _refused(IngestReason.SCHEMA_UNKNOWN, framed(START_MS, schema=9))),
    IngestReason.SCHEMA_UNUSABLE: ("framed", _refused(IngestReason.SCHEMA_UNUSABLE, framed(START_MS, schema=2))),
    IngestReason.TIMESTAMP: ("plain", _refused(IngestReason.TIMESTAMP, b'{"pad":"', b'"}')),
    IngestReason.END: ("spans", _refused(IngestReason.END, b'{"at":%d,"end":"soon","pad":"' % START_MS, b'"}')),
    IngestReason.CTI: ("spans", _claimed_cti),
    IngestReason.OVERSIZED: ("plain", event),
    IngestReason.KEY_TOO_LONG: ("plain", _refused(IngestReason.KEY_TOO_LONG, b'{"at":%d,"k":"' % START_MS, b'"}')),
    IngestReason.ARRIVAL_MISSING: ("plain", _stamped(IngestReason.ARRIVAL_MISSING, lambda: -1)),
    IngestReason.ARRIVAL_AHEAD: ("plain", _stamped(IngestReason.ARRIVAL_AHEAD, lambda: time.time_ns() // 10**6 + 3 * DAY_US // 1000)),
}

# What is asked before the size of a record.
_ASKED_FIRST = (IngestReason.NO_PAYLOAD, IngestReason.CTI, IngestReason.ARRIVAL_MISSING, IngestReason.ARRIVAL_AHEAD)


def ingest_poison(reason: IngestReason, size: int, stamp_ms: int, record_bytes_max: int) -> Raw:
    """Return the record of a recipe; one that is too large is refused for that, and one that should be and is not is an event."""
    raw = INGEST_RECIPES[reason][1](size, stamp_ms)
    if raw.reason in _ASKED_FIRST or size <= record_bytes_max:
        return raw
    return Raw(0, raw.key, raw.value, raw.stamp_ms, reason=IngestReason.OVERSIZED)


# Queries


@dataclass(frozen=True)
class Row:
    """An event of an ordered topic: its payload, why a query must refuse it or None, its key, and its result."""

    value: bytes | None
    reason: QueryReason | None = None
    key: bytes = b"a"
    result: bytes = b""


class OrderedWriter:
    """Writes an ordered topic of one partition, an event each second from START_MS on."""

    def __init__(self, bootstrap: str, topic: str, *, over: bool) -> None:
        self._bootstrap, self._topic, self._over, self.rows = bootstrap, topic, over, list[Row]()

    @staticmethod
    def system_us(seq: int) -> int:
        """Return the time of an event."""
        return (START_MS + 1000 * seq) * 1000

    def write(self, rows: Iterable[Row], codec: str = "none") -> None:
        """Write events, one batch each."""
        raws = []
        for row in rows:
            seq, us = len(self.rows), self.system_us(len(self.rows))
            ints = [np.array([each], dtype=np.int64) for each in (seq, us, us, us, seq)]
            (octets,) = encode_event_headers(*ints, np.zeros(1, dtype=np.uint16), 0)
            raws.append(Raw(0, row.key, row.value, us // 1000, headers=((HEADER_NAME, octets),)))
            self.rows.append(row)
        send(self._bootstrap, self._topic, raws, codec)

    def end(self) -> None:
        """Write the final CTI."""
        count, us = len(self.rows), self.system_us(len(self.rows) - 1)
        roster = Roster(1, 1, Spread.ALL if self._over else Spread.ONE, self._over)
        octets, body = encode_cti(Cti(0, 0, INFINITY, count, 0, count, us, us, roster, Cause.SHUTDOWN))
        send(self._bootstrap, self._topic, [Raw(0, None, body, us // 1000, headers=((HEADER_NAME, octets),))])


def query_reason(text: str) -> QueryReason:
    """Return the reason that a header tells in words."""
    return next(reason for reason in QueryReason if re.match(re.escape(reason).replace(r"\{\}", ".+?"), text, re.DOTALL))


# Topics


def send(bootstrap: str, topic: str, raws: Sequence[Raw], codec: str = "none") -> None:
    """Send records in their order, each in a batch of its own, compressed by *codec*; return once they are acknowledged."""
    large = {"message.max.bytes": 10**9, "batch.num.messages": 1, "max.in.flight.requests.per.connection": 1, "linger.ms": 0}
    lost: list[object] = []
    failed = {"delivery.report.only.error": True, "on_delivery": lambda error, _: lost.append(error)}
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "acks": "all", **large, **failed})
    for raw in raws:
        producer.produce(topic, raw.value, raw.key, raw.partition, timestamp=raw.stamp_ms, headers=list(raw.headers))
    assert (producer.flush(_WAIT_S), lost) == (0, [])


def set_limit(bootstrap: str, topic: str, bytes_max: int) -> None:
    """Change the limit of a topic."""
    entry = ConfigEntry("max.message.bytes", str(bytes_max), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(_WAIT_S)


def mistake_in(letter: Message, key: bytes | None, value: bytes | None) -> str:
    """Say in what a letter does not hold what was refused, or its beginning with its size and hash; nothing if it does."""
    for name, was, now in (("key", key, letter.key()), ("value", value, letter.value())):
        size, hashed = header(letter, f"{name}_bytes"), header(letter, f"{name}_sha256")
        if not size and now != was:
            return f"the {name} is another, and no header says so"
        if size and (was is None or int(size) != len(was) or not was.startswith(now or b"")):  # type: ignore[arg-type]
            return f"the {name} is not the beginning of what it was"
        if was is not None and len(now or b"") < len(was) and hashed != hashlib.sha256(was).hexdigest().encode():
            return f"the {name} has another hash"
    return ""


def check_letter(letter: Message, key: bytes | None, value: bytes | None, bytes_max: int) -> None:
    """A letter holds what was refused; what is far below the limit is whole."""
    assert not mistake_in(letter, key, value)
    if len(key or b"") + len(value or b"") < bytes_max - 500:
        assert (letter.key(), letter.value()) == (key, value), "cut without need"


def by_origin(letters: Iterable[Message]) -> Mapping[str, list[Message]]:
    """Return dead letters by their origin: after a crash one may be there twice."""
    found: dict[str, list[Message]] = {}
    for letter in letters:
        found.setdefault(header(letter, "origin").decode(), []).append(letter)
    return found
