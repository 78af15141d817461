"""
A stranger's records in an ordered or result topic: every reader passes over them (:mod:`ordering.protocol.foreign`).

They are counted, and a warning names the place of the first of each partition. ``tidegate verify`` reports them as extra. This is
the only search for a record that cannot be read; records are looked through only after decoding them together has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from ordering.errors import ProtocolError
from ordering.protocol.foreign import foreign_reason, suspicious_rows
from tidegate.platform.observe.logs import get_logger

if TYPE_CHECKING:  # ranges are decoded without Kafka too, from files
    from tidegate.platform.kafka.records import Records

T = TypeVar("T")
FIX: Final = "let only the job that owns the topic write to it (docs/operate/security.md); tidegate verify names every such record"
# The first records that are remembered with their places.
_SHOWN = 20

_log = get_logger("kafka.reader")
# The partitions about whose strangers this process has warned.
_told: set[tuple[str, int]] = set()


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """One record that is none of the protocol, and why."""

    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(slots=True)
class ForeignRecords:
    """Strangers' records that a reader has passed over: how many, and the first of them."""

    count: int = 0
    first: list[ForeignRecord] = field(default_factory=list)

    def add(self, found: ForeignRecords) -> None:
        self.count += found.count
        self.first += found.first[: max(_SHOWN - len(self.first), 0)]


class UnreadableRecord(NamedTuple):
    """A record that cannot be read: its row, the record with its reason, and the error if a newer program has written it."""

    row: int
    record: ForeignRecord
    newer: ProtocolError | None = None


def find_unreadable(records: Records, topic: str, partition: int) -> Iterator[UnreadableRecord]:
    """Yield the records, read with headers, that cannot be read, in their order."""
    assert records.header is not None, "an ordered topic is read with its headers"
    for row in suspicious_rows(records.header).tolist():
        offset, newer = int(records.offset[row]), None
        try:
            reason = foreign_reason(records.header[row].as_py(), records.payload(row), f"{topic}-{partition}@{offset}")
        except ProtocolError as error:
            reason, newer = error.what, error
        if reason:
            yield UnreadableRecord(row, ForeignRecord(topic, partition, offset, reason), newer)


def drop_foreign(records: Records, topic: str, partition: int) -> tuple[Records, ForeignRecords]:
    """
    Return the records that are of the protocol, and the others. Warn of the first of a partition. ProtocolError (TG-PROTOCOL-VERSION): a
    newer program has written one.
    """
    found = ForeignRecords()
    is_own = np.ones(len(records), dtype=np.bool_)
    for unreadable in find_unreadable(records, topic, partition):
        if unreadable.newer is not None:
            raise unreadable.newer
        is_own[unreadable.row] = False
        found.add(ForeignRecords(1, [unreadable.record]))
    if not found.count:
        return records, found
    if (topic, partition) not in _told:
        _told.add((topic, partition))
        first = found.first[0]
        _log.warning(
            "a record is none of this topic's writer: it is passed over, like others after it",
            where=first.where,
            reason=first.reason,
            fix=FIX,
        )
    return records.select(is_own), found


def read_own(records: Records, topic: str, partition: int, read: Callable[[Records], T]) -> tuple[T, ForeignRecords]:
    """
    Return what *read* makes of the records that are of the protocol, and the others. *read* raises ProtocolError if one is not: almost
    never, so records are looked through only then.
    """
    try:
        return read(records), ForeignRecords()
    except ProtocolError:
        own, found = drop_foreign(records, topic, partition)
        if not found.count:
            raise
        return read(own), found
