"""
The oracle computes the expected output of one input partition, one record at a time, in plain Python.

It follows the time model word for word, without batches, columns or forgotten timelines. Law: however the real model
is cut, restarted or optimized, every channel has the sequence of this story. It stores every record: use it only for tests and self-checks.
A watermark is the highest of several marks, each with its setter, which explains every verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from support.story import Dropped, EventTrace, OrderedEvent, Ruling, SetBy, Setter, Snapshot, Story

from ordering.errors import SettingError
from ordering.policies import Action, Policies, Shape
from ordering.testing import Record
from ordering.ticks import INFINITY, NEVER

_UNNUMBERED = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """A time (microseconds) that only rises, its last setter, and the turn at which it was set."""

    time_us: int
    turn: int
    setter: Setter

    def lower_by(self, by_us: int) -> Mark:
        """Return the mark lowered by *by_us*; ``NEVER`` and ``INFINITY`` stay."""
        return self if self.time_us in (NEVER, INFINITY) else replace(self, time_us=self.time_us - by_us)


_UNSET = Mark(NEVER, 0, Setter(SetBy.NOBODY))


def highest(*marks: Mark) -> Mark:
    """Return the highest mark; of equal marks the one set first, and of those set at one turn the first argument."""
    return max(marks, key=lambda mark: (mark.time_us, -mark.turn))


def compute_story(
    records: Iterable[Record],
    policies: Policies,
    *,
    over: bool,
    output_partitions: int,
    roster: int = 0,
    estimates: Mapping[int, int] | None = None,
    imports: Mapping[int, int] | None = None,
    joined_us: int = NEVER,
    delay_us: int = 0,
    finish: bool = False,
) -> Story:
    """
    Process one input partition in offset order and return the fate of every record.

    Args:
        records: The log, offsets rising (gaps allowed).
        over: Whether each key has a timeline of its own; else the input partition is the only timeline.
        estimates: Position -> arrival frontier in microseconds, applied before the record at that position.
        imports: Position -> c in microseconds of a CTI of another input, applied after the estimate at that position.
        joined_us: When the input partition joined; ``NEVER``: it was there from the start.
        delay_us: How far CTIs stay behind the watermark.
        finish: Whether the watermark rises to infinity at the end, which releases all events.

    Raises:
        SettingError: *over* without a late tolerance: a silent substream would never advance.
    """
    if over and policies.late_us is None:
        raise SettingError("late may be off only without OVER", where="late", fix="give late a duration", example='late = "5s"')
    walk = _Walk(policies, over, output_partitions, roster, delay_us)
    walk.join(joined_us)
    facts = [(position, 0, Setter(SetBy.ESTIMATE, position), us) for position, us in (estimates or {}).items()]
    facts += [(position, 0, Setter(SetBy.IMPORT, position), us) for position, us in (imports or {}).items()]
    log: list[tuple[int, int, Setter, int | Record]] = [*facts]
    log += [(record.offset, 1, Setter(SetBy.EVENT, record.offset), record) for record in records]
    # At one position facts come before the record.
    for position, _, setter, entry in sorted(log, key=lambda row: row[:2]):
        if isinstance(entry, Record):
            walk.apply_record(entry)
        elif setter.by is SetBy.ESTIMATE:
            walk.apply_estimate(position, entry)
        else:
            walk.apply_import(position, entry)
    if finish:
        walk.apply_end()
    walk.story.held = sorted(walk.held)
    return walk.story


@dataclass(slots=True)
class _Walk:
    policies: Policies
    over: bool
    output_partitions: int
    roster: int
    delay_us: int
    story: Story = field(default_factory=Story)
    turn: int = 0
    next_offset: int = 0
    accepted: int = 0
    joined: Mark = _UNSET
    arrival: Mark = _UNSET  # A
    punctuation: Mark = _UNSET  # P
    ended: Mark = _UNSET
    largest: dict[bytes, Mark] = field(default_factory=dict)
    held: dict[int, OrderedEvent] = field(default_factory=dict)
    # Both kinds of heap hold (s, offset); an event already released through the other kind is passed over.
    heaps: defaultdict[bytes, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    all_held: list[tuple[int, int]] = field(default_factory=list)
    # Start edges, released ones too: (timeline, identity, event time) -> offsets.
    starts: defaultdict[tuple[bytes, bytes, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    next_seq: Counter[int] = field(default_factory=Counter)

    def join(self, joined_us: int) -> None:
        self.joined = self._raise(_UNSET, joined_us, Setter(SetBy.JOINED))
        self._release(None, SetBy.JOINED)

    def apply_record(self, record: Record) -> None:
        self.turn += 1
        arrived = self._raise(self.arrival, record.arrival_us, Setter(SetBy.ARRIVAL, record.offset))
        self.story.counts["arrival_clamps"] += arrived.time_us > record.arrival_us
        timeline = record.key if self.over else b""
        trigger, is_end_edge, is_accepted = SetBy.EVENT, False, False
        if record.source_cti_us is not None:
            trigger = self._judge_source_cti(record.offset, record.source_cti_us, arrived)
        elif record.event_time_us is None:
            self.story.counts["unreadable"] += 1
        else:
            is_end_edge = record.is_end_edge
            is_accepted = self._judge(record, record.event_time_us, arrived, timeline)
        is_counted = is_accepted and not is_end_edge
        self.accepted += is_counted
        self.next_offset, self.arrival = record.offset + 1, arrived
        self._release(timeline, trigger, is_counted, is_end_edge)

    def apply_estimate(self, position: int, frontier_us: int) -> None:
        self.turn += 1
        self.next_offset, self.arrival = position, self._raise(self.arrival, frontier_us, Setter(SetBy.ESTIMATE, position))
        self._release(None, SetBy.ESTIMATE)

    def apply_import(self, position: int, c: int) -> None:
        self.turn += 1
        self.next_offset, self.punctuation = position, self._raise(self.punctuation, c, Setter(SetBy.IMPORT, position))
        self._release(None, SetBy.IMPORT)

    def apply_end(self) -> None:
        self.turn += 1
        self.ended = self._raise(self.ended, INFINITY, Setter(SetBy.END))
        self._release(None, SetBy.END)

    def _raise(self, mark: Mark, us: int, setter: Setter) -> Mark:
        return Mark(us, self.turn, setter) if us > mark.time_us else mark

    def _floors(self) -> list[Mark]:
        late_us = self.policies.late_us
        return [_UNSET if late_us is None else self.arrival.lower_by(late_us), self.punctuation, self.joined, self.ended]

    def _marks(self, timeline: bytes) -> list[Mark]:
        return [self.largest.get(timeline, _UNSET).lower_by(self.policies.reorder_us), *self._floors()]

    def _watermark(self, timeline: bytes) -> Mark:
        return highest(*self._marks(timeline))

    def _judge_source_cti(self, offset: int, c: int, arrived: Mark) -> SetBy:
        early_us = self.policies.early_us
        if early_us is not None and c - arrived.time_us > early_us:
            self._drop(offset, "early")
            return SetBy.EVENT
        self.story.counts["source_ctis"] += 1
        self.punctuation = self._raise(self.punctuation, c, Setter(SetBy.SOURCE, offset))
        return SetBy.SOURCE

    def _judge(self, record: Record, t: int, arrived: Mark, timeline: bytes) -> bool:
        """Apply the policies in their order; hold the event and return True, or drop it."""
        watermark = self._watermark(timeline)
        met = self.story.traces[record.offset] = EventTrace(record.offset, arrived.time_us, watermark.time_us, watermark.setter)
        s = t
        if self._is_early(met, record, t, arrived):
            if self.policies.early_action is Action.DROP:
                return self._drop(record.offset, "early")
            self.story.counts["early_adjusted"] += 1
            s = met.rulings[-1].limit_us
        self.story.watermarks[record.offset] = watermark.time_us
        if t < self.punctuation.time_us:
            s = self.punctuation.time_us
            if not self._apply_action(met, "cti_violation", self._violation_action(record), self.punctuation, s):
                return False
        late_us = self.policies.late_us
        if late_us is not None and arrived.time_us - t > late_us:
            s = max(s, arrived.time_us - late_us)
            if not self._apply_action(met, "late", self.policies.late_action, arrived.lower_by(late_us), s):
                return False
        if s < watermark.time_us:
            s = watermark.time_us
            if not self._apply_action(met, "out_of_order", self.policies.out_of_order_action, watermark, s):
                return False
        # A lifted end raises no watermark: else ends before their start could push the watermark up without bound.
        self.largest[timeline] = self._raise(self.largest.get(timeline, _UNSET), s, Setter(SetBy.EVENT, record.offset))
        self.story.accepted_us[record.offset] = (timeline, s)
        s, end_us = self._fit_span(met, record, s, timeline)
        met.system_us = s
        self._hold(record, t, met, end_us, timeline)
        return True

    def _is_early(self, met: EventTrace, record: Record, t: int, arrived: Mark) -> bool:
        # An end edge is lifted above its start edge's time: it is early if that is.
        early_checked_us = max(t, record.start_us) if record.start_us is not None else t
        early_us = self.policies.early_us
        if early_us is None or early_checked_us - arrived.time_us <= early_us:
            return False
        limit_us = arrived.time_us + early_us
        met.rulings.append(Ruling("early", limit_us, arrived.setter, limit_us if self.policies.early_action is Action.ADJUST else None))
        return True

    def _violation_action(self, record: Record) -> Action:
        """Return the action for an event before a CTI: only a span that ends after the CTI, or an edge, can be moved up to it."""
        reaches_past = record.shape is Shape.EDGE or (record.end_us is not None and record.end_us > self.punctuation.time_us)
        return self.policies.cti_violation_action if reaches_past else Action.DROP

    def _apply_action(self, met: EventTrace, policy: str, action: Action, limit: Mark, adjusted_us: int) -> bool:
        adjust = action is Action.ADJUST
        met.rulings.append(Ruling(policy, limit.time_us, limit.setter, adjusted_us if adjust else None))
        self.story.counts[f"{policy}_adjusted" if adjust else f"{policy}_dropped"] += 1
        if not adjust:
            self.story.dropped.append(Dropped(met.offset, policy))
        return adjust

    def _drop(self, offset: int, reason: str) -> bool:
        self.story.counts[reason] += 1
        self.story.dropped.append(Dropped(offset, reason))
        return False

    def _fit_span(self, met: EventTrace, record: Record, s: int, timeline: bytes) -> tuple[int, int | None]:
        """Lift an end that is not after its start; return the event's system timestamp, and an interval's end."""
        if record.end_us is not None:
            if record.end_us < s + 1:
                met.rulings.append(Ruling("lifted_end", s, Setter(SetBy.EVENT, record.offset), s))
            return s, max(record.end_us, s + 1)
        if record.start_us is None or record.start_us == NEVER:
            return s, None
        starts = [self.held[offset] for offset in self.starts[timeline, self._identity(record), record.start_us] if offset in self.held]
        early_us = self.policies.early_us
        named_us = record.start_us if early_us is None else min(record.start_us, met.arrival_us + early_us)
        limit_us, by = max([(start.system_us, start.offset) for start in starts] + [(named_us, record.offset)])
        if s > limit_us:
            return s, None
        met.rulings.append(Ruling("lifted_end", limit_us, Setter(SetBy.EVENT, by), limit_us + 1))
        return limit_us + 1, None

    def _identity(self, record: Record) -> bytes:
        return record.key if self.over else record.raw_key or b""

    def _hold(self, record: Record, t: int, met: EventTrace, end_us: int | None, timeline: bytes) -> None:
        assert met.system_us is not None
        output = partition_of(record.key, self.output_partitions) if self.over else self.roster % self.output_partitions
        times, policies = (met.system_us, t, met.arrival_us), frozenset(ruling.policy for ruling in met.rulings)
        event = OrderedEvent(output, _UNNUMBERED, *times, self.roster, record.offset, policies, record.key, end_us, record.start_us)
        self.held[record.offset] = event
        heappush(self.heaps[timeline], (met.system_us, record.offset))
        heappush(self.all_held, (met.system_us, record.offset))
        if record.start_us == NEVER:
            self.starts[timeline, self._identity(record), t].append(record.offset)

    def _release(self, timeline: bytes | None, trigger: SetBy, is_counted: bool = False, is_end_edge: bool = False) -> None:
        """Release the events of all timelines below the floor, and the events of *timeline* below its watermark."""
        due = self._pop_below(self.all_held, highest(*self._floors()).time_us)
        if timeline is not None:
            due += self._pop_below(self.heaps[timeline], self._watermark(timeline).time_us)
        for event in sorted(due, key=lambda event: (event.system_us, event.offset)):
            seq = self.next_seq[event.output_partition]
            self.next_seq[event.output_partition] += 1
            self.story.ordered.append(replace(event, seq=seq, snapshot_index=len(self.story.snapshots)))
        marks = self._floors() if self.over else self._marks(b"")
        watermark = highest(*marks)
        self.story.snapshots.append(
            Snapshot(
                next_offset=self.next_offset,
                frontier_us=self.arrival.time_us,
                c=max(watermark.lower_by(self.delay_us).time_us, self.joined.time_us),
                released_count=len(self.story.ordered),
                watermark_us=watermark.time_us,
                watermark_setter=watermark.setter,
                tied_setters=frozenset(mark.setter.by for mark in marks if mark.time_us == watermark.time_us),
                trigger=trigger,
                accepted_count=self.accepted,
                is_counted=is_counted,
                is_end_edge=is_end_edge,
            )
        )

    def _pop_below(self, heap: list[tuple[int, int]], bound_us: int) -> list[OrderedEvent]:
        popped = []
        while heap and heap[0][0] < bound_us:
            _, offset = heappop(heap)
            if offset in self.held:
                popped.append(self.held.pop(offset))
        return popped


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key by Kafka's Java partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 hash, unsigned."""
    hashed = 0x9747B28C ^ len(data)
    words_end = len(data) & ~3
    for start in range(0, words_end, 4):
        word = int.from_bytes(data[start : start + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF ^ word
    if words_end < len(data):
        hashed = (hashed ^ int.from_bytes(data[words_end:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return hashed ^ hashed >> 15
