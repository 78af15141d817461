"""
Compares two ordered topics, partition by partition, walking each once.

Law (docs/reference/testing.md): two topics written from the same raw topic under the same settings and journal have the same event
sequence in every channel, byte for byte. Number and timing of their CTIs may differ; each CTI is checked against its own topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from ordering.errors import ProtocolError, RefusedError
from ordering.protocol.punctuation import Cti, Roster
from ordering.ticks import INFINITY, format_tick
from tidegate.ordered_topic.compare.copies import SHOWN_COPIES, ContradictingCopy, Copies
from tidegate.ordered_topic.compare.difference import ChannelExcerpt, Difference, differing_fields, events_of
from tidegate.ordered_topic.compare.digest import BLOCK_EVENTS, ChannelDigest, find_differing_block
from tidegate.ordered_topic.compare.promises import BrokenPromise, PromiseCheck
from tidegate.ordered_topic.compare.sides import Side
from tidegate.ordered_topic.decode import decode
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.foreign_records import ForeignRecords
from tidegate.ordered_topic.walk import ChannelPosition, PartitionWalk, WalkedPiece
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.records import Records


@dataclass(slots=True)
class Channel:
    """One channel of one topic: the digests of its events, and whether its CTIs hold."""

    digest: ChannelDigest
    check: PromiseCheck
    # Whether there was a CTI that all compared events follow.
    has_cti_before_start: bool = False

    @property
    def has_ended(self) -> bool:
        return self.check.c == INFINITY


@dataclass(slots=True)
class PartitionSummary:
    """One partition of one topic after its walk."""

    channels: dict[int, Channel] = field(default_factory=dict)
    roster: Roster | None = None
    records: int = 0
    duplicates: int = 0
    # Records of torn writes: they came after a gap in the numbers, and were written again later.
    torn: int = 0
    unmet: BrokenPromise | None = None
    # Records that are none of the protocol.
    foreign: ForeignRecords = field(default_factory=ForeignRecords)
    # How many copies contradict the accepted event of their number, and the first of them.
    contradicting: int = 0
    copies: list[ContradictingCopy] = field(default_factory=list)

    @property
    def has_strange_records(self) -> bool:
        """Whether there are records that are not of the topic's writer: a stranger's, or copies that contradict their event."""
        return bool(self.foreign.count or self.contradicting)

    @property
    def broken(self) -> list[BrokenPromise]:
        """The promises of CTIs that do not hold."""
        found = [self.unmet, *(channel.check.broken for _, channel in sorted(self.channels.items()))]
        return [promise for promise in found if promise is not None]


@dataclass(slots=True)
class Comparison:
    """The result of a comparison."""

    # Every partition of each topic.
    a: list[PartitionSummary] = field(default_factory=list)
    b: list[PartitionSummary] = field(default_factory=list)
    # How many events are the same in both.
    equal_events: int = 0
    # The first difference of each channel that has one, rising in s.
    differences: list[Difference] = field(default_factory=list)
    # How the rosters contradict each other; empty if they do not.
    rosters: str = ""
    # Broken promises, with the label of their topic.
    broken: list[tuple[str, BrokenPromise]] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Whether the topics contradict neither each other nor themselves."""
        return not (self.differences or self.rosters or self.broken or self.contradicting)

    @property
    def contradicting(self) -> int:
        """How many copies contradict the accepted event of their number, in both topics."""
        return sum(partition.contradicting for partition in (*self.a, *self.b))

    def ahead(self) -> tuple[int, int]:
        """Return how many events A has that B does not have yet, and vice versa."""
        counts = [
            (a.channels[number].digest.count if number in a.channels else 0)
            - (b.channels[number].digest.count if number in b.channels else 0)
            for a, b in zip(self.a, self.b, strict=True)
            for number in sorted(a.channels.keys() | b.channels.keys())
        ]
        return sum(count for count in counts if count > 0), -sum(count for count in counts if count < 0)


