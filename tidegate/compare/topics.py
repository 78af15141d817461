"""
Two ordered topics held against each other, partition by partition, each walked once and side by side.

Law (spec section 4, level 1): two topics made of the same raw topic under the same settings and journal hold the same event
sequence in every channel, byte for byte. Numbers and times of their CTIs may differ; each is held against its own events.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from ordering.errors import RefusedError
from ordering.protocol.punctuation import Cti, Roster
from ordering.ticks import INFINITY, format_tick
from tidegate.compare.difference import Difference, Stretches, events_of
from tidegate.compare.digest import BLOCK_EVENTS, ChannelDigest, differing_block
from tidegate.compare.promises import Broken, PromiseCheck
from tidegate.compare.records import Columns, Met, Side, Walk


@dataclass(slots=True)
class Channel:
    """One channel of one topic: the digests of its events, and whether its CTIs hold."""

    digest: ChannelDigest
    check: PromiseCheck
    whole_before: bool = False
    """Whether a CTI was met that lies wholly before the start of a comparison that begins in the middle."""

    @property
    def ended(self) -> bool:
        """Whether its final CTI was met."""
        return self.check.c == INFINITY


@dataclass(slots=True)
class PartitionOf:
    """One partition of one topic, walked."""

    channels: dict[int, Channel] = field(default_factory=dict)
    roster: Roster | None = None
    records: int = 0
    duplicates: int = 0
    torn: int = 0
    """Records of torn writes: beyond a gap, ignored, and written again later."""
    unmet: Broken | None = None


@dataclass(slots=True)
class Compared:
    """
    What a comparison found.

    Attributes:
        a, b: Every partition of each topic.
        equal: How many events are the same in both.
        differences: The first difference of each channel that has one, rising in s.
        rosters: What is wrong about the rosters; empty if nothing.
        broken: Promises that do not hold, with the label of their topic.
    """

    a: list[PartitionOf] = field(default_factory=list)
    b: list[PartitionOf] = field(default_factory=list)
    equal: int = 0
    differences: list[Difference] = field(default_factory=list)
    rosters: str = ""
    broken: list[tuple[str, Broken]] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether neither topic belies the other, nor itself."""
        return not (self.differences or self.rosters or self.broken)

    def ahead(self) -> tuple[int, int]:
        """Return how many events A has that B does not have yet, and the other way round."""
        counts = [
            (a.channels[number].digest.count if number in a.channels else 0)
            - (b.channels[number].digest.count if number in b.channels else 0)
            for a, b in zip(self.a, self.b, strict=True)
            for number in sorted(a.channels.keys() | b.channels.keys())
        ]
        return sum(count for count in counts if count > 0), -sum(count for count in counts if count < 0)


def compare_topics(a: Side, b: Side, until_us: int | None, complete: bool, on_records: Callable[[int], None]) -> Compared:
    """
    Compare two ordered topics.

    Args:
        a, b: The topics.
        until_us: Only events with s below this are compared, microseconds; None: all.
        complete: Whether each must hold all that the other holds; else one may be further than the other.
        on_records: Called with how many records were read more, from threads of its own.

    Raises:
        ProtocolError: A record of either is no event and no CTI.
        RefusedError: Retention has deleted what a start in the middle needs.
    """
    found = Compared()
    with ThreadPoolExecutor(max_workers=2) as pool:
        for partition in range(a.partitions):
            walks = [pool.submit(walk_partition, side, partition, until_us, on_records) for side in (a, b)]
            one, other = (walk.result() for walk in walks)
            found.a.append(one)
            found.b.append(other)
            for number in sorted(one.channels.keys() | other.channels.keys()):
                _compare_channel(found, a, b, number, partition, until_us, complete)
            for label, each in (("A", one), ("B", other)):
                broken = [each.unmet, *(channel.check.broken for _, channel in sorted(each.channels.items()))]
                found.broken += [(label, promise) for promise in broken if promise is not None]
    found.differences.sort(key=lambda difference: difference.system_us)
    found.rosters = _rosters(found, complete)
    return found


def walk_partition(side: Side, partition: int, until_us: int | None, on_records: Callable[[int], None]) -> PartitionOf:
    """Walk one partition of one topic."""
    walk, found, read = Walk(side, partition), PartitionOf(), 0
    for met in walk.run(until_us):
        _take(found, met, side, partition, until_us)
        on_records(walk.records - read)
        read = walk.records
    found.roster, found.records = walk.roster, walk.records
    found.duplicates, found.torn = walk.reader.duplicates, walk.reader.gaps
    error = walk.unmet()
    if error is not None and until_us is None:
        found.unmet = Broken(walk.reader.waiting()[0][0], partition, side.ends[partition], error.what)
    if side.trimmed and side.starts[partition]:
        _check_start(side, partition, found)
    return found


