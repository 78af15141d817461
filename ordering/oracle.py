"""
The oracle tells what must come out of one input partition, one record at a time, in plain Python.

It follows the time model (spec sections 1 to 4) word for word and knows nothing of batches, of forgetting timelines or
of columns. Law: whatever way the real model is cut, restarted or sped up, every channel carries the sequence told here.
It keeps everything it hears in memory: use it for tests and self-checks, not for streams.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from ordering.errors import SettingError
from ordering.policies import Action, Policies
from ordering.ticks import INFINITY, NEVER

_UNNUMBERED = -1


@dataclass(frozen=True, slots=True)
class Record:
    """One raw record: its arrival as stamped, its event time (None: unreadable), its key (with OVER: the substream's)."""

    offset: int
    arrival_us: int
    event_time_us: int | None
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class Ordered:
    """One event as the ordered topic carries it; ``arrival_us`` is clamped, *policies* names what adjusted ``system_us``."""

    output_partition: int
    seq: int
    system_us: int
    event_time_us: int
    arrival_us: int
    roster: int
    offset: int
    policies: frozenset[str]
    key: bytes


@dataclass(frozen=True, slots=True)
class Dropped:
    """One event rejected by a policy: ``early``, ``late`` or ``out_of_order``."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Moment:
    """
    What holds after a record, an estimate or the end: *released* events of the story are out, ``frontier_us`` is A, and
    no event that is still to come lies below ``c`` (the one timeline's watermark; with OVER the floor).
    """

    next_offset: int
    frontier_us: int
    c: int
    released: int


@dataclass(slots=True)
class Story:
    """
    Everything that came of one input partition's log.

    ``ordered`` stands in release order; ``watermarks`` tells for each offset which watermark its event met (early and
    unreadable records meet none); ``counts`` has ``unreadable``, ``early``, ``late_adjusted``, ``late_dropped``,
    ``out_of_order_adjusted``, ``out_of_order_dropped`` and ``arrival_clamps``.
    """

    ordered: list[Ordered] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    watermarks: dict[int, int] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def channel(self, output_partition: int) -> list[Ordered]:
        """Return one channel's sequence; its events are numbered 0, 1, 2, ..."""
        return [event for event in self.ordered if event.output_partition == output_partition]

    def promise(self, moment: Moment, output_partition: int) -> tuple[int, int]:
        """Return the channel's ``(n, ahead)`` at *moment*: events out by then, and how many of them are not below its ``c``."""
        out = [event for event in self.ordered[: moment.released] if event.output_partition == output_partition]
        return len(out), sum(event.system_us >= moment.c for event in out)


def tell(
    records: Iterable[Record],
    policies: Policies,
    *,
    over: bool,
    output_partitions: int,
    roster: int = 0,
    estimates: Mapping[int, int] | None = None,
    finish: bool = False,
) -> Story:
    """
    Walk one input partition in offset order and tell what becomes of every record.

    Args:
        records: The log, offsets rising (gaps allowed).
        over: Whether each key has a timeline of its own; else the input partition is the one timeline.
        roster: The input partition's roster number.
        estimates: Position -> arrival frontier in microseconds, applied before the record at that position is judged.
        finish: Whether the arrival frontier goes to infinity at the end, which releases everything.

    Raises:
        SettingError: *over* without a late tolerance: silence could advance no substream (spec section 2).
    """
    if over and policies.late_us is None:
        raise SettingError("late may be off only without OVER", where="late", fix="give late a duration", example='late = "5s"')
    walk = _Walk(policies, over, output_partitions, roster)
    pending = deque(sorted((estimates or {}).items()))
    for record in records:
        while pending and pending[0][0] <= record.offset:
            walk.hear_estimate(*pending.popleft())
        walk.hear_record(record)
    for estimate in pending:
        walk.hear_estimate(*estimate)
    if finish:
        walk.hear_end()
    walk.story.held = sorted(walk.held)
    return walk.story


@dataclass(slots=True)
class _Walk:
    policies: Policies
    over: bool
    output_partitions: int
    roster: int
    story: Story = field(default_factory=Story)
    frontier_us: int = NEVER
    next_offset: int = 0
    largest_us: dict[bytes, int] = field(default_factory=dict)
    held: dict[int, Ordered] = field(default_factory=dict)
    # Both kinds of heap hold (s, offset); an event already released through the other kind is passed over.
    heaps: defaultdict[bytes, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    all_held: list[tuple[int, int]] = field(default_factory=list)
    next_seq: Counter[int] = field(default_factory=Counter)

    def hear_record(self, record: Record) -> None:
        arrival_us = max(record.arrival_us, self.frontier_us)
        self.story.counts["arrival_clamps"] += arrival_us > record.arrival_us
        timeline = record.key if self.over else b""
        if record.event_time_us is None:
            self.story.counts["unreadable"] += 1
        else:
            self._judge(record, record.event_time_us, arrival_us, timeline)
        self.next_offset, self.frontier_us = record.offset + 1, arrival_us
        self._release(timeline)

    def hear_estimate(self, position: int, frontier_us: int) -> None:
        self.next_offset, self.frontier_us = position, max(self.frontier_us, frontier_us)
        self._release(None)

    def hear_end(self) -> None:
        self.frontier_us = INFINITY
        self._release(None)

    def _floor_us(self) -> int:
        if self.frontier_us == INFINITY:
            return INFINITY
        if self.frontier_us == NEVER or self.policies.late_us is None:
            return NEVER
        return self.frontier_us - self.policies.late_us

    def _watermark_us(self, timeline: bytes) -> int:
        if timeline not in self.largest_us:
            return self._floor_us()
        return max(self.largest_us[timeline] - self.policies.reorder_us, self._floor_us())

    def _judge(self, record: Record, t: int, a: int, timeline: bytes) -> None:
        early_us, late_us = self.policies.early_us, self.policies.late_us
        if early_us is not None and t - a > early_us:
            self.story.counts["early"] += 1
            self.story.dropped.append(Dropped(record.offset, "early"))
            return
        s, touched = t, set()
        watermark_us = self.story.watermarks[record.offset] = self._watermark_us(timeline)
        if late_us is not None and a - t > late_us:
            if not self._may_adjust(record, "late", self.policies.late_action):
                return
            s = a - late_us
            touched.add("late")
        if s < watermark_us:
            if not self._may_adjust(record, "out_of_order", self.policies.out_of_order_action):
                return
            s = watermark_us
            touched.add("out_of_order")
        self.largest_us[timeline] = max(s, self.largest_us.get(timeline, s))
        output = partition_of(record.key, self.output_partitions) if self.over else self.roster % self.output_partitions
        self.held[record.offset] = Ordered(output, _UNNUMBERED, s, t, a, self.roster, record.offset, frozenset(touched), record.key)
        heappush(self.heaps[timeline], (s, record.offset))
        heappush(self.all_held, (s, record.offset))

    def _may_adjust(self, record: Record, policy: str, action: Action) -> bool:
        adjust = action is Action.ADJUST
        self.story.counts[f"{policy}_adjusted" if adjust else f"{policy}_dropped"] += 1
        if not adjust:
            self.story.dropped.append(Dropped(record.offset, policy))
        return adjust

    def _release(self, timeline: bytes | None) -> None:
        """Let out what the floor allows of all timelines, and what its watermark allows of the one just heard."""
        due = self._below(self.all_held, self._floor_us())
        if timeline is not None:
            due += self._below(self.heaps[timeline], self._watermark_us(timeline))
        for event in sorted(due, key=lambda event: (event.system_us, event.offset)):
            seq = self.next_seq[event.output_partition]
            self.next_seq[event.output_partition] += 1
            self.story.ordered.append(replace(event, seq=seq))
        c = self._floor_us() if self.over else self._watermark_us(b"")
        self.story.moments.append(Moment(self.next_offset, self.frontier_us, c, len(self.story.ordered)))

    def _below(self, heap: list[tuple[int, int]], bound_us: int) -> list[Ordered]:
        found = []
        while heap and heap[0][0] < bound_us:
            _, offset = heappop(heap)
            if offset in self.held:
                found.append(self.held.pop(offset))
        return found


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's Java partitioner gives a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 hash, unsigned."""
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF ^ word
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return hashed ^ hashed >> 15
