"""
Explanations: the fate of an event, and the other records that caused it.

An :class:`Explainer` replays the log of one input partition record by record. For each event it gives the watermark that the event met and
the record that had set it, the action of each policy, and the record that released the event. The model stores none of this, so the replay
needs the same estimates and imported CTIs.

Law: an explanation agrees with :meth:`ordering.model.step.Model.step`. The setter of a watermark is the first that raised the watermark to
that value. An explanation depends only on the log, the settings and the journal, not on batch boundaries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from ordering.arrays import Ints
from ordering.model.step import Batch
from ordering.policies import Action, Policies
from ordering.proof.explanation import Explanation, Label, Mover, Policy, PolicyStep, TimeCause, Verdict
from ordering.ticks import INFINITY, NEVER

__all__ = ["Explainer", "Explanation", "Mover", "Policy", "PolicyStep", "TimeCause", "Verdict"]

Name = TypeVar("Name")

# Tables smaller than this are not searched for entries that may go.
_TIDY_FROM = 1_024


class _Mark(NamedTuple):
    """A time that only rises, its first setter, and the turn at which it was set (records, estimates and imports are counted from 1)."""

    time_us: int = NEVER
    setter: TimeCause | None = None
    turn: int = 0

    def raise_to(self, time_us: int, mover: Mover, offset: int | None, turn: int) -> _Mark:
        """Return the mark after *mover* has reported *time_us* at *turn*."""
        return _Mark(time_us, TimeCause(mover, offset, time_us), turn) if time_us > self.time_us else self

    def lower_by(self, by_us: int) -> _Mark:
        return _Mark(self.time_us - by_us, self.setter, self.turn)


_UNSET = _Mark()


class _Record(NamedTuple):
    """One row of a batch. The arrival time replaces an absent event time; ``start_us`` and ``end_us`` are None if the shape has none."""

    offset: int
    stamped_us: int
    readable: bool
    event_time_us: int | None
    source_cti_us: int
    timeline: bytes
    identity: bytes
    start_us: int | None
    end_us: int | None


@dataclass(slots=True)
class _Fate:
    """One event between policies: ``system_us`` is None once dropped; ``accepted_us`` raises its timeline's watermark."""

    system_us: int | None
    accepted_us: int = NEVER
    end_us: int | None = None
    watermark: _Mark | None = None
    steps: list[PolicyStep] = field(default_factory=list)

    def move(self, policy: Policy, limit_us: int, by: TimeCause | None, after_us: int | None) -> None:
        """Move the event to *after_us*; None drops it."""
        action = Action.DROP if after_us is None else Action.ADJUST
        self.steps.append(PolicyStep(policy, action, limit_us, by, self.current_us, after_us))
        self.system_us = after_us

    @property
    def current_us(self) -> int:
        assert self.system_us is not None, "a dropped event meets no further policy"
        return self.system_us


# Compares a record with one policy, given its event time and the watermark it met.
_Test = Callable[[_Record, int, _Fate, _Mark], None]


