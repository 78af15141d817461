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

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.columns import payload_columns
from ordering.columns.segments import group_order, sort_places
from ordering.errors import BatchError, RefusedError, SettingError
from ordering.model.ahead import Ahead
from ordering.model.chunks import Chunk, EventRows, HeldEvents
from ordering.model.cti_generation import CtiPoint, Outflow, Punctuator, find_due_rows
from ordering.model.edges import Edges, least_ends
from ordering.model.events import Batch, Counts, Dropped, Reason, Released, ReleaseRows, Step
from ordering.model.progress import BatchTime, trace_time
from ordering.model.reorder import find_release_rows
from ordering.model.state import OutputStart, State
from ordering.model.substream_lists import list_substreams
from ordering.model.timelines import Timelines
from ordering.model.verdicts import Judgement, TimelineWalk, judge_arrivals
from ordering.policies import Action, Generation, Policies, Shape
from ordering.protocol.punctuation import Cti, Roster, Spread
from ordering.protocol.wire import Flag
from ordering.ticks import INFINITY, NEVER, TICK_MIN

__all__ = ["Batch", "Counts", "Dropped", "Model", "Reason", "Released", "Step"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NO_ROWS = np.empty(0, dtype=np.int64)

_LOOK_THROUGH = 4
"""The table is looked through for timelines to forget once this fraction of its size was walked; a batch counts 256 at least."""


@dataclass(slots=True)
class _JudgedBatch:
    """A batch with what was found of it: one entry a record."""

    batch: Batch
    judged: Judgement
    event_time_us: Ints
    arrival_us: Ints
    timeline: NDArray[np.int32]


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
        shape: What an event is in time.
        generation: When CTIs are written.
        joined_us: When this input partition joined others that were there before, microseconds: its events below are
            out of order, and its first CTI says so.

    Raises:
        SettingError: *over* without a late tolerance, or no output partition.
    """

    FORGET_FROM = 64
    """A table smaller than this is not looked through for timelines to forget."""

    def __init__(
        self,
        policies: Policies,
        over: bool,
        output_partitions: int,
        number: int = 0,
        roster: Roster | None = None,
        inputs: int = 1,
        *,
        shape: Shape = Shape.POINT,
        generation: Generation | None = None,
        joined_us: int = NEVER,
    ) -> None:
        if over and policies.late_us is None:
            raise SettingError(
                'late = "off" cannot stand with OVER: only the floor advances silent substreams', where="late", fix="give late a duration"
            )
        if output_partitions < 1:
            raise SettingError("there must be an output partition", where="output_partitions", fix="give 1 or more")
        self.policies, self.over, self.number = policies, over, number
        self.output_partitions, self.shape, self.joined_us = output_partitions, shape, joined_us
        self.generation = generation or Generation()
        self.roster = roster or Roster(1, inputs, Spread.ALL if over else Spread.ONE, over)
        self._whole = None if over else number % output_partitions
        channels = list(range(output_partitions)) if over else [number % output_partitions]
        self._punctuator = Punctuator(number, channels, self.roster, self.generation.delay_us)

    def new_state(self) -> State:
        """Return the state before the first record."""
        return State(
            timelines=self._new_timelines(),
            seq=np.zeros(self.output_partitions, dtype=np.int64),
            largest_us=np.full(self.output_partitions, TICK_MIN, dtype=np.int64),
            ahead_counts=np.zeros(self.output_partitions, dtype=np.int64),
            c=self.joined_us,
            model_fingerprint=self._fingerprint,
        )

    def state_from(self, start_us: int, next_offset: int) -> State:
        """
        Return a state that walks from *next_offset* and lets out just the events with s >= *start_us*, numbered from 0.

        They are those of a walk from the beginning, in the same order, if *next_offset* is not above the first offset
        whose arrival is *start_us* - early or later, and the first batch brings every journaled estimate and import up to
        there (their maximum). With early off that offset is the first; a reorder of -1 tick has no such law.
        """
        state = self.new_state()
        state.next_offset = next_offset
        state.output_start = OutputStart(
            np.full(self.output_partitions, start_us, dtype=np.int64), np.zeros(self.output_partitions, dtype=np.int64)
        )
        return state

    def resume(self, promises: Mapping[int, Cti], next_offset: int, start_us: int = NEVER) -> State:
        """
        Return a state that goes on writing into channels which exist, without what was remembered of them.

        Args:
            promises: The last valid CTI of the channel in each output partition; one that has none is written from its
                first event.
            next_offset: Where the walk starts; as :meth:`state_from` asks for the least ``c`` of all, with *start_us* among
                them, and the beginning, if a channel has no CTI.
            start_us: The output start time of the run that made the channels, microseconds; by default it had none.
        """
        state = self.state_from(start_us, next_offset)
        assert state.output_start is not None, "a state that starts somewhere has a start"
        for partition, cti in promises.items():
            state.output_start.start_us[partition], state.output_start.skip_counts[partition] = cti.c, cti.ahead
            state.seq[partition], state.largest_us[partition] = cti.n, cti.largest_us
            state.promises[partition] = cti.c, cti.n, cti.roster.version
        return state

    def repeat_last_cti(self, state: State) -> Cti | None:
        """
        Return the promise given last in the first output partition once more, for what shall be carried beside it.

        It says as before how far events go, and how far the input has been judged by now. None where this state gave none.
        """
        return self._punctuator.repeat_last(state)

    def restore(self, head: bytes, chunks: dict[int, bytes]) -> State:
        """
        Return a saved state (see :meth:`ordering.model.state.State.save`).

        Raises:
            RefusedError: It was saved by a model with other policies, substreams, output partitions or shape.
            ProtocolError: It was saved by a newer version.
        """
        state = State.restore(head, chunks, self._new_timelines(), self.policies.reorder_us)
        if state.model_fingerprint not in ("", self._fingerprint):
            what = f"the state was saved by another model: {state.model_fingerprint}; this one: {self._fingerprint}"
            raise RefusedError(what, code="TG-STATE-MODEL", fix="restore it with the model it was saved by, or begin anew")
        state.model_fingerprint = self._fingerprint
        if not self.generation.list_substreams:
            state.unlisted_rows = []
        return state

    @property
    def _fingerprint(self) -> str:
        """What a state depends on, in words; CTIs may be generated otherwise after a restore."""
        policies = ", ".join(f"{name}={value}" for name, value in asdict(self.policies).items())
        return f"{policies}, over={self.over}, output_partitions={self.output_partitions}, number={self.number}, shape={self.shape}"

    def _new_timelines(self) -> Timelines:
        return Timelines(self.output_partitions, self._whole)

    def time_only_batch(
        self, end_offset: int, estimates: tuple[tuple[int, int], ...] = (), imports: tuple[tuple[int, int], ...] = (), finish: bool = False
    ) -> Batch:
        """Return a batch for this model in which only time moves; see :class:`~ordering.model.events.Batch`."""
        substream = pa.array([], type=pa.binary()) if self.over else None
        return Batch(
            _NO_ROWS,
            _NO_ROWS,
            _NO_ROWS,
            np.empty(0, dtype=np.bool_),
            substream,
            payload_columns.empty_column(),
            payload_columns.empty_column(),
            end_offset,
            estimates,
            finish,
            imports=imports,
            end_us=_NO_ROWS if self.shape is Shape.INTERVAL else None,
            start_us=_NO_ROWS if self.shape is Shape.EDGE else None,
        )

    def step(self, state: State, batch: Batch) -> Step:
        """
        Walk *batch*, which must start where *state* stands; change *state*; return what leaves.

        The arrays of *batch* are neither changed nor kept.

        Raises:
            BatchError: The columns differ in length, the batch does not start where *state* stands, or the input has ended.
        """
        self._check_batch(state, batch)
        time = trace_time(self.policies, self.joined_us, state, batch)
        event_time_us = time.arrival_us[:-1] if batch.event_time_us is None else batch.event_time_us
        early_by_us = event_time_us if batch.start_us is None else np.maximum(event_time_us, batch.start_us)
        reaches_us = self._span_ends(batch, event_time_us)
        judged = judge_arrivals(
            self.policies, event_time_us, early_by_us, batch.readable, time.arrival_us[:-1], time.promise_met_us, reaches_us
        )
        counts = self._count_verdicts(batch, judged, time)
        walk, timeline = self._walk(state, batch, judged)
        counts.out_of_order_adjusted, counts.out_of_order_dropped = self._mark_disorder(judged, walk)
        walk.store()
        fresh = _JudgedBatch(batch, judged, event_time_us, time.arrival_us, timeline)
        self._mark_shapes(state, fresh)
        released, out, chunk = self._release(state, fresh, walk, time)
        counts.released = len(released)
        ctis, chunk.ahead = self._punctuator.generate(state, self._plan_points(state, fresh, walk, time, out), out)
        state.next_offset, state.is_finished = int(batch.end_offset), batch.finish
        time.store(state)
        if self.generation.list_substreams and self.over:
            ctis = list_substreams(state, batch, ctis, walk, self.policies.reorder_us)
        state.add(chunk)
        if state.output_start is not None and state.c >= state.output_start.start_us.max() and not state.output_start.skip_counts.any():
            state.output_start = None
        counts.held = state.held_count
        self._prune_timelines(state, len(batch.offset))
        dropped = np.flatnonzero(judged.reason)
        return Step(released, Dropped(batch.offset[dropped], judged.reason[dropped]), ctis, counts)

    def _check_batch(self, state: State, batch: Batch) -> None:
        """Refuse what would give wrong results without a word; costs the same for batches of any size."""
        count, at = len(batch.offset), f"offset {state.next_offset}"
        columns_given = (batch.arrival_us, batch.event_time_us, batch.readable, batch.substream, batch.key, batch.value)
        others = (batch.source_cti_us, batch.end_us, batch.start_us)
        if any(column is not None and len(column) != count for column in (*columns_given, *others)):
            raise BatchError("the columns of a batch differ in length", where=at, fix="give every column one entry a record")
        if self.over and batch.substream is None:
            raise BatchError("a batch comes without substreams", where=at, fix="fill Batch.substream: the model has over=True")
        first, last = (int(batch.offset[0]), int(batch.offset[-1])) if count else (batch.end_offset, batch.end_offset - 1)
        if first < state.next_offset or batch.end_offset <= last:
            told = f"the batch reaches from offset {first} to {last} and ends at {batch.end_offset}"
            raise BatchError(f"{told}, the state stands at {state.next_offset}", where=at, fix="walk each offset once, in order")
        if state.is_finished:
            raise BatchError("a finished input has no further batches", where=at, fix="begin with Model.new_state()")

    def _span_ends(self, batch: Batch, event_time_us: Ints) -> Ints | None:
        if self.shape is Shape.INTERVAL:
            return batch.end_us
        if self.shape is Shape.EDGE:
            return np.full(len(event_time_us), INFINITY, dtype=np.int64)
        return None

    def _count_verdicts(self, batch: Batch, judged: Judgement, time: BatchTime) -> Counts:
        judged.reason[time.early_ctis] = Reason.EARLY
        by_reason = np.bincount(judged.reason, minlength=len(Reason) + 1)
        # An event may be adjusted by one policy and dropped by the next: both count. Early comes first.
        flags = judged.flags[judged.reason != Reason.EARLY] if judged.flags.any() else judged.flags[:0]
        return Counts(
            events_in=len(batch.offset),
            unreadable=len(batch.offset) - int(np.count_nonzero(batch.readable)) - len(time.early_ctis) - len(time.source_ctis),
            early=int(by_reason[Reason.EARLY]),
            late_adjusted=int(np.count_nonzero(flags & Flag.LATE)),
            late_dropped=int(by_reason[Reason.LATE]),
            arrival_clamps=int(np.count_nonzero(time.arrival_us[:-1] > batch.arrival_us)),
            source_ctis=len(time.source_ctis),
            cti_violation_adjusted=int(np.count_nonzero(flags & Flag.CTI_VIOLATION)),
            cti_violation_dropped=int(by_reason[Reason.CTI_VIOLATION]),
        )

    def _walk(self, state: State, batch: Batch, judged: Judgement) -> tuple[TimelineWalk, NDArray[np.int32]]:
        """Lay the kept events on their timelines; return that, and the timeline of each record."""
        kept = np.flatnonzero(batch.readable & (judged.reason == 0))
        table, policies = state.timelines, self.policies
        found = self._timelines_of(table, batch, kept)
        own_us = judged.system_us if len(kept) == len(judged.system_us) else judged.system_us[kept]
        walk = TimelineWalk(found, own_us, kept, table, policies.reorder_us, policies.out_of_order_action, self.joined_us)
        timeline = np.zeros(len(batch.offset), dtype=np.int32)
        if found is not None:
            timeline[kept] = found
        return walk, timeline

    def _timelines_of(self, table: Timelines, batch: Batch, kept: Ints) -> Ints | None:
        if not self.over:
            if not len(table):
                table.find_or_add(pa.array([b""], type=pa.binary()))
            return None
        substream = batch.substream
        if not isinstance(substream, pa.Array):
            substream = pa.array(substream, type=pa.binary())
        if substream.null_count:
            substream = substream.fill_null(b"")
        return table.find_or_add(substream if len(kept) == len(substream) else substream.take(pa.array(kept)))

    def _mark_disorder(self, judged: Judgement, walk: TimelineWalk) -> tuple[int, int]:
        """Put system timestamps and verdicts of the walk where they belong; return how many were adjusted and dropped."""
        if len(walk.rows) == len(judged.system_us) and not self.over:
            judged.system_us = walk.system_us
        else:
            judged.system_us = judged.system_us.copy()
            judged.system_us[walk.rows] = walk.system_us
        behind = walk.rows[walk.is_out_of_order]
        if self.policies.out_of_order_action is Action.DROP:
            judged.reason[behind] = Reason.OUT_OF_ORDER
            return 0, len(behind)
        judged.flags[behind] |= np.uint16(Flag.OUT_OF_ORDER)
        return len(behind), 0

    def _mark_shapes(self, state: State, fresh: _JudgedBatch) -> None:
        """Have no span end at or before its start."""
        batch, judged = fresh.batch, fresh.judged
        if self.shape is Shape.INTERVAL and batch.end_us is not None:
            short = batch.end_us < judged.system_us + 1
            judged.flags |= np.where(short, np.uint16(Flag.INTERVAL | Flag.LIFTED_END), np.uint16(Flag.INTERVAL))
        elif self.shape is Shape.EDGE and batch.start_us is not None:
            judged.flags |= np.where(batch.start_us > NEVER, np.uint16(Flag.EDGE_END), np.uint16(Flag.EDGE_START))
            self._lift_ends(state, fresh, batch.start_us)

    def _lift_ends(self, state: State, fresh: _JudgedBatch, start_us: Ints) -> None:
        batch, judged = fresh.batch, fresh.judged
        kept = np.flatnonzero(batch.readable & (judged.reason == 0))
        if not len(kept):
            return
        named = start_us[kept]
        named = named[named > NEVER]
        if not len(named):
            return
        before = _open_starts(state, named, by_key=not self.over)
        key = None if self.over else payload_columns.take_rows(batch.key, kept)
        edges = Edges(key, fresh.timeline[kept], fresh.event_time_us[kept], judged.system_us[kept])
        lift = least_ends(before, edges, start_us[kept])
        lifted = kept[lift > edges.system_us]
        judged.flags[lifted] |= np.uint16(Flag.LIFTED_END)
        judged.system_us = judged.system_us.copy()
        judged.system_us[kept] = np.maximum(lift, edges.system_us)

    def _release(self, state: State, fresh: _JudgedBatch, walk: TimelineWalk, time: BatchTime) -> tuple[Released, Outflow, Chunk]:
        """Let out what the watermarks have passed; return it, and the chunk of what came and stays."""
        table, batch, floor_us = state.timelines, fresh.batch, int(time.floor_us[-1])
        passed = np.maximum(table.largest_us[walk.touched] - self.policies.reorder_us, floor_us)
        held = self._due(state, walk, passed, floor_us)
        leaving_us = walk.system_us if self.shape is not Shape.EDGE else fresh.judged.system_us[walk.rows]
        due = leaving_us < np.repeat(passed, np.diff(walk.starts))
        if self.policies.out_of_order_action is Action.DROP:
            due &= ~walk.is_out_of_order
        rows = walk.rows[due]
        place = np.concatenate([np.arange(len(held)), rows + len(held)])
        system_us = np.concatenate([held.system_us, leaving_us[due]])
        steps, places = None, len(held) + len(batch.offset)
        if self.over:
            segment = np.concatenate([table.places_among(walk.touched, held.timeline), walk.segment[due]])
            steps = find_release_rows(system_us, segment, time.floor_us, walk, self.policies.reorder_us)
            by_place = np.empty(places, dtype=np.int64)
            by_place[place] = steps
            order = sort_places(steps, system_us, place, places)
            steps = by_place[order]
        elif len(held) or not (system_us[1:] >= system_us[:-1]).all():
            # The one watermark only rises, so what leaves later lies later: the step need not be known.
            order = sort_places(np.zeros_like(system_us), system_us, place, places)
        else:
            order = place
        released, out = self._number(state, fresh, held, order, steps, walk, time)
        return released, out, self._keep_held(fresh, walk, rows)

    def _due(self, state: State, walk: TimelineWalk, passed: Ints, floor_us: int) -> EventRows:
        """Take out what was held and is due, by offset."""
        whole_us = max(floor_us, self._events_watermark_us(state))
        touched = state.timelines.mask_of(walk.touched) if self.over else None
        left = []
        for chunk in state.all_chunks():
            held = chunk.held
            if not held.count:
                continue
            passes = held.rows.system_us < whole_us
            if touched is not None:
                # Few of the held are on timelines the batch touched: only those are compared with their own watermark.
                own = np.flatnonzero(touched[held.rows.timeline])
                passes[own] = held.rows.system_us[own] < passed[state.timelines.places_among(walk.touched, held.rows.timeline[own])]
            passes &= held.is_waiting
            due = np.flatnonzero(passes)
            if len(due):
                left.append(held.pop_rows(due))
        return EventRows.concat(left).by_offset()

    def _keep_held(self, fresh: _JudgedBatch, walk: TimelineWalk, left: Ints) -> Chunk:
        """Return the kept events that have not *left*."""
        stays = np.zeros(len(fresh.batch.offset), dtype=np.bool_)
        stays[walk.rows] = True
        stays[left] = False
        stays &= fresh.judged.reason == 0
        rows, batch, judged = np.flatnonzero(stays), fresh.batch, fresh.judged
        kept = EventRows(
            judged.system_us[rows],
            fresh.event_time_us[rows],
            fresh.arrival_us[rows],
            batch.offset[rows],
            judged.flags[rows],
            fresh.timeline[rows],
            payload_columns.take_rows(batch.key, rows),
            payload_columns.take_rows(batch.value, rows),
        )
        return Chunk(HeldEvents.of(kept), Ahead.empty(), walk.touched.astype(np.int32))

    def _number(
        self, state: State, fresh: _JudgedBatch, held: EventRows, order: Ints, steps: Ints | None, walk: TimelineWalk, time: BatchTime
    ) -> tuple[Released, Outflow]:
        """Number what leaves in *order* (places in what was held and then the batch)."""
        batch, judged = fresh.batch, fresh.judged
        system_us = payload_columns.take_rows_of_two(held.system_us, judged.system_us, order)
        timeline = payload_columns.take_rows_of_two(held.timeline, fresh.timeline, order)
        if self._whole is None:
            partition = state.timelines.partition[timeline]
        else:
            partition = np.full(len(order), self._whole, dtype=np.int32)
        if self.over and self.generation.list_substreams:
            np.maximum.at(state.timelines.announced_us, timeline, system_us)
        skipped: Mask | None = None
        if state.output_start is not None:
            wanted, skipped = _select_from_start(state.output_start, system_us, partition)
            order, system_us, partition, skipped = order[wanted], system_us[wanted], partition[wanted], skipped[wanted]
            steps = None if steps is None else steps[wanted]
        releases = ReleaseRows(steps, system_us, time.floor_us, walk, self.policies.reorder_us)
        out = Outflow(system_us, partition, skipped, releases)
        if skipped is not None and skipped.any():
            numbered = np.flatnonzero(~skipped)
            order, system_us, partition = order[numbered], system_us[numbered], partition[numbered]
            releases = ReleaseRows(releases.resolve()[numbered], system_us, time.floor_us, walk, self.policies.reorder_us)
        elif self._whole is None:
            out.channel_order = group_order(partition)
        released = Released(
            self.number,
            partition,
            self._seq(state, partition, out.channel_order),
            system_us,
            payload_columns.take_rows_of_two(held.event_time_us, fresh.event_time_us, order),
            payload_columns.take_rows_of_two(held.arrival_us, fresh.arrival_us, order),
            payload_columns.take_rows_of_two(held.offset, batch.offset, order),
            payload_columns.take_rows_of_two(held.flags, judged.flags, order),
            payload_columns.take_rows_of_two(held.key, batch.key, order),
            payload_columns.take_rows_of_two(held.value, batch.value, order),
            releases,
        )
        return released, out

    def _seq(self, state: State, partition: NDArray[np.int32], by_channel: Ints | None) -> Ints:
        if self._whole is not None:
            first = int(state.seq[self._whole])
            return np.arange(first, first + len(partition))
        seq = np.empty(len(partition), dtype=np.int64)
        counts = np.bincount(partition, minlength=self.output_partitions)
        starts = np.cumsum(counts) - counts
        order = group_order(partition) if by_channel is None else by_channel
        seq[order] = np.arange(len(partition)) - np.repeat(starts - state.seq, counts)
        return seq

    def _plan_points(self, state: State, fresh: _JudgedBatch, walk: TimelineWalk, time: BatchTime, out: Outflow) -> list[CtiPoint]:
        """Return where CTIs are due; the last point is the end of the batch."""
        batch, generation = fresh.batch, self.generation
        count, own_us = len(batch.offset), self._events_watermark_us(state)
        end_us = max(int(time.floor_us[-1]), own_us)
        end = CtiPoint(end_us, len(out.system_us), int(batch.end_offset), int(time.arrival_us[-1]), time.cause(count, end_us, own_us))
        if generation.is_per_batch:
            return [end]
        last_offset = int(batch.offset[-1]) if count else -1
        moved = any(position > last_offset for position, _ in (*batch.estimates, *batch.imports))
        own = self._events_watermarks_us(walk, count)
        watermark_us = np.maximum(own, time.floor_us[:-1])
        ends = batch.readable & (batch.start_us > NEVER) if self.shape is Shape.EDGE and batch.start_us is not None else None
        counted = np.zeros(count, dtype=np.bool_)
        counted[walk.rows[~walk.is_dropped]] = True
        if ends is not None:
            counted &= ~ends
        rows = find_due_rows(generation, state, counted, ends, time.source_ctis, watermark_us)
        state.accepted_count += int(np.count_nonzero(counted))
        points = []
        if rows:
            steps = out.release_rows.resolve()
            for row, left in zip(rows, np.searchsorted(steps, rows, side="right").tolist(), strict=True):
                reached_us = int(watermark_us[row])
                cause = time.cause(row, reached_us, int(own[row]))
                points.append(CtiPoint(reached_us, left, int(batch.offset[row]) + 1, int(time.arrival_us[row]), cause))
            state.last_point_us = points[-1].watermark_us
        # Readers wait for the first CTI of a partition that joins, and for the newest roster.
        awaited = any(version != self.roster.version for _, _, version in state.promises.values()) or (
            self.joined_us > NEVER and not state.promises
        )
        if moved or batch.finish or awaited:
            state.last_point_us = end_us
            return [*points, end]
        return [*points, replace(end, is_due=False)]

    def _events_watermark_us(self, state: State) -> int:
        """Return the watermark that events alone have set for the whole partition; ``NEVER`` with OVER and before the first."""
        largest_us = NEVER if self.over or not len(state.timelines) else int(state.timelines.largest_us[0])
        return largest_us - self.policies.reorder_us if largest_us > NEVER else NEVER

    def _events_watermarks_us(self, walk: TimelineWalk, count: int) -> Ints:
        """Return the watermark of the one timeline that its events alone have set, after each record; with OVER none have."""
        own = np.full(count, NEVER, dtype=np.int64)
        if self.over or not count:
            return own
        own[walk.rows] = walk.largest_us
        own[0] = max(int(own[0]), walk.largest_before_us)
        np.maximum.accumulate(own, out=own)
        return np.where(own > NEVER, own - self.policies.reorder_us, NEVER)

    def _prune_timelines(self, state: State, walked: int) -> None:
        """Drop timelines that no later event can meet, once half of the table is such: one pass pays for many batches."""
        table = state.timelines
        state.rows_since_prune += max(walked, 256)
        if not self.over or len(table) < self.FORGET_FROM or _LOOK_THROUGH * state.rows_since_prune < len(table):
            return
        state.rows_since_prune = 0
        needed = table.largest_us - self.policies.reorder_us > state.floor_us
        if 2 * np.count_nonzero(needed) > len(table):
            return
        for chunk in state.all_chunks():
            needed[chunk.held.rows.timeline[chunk.held.is_waiting]] = True
        state.renumber(table.forget(needed))


def _open_starts(state: State, named_us: Ints, by_key: bool) -> Edges:
    """Return the start edges that are held and began at one of the times *named_us*."""
    low, high = int(named_us.min()), int(named_us.max())
    parts = []
    for rows, waits in ((chunk.held.rows, chunk.held.is_waiting) for chunk in state.all_chunks()):
        starts = np.flatnonzero(waits & (rows.event_time_us >= low) & (rows.event_time_us <= high))
        starts = starts[((rows.flags[starts] & Flag.EDGE_START) > 0) & np.isin(rows.event_time_us[starts], named_us)]
        key = payload_columns.take_rows(rows.key, starts) if by_key else payload_columns.empty_column()
        parts.append(Edges(key, rows.timeline[starts], rows.event_time_us[starts], rows.system_us[starts]))
    key = payload_columns.concat_columns([payload_columns.empty_column(), *(part.key for part in parts)]) if by_key else None
    fixed = [np.concatenate([_NO_ROWS, *(getattr(part, name) for part in parts)]) for name in ("timeline", "event_time_us", "system_us")]
    return Edges(key, *fixed)


def _select_from_start(since: OutputStart, system_us: Ints, partition: NDArray[np.int32]) -> tuple[Mask, Mask]:
    """Return which released events are wanted of a walk that did not begin at the beginning, and which of them are written already."""
    wanted = system_us >= since.start_us[partition]
    skipped = np.zeros(len(wanted), dtype=np.bool_)
    for channel in np.flatnonzero(since.skip_counts).tolist():
        first = np.flatnonzero(wanted & (partition == channel))[: since.skip_counts[channel]]
        skipped[first] = True
        since.skip_counts[channel] -= len(first)
    return wanted, skipped
