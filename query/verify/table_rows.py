"""
Compares the tables of stores with the computed results.

Law: a table is read first, together with the store's progress. Every result below this progress must stand in the table, and no other one.
A result that became a dead letter of a store may stand or not, as another store of the output may have taken it. Rows of tables carry no
numbers, so they are compared as :mod:`query.verify.unordered` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ordering.arrays import Ints
from ordering.errors import UnreachableError
from query.verify.recompute import Computed
from query.verify.rows import RowDifference
from query.verify.unordered import UnorderedRows
from sinks.stores.base import Rows, RowsRefused, Store, StoreContext
from sinks.stores.reading import ReadableStore, StoreReader
from sinks.stores.registry import make_store
from tidegate.basics.dead_letter_reasons import StoreReason
from tidegate.ordered_topic.decode import decode
from tidegate.ordered_topic.released import event_columns
from tidegate.platform.checkpoint.binding import check_same_topics
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.settings.tables.stores.base import StoreSettings

# The numbers of results, rising, by partition. A store calls the number of a result its position.
Positions = Mapping[int, Ints]
_REFUSED = StoreReason.REFUSED.format("").encode()
_POLL_S, _SILENCE_S = 1.0, 60.0


@dataclass
class TableCheck:
    """The check of one destination of one output."""

    # ``table`` or ``plain topic``.
    kind: str
    name: str
    rows: UnorderedRows
    # Its progress by partition: the number of the first result (plain topic: span) that it has not taken.
    below: Mapping[int, int]
    # As in :class:`sinks.stores.reading.Standing`.
    is_shared: bool = False
    expires: bool = False
    notes: list[str] = field(default_factory=list)
    # How many rows differ, and the first differences.
    differing: int = 0
    differences: list[RowDifference] = field(default_factory=list)
    # Digest and number of the standing rows.
    sha256: bytes = b""
    count: int = 0
    # Computed results that the destination has not come to yet.
    ahead: int = 0
    # Computed results that the store cannot hold.
    left_out: int = 0

    def accept(self, computed: Computed) -> None:
        """Take the next computed results."""
        raise NotImplementedError

    def finish(self) -> None:
        """Compare the rows, then delete them."""
        self.differing, self.differences = self.rows.differences(is_shared=self.is_shared, expires=self.expires)
        self.sha256, self.count = self.rows.sha256(), self.rows.standing
        if self.left_out:
            self.notes.append(f"{self.left_out:,} results do not fit into the columns of {self.name}, and are not there")
        if self.is_shared:
            self.notes.append(f"{self.name} has results of other topics too: rows that should not be there are not found")
        if self.expires:
            self.notes.append(f"rows of {self.name} expire: those that are missing are not found")
        self.close()

    @property
    def can_be_attested(self) -> bool:
        """Whether an attestation may cover the rows: a later check must be able to tell them from rows that came later."""
        return False

    def close(self) -> None:
        """Delete the rows."""
        self.rows.close()


@dataclass
class StoreCheck(TableCheck):
    """The check of a table of a store; *refused* are the results that became dead letters of stores."""

    store: Store = field(kw_only=True)
    reader: StoreReader = field(kw_only=True)
    refused: Positions = field(kw_only=True)
    # As in :class:`sinks.stores.reading.Standing`.
    certain: Mapping[int, int] | None = field(kw_only=True, default=None)

    def accept(self, computed: Computed) -> None:
        """Take the results below the store's progress; count later ones as ahead."""
        if computed.results is not None:
            events = event_columns(computed.results)
            self.accept_rows(Rows(events.seq, events.log_offset, events.system_us, events.key, events.value), computed.bucket)

    def accept_rows(self, rows: Rows, partition: int) -> None:
        """Take the next results of a partition, see :meth:`accept`."""
        count = int(np.searchsorted(rows.position, self.below.get(partition, 0)))
        self.ahead += len(rows) - count
        rows = rows.slice(0, count)
        while len(rows):
            try:
                kept = self.reader.keep(rows, partition)
            except RowsRefused as refused:
                is_wanted = ~np.isin(rows.position, [refusal.position for refusal in refused.refusals])
                self.left_out += len(rows) - int(is_wanted.sum())
                rows = rows.select(is_wanted)
                continue
            optional = np.isin(rows.position, self.refused.get(partition, ()))
            if self.certain is not None:
                optional |= rows.position >= self.certain.get(partition, 0)
            self.rows.add_computed(kept, partition, rows.position, rows.system_us, rows.key, optional)
            return

    @property
    def can_be_attested(self) -> bool:
        """Whether all rows are known to be results up to ``below``, and to stay."""
        return not (self.is_shared or self.expires) and self.certain in (None, self.below)

    def close(self) -> None:
        """Delete the rows, and disconnect from the store."""
        self.store.close()
        super().close()


