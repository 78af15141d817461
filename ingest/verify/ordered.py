"""
Verifies an ordered topic: orders the raw topic again, and compares every channel with the topic.

Law (docs/operate/verify.md): the events of every channel follow byte for byte from raw topic, settings and journal. Both sides are walked
once, and only digests stay in memory (:mod:`tidegate.ordered_topic.compare.digest`); a block that differs is walked again. An event is due
if a CTI says that it is written, and must then stand in the topic. Any other event may still come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from ingest.config import Partition
from ingest.offsets import PlannedPosition
from ingest.replay.plan import Replay
from ingest.replay.walk import ReplayingWalk
from ordering.model.events import Released
from ordering.ticks import NEVER
from tidegate.ordered_topic.compare.difference import ChannelExcerpt, Difference, events_of
from tidegate.ordered_topic.compare.digest import BLOCK_EVENTS, ChannelDigest, find_differing_block
from tidegate.ordered_topic.compare.promises import BrokenPromise
from tidegate.ordered_topic.compare.sides import Side
from tidegate.ordered_topic.compare.topics import Channel, PartitionDigester, PartitionSummary, reread_block
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.released import event_columns
from tidegate.platform.kafka.records import Records

# Called with the number of records just read.
OnRecords = Callable[[int], None]
# Roster number of the input partition, and output partition.
ChannelId = tuple[int, int]


@dataclass(slots=True)
class OrderedCheck:
    """The result of verifying an ordered topic."""

    # How many standing events are as computed.
    events: int = 0
    # How many computed events are not in the topic and not due.
    ahead: int = 0
    # The largest System.Timestamp of the standing events.
    largest_us: int = NEVER
    # The first difference of each channel; A is the standing event, B the computed one.
    differences: list[Difference] = field(default_factory=list)
    # The promises of the topic's CTIs that do not hold.
    broken: list[BrokenPromise] = field(default_factory=list)
    # Records that are no events, by reason.
    unusable: Counter[str] = field(default_factory=Counter)
    # Records that readers skip: repeated and torn writes.
    duplicates: int = 0
    # What was met in each partition; has strangers' records, and copies that contradict the accepted event.
    summaries: Sequence[PartitionSummary] = ()

    @property
    def is_equal(self) -> bool:
        return not (self.differences or self.broken) and not any(summary.has_strange_records for summary in self.summaries)


@dataclass
class OrderedVerifier:
    """
    The verification of one ordered topic between two instants, microseconds.

    Both sides may be walked at the same time, and the standing one from records that a query's verification reads anyway.
    """

    replay: Replay
    # The standing topic.
    side: Side
    # Where each input partition is read from.
    starts: Mapping[Partition, PlannedPosition]
    # Events from here on are compared; None: all.
    since_us: int | None
    # Events before this are compared; None: all.
    until_us: int | None
    # Channels that lack an event although their last CTI promises that it is there.
    _overdue: set[ChannelId] = field(default_factory=set)
    _unusable: Counter[str] = field(default_factory=Counter)

    def compare(self, computed: Mapping[ChannelId, ChannelDigest], summaries: Sequence[PartitionSummary]) -> OrderedCheck:
        """Compare the results of :meth:`digest_replays` and :class:`StandingTopic`; read again the blocks that differ."""
        check = OrderedCheck(unusable=self._unusable, summaries=summaries)
        for partition, summary in enumerate(summaries):
            check.duplicates += summary.duplicates + summary.torn
            check.broken += summary.broken
            for number in sorted({number for number, output in computed if output == partition} | summary.channels.keys()):
                self._compare(check, (number, partition), summary.channels.get(number), computed.get((number, partition)))
        check.differences.sort(key=lambda difference: difference.system_us)
        return check

    def digest_replays(self, on_records: OnRecords) -> dict[ChannelId, ChannelDigest]:
        """Order the raw topic again; return the digests of its channels."""
        digests: dict[ChannelId, ChannelDigest] = {}
        for number, partition in enumerate(self.replay.plan.partitions):
            walk = self._new_walk(partition)
            for record_count, released in self._events(walk, partition):
                on_records(record_count)
                for output, events in self._by_output(released):
                    digest = digests.setdefault((number, output), ChannelDigest())
                    self._note_overdue((number, output), digest.count, events)
                    digest.add(events)
            self._unusable += walk.unusable
        return digests

    def _note_overdue(self, channel: ChannelId, index: int, events: OrderedEvents) -> None:
        """
        Note a channel if its last CTI says that one of *events*, the first of which has the number *index*, is not there: no event below
        the promised instant has a number above those that the CTI counts.
        """
        cti = self.replay.promises.get(channel[0], {}).get(channel[1])
        if cti is not None and not self.side.has_own_numbers and bool((events.system_us[max(cti.n - index, 0) :] < cti.c).any()):
            self._overdue.add(channel)

    def _new_walk(self, partition: Partition) -> ReplayingWalk:
        plan = self.replay.plan
        model, start = plan.model(plan.partitions.index(partition)), self.starts[partition]
        least_us = max(NEVER if self.since_us is None else self.since_us, plan.start_us)
        # A partition that joined later has no event below its join.
        state = model.new_state() if least_us == NEVER else model.state_from(least_us, start.next_offset)
        state.next_offset = start.next_offset
        return ReplayingWalk(plan, partition, self.replay.facts[partition], state)

    def _events(self, walk: ReplayingWalk, partition: Partition) -> Iterator[tuple[int, Released]]:
        """Yield how many records were walked and the events that they released, until all events before the end are released."""
        end = self.replay.ends[partition]
        for step in walk.events(end, finish=self.replay.has_ended):
            yield step
            if self.until_us is not None and walk.c >= self.until_us:
                return

    def _by_output(self, released: Released) -> Iterator[tuple[int, OrderedEvents]]:
        """Yield the compared events of each output partition."""
        if not len(released):
            return
        events, output = event_columns(released, is_framed=bool(self.side.framed)), released.output_partition
        if self.until_us is not None:
            rows = np.flatnonzero(events.system_us < self.until_us)
            events, output = events.take_rows(rows), output[rows]
        if self.side.has_own_numbers:
            events = events.without_numbers()
        for partition in np.unique(output).tolist():
            yield partition, events.take_rows(np.flatnonzero(output == partition))

    def _compare(self, check: OrderedCheck, channel: ChannelId, standing: Channel | None, computed: ChannelDigest | None) -> None:
        standing_digest = ChannelDigest() if standing is None else standing.digest
        computed = computed or ChannelDigest()
        if standing_digest.count:
            check.largest_us = max(check.largest_us, standing_digest.largest_us)
        difference = self._find_difference(channel, standing_digest, computed)
        if difference is None and standing_digest.count != computed.count:
            if standing_digest.count > computed.count or self._is_due(channel, standing_digest.count):
                block = min(standing_digest.count, computed.count) // BLOCK_EVENTS
                difference = self._read_excerpt(channel, standing_digest, block).length_difference()
            else:
                check.ahead += computed.count - standing_digest.count
        if difference is None:
            check.events += min(standing_digest.count, computed.count)
        else:
            check.events += difference.index
            check.differences.append(difference)

    def _is_due(self, channel: ChannelId, count: int) -> bool:
        """Return whether events after the first *count* ones must stand in the topic."""
        cti = self.replay.promises.get(channel[0], {}).get(channel[1])
        is_short = cti is not None and not self.side.has_own_numbers and count < cti.n
        return self.replay.has_ended or channel in self._overdue or is_short

    def _find_difference(self, channel: ChannelId, standing: ChannelDigest, computed: ChannelDigest) -> Difference | None:
        block = find_differing_block(standing, computed)
        return None if block is None else self._read_excerpt(channel, standing, block[0]).difference()

    def _read_excerpt(self, channel: ChannelId, standing: ChannelDigest, block: int) -> ChannelExcerpt:
        """Read a block of both sides again, and the next one, which shows whether an event is missing or moved."""
        number, partition = channel
        first = block * BLOCK_EVENTS
        end = first + 2 * BLOCK_EVENTS
        stands = reread_block(self.side, standing, number, partition, block, end, self.until_us)
        return ChannelExcerpt(
            number, partition, first, *(events_of(columns) if columns else [] for columns in (stands, self._recompute(channel, first, end)))
        )

    def _recompute(self, channel: ChannelId, first: int, end: int) -> OrderedEvents | None:
        """Return the computed events of a channel from index *first* to *end*, exclusive; None if its input partition is not known."""
        partition = self.replay.plan.partitions[channel[0]] if channel[0] < len(self.replay.plan.partitions) else None
        parts, index = [], 0
        for _, released in self._events(self._new_walk(partition), partition) if partition is not None else ():
            for output, events in self._by_output(released):
                if output == channel[1]:
                    parts.append(events.slice(min(max(first - index, 0), len(events)), min(max(end - index, 0), len(events))))
                    index += len(events)
            if index >= end:
                break
        return OrderedEvents.concat(parts) if parts else None


class StandingTopic:
    """The walk of the standing topic, in a thread of its own."""

    def __init__(self, side: Side, until_us: int | None, on_records: OnRecords) -> None:
        self._on_records = on_records
        self._partitions = [PartitionDigester(side, partition, until_us) for partition in range(side.partitions)]
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._running: Future[None] | None = None

    def add_records(self, partition: int, records: Records) -> None:
        """Take the next records of a partition from another reader. Wait for the ones before, so that few are in memory."""
        if self._running is not None:
            self._running.result()
        self._running = self._pool.submit(self._partitions[partition].add_records, records)

    def finish(self) -> list[PartitionSummary]:
        """Read the records that were not handed over; return the summary of each partition."""
        with self._pool:
            if self._running is not None:
                self._running.result()
            return [partition.finish(self._on_records) for partition in self._partitions]
