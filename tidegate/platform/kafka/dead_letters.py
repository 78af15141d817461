"""
Dead letters: records, rows and results that a job cannot use, written to a topic of their own with reason and origin.

Law: a dead letter always fits, and writing one never ends a job because of its size. A key or value that is too large is cut; headers then
give its full size and the SHA-256 of the whole. The origin names the raw record, which stays in its topic. A flushed letter is in its
topic; after a crash it may be there twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from confluent_kafka import KafkaException

from ordering.columns.framed_payloads import Headers
from ordering.errors import TidegateError
from tidegate.platform.kafka.admin import Admin, check_readable
from tidegate.platform.kafka.writer import TOO_LARGE, GaplessProducer
from tidegate.platform.observe.logs import get_logger

BytesLike = bytes | memoryview

# The most bytes that a batch of one record has besides key, value and headers; and that a header has besides name and value.
_RECORD_ROOM_BYTES, _HEADER_ROOM_BYTES = 128, 10
# Most bytes that the reason of a cut letter may take: an error of a package may quote a whole value.
_REASON_BYTES_MAX = 500
# A limit that leaves only the headers of a letter.
_POINTER = 0
# Letters are kept until they are acknowledged, because they may have to be sent again smaller: at most so many, with about so many bytes.
_KEPT_LETTERS_MAX, _KEPT_BYTES_MAX = 10_000, 16 * 2**20
# A refused letter must not stop others, so nothing is gapless; and the queue must have room for the largest letter.
_PRODUCER = {"enable.gapless.guarantee": "false", "enable.idempotence": "false", "queue.buffering.max.kbytes": "98304"}
_BATCH_BYTES_MAX, _BATCH_ROOM_BYTES = 1_000_000, 1_000

_log = get_logger("kafka.writer")


@dataclass(frozen=True, slots=True)
class Uncut:
    """Size in bytes (None: null) and SHA-256 of a key or value before it was cut."""

    length: int | None
    sha256: str

    @classmethod
    def of(cls, data: BytesLike | None) -> Uncut:
        return cls(None if data is None else len(data), hashlib.sha256(data or b"").hexdigest())


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """
    A dead letter; ``uncut`` has the original key and value if one of them, or the reason, has been cut. ``details`` are further headers.
    """

    reason: str
    origin: str
    key: BytesLike | None
    value: BytesLike | None
    uncut: tuple[Uncut, Uncut] | None = None
    details: tuple[tuple[str, str], ...] = ()

    @property
    def headers(self) -> Headers:
        headers: Headers = [("reason", self.reason.encode()), ("origin", self.origin.encode())]
        headers += [(name, text.encode()) for name, text in self.details]
        if self.uncut is None:
            return headers
        for name, data, uncut in zip(("key", "value"), (self.key, self.value), self.uncut, strict=True):
            if uncut.length is not None:
                headers.append((f"{name}_bytes", b"%d" % uncut.length))
                if len(data or b"") < uncut.length:
                    headers.append((f"{name}_sha256", uncut.sha256.encode()))
        return headers

    @property
    def size_bytes(self) -> int:
        """The most bytes that the letter takes as an uncompressed batch of one record."""
        headers = sum(len(name) + len(data or b"") + _HEADER_ROOM_BYTES for name, data in self.headers)
        return _RECORD_ROOM_BYTES + headers + len(self.key or b"") + len(self.value or b"")

    def cut(self, bytes_max: int) -> DeadLetter:
        """
        Return a copy of the letter, cut to *bytes_max* bytes; its key and value are empty if not even the headers fit.

        The value is cut first, then the key, to no less than half of the room of both. Cutting twice gives the same letter as cutting once
        to the smaller size.
        """
        if self.uncut is None and self.size_bytes <= bytes_max:
            return replace(self, key=_bytes(self.key), value=_bytes(self.value))
        uncut = self.uncut or (Uncut.of(self.key), Uncut.of(self.value))
        reason = self.reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
        pointer = replace(self, reason=reason, key=_bytes(self.key, 0), value=_bytes(self.value, 0), uncut=uncut)
        room = max(bytes_max - pointer.size_bytes, 0)
        key = _bytes(self.key, max(room // 2, room - len(self.value or b"")))
        return replace(pointer, key=key, value=_bytes(self.value, room - len(key or b"")))


def _bytes(data: BytesLike | None, count: int | None = None) -> bytes | None:
    """Return the first *count* bytes, by default all; bytes are not copied."""
    return None if data is None else bytes(data[:count])


def ensure_dead_letter_topic(admin: Admin, name: str, retention_us: int | None, bytes_max: int, replication_factor: int) -> int:
    """
    Create the topic unless it exists; return the size in bytes to which its letters are cut: *bytes_max*, or the limit of an existing topic
    if it is smaller. Raises RefusedError (TG-TOPIC-CONFIG): the topic is compacted, so it takes no letter without a key.
    """
    kept = {"cleanup.policy": "delete", "retention.ms": "-1" if retention_us is None else str(retention_us // 1000)}
    topic = admin.ensure(name, 1, {**kept, "max.message.bytes": str(bytes_max)}, replication_factor)
    check_readable(topic, is_ordered=False)
    return min(bytes_max, int(topic.config.get("max.message.bytes", bytes_max)))


class DeadLetterWriter:
    """
    Writes the dead letters of one topic with a producer of its own, so a refused letter does not stop events.

    *bytes_max* is the topic's limit when the job started. If the broker still refuses a letter, letters are cut to the topic's present
    limit, then to their headers; if it refuses even these, they are logged and left out.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, bytes_max: int) -> None:
        self._properties, self._topic, self._bytes_max = properties, topic, bytes_max
        self._producer: GaplessProducer | None = None
        self._kept: list[DeadLetter] = []
        self._kept_bytes = 0

    def send(self, letter: DeadLetter) -> None:
        """Keep a letter for the next flush; flush if many are kept."""
        kept = letter.cut(self._bytes_max)
        size_bytes = kept.size_bytes
        if self._kept and (len(self._kept) == _KEPT_LETTERS_MAX or self._kept_bytes + size_bytes > _KEPT_BYTES_MAX):
            self.flush()
        self._kept.append(kept)
        self._kept_bytes += size_bytes

    def flush(self) -> None:
        """Return when all letters are in the topic. Raises TidegateError: it is gone, or may not be written."""
        limit: int | None = self._bytes_max
        while self._kept and limit is not None and not self._has_written(limit):
            limit = self._smaller_limit(limit)
            if limit is not None:
                self._kept = [letter.cut(limit) for letter in self._kept]
        if limit is None:
            _log.error(
                "dead letters are lost: their topic takes no record of that size",
                topic=self._topic,
                letters=len(self._kept),
                first=self._kept[0].origin,
            )
        self._kept, self._kept_bytes = [], 0

    def _has_written(self, limit: int) -> bool:
        """Write all letters, which are cut to *limit*; return whether the broker took them."""
        if self._producer is None:
            # The topic's limit holds for a batch of records too.
            batch_bytes = max(min(limit, _BATCH_BYTES_MAX) - _BATCH_ROOM_BYTES, 1)
            self._producer = GaplessProducer(self._properties, {**_PRODUCER, "batch.size": str(batch_bytes)})
        try:
            for letter in self._kept:
                self._producer.send_plain(self._topic, _bytes(letter.value), _bytes(letter.key), letter.headers)
            self._producer.flush(self._topic)
        except TidegateError as error:
            self.close()
            if error.code != TOO_LARGE:
                raise
            return False
        if limit == _POINTER:
            self.close()
        return True

    def _smaller_limit(self, limit: int) -> int | None:
        """Return the limit to try after *limit*: the topic's present one, then that of a pointer alone, then None."""
        try:
            topic = Admin(self._properties).find(self._topic)
        except (KafkaException, TidegateError):
            topic = None
        present = limit if topic is None else int(topic.config.get("max.message.bytes", limit))
        if _POINTER < present < limit:
            _log.warning("dead letters are cut further: their topic takes smaller ones now", topic=self._topic, bytes_max=present)
            self._bytes_max = present
            return present
        return _POINTER if limit > _POINTER else None

    def close(self) -> None:
        """Disconnect; letters that are not flushed are kept."""
        if self._producer is not None:
            self._producer.discard()
            self._producer = None