def _check_start(side: Side, partition: int, found: PartitionOf) -> None:
    """Refuse a start in what retention has left unless it is known that nothing from there on is gone (spec section 6)."""
    numbers = found.roster.channels_of(partition, side.partitions) if found.roster else range(1)
    if not all(number in found.channels and found.channels[number].whole_before for number in numbers):
        raise RefusedError(
            f"retention has deleted so much of {side.topic} that nobody knows whether all events from {format_tick(side.start_us or 0)} on "
            "are there",
            code="TG-RETENTION",
            where=f"{side.topic}-{partition}@{side.starts[partition]}",
            fix="compare from a later time on",
            example="--from 2001-01-02T00:00:00Z",
        )


def _take(found: PartitionOf, met: Met, side: Side, partition: int, until_us: int | None) -> None:
    """Take what a stretch of the log brought, channel by channel."""
    by_number: dict[int, list[tuple[int, Cti]]] = {}
    for offset, cti in met.ctis:
        by_number.setdefault(cti.number, []).append((offset, cti))
    present = np.unique(met.events.number).tolist()
    for number in sorted({*present, *by_number}):
        if number not in found.channels:
            found.channels[number] = Channel(ChannelDigest(), PromiseCheck(number, partition, side.start_us is None))
        channel = found.channels[number]
        rows = np.flatnonzero(met.events.number == number)
        events, position = met.events.take(rows), met.position[rows]
        done = 0
        for offset, cti in by_number.get(number, ()):
            until = int(np.searchsorted(position, offset, side="right"))
            if until > done:
                channel.check.events(events.slice(done, until))
                done = until
            channel.check.cti(offset, cti)
            channel.whole_before |= side.start_us is not None and cti.largest_us < side.start_us
        channel.check.events(events.slice(done, len(events)) if done else events)
        channel.digest.add(_before(events, until_us))


def _before(events: Columns, until_us: int | None) -> Columns:
    return events if until_us is None else events.take(np.flatnonzero(events.system_us < until_us))


def _compare_channel(found: Compared, a: Side, b: Side, number: int, partition: int, until_us: int | None, complete: bool) -> None:
    channels = [each.channels.get(number) for each in (found.a[-1], found.b[-1])]
    digests = [channel.digest if channel else ChannelDigest() for channel in channels]
    block = differing_block(*digests)
    difference = None
    if block is not None:
        difference = _look(a, b, digests, number, partition, block[0], until_us).difference()
        assert difference is not None or block[1], "digests differ but the events do not"
    if difference is None and digests[0].count != digests[1].count and (complete or _ended(channels)):
        least = min(digest.count for digest in digests)
        difference = _look(a, b, digests, number, partition, least // BLOCK_EVENTS, until_us).longer()
    found.equal += min(digest.count for digest in digests) if difference is None else difference.index
    if difference is not None:
        found.differences.append(difference)


def _ended(channels: list[Channel | None]) -> bool:
    """Return whether the shorter channel has ended: what the longer one has more will never come."""
    shorter = min(channels, key=lambda channel: channel.digest.count if channel else 0)
    return shorter is not None and shorter.ended


def _look(a: Side, b: Side, digests: list[ChannelDigest], number: int, partition: int, block: int, until_us: int | None) -> Stretches:
    """Read a block of both topics again, and the next one, by which it is told what is missing from what was moved."""
    first = block * BLOCK_EVENTS
    past = first + 2 * BLOCK_EVENTS
    sides = [_again(side, digest, number, partition, block, past, until_us) for side, digest in zip((a, b), digests, strict=True)]
    return Stretches(number, partition, first, *(events_of(columns) if columns else [] for columns in sides))


def _again(side: Side, digest: ChannelDigest, number: int, partition: int, block: int, past: int, until_us: int | None) -> Columns | None:
    """Return one channel's events from a block on, numbered below *past* among those compared, None if there are none."""
    if block >= len(digest.begins):
        return None
    offset, seq = digest.begins[block]
    whole = side.start_us is None
    index = block * BLOCK_EVENTS if whole else 0
    parts = []
    for met in Walk(side, partition, (offset, number, seq - 1) if whole else None).run():
        events = _before(met.events.take(np.flatnonzero(met.events.number == number)), until_us)
        places = np.arange(index, index + len(events))
        parts.append(events.take(np.flatnonzero((places >= block * BLOCK_EVENTS) & (places < past))))
        index += len(events)
        if index >= min(past, digest.count):
            break
    return Columns.join(parts) if parts else None


def _rosters(found: Compared, complete: bool) -> str:
    """Return what is wrong about the rosters: the newest of each topic must be the same, unless one topic is not that far yet."""
    rosters = [
        max((each.roster for each in side if each.roster), key=lambda roster: roster.version, default=None) for side in (found.a, found.b)
    ]
    one, other = rosters
    if one is None or other is None or one == other:
        return ""
    if one.version != other.version and not complete and (one.spread, one.substreams) == (other.spread, other.substreams):
        return ""
    return f"A was made of {_roster(one)}; B of {_roster(other)}"


def _roster(roster: Roster) -> str:
    substreams = "with" if roster.substreams else "without"
    return f"{roster.inputs} inputs, each into {roster.spread.value} of the partitions, {substreams} substreams (version {roster.version})"
