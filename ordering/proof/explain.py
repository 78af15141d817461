"""
Explanations: what happened to an event, and because of which other record.

An :class:`Explainer` walks the log of one input partition once more, record by record, and tells of each event which
watermark it met and which record had set that watermark, what each policy made of it, and what released it. The model
itself keeps none of this: whoever asks replays the same batches, with the same estimates and imported CTIs.

Law: an explanation agrees with :meth:`ordering.model.step.Model.step` on everything both tell. Whoever it names as having set a
watermark is the first that brought the watermark to that value; and it depends on the log, the settings and the journal
alone, not on where batches are cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordering.model.step import Batch
from ordering.policies import Action, Policies
from ordering.proof.explanation import Explanation, Label, Mover, Policy, PolicyStep, Setter, Verdict
from ordering.ticks import INFINITY, NEVER

__all__ = ["Explainer", "Explanation", "Mover", "Policy", "PolicyStep", "Setter", "Verdict"]

_TIDY_FROM = 1_024
"""Tables smaller than this are not searched for entries that may go."""


class _Mark(NamedTuple):
    """A time that only rises, who brought it there first, and when: records, estimates and imports are counted from 1."""

    time_us: int = NEVER
    setter: Setter | None = None
    turn: int = 0

    def raise_to(self, time_us: int, what: Mover, offset: int | None, when: int) -> _Mark:
        """Return the mark after somebody brought *time_us*."""
        return _Mark(time_us, Setter(what, offset, time_us), when) if time_us > self.time_us else self

    def lower_by(self, by_us: int) -> _Mark:
        """Return the mark that stays so far behind this one."""
        return _Mark(self.time_us - by_us, self.setter, self.turn)


_UNSET = _Mark()


class _Record(NamedTuple):
    """One row of a batch; without an event time the arrival is it; ``start_us`` and ``end_us`` are None where the shape has none."""

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
    """One event on its way through the policies: ``system_us`` is None once it is dropped; ``accepted_us`` moves its timeline."""

    system_us: int | None
    accepted_us: int = NEVER
    end_us: int | None = None
    watermark: _Mark | None = None
    steps: list[PolicyStep] = field(default_factory=list)

    def move(self, policy: Policy, limit_us: int, by: Setter | None, after_us: int | None) -> None:
        """Move the event to *after_us*, or drop it."""
        action = Action.DROP if after_us is None else Action.ADJUST
        self.steps.append(PolicyStep(policy, action, limit_us, by, self.current_us, after_us))
        self.system_us = after_us

    @property
    def current_us(self) -> int:
        """The system timestamp of an event that was not dropped."""
        assert self.system_us is not None, "a dropped event meets no further policy"
        return self.system_us


_Test = Callable[[_Record, int, _Fate, _Mark], None]
"""Holds a record with its event time against one policy, given the watermark it met."""


class Explainer:
    """
    Explains the records of one input partition.

    Its memory holds what the time model must know too - timelines not below the floor, start edges that may still be met -
    and those explanations that wait for their event's release.

    Args:
        policies: The input's time policies.
        over: Whether timelines are substreams.
        partition: How explanations name the input partition.
        joined_us: When the partition joined, in microseconds; ``NEVER``: it was there from the start.
        offsets: Which records to explain; None: all.
        verdicts: Which verdicts to explain; None: all.
    """

    def __init__(
        self,
        policies: Policies,
        over: bool,
        *,
        partition: Label = 0,
        joined_us: int = NEVER,
        offsets: Container[int] | None = None,
        verdicts: Container[Verdict] | None = None,
    ) -> None:
        self._policies, self._over, self._partition = policies, over, partition
        self._offsets, self._verdicts = offsets, verdicts
        self._turn = 0
        self._joined = _Mark().raise_to(joined_us, Mover.JOINING, None, 0)
        self._promise = _Mark()
        self._arrival = _Mark()
        self._floor = self._joined
        self._timelines = _Timelines()
        self._starts = _Starts()
        self._waiting = _HeldExplanations()

    def walk(self, batch: Batch) -> Iterator[Explanation]:
        """
        Walk a batch, which must follow the one before, and yield the explanations that became complete: of a dropped event
        at its record, of a kept one when it is released.
        """
        facts = deque(_facts(batch))
        for record in _records(batch, self._over):
            while facts and facts[0][0] <= record.offset:
                yield from self._apply_fact(*facts.popleft())
            yield from self._apply_record(record)
        for fact in facts:
            yield from self._apply_fact(*fact)
        if batch.finish:
            self._turn += 1
            self._arrival = self._arrival.raise_to(INFINITY, Mover.END, None, self._turn)
            self._floor = self._current_floor()
            yield from self._release_by_floor()

    def held(self) -> list[Explanation]:
        """Return the wanted explanations of events that are still held, in the order in which they would leave together."""
        return self._waiting.all()

    def _apply_fact(self, position: int, what: Mover, time_us: int) -> Iterator[Explanation]:
        self._turn += 1
        if what is Mover.IMPORT:
            self._promise = self._promise.raise_to(time_us, what, position, self._turn)
        else:
            self._arrival = self._arrival.raise_to(time_us, what, position, self._turn)
        self._floor = self._current_floor()
        yield from self._release_by_floor()

    def _apply_record(self, record: _Record) -> Iterator[Explanation]:
        self._turn += 1
        watermark = self._watermark(record.timeline)
        self._arrival = self._arrival.raise_to(record.stamped_us, Mover.ARRIVAL, record.offset, self._turn)
        t = self._time_of(record)
        fate = self._judge(record, t, watermark)
        told = self._explain(record, t, fate)
        if told.system_us is not None and t is not None:
            self._timelines.accept(record.timeline, fate.accepted_us, record.offset, self._turn)
            if record.start_us == NEVER:
                self._starts.accept((record.timeline, record.identity, t), told.system_us, record.offset, self._turn)
        elif told.verdict is Verdict.SOURCE_CTI:
            self._promise = self._promise.raise_to(record.source_cti_us, Mover.SOURCE_CTI, record.offset, self._turn)
        if self._is_wanted(told):
            if told.system_us is None:
                yield told
            else:
                self._waiting.add(record.timeline, told.system_us, told)
        self._floor = self._current_floor()
        yield from self._release(record.timeline)
        self._timelines.prune(self._floor.time_us + self._policies.reorder_us)
        self._starts.prune(lambda timeline: self._watermark(timeline).time_us)

    def _time_of(self, record: _Record) -> int | None:
        """Return the event time; of a source's CTI its ``c``; None where there is none."""
        if record.source_cti_us > NEVER:
            return record.source_cti_us
        if not record.readable:
            return None
        return self._arrival.time_us if record.event_time_us is None else record.event_time_us

    def _is_wanted(self, told: Explanation) -> bool:
        return (self._offsets is None or told.offset in self._offsets) and (self._verdicts is None or told.verdict in self._verdicts)

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
        """Hold a record against all policies in their order (spec section 2)."""
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
        # An end edge may be lifted above its start edge's time, so that must not be early either.
        claimed_us = t if record.start_us is None else max(t, record.start_us)
        if early_us is not None and claimed_us - arrival.time_us > early_us:
            fate.move(Policy.EARLY, arrival.time_us + early_us, arrival.setter, None)
        elif record.source_cti_us <= NEVER:
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
        """Keep the end of a span after its start (spec section 4); that moves no watermark."""
        fate.accepted_us = fate.current_us
        if record.end_us is not None:
            fate.end_us = max(record.end_us, fate.current_us + 1)
        elif record.start_us is not None and record.start_us > NEVER:
            start = self._starts.find((record.timeline, record.identity, record.start_us), watermark.time_us)
            limit_us = max(start.time_us, record.start_us) + 1
            if fate.current_us < limit_us:
                fate.move(Policy.SHAPE, limit_us, start.setter, limit_us)

    def _after_violation(self, record: _Record) -> int | None:
        """Return where an event that lies before a CTI is moved; None: it is dropped."""
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
        """Yield what the watermark of the timeline just heard and the floor let out, in the model's order."""
        if self._waiting:
            yield from sorted([*self._pop_timeline(timeline), *self._release_by_floor()], key=_release_key)

    def _pop_timeline(self, timeline: bytes) -> Iterator[Explanation]:
        watermark = self._watermark(timeline)
        for told in self._waiting.pop_below(timeline, watermark.time_us):
            yield replace(told, released_by=watermark.setter)

    def _release_by_floor(self) -> Iterator[Explanation]:
        out = [self._pop_timeline(timeline) for timeline in self._waiting.timelines_below(self._floor.time_us)]
        yield from sorted((told for left in out for told in left), key=_release_key)


