"""
When CTIs are due within a batch, and the content of each.

Law (PROTOCOL.md): a CTI is exact at its point: every event below ``c`` has a number below ``n``, and ``ahead`` of the events numbered
below ``n`` lie at or above ``c``. The CTIs of a channel only rise. Points inside a batch (every N events, every T of time, source CTIs)
depend on the log alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask
from ordering.columns.segments import group_order
from ordering.model.ahead import Ahead
from ordering.model.batch_time import BatchTime
from ordering.model.events import Outflow
from ordering.model.judging import JudgedBatch
from ordering.model.settings import ModelSettings
from ordering.model.state import ChannelPromise, LastPromise, State
from ordering.model.verdicts import TimelineWalk
from ordering.model.watermark import events_watermark_of
from ordering.policies import Generation, Shape
from ordering.protocol.punctuation import Cause, Cti
from ordering.ticks import INFINITY, NEVER


@dataclass(frozen=True, slots=True)
class CtiPoint:
    """
    A point of a batch at which at most one CTI is written to each channel: the watermark of the whole partition (with OVER the floor), and
    how many of the batch's events are released up to it. Other fields are as in ``Cti``.
    """

    watermark_us: int
    released_count: int
    next_offset: int
    arrival_us: int
    cause: Cause
    # Whether CTIs are written; False is possible only at the end of a batch.
    is_due: bool = True


@dataclass(frozen=True, slots=True)
class PlannedPoints:
    """The points of a batch in order, the last at its end, and what the state keeps of them."""

    points: list[CtiPoint]
    accepted_count: int
    last_point_us: int

    def store(self, state: State) -> None:
        state.accepted_count, state.last_point_us = self.accepted_count, self.last_point_us


def plan_points(
    settings: ModelSettings, state: State, judged: JudgedBatch, walk: TimelineWalk, time: BatchTime, outflow: Outflow
) -> PlannedPoints:
    """Return the points of a batch that starts at the position of *state*."""
    batch, generation = judged.batch, settings.generation
    count, events_us = len(batch.offset), settings.events_watermark_us(state)
    end_us = max(int(time.floor_us[-1]), events_us)
    end_cause = time.cause(count, end_us, events_us)
    end = CtiPoint(end_us, len(outflow.system_us), int(batch.end_offset), int(time.arrival_us[-1]), end_cause)
    if generation.is_per_batch:
        return PlannedPoints([end], state.accepted_count, state.last_point_us)
    events_watermark_us = _events_watermarks_us(settings, walk, count)
    watermark_us = np.maximum(events_watermark_us, time.floor_us[:-1])
    is_end_edge = batch.readable & (batch.start_us > NEVER) if settings.shape is Shape.EDGE and batch.start_us is not None else None
    is_counted = np.zeros(count, dtype=np.bool_)
    is_counted[walk.rows[~walk.is_dropped]] = True
    if is_end_edge is not None:
        is_counted &= ~is_end_edge
    rows = _find_due_rows(generation, state, is_counted, is_end_edge, time.source_ctis, watermark_us)
    accepted_count, last_point_us = state.accepted_count + int(np.count_nonzero(is_counted)), state.last_point_us
    points = []
    if rows:
        released_counts = np.searchsorted(outflow.release_rows.resolve(), rows, side="right").tolist()
        for row, released_count in zip(rows, released_counts, strict=True):
            row_us = int(watermark_us[row])
            cause = time.cause(row, row_us, int(events_watermark_us[row]))
            points.append(CtiPoint(row_us, released_count, int(batch.offset[row]) + 1, int(time.arrival_us[row]), cause))
        last_point_us = points[-1].watermark_us
    if batch.finish or _has_facts_at_end(judged) or _readers_wait(settings, state):
        return PlannedPoints([*points, end], accepted_count, end_us)
    return PlannedPoints([*points, replace(end, is_due=False)], accepted_count, last_point_us)


def _has_facts_at_end(judged: JudgedBatch) -> bool:
    batch = judged.batch
    last_offset = int(batch.offset[-1]) if len(batch.offset) else -1
    return any(position > last_offset for position, _ in (*batch.estimates, *batch.imports))


def _readers_wait(settings: ModelSettings, state: State) -> bool:
    """Return whether readers wait for the newest roster, or for the first CTI of a partition that joins."""
    if any(promise.roster_version != settings.roster.version for promise in state.promises.values()):
        return True
    return settings.joined_us > NEVER and not state.promises


def _events_watermarks_us(settings: ModelSettings, walk: TimelineWalk, count: int) -> Ints:
    """Return the partition's watermark by its events alone, after each record; ``NEVER`` with OVER."""
    largest_us = np.full(count, NEVER, dtype=np.int64)
    if settings.over or not count:
        return largest_us
    largest_us[walk.rows] = walk.largest_us
    largest_us[0] = max(int(largest_us[0]), walk.largest_before_us)
    np.maximum.accumulate(largest_us, out=largest_us)
    return events_watermark_of(largest_us, settings.policies.reorder_us)