class Explainer:
    """
    Explains the records of one input partition. It remembers timelines not below the floor, start edges that an end edge can still match,
    and the explanations of held events. *over*: timelines are substreams; *partition* names the input partition; *joined_us* is when it
    joined, microseconds (``NEVER``: it was there from the start); *offsets* are the records to explain (None: all).
    """

    def __init__(
        self,
        policies: Policies,
        over: bool,
        *,
        partition: Label = 0,
        joined_us: int = NEVER,
        offsets: Container[int] | None = None,
    ) -> None:
        self._policies, self._over, self._partition = policies, over, partition
        self._offsets = offsets
        self._turn = 0
        self._joined = _Mark().raise_to(joined_us, Mover.JOINING, None, 0)
        self._promise = _Mark()
        self._arrival = _Mark()
        self._floor = self._joined
        self._timelines = _Marks[bytes]()
        # Start edges that may still be held, by timeline, identity and event time: by these an end edge finds its start edge.
        self._starts = _Marks[tuple[bytes, bytes, int]]()
        self._waiting = _HeldExplanations()

    def walk(self, batch: Batch) -> Iterator[Explanation]:
        """Process the next batch; yield an explanation of each dropped event at its record, and of each kept event at its release."""
        facts = deque(_facts(batch))
        for record in _records(batch, self._over):
            while facts and facts[0][0] <= record.offset:
                yield from self._apply_fact(*facts.popleft())
            yield from self._apply_record(record)
        for fact in facts:
            yield from self._apply_fact(*fact)
        if batch.finish:
            yield from self._apply_fact(None, Mover.END, INFINITY)

    def held(self) -> list[Explanation]:
        """Return the requested explanations of held events in release order."""
        return self._waiting.all()

    def _apply_fact(self, position: int | None, mover: Mover, time_us: int) -> Iterator[Explanation]:
        self._turn += 1
        if mover is Mover.IMPORT:
            self._promise = self._promise.raise_to(time_us, mover, position, self._turn)
        else:
            self._arrival = self._arrival.raise_to(time_us, mover, position, self._turn)
        self._floor = self._current_floor()
        yield from self._release_by_floor()

    def _apply_record(self, record: _Record) -> Iterator[Explanation]:
        self._turn += 1
        watermark = self._watermark(record.timeline)
        self._arrival = self._arrival.raise_to(record.stamped_us, Mover.ARRIVAL, record.offset, self._turn)
        t = self._time_of(record)
        fate = self._judge(record, t, watermark)
        explanation = self._explain(record, t, fate)
        if explanation.system_us is not None and t is not None:
            self._timelines.accept(record.timeline, fate.accepted_us, record.offset, self._turn)
            if record.start_us == NEVER:
                self._starts.accept((record.timeline, record.identity, t), explanation.system_us, record.offset, self._turn)
        elif explanation.verdict is Verdict.SOURCE_CTI:
            self._promise = self._promise.raise_to(record.source_cti_us, Mover.SOURCE_CTI, record.offset, self._turn)
        if self._offsets is None or record.offset in self._offsets:
            if explanation.system_us is None:
                yield explanation
            else:
                self._waiting.add(record.timeline, explanation.system_us, explanation)
        self._floor = self._current_floor()
        yield from self._release(record.timeline)
        # A timeline whose watermark equals the floor stays: it may have reached that value first and is then its setter.
        self._timelines.prune(lambda _: self._floor.time_us + self._policies.reorder_us)
        self._starts.prune(lambda start: self._watermark(start[0]).time_us)

    def _time_of(self, record: _Record) -> int | None:
        """Return the event time, or the ``c`` of a source CTI; None if there is neither."""
        if record.source_cti_us > NEVER:
            return record.source_cti_us
        if not record.readable:
            return None
        return self._arrival.time_us if record.event_time_us is None else record.event_time_us

    def _explain(self, record: _Record, t: int | None, fate: _Fate) -> Explanation:
        is_event = record.source_cti_us <= NEVER
        if fate.system_us is None:
            verdict = Verdict.DROPPED if fate.steps else Verdict.UNREADABLE
        elif not is_event:
            verdict = Verdict.SOURCE_CTI
        else:
            verdict = Verdict.ADJUSTED if fate.steps else Verdict.KEPT
        arrival_us = self._arrival.time_us
        return Explanation(
            partition=self._partition,
            offset=record.offset,
            verdict=verdict,
            event_time_us=t,
            stamped_us=record.stamped_us,
            arrival_us=arrival_us,
            clamped_by=self._arrival.setter if arrival_us > record.stamped_us else None,
            watermark_us=fate.watermark.time_us if fate.watermark else None,
            watermark_set_by=fate.watermark.setter if fate.watermark else None,
            steps=tuple(fate.steps),
            system_us=fate.system_us if is_event else None,
            end_us=fate.end_us,
        )

    def _judge(self, record: _Record, t: int | None, watermark: _Mark) -> _Fate:
        fate = _Fate(t)
        if t is None:
            return fate
        tests: list[_Test] = [self._test_early]
        if record.source_cti_us <= NEVER:
            tests += [self._test_violation, self._test_late, self._test_order, self._keep_shape]
        for test in tests:
            test(record, t, fate, watermark)
            if fate.system_us is None:
                break
        return fate

    def _test_early(self, record: _Record, t: int, fate: _Fate, watermark: _Mark) -> None:
        early_us, arrival = self._policies.early_us, self._arrival
        # An end edge may be lifted above its start edge's time, so it is early if that is.
        early_checked_us = t if record.start_us is None else max(t, record.start_us)
        is_event = record.source_cti_us <= NEVER
        if early_us is not None and early_checked_us - arrival.time_us > early_us:
            latest_us = arrival.time_us + early_us
            adjusts = is_event and self._policies.early_action is Action.ADJUST
            fate.move(Policy.EARLY, latest_us, arrival.setter, latest_us if adjusts else None)
        if is_event and fate.system_us is not None:
            fate.watermark = watermark

    def _test_violation(self, record: _Record, t: int, fate: _Fate, _: _Mark) -> None:
        if t < self._promise.time_us:
            fate.move(Policy.CTI_VIOLATION, self._promise.time_us, self._promise.setter, self._after_violation(record))

    def _test_late(self, _record: _Record, t: int, fate: _Fate, _: _Mark) -> None:
        late_us, arrival = self._policies.late_us, self._arrival
        if late_us is not None and arrival.time_us - t > late_us:
            limit_us = arrival.time_us - late_us
            adjusts = self._policies.late_action is Action.ADJUST
            fate.move(Policy.LATE, limit_us, arrival.setter, max(fate.current_us, limit_us) if adjusts else None)

    def _test_order(self, _record: _Record, _t: int, fate: _Fate, watermark: _Mark) -> None:
        if fate.current_us < watermark.time_us:
            adjusts = self._policies.out_of_order_action is Action.ADJUST
            fate.move(Policy.OUT_OF_ORDER, watermark.time_us, watermark.setter, watermark.time_us if adjusts else None)

    def _keep_shape(self, record: _Record, _t: int, fate: _Fate, watermark: _Mark) -> None:
        """Move the end of a span after its start, without effect on watermarks."""
        fate.accepted_us = fate.current_us
        if record.end_us is not None:
            fate.end_us = max(record.end_us, fate.current_us + 1)
        elif record.start_us is not None and record.start_us > NEVER:
            start = self._starts.get((record.timeline, record.identity, record.start_us))
            start = start if start.time_us >= watermark.time_us else _UNSET
            early_us, named_us = self._policies.early_us, record.start_us
            named_us = named_us if early_us is None else min(named_us, self._arrival.time_us + early_us)
            limit_us = max(start.time_us, named_us) + 1
            if fate.current_us < limit_us:
                fate.move(Policy.SHAPE, limit_us, start.setter, limit_us)

    def _after_violation(self, record: _Record) -> int | None:
        """Return the adjusted time of an event that lies before a CTI; None drops it."""
        if self._policies.cti_violation_action is Action.DROP:
            return None
        if record.end_us is not None:
            return self._promise.time_us if record.end_us > self._promise.time_us else None
        return self._promise.time_us if record.start_us is not None else None

    def _current_floor(self) -> _Mark:
        late_us, arrival, floor = self._policies.late_us, self._arrival, self._promise
        if arrival.time_us == INFINITY:
            return arrival
        if late_us is not None and arrival.time_us > NEVER:
            floor = _higher(arrival.lower_by(late_us), floor)
        return _higher(floor, self._joined)

    def _watermark(self, timeline: bytes) -> _Mark:
        own = self._timelines.get(timeline)
        return _higher(own.lower_by(self._policies.reorder_us), self._floor) if own.time_us > NEVER else self._floor

    def _release(self, timeline: bytes) -> Iterator[Explanation]:
        """Yield the events that the floor or the watermark of *timeline* releases, in the model's order."""
        if self._waiting:
            yield from sorted([*self._pop_timeline(timeline), *self._release_by_floor()], key=_release_key)

    def _pop_timeline(self, timeline: bytes) -> Iterator[Explanation]:
        watermark = self._watermark(timeline)
        for explanation in self._waiting.pop_below(timeline, watermark.time_us):
            yield replace(explanation, released_by=watermark.setter)

    def _release_by_floor(self) -> Iterator[Explanation]:
        due = [self._pop_timeline(timeline) for timeline in self._waiting.timelines_below(self._floor.time_us)]
        yield from sorted((explanation for released in due for explanation in released), key=_release_key)