def _release_key(told: Explanation) -> tuple[int, int]:
    """Return what events that leave at one moment are sorted by."""
    return (told.system_us if told.system_us is not None else NEVER, told.offset)


def _higher(one: _Mark, other: _Mark) -> _Mark:
    """Return the higher of two marks; of equals the one that was there first."""
    return other if (other.time_us, -other.turn) > (one.time_us, -one.turn) else one


class _Timelines:
    """The largest system timestamp accepted on each timeline, forgotten once the floor is above what it still means."""

    def __init__(self) -> None:
        self._largest: dict[bytes, _Mark] = {}
        self._tidy_at = _TIDY_FROM

    def get(self, timeline: bytes) -> _Mark:
        return self._largest.get(timeline, _UNSET)

    def accept(self, timeline: bytes, system_us: int, offset: int, when: int) -> None:
        self._largest[timeline] = self.get(timeline).raise_to(system_us, Mover.EVENT, offset, when)

    def prune(self, below_us: int) -> None:
        # A timeline whose watermark equals the floor stays: it may have been there first.
        if len(self._largest) >= self._tidy_at:
            self._largest = {timeline: mark for timeline, mark in self._largest.items() if mark.time_us >= below_us}
            self._tidy_at = max(_TIDY_FROM, 2 * len(self._largest))