def _find_due_rows(
    generation: Generation, state: State, is_counted: Mask, is_end_edge: Mask | None, forced: Ints, watermark_us: Ints
) -> list[int]:
    """
    Return the batch rows after which CTIs are due, rising: the *forced* ones, and the others by *generation*, which is not per batch.
    *is_counted* marks accepted events that count for ``every_events``; ``every_us`` is not checked at end edges.
    """
    is_due = np.zeros(len(is_counted), dtype=np.bool_)
    is_due[forced] = True
    if generation.every_events is not None:
        rounds = (state.accepted_count + np.cumsum(is_counted)) // generation.every_events
        is_due |= is_counted & (rounds > np.concatenate([[state.accepted_count // generation.every_events], rounds[:-1]]))
    rows = np.flatnonzero(is_due).tolist()
    if generation.every_us is None:
        return rows
    return _add_time_rows(rows, generation.every_us, state.last_point_us, is_end_edge, watermark_us)


def _add_time_rows(rows: list[int], every_us: int, last_us: int, is_end_edge: Mask | None, watermark_us: Ints) -> list[int]:
    """Return *rows* and the rows at which the watermark is *every_us* or more above its value at the previous row of the result."""
    candidates = np.arange(len(watermark_us)) if is_end_edge is None else np.flatnonzero(~is_end_edge)
    due_rows, next_row, used = [], 0, 0
    # Each due row restarts the measure, so the next one is looked for only after it.
    while next_row < len(watermark_us):
        far = max(next_row, int(np.searchsorted(watermark_us, last_us + every_us)))
        place = int(np.searchsorted(candidates, far))
        row = int(candidates[place]) if place < len(candidates) else len(watermark_us)
        if used < len(rows) and rows[used] <= row:
            row, used = rows[used], used + 1
        if row >= len(watermark_us):
            break
        due_rows.append(row)
        last_us, next_row = int(watermark_us[row]), row + 1
    return due_rows


class Punctuator:
    """Writes the CTIs of one input partition."""

    def __init__(self, settings: ModelSettings) -> None:
        self._number, self._roster, self._channels = settings.number, settings.roster, settings.channels
        self._delay_us = settings.generation.delay_us

    def generate(self, state: State, points: list[CtiPoint], outflow: Outflow) -> tuple[list[Cti], Ahead]:
        """
        Return the CTIs due at *points* (rising, the last at the end of the batch), and the events ahead of the last CTI. Updates the
        numbering, largest times, counts and ``c`` of *state*.
        """
        last_c = max(state.c, self._c_at(points[-1].watermark_us))
        above = outflow.system_us >= last_c
        ahead = Ahead.of(outflow.system_us[above], outflow.partition[above])
        passed = [chunk.ahead.pop_below(last_c) for chunk in state.all_chunks() if len(chunk.ahead)]
        passed.append((outflow.system_us[~above], outflow.partition[~above]))
        passed_us = np.concatenate([system_us for system_us, _ in passed])
        passed_partition = np.concatenate([partition for _, partition in passed])
        # With one point all passed events are counted at once, so they need no order.
        if len(points) > 1:
            order = np.argsort(passed_us)
            passed_us, passed_partition = passed_us[order], passed_partition[order]
        ctis: list[Cti] = []
        released = behind = 0
        for point in points:
            state.c = max(state.c, self._c_at(point.watermark_us))
            until = len(passed_partition) if state.c == last_c else int(np.searchsorted(passed_us, state.c))
            self._count(state, outflow, slice(released, point.released_count), passed_partition[behind:until])
            released, behind = point.released_count, until
            if point.is_due and state.c > NEVER:
                ctis += self._write(state, point, _count_skipped_after(state, outflow, point.released_count))
        return ctis, ahead

    def repeat_last(self, state: State) -> Cti | None:
        """Return the first output partition's last CTI with the current input position of *state*; None if there was none."""
        if state.last_promise is None:
            return None
        c, n, ahead, largest_us = state.last_promise
        cause = Cause.IDLE if state.is_estimated else Cause.EVENT
        return Cti(self._number, self._channels[0], c, n, ahead, state.next_offset, state.arrival_us, largest_us, self._roster, cause)

    def _c_at(self, watermark_us: int) -> int:
        # The ends of time are not delayed: the final CTI must be at infinity.
        return watermark_us if watermark_us in (INFINITY, NEVER) else watermark_us - self._delay_us

    def _count(self, state: State, outflow: Outflow, released: slice, passed: NDArray[np.int32]) -> None:
        """Update the channels' counts for the *released* events and for the events that ``c`` has *passed*, given by output partition."""
        partition, system_us = outflow.partition[released], outflow.system_us[released]
        is_skipped = None if outflow.is_skipped is None else outflow.is_skipped[released]
        if len(self._channels) == 1:
            channel = self._channels[0]
            state.ahead_counts[channel] += len(partition) - len(passed)
            state.seq[channel] += len(partition) if is_skipped is None else int(np.count_nonzero(~is_skipped))
            state.largest_us[channel] = max(int(state.largest_us[channel]), int(system_us.max(initial=NEVER)))
            return
        channels = len(state.seq)
        counts = np.bincount(partition, minlength=channels)
        state.ahead_counts = state.ahead_counts + counts - np.bincount(passed, minlength=channels)
        state.seq = state.seq + (counts if is_skipped is None else np.bincount(partition[~is_skipped], minlength=channels))
        if len(partition):
            known_order = outflow.channel_order
            order = known_order if known_order is not None and len(known_order) == len(partition) else group_order(partition)
            present = np.flatnonzero(counts)
            starts = (np.cumsum(counts) - counts)[present]
            largest_us = np.maximum.reduceat(system_us[order], starts)
            state.largest_us[present] = np.maximum(state.largest_us[present], largest_us)

    def _write(self, state: State, point: CtiPoint, skipped_later: Ints) -> list[Cti]:
        """Return the CTIs of *point*, without those that repeat their channel's last promise."""
        ctis, start = [], state.output_start
        for channel in self._channels:
            promise = ChannelPromise(state.c, int(state.seq[channel]), self._roster.version)
            if state.promises.get(channel) == promise or (start is not None and state.c < start.start_us[channel]):
                continue
            state.promises[channel] = promise
            ahead, largest_us = int(state.ahead_counts[channel] + skipped_later[channel]), int(state.largest_us[channel])
            if channel == self._channels[0]:
                state.last_promise = LastPromise(state.c, promise.n, ahead, largest_us)
            numbers = state.c, promise.n, ahead, point.next_offset, point.arrival_us, largest_us
            ctis.append(Cti(self._number, channel, *numbers, self._roster, point.cause))
        return ctis


def _count_skipped_after(state: State, outflow: Outflow, released_count: int) -> Ints:
    """Return for each output partition how many events that an earlier writer numbered are released only after this point."""
    if state.output_start is None:
        return np.zeros(len(state.seq), dtype=np.int64)
    if outflow.is_skipped is None:
        return state.output_start.skip_counts
    later = outflow.partition[released_count:][outflow.is_skipped[released_count:]]
    return state.output_start.skip_counts + np.bincount(later, minlength=len(state.seq))
