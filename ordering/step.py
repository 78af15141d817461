"""
The whole time model as one call: ``model.step(state, batch)`` walks one input partition a little further.

Law, level 1 (spec section 4): walk the input partition in offset order; after each event release what its new
watermark and arrival frontier allow. The events a channel gets, with every byte and their numbers, depend on the log,
the settings and the journaled estimates alone - not on where batches are cut, nor on saving and restoring the state
between them.

Nothing here walks event by event. Three facts make that possible:

- a late event is lifted to the floor first, so the floor never makes an event of its own partition out of order, and
  an adjusted event never raises its timeline's maximum: that maximum is a running maximum of the column;
- watermarks only rise, so the step that releases an event is found by binary search: the first at which the floor, or
  the event's timeline, has passed it;
- an estimate before a record releases the lower part of what the record itself would have released, so both count as
  one step and the order is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.errors import SettingError
from ordering.policies import Action, Policies
from ordering.punctuation import Cause, Cti, Roster, Spread
from ordering.reorder import first_steps, release_order
from ordering.state import Ahead, Objects, Rows, State
from ordering.ticks import INFINITY, NEVER, TICK_MIN
from ordering.timeline import Timelines
from ordering.verdicts import Walk
from ordering.wire import Flag

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Reason(IntEnum):
    """Which policy dropped an event."""

    EARLY = 1
    LATE = 2
    OUT_OF_ORDER = 3
    CTI_VIOLATION = 4


@dataclass(slots=True)
class Batch:
    """
    A contiguous range of one input partition, in offset order. All columns have one entry a record.

    Args:
        offset: Offsets, rising; holes are allowed.
        arrival_us: Arrival times as stamped (not yet clamped), microseconds.
        event_time_us: Event times, microseconds; anything where not *readable*. None: the (clamped) arrival is the event time.
        readable: False for records without a valid event time: they move the arrival frontier and nothing else.
        substream: Substream key bytes (binary or dictionary column, or bytes objects), or None without OVER.
        key: Record keys (bytes or None), passed on untouched.
        value: Payloads (bytes), passed on untouched.
        end_offset: The offset after the range.
        estimates: (position, arrival frontier in microseconds): journaled estimates, each applied just before the
            record at its position is judged; ``end_offset`` is a position too.
        finish: The input ends here: everything held is released and the final CTI written.
        source_cti_us: For records that are CTIs enqueued by the source (not *readable*) their ``c``, microseconds;
            ``NEVER`` for all others. None: there are none.
        imports: (position, c in microseconds): journaled CTIs of another input, each applied like an estimate.
        end_us: For intervals their ends, microseconds. None for other shapes.
        start_us: For end edges the event time of their start edge, microseconds; ``NEVER`` marks a start edge. The event
            time of an end edge is its end. None for other shapes.
    """

    offset: Ints
    arrival_us: Ints
    event_time_us: Ints | None
    readable: Mask
    substream: pa.Array | Objects | None
    key: Objects
    value: Objects
    end_offset: int
    estimates: tuple[tuple[int, int], ...] = ()
    finish: bool = False
    source_cti_us: Ints | None = None
    imports: tuple[tuple[int, int], ...] = ()
    end_us: Ints | None = None
    start_us: Ints | None = None


@dataclass(slots=True)
class Counts:
    """What happened to the records of a batch, in numbers (spec section 7)."""

    events_in: int = 0
    unreadable: int = 0
    early: int = 0
    late_adjusted: int = 0
    late_dropped: int = 0
    out_of_order_adjusted: int = 0
    out_of_order_dropped: int = 0
    arrival_clamps: int = 0
    source_ctis: int = 0
    cti_violation_adjusted: int = 0
    cti_violation_dropped: int = 0
    released: int = 0
    held: int = 0


@dataclass(slots=True)
class Released:
    """Events that left, in release order. Times in microseconds; ``number`` is the input partition's roster number."""

    number: int
    output_partition: NDArray[np.int32]
    seq: Ints
    system_us: Ints
    event_time_us: Ints
    arrival_us: Ints
    offset: Ints
    flags: NDArray[np.uint16]
    key: Objects
    value: Objects

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(slots=True)
class Dropped:
    """Events the policies rejected: their offsets and the ``Reason`` of each."""

    offset: Ints
    reason: NDArray[np.int8]


@dataclass(slots=True)
class Step:
    """What one step gave: events first, then the CTIs that may follow once those are acknowledged."""

    released: Released
    dropped: Dropped
    ctis: list[Cti] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)