def compare_topics(a: Side, b: Side, until_us: int | None, complete: bool, on_records: Callable[[int], None]) -> Comparison:
    """
    Compare two ordered topics.

    Args:
        until_us: Only events with s below this are compared, microseconds; None: all.
        complete: Whether each topic must have all that the other has; if not, one may be ahead.
        on_records: Called with the number of records just read, from several threads.

    Raises:
        ProtocolError: A newer program has written a record, or none is of an ordered topic.
        RefusedError: Retention has deleted records that a start in the middle needs.
    """
    comparison = Comparison()
    with ThreadPoolExecutor(max_workers=2) as pool:
        # Both topics of a partition are read at the same time; only digests stay in memory.
        for partition in range(a.partitions):
            walks = [pool.submit(walk_partition, side, partition, until_us, on_records) for side in (a, b)]
            summary_a, summary_b = (walk.result() for walk in walks)
            comparison.a.append(summary_a)
            comparison.b.append(summary_b)
            for number in sorted(summary_a.channels.keys() | summary_b.channels.keys()):
                _compare_channel(comparison, a, b, number, partition, until_us, complete)
            for label, summary in (("A", summary_a), ("B", summary_b)):
                comparison.broken += [(label, promise) for promise in summary.broken]
    for side, summaries in ((a, comparison.a), (b, comparison.b)):
        _check_is_ordered(side, summaries)
    comparison.differences.sort(key=lambda difference: difference.system_us)
    comparison.rosters = _compare_rosters(comparison, complete)
    return comparison


def _check_is_ordered(side: Side, summaries: list[PartitionSummary]) -> None:
    """Refuse a topic that has records, but none of the protocol."""
    first = [summary.foreign.first[0] for summary in summaries if summary.foreign.count]
    if first and sum(summary.records for summary in summaries) == sum(summary.foreign.count for summary in summaries):
        what = f"{side.topic} has no record of an ordered topic; of the first one: {first[0].reason}"
        raise ProtocolError(what, where=first[0].where, fix="name a topic that ingest or a query writes")


def walk_partition(side: Side, partition: int, until_us: int | None, on_records: Callable[[int], None]) -> PartitionSummary:
    """Walk one partition of one topic."""
    return PartitionDigester(side, partition, until_us).finish(on_records)


class PartitionDigester:
    """Walks one partition of one topic. Records that another reader has read may be handed over, so that they are read only once."""

    def __init__(self, side: Side, partition: int, until_us: int | None) -> None:
        self._side, self._partition, self._until_us = side, partition, until_us
        self._copies, self._summary = Copies(), PartitionSummary()
        self._walk = PartitionWalk(side, partition, on_copies=self._copies.add)

    def add_records(self, records: Records) -> None:
        """Take the next records from another reader, which reads the same headers. Records missing before them are read here."""
        if not len(records) or self._walk.has_passed(self._until_us):
            return
        first, end = int(records.offset[0]), self._side.ends[self._partition]
        if first > self._walk.position:
            self._read(min(first, end))
        wanted = (records.offset >= self._walk.position) & (records.offset < end)
        if wanted.any():
            self._add(self._walk.accept_records(records if wanted.all() else records.select(wanted)))

    def finish(self, on_records: Callable[[int], None]) -> PartitionSummary:
        """Read the rest; return the summary."""
        side, partition, walk, summary = self._side, self._partition, self._walk, self._summary
        self._read(side.ends[partition], on_records)
        summary.roster, summary.records = walk.roster, walk.records
        summarize_skipped(summary, walk, self._copies, side, partition)
        error = walk.unmet_promise()
        # With an end time the walk stops early, so a promise about later events is no gap.
        if error is not None and self._until_us is None:
            summary.unmet = BrokenPromise(walk.reader.blocked_channels()[0][0], partition, side.ends[partition], error.what)
        if side.is_trimmed and side.starts[partition]:
            _check_start(side, partition, summary)
        return summary

    def _read(self, end: int, on_records: Callable[[int], None] = lambda _: None) -> None:
        reported = self._walk.records
        for piece in self._walk.run(self._until_us, end):
            self._add(piece)
            on_records(self._walk.records - reported)
            reported = self._walk.records

    def _add(self, piece: WalkedPiece) -> None:
        add_piece(self._summary, piece, self._side, self._partition, self._until_us)