def _release_key(explanation: Explanation) -> tuple[int, int]:
    return (explanation.system_us if explanation.system_us is not None else NEVER, explanation.offset)


def _higher(left: _Mark, right: _Mark) -> _Mark:
    """Return the higher mark; of equal marks the earlier."""
    return right if (right.time_us, -right.turn) > (left.time_us, -left.turn) else left


class _Marks(Generic[Name]):
    """The largest system timestamp accepted under each name; removed once it is below what its name still needs."""

    def __init__(self) -> None:
        self._marks: dict[Name, _Mark] = {}
        self._tidy_at = _TIDY_FROM

    def get(self, name: Name) -> _Mark:
        return self._marks.get(name, _UNSET)

    def accept(self, name: Name, system_us: int, offset: int, when: int) -> None:
        self._marks[name] = self.get(name).raise_to(system_us, Mover.EVENT, offset, when)

    def prune(self, needed_from_us: Callable[[Name], int]) -> None:
        if len(self._marks) >= self._tidy_at:
            self._marks = {name: mark for name, mark in self._marks.items() if mark.time_us >= needed_from_us(name)}
            self._tidy_at = max(_TIDY_FROM, 2 * len(self._marks))


class _HeldExplanations:
    """Explanations of held events, by timeline and system timestamp."""

    def __init__(self) -> None:
        self._heaps: dict[bytes, list[tuple[int, int, Explanation]]] = {}
        # For every timeline with something held its least system timestamp, among outdated entries.
        self._least: list[tuple[int, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def add(self, timeline: bytes, system_us: int, explanation: Explanation) -> None:
        heap = self._heaps.setdefault(timeline, [])
        heappush(heap, (system_us, explanation.offset, explanation))
        if heap[0][2] is explanation:
            heappush(self._least, (system_us, timeline))

    def pop_below(self, timeline: bytes, bound_us: int) -> list[Explanation]:
        """Remove and return the explanations of *timeline* below *bound_us*, in order."""
        heap, out = self._heaps.get(timeline, []), []
        while heap and heap[0][0] < bound_us:
            out.append(heappop(heap)[2])
        if out and heap:
            heappush(self._least, (heap[0][0], timeline))
        elif out:
            del self._heaps[timeline]
        return out

    def timelines_below(self, bound_us: int) -> list[bytes]:
        """Return the timelines with events below *bound_us*; the caller must pop those events."""
        timelines = set()
        while self._least and self._least[0][0] < bound_us:
            _, timeline = heappop(self._least)
            if timeline in self._heaps and self._heaps[timeline][0][0] < bound_us:
                timelines.add(timeline)
        if len(self._least) > _TIDY_FROM + 2 * len(self._heaps):
            self._least = [(heap[0][0], timeline) for timeline, heap in self._heaps.items()]
            heapify(self._least)
        return list(timelines)

    def all(self) -> list[Explanation]:
        return sorted((explanation for heap in self._heaps.values() for _, _, explanation in heap), key=_release_key)


def _facts(batch: Batch) -> list[tuple[int, Mover, int]]:
    """Return estimates and imported CTIs by position; at one position the estimates come first."""
    estimates = [(position, Mover.ESTIMATE, time_us) for position, time_us in batch.estimates]
    imports = [(position, Mover.IMPORT, time_us) for position, time_us in batch.imports]
    return sorted(estimates + imports, key=lambda fact: fact[0])


def _records(batch: Batch, over: bool) -> Iterator[_Record]:
    rows = len(batch.offset)
    keys = _bytes_of_rows(batch.substream if over else batch.key, rows)
    columns = (
        batch.offset.tolist(),
        batch.arrival_us.tolist(),
        batch.readable.tolist(),
        _numbers(batch.event_time_us, rows),
        [NEVER] * rows if batch.source_cti_us is None else batch.source_cti_us.tolist(),
        keys if over else [b""] * rows,
        keys if batch.start_us is not None else [b""] * rows,
        _numbers(batch.start_us, rows),
        _numbers(batch.end_us, rows),
    )
    return map(_Record, *columns)


def _numbers(column: Ints | None, rows: int) -> list[int] | list[None]:
    return [None] * rows if column is None else column.tolist()


def _bytes_of_rows(column: Any, rows: int) -> list[bytes]:
    """Return a key column (an Arrow column, an array of objects, or None) as bytes; null is zero bytes."""
    if column is None:
        return [b""] * rows
    values = column.tolist()
    return [b"" if value is None else bytes(value) for value in values]
