"""
Applies all policies to a batch in this order: early, source CTI, late, out of order; then the shape of spans.

Law: the verdict on a record depends only on earlier records and facts, not on later ones of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordering.arrays import Ints
from ordering.columns import payload_columns
from ordering.model.batch_time import BatchTime
from ordering.model.chunks import EventRows
from ordering.model.edges import Edges, least_ends
from ordering.model.events import Batch, Counts, Dropped, Reason
from ordering.model.settings import ModelSettings
from ordering.model.state import State
from ordering.model.timelines import Timelines
from ordering.model.verdicts import Judgement, TimelineWalk, judge_arrivals
from ordering.policies import Action, Policies, Shape
from ordering.protocol.wire import Flag
from ordering.ticks import NEVER


@dataclass(slots=True)
class JudgedBatch:
    """A batch with its verdicts, one entry a record (``arrival_us``: and the end); ``timeline`` is a row of the table of timelines."""

    batch: Batch
    judgement: Judgement
    event_time_us: Ints
    arrival_us: Ints
    timeline: NDArray[np.int32]

    def events(self) -> EventRows:
        """Return the records as rows that can be held or released; ``arrival_us`` has one entry more."""
        batch, judgement = self.batch, self.judgement
        times = judgement.system_us, self.event_time_us, self.arrival_us
        return EventRows(*times, batch.offset, judgement.flags, self.timeline, batch.key, batch.value)


class Judging(NamedTuple):
    """What judging a batch gives: the judged records, the walk along their timelines, and the counts of the verdicts."""

    judged: JudgedBatch
    walk: TimelineWalk
    counts: Counts


def judge_batch(settings: ModelSettings, state: State, batch: Batch, time: BatchTime) -> Judging:
    """Judge every record of *batch*; store the timelines' new maxima in *state*; count the verdicts."""
    policies, arrival_us = settings.policies, time.arrival_us[:-1]
    event_time_us = arrival_us if batch.event_time_us is None else batch.event_time_us
    # An end edge may be lifted above its start edge's time, so it is early if that time is.
    early_checked_us = event_time_us if batch.start_us is None else np.maximum(event_time_us, batch.start_us)
    span_end_us = settings.span_ends(batch, len(event_time_us))
    judgement = judge_arrivals(policies, event_time_us, early_checked_us, batch.readable, arrival_us, time.promise_met_us, span_end_us)
    counts = _count_verdicts(batch, judgement, time)
    walk, timeline = _walk_events(settings, state.timelines, batch, judgement)
    judged = JudgedBatch(batch, judgement, event_time_us, time.arrival_us, timeline)
    counts.out_of_order_adjusted, counts.out_of_order_dropped = _apply_walk(settings, judgement, walk)
    # Before shapes are marked: a lifted end must not raise the watermark.
    walk.store()
    _mark_shapes(settings, state, judged)
    return Judging(judged, walk, counts)


def dropped_events(policies: Policies, judged: JudgedBatch, walk: TimelineWalk, time: BatchTime) -> Dropped:
    """Return the events that the policies rejected, in offset order, each with the limit that it broke."""
    batch, judgement = judged.batch, judged.judgement
    rows = np.flatnonzero(judgement.reason)
    reason, arrival_us = judgement.reason[rows], judged.arrival_us[rows]
    event_us = judged.event_time_us[rows]
    if batch.source_cti_us is not None:
        event_us = np.where(batch.source_cti_us[rows] > NEVER, batch.source_cti_us[rows], event_us)
    # A CTI is the limit of a violation, and of an early event that was moved back below it.
    limit_us = np.full(len(rows), NEVER, dtype=np.int64) if time.promise_met_us is None else time.promise_met_us[rows]
    for by_reason, by_us in ((Reason.EARLY, policies.early_us), (Reason.LATE, None if policies.late_us is None else -policies.late_us)):
        if by_us is not None:
            limit_us = np.where(reason == by_reason, arrival_us + by_us, limit_us)
    if walk.is_dropped.any():
        limit_us[np.searchsorted(rows, walk.rows[walk.is_dropped])] = walk.bound_us[walk.is_dropped]
    return Dropped(batch.offset[rows], reason, event_us, arrival_us, limit_us)


def _count_verdicts(batch: Batch, judgement: Judgement, time: BatchTime) -> Counts:
    judgement.reason[time.early_ctis] = Reason.EARLY
    by_reason = np.bincount(judgement.reason, minlength=len(Reason) + 1)
    # An event may be adjusted by one policy and dropped by the next: both count. Early comes first.
    flags = judgement.flags[judgement.reason != Reason.EARLY] if judgement.flags.any() else judgement.flags[:0]
    return Counts(
        events_in=len(batch.offset),
        unreadable=len(batch.offset) - int(np.count_nonzero(batch.readable)) - len(time.early_ctis) - len(time.source_ctis),
        early=int(by_reason[Reason.EARLY]),
        early_adjusted=int(np.count_nonzero(flags & Flag.EARLY)),
        late_adjusted=int(np.count_nonzero(flags & Flag.LATE)),
        late_dropped=int(by_reason[Reason.LATE]),
        arrival_clamps=int(np.count_nonzero(time.arrival_us[:-1] > batch.arrival_us)),
        source_ctis=len(time.source_ctis),
        cti_violation_adjusted=int(np.count_nonzero(flags & Flag.CTI_VIOLATION)),
        cti_violation_dropped=int(by_reason[Reason.CTI_VIOLATION]),
    )