def summarize_skipped(summary: PartitionSummary, walk: PartitionWalk, copies: Copies, side: Side, partition: int) -> None:
    """Count what the walk has skipped, and compare its *copies* with the accepted events."""
    summary.duplicates, summary.torn, summary.foreign = walk.reader.duplicates, walk.reader.gaps, walk.foreign
    if not copies:
        return
    starts = {number: channel.digest.block_starts for number, channel in summary.channels.items()} if side.start_us is None else {}

    def read(number: int, block: int, seq: int) -> Iterator[OrderedEvents]:
        resume = None
        if starts.get(number):
            offset, first = starts[number][block]
            resume = ChannelPosition(offset, number, first - 1)
        for piece in PartitionWalk(side, partition, resume).run():
            events = piece.events.take_rows(np.flatnonzero(piece.events.number == number))
            yield events
            if len(events) and int(events.seq[-1]) >= seq:
                return

    seqs = {number: [seq for _, seq in block_starts] for number, block_starts in starts.items()}
    for copy in copies.find_contradictions(side.topic, partition, read, seqs):
        summary.contradicting += 1
        if len(summary.copies) < SHOWN_COPIES:
            summary.copies.append(replace(copy, names=_differing_fields(side, partition, copy)))


def _differing_fields(side: Side, partition: int, copy: ContradictingCopy) -> tuple[str, ...]:
    """Return the names of the fields in which a copy and the accepted record differ."""
    both = []
    with RangeReader(side.properties, side.topic, partition, headers=True, framed=side.framed) as kafka:
        for offset in sorted((copy.log_offset, copy.accepted_offset)):
            for records in kafka.read(offset, offset + 1):
                both += events_of(decode(records, side.topic, partition).events)
    return differing_fields(*both) if len(both) == 2 else ()


def _check_start(side: Side, partition: int, summary: PartitionSummary) -> None:
    """Refuse a start in a trimmed topic unless CTIs prove that no event from that time on was deleted."""
    numbers = summary.roster.channels_of(partition, side.partitions) if summary.roster else range(1)
    if not all(number in summary.channels and summary.channels[number].has_cti_before_start for number in numbers):
        since = format_tick(side.start_us or 0)
        what = f"retention has deleted so much of {side.topic} that events from {since} on may be missing"
        where, fix = f"{side.topic}-{partition}@{side.starts[partition]}", "compare from a later time on"
        raise RefusedError(what, code="TG-RETENTION", where=where, fix=fix, example="--from 2001-01-02T00:00:00Z")


def add_piece(summary: PartitionSummary, piece: WalkedPiece, side: Side, partition: int, until_us: int | None) -> None:
    """Add a piece of the log to the digests, and check the promises of its CTIs."""
    ctis_by_number: dict[int, list[tuple[int, Cti]]] = {}
    for offset, cti in piece.ctis:
        ctis_by_number.setdefault(cti.number, []).append((offset, cti))
    present = np.unique(piece.events.number).tolist()
    for number in sorted({*present, *ctis_by_number}):
        if number not in summary.channels:
            summary.channels[number] = Channel(ChannelDigest(), PromiseCheck(number, partition, side.start_us is None))
        channel = summary.channels[number]
        rows = np.flatnonzero(piece.events.number == number)
        events, position = piece.events.take_rows(rows), piece.log_position[rows]
        checked = 0
        # CTIs and events are checked in the order of the log: each CTI after the events accepted before it.
        for offset, cti in ctis_by_number.get(number, ()):
            end = int(np.searchsorted(position, offset, side="right"))
            if end > checked:
                channel.check.add_events(events.slice(checked, end))
                checked = end
            channel.check.add_cti(offset, cti)
            channel.has_cti_before_start |= side.start_us is not None and cti.largest_us < side.start_us
        channel.check.add_events(events.slice(checked, len(events)) if checked else events)
        channel.digest.add(_comparable_events(side, events, until_us))