_Start = tuple[bytes, bytes, int]
"""Timeline, identity and event time of a start edge: by these its end edge finds it."""


class _Starts:
    """The largest adjusted system timestamp of each start edge that may still be held."""

    def __init__(self) -> None:
        self._marks: dict[_Start, _Mark] = {}
        self._tidy_at = _TIDY_FROM

    def accept(self, start: _Start, system_us: int, offset: int, when: int) -> None:
        self._marks[start] = self._marks.get(start, _UNSET).raise_to(system_us, Mover.EVENT, offset, when)

    def find(self, start: _Start, watermark_us: int) -> _Mark:
        mark = self._marks.get(start, _UNSET)
        return mark if mark.time_us >= watermark_us else _UNSET

    def prune(self, watermark_us: Callable[[bytes], int]) -> None:
        if len(self._marks) >= self._tidy_at:
            self._marks = {start: mark for start, mark in self._marks.items() if mark.time_us >= watermark_us(start[0])}
            self._tidy_at = max(_TIDY_FROM, 2 * len(self._marks))


class _HeldExplanations:
    """Explanations of held events, by timeline and system timestamp."""

    def __init__(self) -> None:
        self._heaps: dict[bytes, list[tuple[int, int, Explanation]]] = {}
        # For every timeline with something held its least system timestamp, among others that are no longer true.
        self._least: list[tuple[int, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def add(self, timeline: bytes, system_us: int, told: Explanation) -> None:
        heap = self._heaps.setdefault(timeline, [])
        heappush(heap, (system_us, told.offset, told))
        if heap[0][2] is told:
            heappush(self._least, (system_us, timeline))

    def pop_below(self, timeline: bytes, bound_us: int) -> list[Explanation]:
        """Take out what lies below *bound_us* on one timeline, in order."""
        heap, out = self._heaps.get(timeline, []), []
        while heap and heap[0][0] < bound_us:
            out.append(heappop(heap)[2])
        if out and heap:
            heappush(self._least, (heap[0][0], timeline))
        elif out:
            del self._heaps[timeline]
        return out

    def timelines_below(self, bound_us: int) -> list[bytes]:
        """Return the timelines on which something lies below *bound_us*; all of that must be taken out."""
        found = set()
        while self._least and self._least[0][0] < bound_us:
            _, timeline = heappop(self._least)
            if timeline in self._heaps and self._heaps[timeline][0][0] < bound_us:
                found.add(timeline)
        if len(self._least) > _TIDY_FROM + 2 * len(self._heaps):
            self._least = [(heap[0][0], timeline) for timeline, heap in self._heaps.items()]
            heapify(self._least)
        return list(found)

    def all(self) -> list[Explanation]:
        return sorted((told for heap in self._heaps.values() for _, _, told in heap), key=_release_key)


def _facts(batch: Batch) -> list[tuple[int, Mover, int]]:
    """Return estimates and imported CTIs by position; at one position the estimates come first."""
    estimates = [(position, Mover.ESTIMATE, time_us) for position, time_us in batch.estimates]
    imports = [(position, Mover.IMPORT, time_us) for position, time_us in batch.imports]
    return sorted(estimates + imports, key=lambda fact: fact[0])


def _records(batch: Batch, over: bool) -> Iterator[_Record]:
    rows = len(batch.offset)
    keys = _octets(batch.substream if over else batch.key, rows)
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


def _numbers(column: NDArray[np.int64] | None, rows: int) -> list[int] | list[None]:
    return [None] * rows if column is None else column.tolist()


def _octets(column: Any, rows: int) -> list[bytes]:
    """Return the bytes of a key column, which is an Arrow column, an array of objects, or missing; null is zero bytes."""
    if column is None:
        return [b""] * rows
    values = column.tolist()
    return [b"" if value is None else bytes(value) for value in values]