def _walk_events(settings: ModelSettings, table: Timelines, batch: Batch, judgement: Judgement) -> tuple[TimelineWalk, NDArray[np.int32]]:
    """Arrange the kept events by timeline; return the walk, and the timeline of each record."""
    kept = np.flatnonzero(batch.readable & (judgement.reason == 0))
    kept_timelines = _timelines_of(settings, table, batch, kept)
    adjusted_us = judgement.system_us if len(kept) == len(judgement.system_us) else judgement.system_us[kept]
    policies = settings.policies
    walk = TimelineWalk(kept_timelines, adjusted_us, kept, table, policies.reorder_us, policies.out_of_order_action, settings.joined_us)
    timeline = np.zeros(len(batch.offset), dtype=np.int32)
    if kept_timelines is not None:
        timeline[kept] = kept_timelines
    return walk, timeline


def _timelines_of(settings: ModelSettings, table: Timelines, batch: Batch, kept: Ints) -> Ints | None:
    """Return the timeline of each *kept* event; None without OVER, where row 0 is the only timeline."""
    if not settings.over:
        if not len(table):
            table.find_or_add(pa.array([b""], type=pa.binary()))
        return None
    substream = batch.substream
    if not isinstance(substream, pa.Array):
        substream = pa.array(substream, type=pa.binary())
    if substream.null_count:
        substream = substream.fill_null(b"")
    return table.find_or_add(substream if len(kept) == len(substream) else substream.take(pa.array(kept)))


def _apply_walk(settings: ModelSettings, judgement: Judgement, walk: TimelineWalk) -> tuple[int, int]:
    """Copy the walk's system timestamps and verdicts to *judgement*; return the numbers of adjusted and dropped events."""
    if len(walk.rows) == len(judgement.system_us) and not settings.over:
        judgement.system_us = walk.system_us
    else:
        judgement.system_us = judgement.system_us.copy()
        judgement.system_us[walk.rows] = walk.system_us
    out_of_order = walk.rows[walk.is_out_of_order]
    # Events that were early may have been found out of order before the walk.
    if settings.policies.out_of_order_action is Action.DROP:
        judgement.reason[out_of_order] = Reason.OUT_OF_ORDER
        return 0, int(np.count_nonzero(judgement.reason == Reason.OUT_OF_ORDER))
    judgement.flags[out_of_order] |= np.uint16(Flag.OUT_OF_ORDER)
    if settings.policies.early_action is Action.ADJUST:
        return int(np.count_nonzero(judgement.flags & Flag.OUT_OF_ORDER)), 0
    return len(out_of_order), 0


def _mark_shapes(settings: ModelSettings, state: State, judged: JudgedBatch) -> None:
    """Set the flags of spans, and move every end that is not after its start."""
    batch, judgement = judged.batch, judged.judgement
    if settings.shape is Shape.INTERVAL and batch.end_us is not None:
        is_short = batch.end_us < judgement.system_us + 1
        judgement.flags |= np.where(is_short, np.uint16(Flag.INTERVAL | Flag.LIFTED_END), np.uint16(Flag.INTERVAL))
    elif settings.shape is Shape.EDGE and batch.start_us is not None:
        judgement.flags |= np.where(batch.start_us > NEVER, np.uint16(Flag.EDGE_END), np.uint16(Flag.EDGE_START))
        _lift_ends(settings, state, judged, batch.start_us)


def _lift_ends(settings: ModelSettings, state: State, judged: JudgedBatch, start_us: Ints) -> None:
    batch, judgement = judged.batch, judged.judgement
    kept = np.flatnonzero(batch.readable & (judgement.reason == 0))
    named_us = start_us[kept]
    named_us = named_us[named_us > NEVER]
    if not len(named_us):
        return
    held_starts = _held_starts(state, named_us, by_key=not settings.over)
    key = None if settings.over else payload_columns.take_rows(batch.key, kept)
    edges = Edges(key, judged.timeline[kept], judged.event_time_us[kept], judgement.system_us[kept])
    early_us = settings.policies.early_us
    latest_us = None if early_us is None else judged.arrival_us[kept] + early_us
    least_us = least_ends(held_starts, edges, start_us[kept], latest_us)
    lifted = kept[least_us > edges.system_us]
    judgement.flags[lifted] |= np.uint16(Flag.LIFTED_END)
    judgement.system_us = judgement.system_us.copy()
    judgement.system_us[kept] = np.maximum(least_us, edges.system_us)


def _held_starts(state: State, named_us: Ints, by_key: bool) -> Edges:
    """Return the held start edges whose event time is one of *named_us*."""
    low, high = int(named_us.min()), int(named_us.max())
    parts = []
    for held in (chunk.held for chunk in state.all_chunks()):
        rows = held.rows
        starts = np.flatnonzero(held.is_waiting & (rows.event_time_us >= low) & (rows.event_time_us <= high))
        starts = starts[((rows.flags[starts] & Flag.EDGE_START) > 0) & np.isin(rows.event_time_us[starts], named_us)]
        key = payload_columns.take_rows(rows.key, starts) if by_key else payload_columns.empty_column()
        parts.append(Edges(key, rows.timeline[starts], rows.event_time_us[starts], rows.system_us[starts]))
    key = payload_columns.concat_columns([payload_columns.empty_column(), *(part.key for part in parts)]) if by_key else None
    no_rows = np.empty(0, dtype=np.int64)
    fixed = [np.concatenate([no_rows, *(getattr(part, name) for part in parts)]) for name in ("timeline", "event_time_us", "system_us")]
    return Edges(key, *fixed)