def _comparable_events(side: Side, events: OrderedEvents, until_us: int | None) -> OrderedEvents:
    events = events if until_us is None else events.take_rows(np.flatnonzero(events.system_us < until_us))
    return events.without_numbers() if side.has_own_numbers else events


def _compare_channel(comparison: Comparison, a: Side, b: Side, number: int, partition: int, until_us: int | None, complete: bool) -> None:
    channels = [summary.channels.get(number) for summary in (comparison.a[-1], comparison.b[-1])]
    digests = [channel.digest if channel else ChannelDigest() for channel in channels]
    block = find_differing_block(*digests)
    difference = None
    if block is not None:
        difference = _read_excerpt(a, b, digests, number, partition, block[0], until_us).difference()
        assert difference is not None or block[1], "digests differ but the events do not"
    if difference is None and digests[0].count != digests[1].count and (complete or _shorter_has_ended(channels)):
        least = min(digest.count for digest in digests)
        difference = _read_excerpt(a, b, digests, number, partition, least // BLOCK_EVENTS, until_us).length_difference()
    comparison.equal_events += min(digest.count for digest in digests) if difference is None else difference.index
    if difference is not None:
        comparison.differences.append(difference)


def _shorter_has_ended(channels: list[Channel | None]) -> bool:
    # If the shorter channel has ended, the rest of the longer one will never come.
    shorter = min(channels, key=lambda channel: channel.digest.count if channel else 0)
    return shorter is not None and shorter.has_ended


def _read_excerpt(
    a: Side, b: Side, digests: list[ChannelDigest], number: int, partition: int, block: int, until_us: int | None
) -> ChannelExcerpt:
    """Read a block of both topics again, and the next one, which shows whether an event is missing or moved."""
    first = block * BLOCK_EVENTS
    end = first + 2 * BLOCK_EVENTS
    sides = [reread_block(side, digest, number, partition, block, end, until_us) for side, digest in zip((a, b), digests, strict=True)]
    return ChannelExcerpt(number, partition, first, *(events_of(columns) if columns else [] for columns in sides))


def reread_block(
    side: Side, digest: ChannelDigest, number: int, partition: int, block: int, end: int, until_us: int | None
) -> OrderedEvents | None:
    """Return one channel's compared events from a block on, up to index *end*; None if there are none."""
    if block >= len(digest.block_starts):
        return None
    offset, seq = digest.block_starts[block]
    is_from_start = side.start_us is None
    # A start in the middle cannot resume at a seq: the walk begins at the start and counts.
    index = block * BLOCK_EVENTS if is_from_start else 0
    parts = []
    for piece in PartitionWalk(side, partition, ChannelPosition(offset, number, seq - 1) if is_from_start else None).run():
        events = _comparable_events(side, piece.events.take_rows(np.flatnonzero(piece.events.number == number)), until_us)
        indices = np.arange(index, index + len(events))
        parts.append(events.take_rows(np.flatnonzero((indices >= block * BLOCK_EVENTS) & (indices < end))))
        index += len(events)
        if index >= min(end, digest.count):
            break
    return OrderedEvents.concat(parts) if parts else None


def _compare_rosters(comparison: Comparison, complete: bool) -> str:
    """Return how the newest rosters of both topics contradict each other; a topic that is behind may have an older one."""
    known = ([summary.roster for summary in side if summary.roster] for side in (comparison.a, comparison.b))
    a, b = (max(rosters, key=lambda roster: roster.version, default=None) for rosters in known)
    if a is None or b is None or a == b:
        return ""
    if a.version != b.version and not complete and (a.spread, a.substreams) == (b.spread, b.substreams):
        return ""
    return f"A was written from {_describe_roster(a)}; B from {_describe_roster(b)}"


def _describe_roster(roster: Roster) -> str:
    substreams = "with" if roster.substreams else "without"
    return f"{roster.inputs} inputs, each into {roster.spread.value} of the partitions, {substreams} substreams (version {roster.version})"
