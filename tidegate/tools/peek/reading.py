"""
The newest records of a topic, or those from an instant on, then those that come.

Law: what is found comes in the offset order of each partition, by rising timestamps among partitions. Repetitions are left out, and
counted. Of the newest records none is missing, unless too many were searched in vain, which is said. Nothing on the brokers changes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from ordering.columns.framed_payloads import Headers
from tidegate.language.expressions.tree import Expr
from tidegate.ordered_topic.tails import tail_lengths
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.client_properties import CONSUMER, STEADY
from tidegate.platform.kafka.messages import read_headers
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.records import ALL_HEADERS, OWN_HEADERS, Records
from tidegate.records.payloads.conditions import is_true
from tidegate.records.payloads.formats import JSON, PayloadFormat
from tidegate.tools.peek.decoding import ORIGIN, REASON, Repetitions, Sight, SightKind, decode_sights, payload_column

Partition = tuple[str, int]
# The newest records are looked for in so many of each partition, then in eight times as many, up to the last of these numbers.
_SHORTEST, _SHORTEST_OF_CHOSEN, SEARCHED_MAX = 64, 512, 100_000
_PREFETCH_BYTES, _CHUNK_BYTES, _CHUNK_RECORDS = 1 << 20, 1 << 20, 5_000
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class RecordChoice:
    """Which records are wanted."""

    # True of their payloads, read as *payloads* says; None: any.
    condition: Expr | None = None
    # Their key; None: any.
    key: bytes | None = None
    payloads: PayloadFormat = JSON
    # Whether CTIs are wanted too; only if nothing else is asked for.
    has_ctis: bool = True
    # The beginning of the reason of dead letters and dropped events, which alone are wanted then.
    reason: str = ""
    # The topics that their origins must have.
    origins: frozenset[str] | None = None
    # Whether repetitions are wanted too.
    has_repetitions: bool = False

    @property
    def is_all(self) -> bool:
        """Whether nothing is asked for but CTIs or none."""
        return self.condition is None and self.key is None and not self.reason and self.origins is None

    def choose(self, sights: list[Sight]) -> list[Sight]:
        """Return the wanted ones of some records, in their order."""
        has_ctis = self.has_ctis and self.is_all
        chosen = [sight for sight in sights if has_ctis or sight.kind is not SightKind.CTI]
        if self.key is not None:
            chosen = [sight for sight in chosen if (sight.key or b"") == self.key]
        if self.reason or self.origins is not None:
            chosen = [sight for sight in chosen if self._is_letter(sight)]
        if self.condition is None or not chosen:
            return chosen
        found = is_true(self.condition, payload_column(chosen), self.payloads)
        return [sight for sight, is_found in zip(chosen, found.tolist(), strict=True) if is_found]

    def _is_letter(self, sight: Sight) -> bool:
        if sight.kind is not SightKind.DEAD_LETTER or not sight.header(REASON).startswith(self.reason):
            return False
        return self.origins is None or sight.header(ORIGIN).rpartition("@")[0].rpartition("-")[0] in self.origins


class TopicView:
    """
    A look into some partitions of a topic. ``positions`` are the offsets after the last records that were read, ``repetitions`` counts
    those met, and ``is_cut`` says that the search for the newest records has ended before the beginning of a partition.
    """

    def __init__(self, admin: Admin, kafka: Mapping[str, str], partitions: Sequence[Partition], wanted: RecordChoice) -> None:
        self._admin, self._kafka, self._partitions, self._wanted = admin, kafka, partitions, wanted
        self.positions: dict[Partition, int] = {}
        self.is_cut = False
        self._seen: dict[Partition, Repetitions] = {}
        self._readers: dict[Partition, RangeReader] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._readers.values():
            reader.close()

    @property
    def repetitions(self) -> int:
        return sum(seen.count for seen in self._seen.values())

    def newest(self, limit: int) -> list[Sight]:
        """Return the newest *limit* of the wanted records, without counting CTIs; of CTIs that follow one another the last of a channel."""
        starts, ends = self._admin.starts(self._partitions), self._admin.ends(self._partitions)
        for length in tail_lengths(_SHORTEST if self._wanted.is_all else _SHORTEST_OF_CHOSEN, SEARCHED_MAX):
            firsts = {place: max(starts[place], ends[place] - length) for place in self._partitions}
            self._seen = {}
            kept = [keep_newest(self._read(place, firsts[place], ends[place]), limit) for place in self._partitions]
            self.is_cut = firsts != starts and sum(map(_count_events, kept)) < limit
            if not self.is_cut:
                break
        self.positions = dict(ends)
        return drop_oldest(merge_partitions(kept), limit)

    def since(self, starts: Mapping[Partition, int]) -> Iterator[Sight]:
        """Yield the wanted records from these offsets to the present end."""
        ends = self._admin.ends(self._partitions)
        self.positions = {place: max(ends[place], starts[place]) for place in self._partitions}
        yield from merge_partitions([self._read(place, starts[place], ends[place]) for place in self._partitions])

    def _read(self, place: Partition, start: int, end: int) -> Iterator[Sight]:
        if start >= end:
            return
        if place not in self._readers:
            self._readers[place] = RangeReader(self._kafka, *place, headers=True, prefetch_bytes=_PREFETCH_BYTES, framed=ALL_HEADERS)
        seen = self._seen.setdefault(place, Repetitions())
        for records in self._readers[place].read(start, end, _CHUNK_RECORDS, _CHUNK_BYTES):
            sights = decode_sights(records, *place, self._headers_of_null(records, place))
            yield from self._wanted.choose(list(self._judge(sights, seen)))

    def _judge(self, sights: Iterable[Sight], seen: Repetitions) -> Iterator[Sight]:
        for sight in sights:
            if sight.event is None or not seen.is_repeated(sight.event):
                yield sight
            elif self._wanted.has_repetitions:
                yield replace(sight, is_repetition=True)

    def _headers_of_null(self, records: Records, place: Partition) -> dict[int, Headers]:
        """
        Return the headers of records without a payload, by offset. Such a record has no frame that could hold them, and those of a dead
        letter say why it is one.
        """
        offsets = records.offset[records.value.is_null().to_numpy(zero_copy_only=False)].tolist()
        if not offsets:
            return {}
        found: dict[int, Headers] = {}
        consumer = Consumer({**STEADY, **self._kafka, **CONSUMER, "group.id": "tidegate"})
        with closing(consumer):
            for offset in offsets:
                consumer.assign([TopicPartition(*place, offset)])
                message = consumer.poll(_ANSWER_S)
                if message is not None and message.error() is None and message.offset() == offset:
                    found[offset] = [header for header in read_headers(message) if header[0] not in OWN_HEADERS]
        return found


def merge_partitions(pieces: Sequence[Iterable[Sight]]) -> Iterator[Sight]:
    """Yield the records of several partitions by rising timestamps, each partition in its own order."""
    return (sight for _, _, _, sight in heapq.merge(*map(_with_rising_times, pieces), key=lambda entry: entry[:3]))


def _with_rising_times(sights: Iterable[Sight]) -> Iterator[tuple[int, int, int, Sight]]:
    newest_ms = -1
    for sight in sights:
        newest_ms = max(newest_ms, sight.timestamp_ms)
        yield newest_ms, sight.partition, sight.offset, sight


def keep_newest(sights: Iterable[Sight], limit: int) -> list[Sight]:
    """Return the newest *limit* records without counting CTIs; of CTIs that follow one another the last of a channel."""
    kept, ctis, count = deque[Sight](), dict[int, Sight](), 0
    for sight in sights:
        if sight.cti is not None:
            ctis.pop(sight.cti.number, None)
            ctis[sight.cti.number] = sight
            continue
        kept += ctis.values()
        kept.append(sight)
        ctis.clear()
        count += 1
        while count > limit:
            count -= kept.popleft().cti is None
    return [*kept, *ctis.values()]


def drop_oldest(sights: Iterable[Sight], limit: int) -> list[Sight]:
    """Return the last records, of which *limit* are no CTIs."""
    kept = list(sights)
    too_many = max(_count_events(kept) - limit, 0)
    first = 0
    while too_many:
        too_many -= kept[first].cti is None
        first += 1
    return kept[first:]


def _count_events(sights: Iterable[Sight]) -> int:
    return sum(sight.cti is None for sight in sights)