def make_store_check(
    kind: str, settings: StoreSettings, context: StoreContext, refused: Positions, certain: Mapping[int, int] | None = None
) -> StoreCheck | None:
    """
    Read a store and return its check; None if stores of this kind cannot be read. Every result below *certain* must stand, by partition;
    None: below the store's progress. Raises StoreError or UnreachableError: the store cannot be read now; RefusedError: it has the results
    of an earlier topic of this name.
    """
    store = make_store(kind, settings, context)
    if not isinstance(store, ReadableStore):
        return None
    name, stream = store.name, context.stream
    reader = store.reader()
    rows = UnorderedRows(name, reader.key, reader.keeps)
    standing = reader.read(rows.add_standing)
    for progress in standing.progress.values():
        check_same_topics(
            {stream.name: progress.stream_id}, {stream.name: stream.id}, name, "name the table that has the results of this topic"
        )
    below = {partition: progress.position for partition, progress in standing.progress.items()}
    certain = certain or standing.certain
    return StoreCheck(
        "table", name, rows, below, standing.is_shared, standing.expires, store=store, reader=reader, refused=refused, certain=certain
    )


def refused_positions(admin: Admin, kafka: Mapping[str, str], topic: str) -> Positions:
    """Return the results of a topic that stores have refused, as far as retention has left their dead letters."""
    letters = admin.find(f"{topic}.dead")
    if letters is None:
        return {}
    offsets: dict[int, set[int]] = {}
    places = letters.all_partitions
    starts, ends = admin.starts(places), admin.ends(places)
    for place in places:
        for origin in _refused_origins(kafka, place, starts[place], ends[place]):
            log, _, offset = origin.rpartition("@")
            if log.rpartition("-")[0] == topic:
                offsets.setdefault(int(log.rpartition("-")[2]), set()).add(int(offset))
    return {partition: _positions(kafka, topic, partition, sorted(wanted)) for partition, wanted in offsets.items()}


def _refused_origins(kafka: Mapping[str, str], place: tuple[str, int], start: int, end: int) -> list[str]:
    """Return the origins (TOPIC-PARTITION@OFFSET) of the refused results among a partition's dead letters."""
    # RangeReader reads no headers but Tidegate's own, and a dead letter has its reason and origin in headers.
    own = {"group.id": "tidegate", "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({**kafka, **own})
    origins, silence_s = [], 0.0
    try:
        consumer.assign([TopicPartition(*place, start)])
        while start < end:
            message = consumer.poll(_POLL_S)
            silence_s = silence_s + _POLL_S if message is None else 0.0
            if silence_s > _SILENCE_S:
                raise UnreachableError("dead letters cannot be read", code="TG-KAFKA-UNREACHABLE", where=f"{place[0]}-{place[1]}@{start}")
            if message is None:
                continue
            if (error := message.error()) is not None:
                start = end if error.code() == KafkaError._PARTITION_EOF else start
                continue
            start = int(message.offset() or 0) + 1
            headers: dict[str, Any] = dict(message.headers() or ())
            if headers.get("reason", b"").startswith(_REFUSED):
                origins.append(headers["origin"].decode())
    finally:
        consumer.close()
    return origins


def _positions(kafka: Mapping[str, str], topic: str, partition: int, offsets: Sequence[int]) -> Ints:
    """Return the numbers of the results at these log offsets, rising."""
    numbers = [np.empty(0, dtype=np.int64)]
    with RangeReader(kafka, topic, partition, headers=True) as reader:
        for records in reader.read(offsets[0], offsets[-1] + 1):
            events = decode(records, topic, partition).events
            numbers.append(events.seq[np.isin(events.log_offset, offsets)])
    return np.unique(np.concatenate(numbers))