class Model:
    """
    The time model of one input partition.

    Args:
        policies: The input's time policies.
        over: Whether timelines are substreams (OVER key) instead of the whole partition.
        output_partitions: Number of output partitions N.
        number: Roster number of the input partition.
        roster: All the input partitions, as CTIs tell readers; by default ``inputs`` many, version 1.
        inputs: Number of input partitions, where *roster* is not given.
    """

    def __init__(
        self, policies: Policies, over: bool, output_partitions: int, number: int = 0, roster: Roster | None = None, inputs: int = 1
    ) -> None:
        if over and policies.late_us is None:
            raise SettingError(
                'late = "off" cannot stand with OVER: only the floor advances silent substreams', where="late", fix="give late a duration"
            )
        self.policies, self.over, self.number = policies, over, number
        self.output_partitions = output_partitions
        self.roster = roster or Roster(1, inputs, Spread.ALL if over else Spread.ONE, over)
        self._whole = None if over else number % output_partitions
        self._channels = list(range(output_partitions)) if over else [number % output_partitions]

    def new_state(self) -> State:
        """Return the state before the first record."""
        return State(
            timelines=self._timelines(),
            seq=np.zeros(self.output_partitions, dtype=np.int64),
            largest_us=np.full(self.output_partitions, TICK_MIN, dtype=np.int64),
        )

    def restore(self, head: bytes, chunks: dict[int, bytes]) -> State:
        """Return a saved state (see :meth:`ordering.state.State.save`)."""
        return State.restore(head, chunks, self._timelines(), self.policies.reorder_us)

    def _timelines(self) -> Timelines:
        return Timelines(self.output_partitions, self._whole)

    def step(self, state: State, batch: Batch) -> Step:
        """
        Walk *batch*, which must start where *state* stands; change *state*; return what leaves.

        The arrays of *batch* are not changed but may be kept.
        """
        assert not state.finished, "a finished input has no further batches"
        arrival, floor = self._frontier(state, batch)
        counts = Counts(events_in=len(batch.offset))
        counts.arrival_clamps = int((arrival[:-1] > batch.arrival_us).sum())
        event_time_us = arrival[:-1] if batch.event_time_us is None else batch.event_time_us
        system_us, flags, reason = self._judge_early_and_late(event_time_us, batch.readable, arrival[:-1], counts)
        kept = np.flatnonzero(batch.readable & (reason == 0))
        timeline = self._timelines_of(state, batch, kept)
        walk = Walk(kept, timeline, system_us[kept], state.timelines)
        walk.judge(self.policies.reorder_us, self.policies.out_of_order_action)
        counts.out_of_order_adjusted = int(np.count_nonzero(walk.adjusted))
        counts.out_of_order_dropped = int(np.count_nonzero(walk.dropped))
        flags[kept[walk.adjusted]] |= np.uint16(Flag.OUT_OF_ORDER)
        reason[kept[walk.dropped]] = Reason.OUT_OF_ORDER
        rows, own_step = self._rows(state, batch, event_time_us, arrival, flags, walk)

        released, order = self._release(state, rows, own_step, walk, floor)
        counts.released, counts.held = len(order), len(state.held)
        state.arrival_us, state.next_offset = int(arrival[-1]), batch.end_offset
        state.finished = batch.finish
        ctis = self._punctuate(state, int(floor[-1]), Cause.SHUTDOWN if batch.finish else Cause.EVENT if len(batch.offset) else Cause.IDLE)
        self._forget(state)
        dropped = np.flatnonzero(reason)
        return Step(released, Dropped(batch.offset[dropped], reason[dropped]), ctis, counts)

    def _frontier(self, state: State, batch: Batch) -> tuple[Ints, Ints]:
        """Return arrival frontier and floor after each record, with one more entry for what follows the last."""
        steps = len(batch.offset)
        arrival = np.empty(steps + 1, dtype=np.int64)
        arrival[:steps], arrival[steps] = batch.arrival_us, NEVER
        arrival[0] = max(int(arrival[0]), state.arrival_us)
        for position, frontier_us in batch.estimates:
            index = int(np.searchsorted(batch.offset, position))
            arrival[index] = max(int(arrival[index]), frontier_us)
        np.maximum.accumulate(arrival, out=arrival)
        late_us = self.policies.late_us
        floor = np.full(steps + 1, NEVER, dtype=np.int64) if late_us is None else np.maximum(arrival - late_us, NEVER)
        if batch.finish:
            floor[steps] = INFINITY
        return arrival, floor

    def _judge_early_and_late(
        self, t: Ints, readable: Mask, arrival: Ints, counts: Counts
    ) -> tuple[Ints, NDArray[np.uint16], NDArray[np.int8]]:
        policies, steps = self.policies, len(t)
        system_us, flags, reason = t.copy(), np.zeros(steps, dtype=np.uint16), np.zeros(steps, dtype=np.int8)
        counts.unreadable = steps - int(np.count_nonzero(readable))
        if policies.early_us is not None:
            early = (t > arrival + policies.early_us) & readable
            reason[early], counts.early = Reason.EARLY, int(np.count_nonzero(early))
        if policies.late_us is not None:
            lifted = arrival - policies.late_us
            late = (t < lifted) & readable
            if policies.late_action is Action.DROP:
                reason[late], counts.late_dropped = Reason.LATE, int(np.count_nonzero(late))
            else:
                system_us[late] = lifted[late]
                flags[late], counts.late_adjusted = Flag.LATE, int(np.count_nonzero(late))
        return system_us, flags, reason

    def _timelines_of(self, state: State, batch: Batch, kept: Ints) -> Ints:
        if not self.over:
            if not len(state.timelines):
                state.timelines.find(pa.array([b""], type=pa.binary()))
            return np.zeros(len(kept), dtype=np.int64)
        substream = batch.substream if isinstance(batch.substream, pa.Array) else pa.array(batch.substream, type=pa.binary())
        if substream.null_count:
            substream = substream.fill_null(b"")
        keys = substream if len(kept) == len(substream) else substream.take(pa.array(kept))
        return state.timelines.find(keys)

    def _rows(
        self, state: State, batch: Batch, event_time_us: Ints, arrival: Ints, flags: NDArray[np.uint16], walk: Walk
    ) -> tuple[Rows, Ints]:
        """Return what was held before and what this batch keeps, as one table, and the step at which each came."""
        keep = ~walk.dropped
        index = walk.kept[keep]
        fresh = Rows(
            system_us=walk.system_us[keep],
            event_time_us=event_time_us[index],
            arrival_us=arrival[index],
            offset=batch.offset[index],
            flags=flags[index],
            timeline=walk.timeline[keep],
            chunk=np.full(len(index), -1, dtype=np.int64),
            key=batch.key[index],
            value=batch.value[index],
        )
        rows = Rows.concat([state.held, fresh]) if len(state.held) else fresh
        return rows, index

    def _release(self, state: State, rows: Rows, index: Ints, walk: Walk, floor: Ints) -> tuple[Released, Ints]:
        steps = first_steps(rows.system_us, rows.timeline, floor, walk.steps, self.policies.reorder_us)
        walk.store(state)
        order = release_order(steps, rows.system_us, len(floor))
        held = steps >= len(floor)
        left = rows.take(order)
        state.held = rows.take(held)
        partition = state.timelines.partition[left.timeline]
        seq = self._number(state, partition, left.system_us)
        over_ahead = Ahead(left.system_us, left.timeline, left.chunk)
        state.ahead = Ahead.concat([state.ahead, over_ahead]) if len(state.ahead.system_us) else over_ahead
        released = Released(
            self.number, partition, seq, left.system_us, left.event_time_us, left.arrival_us, left.offset, left.flags, left.key, left.value
        )
        return released, order

    def _number(self, state: State, partition: NDArray[np.int32], system_us: Ints) -> Ints:
        seq = np.empty(len(partition), dtype=np.int64)
        by_channel = np.argsort(partition, kind="stable")
        counts = np.bincount(partition, minlength=self.output_partitions)
        starts = np.cumsum(counts) - counts
        seq[by_channel] = np.arange(len(partition)) - np.repeat(starts - state.seq, counts)
        state.seq = state.seq + counts
        np.maximum.at(state.largest_us, partition, system_us)
        return seq

    def _punctuate(self, state: State, floor_us: int, cause: Cause) -> list[Cti]:
        if self.over or not len(state.timelines):
            c = floor_us
        else:
            own = int(state.timelines.largest_us[0])
            c = max(floor_us, own - self.policies.reorder_us if own > NEVER else NEVER)
        state.c = max(state.c, c)
        state.ahead = state.ahead.take(state.ahead.system_us >= state.c)
        ahead = np.bincount(state.timelines.partition[state.ahead.timeline], minlength=self.output_partitions)
        ctis = []
        for partition in self._channels:
            promise = state.c, int(state.seq[partition])
            if state.c > NEVER and state.written.get(partition) != promise:
                state.written[partition] = promise
                ctis.append(
                    Cti(
                        number=self.number,
                        output_partition=partition,
                        c=promise[0],
                        n=promise[1],
                        ahead=int(ahead[partition]),
                        next_offset=state.next_offset,
                        arrival_us=state.arrival_us,
                        largest_us=int(state.largest_us[partition]),
                        roster=self.roster,
                        cause=cause,
                    )
                )
        return ctis

    def _forget(self, state: State) -> None:
        """Drop timelines that no later event can meet, once half of the table is such: one pass pays for many batches."""
        table = state.timelines
        if not self.over or len(table) < 64:
            return
        needed = table.largest_us - self.policies.reorder_us > state.c
        if 2 * np.count_nonzero(needed) > len(table):
            return
        needed[state.held.timeline] = True
        moved = table.forget(needed)
        state.held.timeline = moved[state.held.timeline]
        state.ahead.timeline = moved[state.ahead.timeline]
        state.touched = moved[state.touched][moved[state.touched] >= 0]
