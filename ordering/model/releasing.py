"""
Release: hold events until their watermark has passed them, put them in one total order, number them.

Law: an event is released at the first row after which its system timestamp is below its timeline's watermark
(:mod:`ordering.model.watermark`). Events released at one row are ordered by (system timestamp, offset).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordering.arrays import Ints, Mask
from ordering.columns.payload_columns import take_rows_of_two
from ordering.columns.segments import group_order, sort_places
from ordering.model.ahead import Ahead
from ordering.model.batch_time import BatchTime
from ordering.model.chunks import Chunk, EventRows, HeldEvents
from ordering.model.events import Outflow, Released
from ordering.model.judging import JudgedBatch
from ordering.model.release_rows import ReleaseRows, find_release_rows
from ordering.model.settings import ModelSettings
from ordering.model.state import OutputStart, State
from ordering.model.verdicts import TimelineWalk
from ordering.model.watermark import watermark_of
from ordering.policies import Action, Shape

# Columns that are released as they arrived or were held, in the order of ``Released``.
_UNCHANGED = ("event_time_us", "arrival_us", "offset", "flags", "key", "value")


class Release(NamedTuple):
    """What a batch releases: the events for readers, all of them as CTIs count them, and the chunk of the batch's events that stay held."""

    released: Released
    outflow: Outflow
    chunk: Chunk


class _Leaving(NamedTuple):
    """The events that leave: *order* gives their places in *held* followed by the batch; *release_rows* (None: not known) their rows."""

    held: EventRows
    order: Ints
    release_rows: Ints | None


def release_due(settings: ModelSettings, state: State, judged: JudgedBatch, walk: TimelineWalk, time: BatchTime) -> Release:
    """Release the events that their watermarks have passed."""
    table, reorder_us, floor_us = state.timelines, settings.policies.reorder_us, int(time.floor_us[-1])
    watermarks_us = watermark_of(table.largest_us[walk.touched], reorder_us, floor_us)
    held = _pop_held(settings, state, walk, watermarks_us, floor_us)
    # End edges are lifted after the walk, so only the judgement has their final system timestamps.
    leaving_us = walk.system_us if settings.shape is not Shape.EDGE else judged.judgement.system_us[walk.rows]
    is_due = leaving_us < np.repeat(watermarks_us, np.diff(walk.starts))
    if settings.policies.out_of_order_action is Action.DROP:
        is_due &= ~walk.is_out_of_order
    rows = walk.rows[is_due]
    # Places number the held events first, then the rows of the batch.
    place = np.concatenate([np.arange(len(held)), rows + len(held)])
    system_us = np.concatenate([held.system_us, leaving_us[is_due]])
    release_rows, places = None, len(held) + len(judged.batch.offset)
    if settings.over:
        segment = np.concatenate([table.places_among(walk.touched, held.timeline), walk.segment[is_due]])
        release_rows = find_release_rows(system_us, segment, time.floor_us, walk, reorder_us)
        by_place = np.empty(places, dtype=np.int64)
        by_place[place] = release_rows
        order = sort_places(release_rows, system_us, place, places)
        release_rows = by_place[order]
    elif len(held) or not (system_us[1:] >= system_us[:-1]).all():
        # The one watermark only rises, so a later release has a larger timestamp: the row need not be known.
        order = sort_places(np.zeros_like(system_us), system_us, place, places)
    else:
        order = place
    released, outflow = _number(settings, state, judged, _Leaving(held, order, release_rows), walk, time)
    return Release(released, outflow, _keep_held(judged, walk, rows))


def _pop_held(settings: ModelSettings, state: State, walk: TimelineWalk, watermarks_us: Ints, floor_us: int) -> EventRows:
    """Remove the due held events from *state*; return them by offset."""
    common_us = max(floor_us, settings.events_watermark_us(state))
    is_touched = state.timelines.mask_of(walk.touched) if settings.over else None
    due_parts = []
    for chunk in state.all_chunks():
        held = chunk.held
        if not held.count:
            continue
        is_due = held.rows.system_us < common_us
        if is_touched is not None:
            # Few held events are on touched timelines; only they need their own watermark, all others the common one.
            own = np.flatnonzero(is_touched[held.rows.timeline])
            is_due[own] = held.rows.system_us[own] < watermarks_us[state.timelines.places_among(walk.touched, held.rows.timeline[own])]
        is_due &= held.is_waiting
        due = np.flatnonzero(is_due)
        if len(due):
            due_parts.append(held.pop_rows(due))
    return EventRows.concat(due_parts).by_offset()


def _keep_held(judged: JudgedBatch, walk: TimelineWalk, released_rows: Ints) -> Chunk:
    stays = np.zeros(len(judged.batch.offset), dtype=np.bool_)
    stays[walk.rows] = True
    stays[released_rows] = False
    stays &= judged.judgement.reason == 0
    kept = judged.events().take_rows(np.flatnonzero(stays))
    return Chunk(HeldEvents.of(kept), Ahead.empty(), walk.touched.astype(np.int32))


def _number(
    settings: ModelSettings, state: State, judged: JudgedBatch, leaving: _Leaving, walk: TimelineWalk, time: BatchTime
) -> tuple[Released, Outflow]:
    """Number the released events."""
    held, order, release_rows = leaving
    arrived, reorder_us = judged.events(), settings.policies.reorder_us
    system_us = take_rows_of_two(held.system_us, arrived.system_us, order)
    timeline = take_rows_of_two(held.timeline, arrived.timeline, order)
    if settings.only_partition is None:
        partition = state.timelines.partition[timeline]
    else:
        partition = np.full(len(order), settings.only_partition, dtype=np.int32)
    if settings.over and settings.generation.list_substreams:
        np.maximum.at(state.timelines.announced_us, timeline, system_us)
    is_skipped: Mask | None = None
    if state.output_start is not None:
        wanted, is_skipped = _select_from_start(state.output_start, system_us, partition)
        order, system_us, partition, is_skipped = order[wanted], system_us[wanted], partition[wanted], is_skipped[wanted]
        release_rows = None if release_rows is None else release_rows[wanted]
    lazy_rows = ReleaseRows(release_rows, system_us, time.floor_us, walk, reorder_us)
    outflow = Outflow(system_us, partition, is_skipped, lazy_rows)
    if is_skipped is not None and is_skipped.any():
        numbered = np.flatnonzero(~is_skipped)
        order, system_us, partition = order[numbered], system_us[numbered], partition[numbered]
        lazy_rows = ReleaseRows(lazy_rows.resolve()[numbered], system_us, time.floor_us, walk, reorder_us)
    elif settings.only_partition is None:
        outflow.channel_order = group_order(partition)
    seq = _assign_seq(settings, state, partition, outflow.channel_order)
    columns = [take_rows_of_two(getattr(held, name), getattr(arrived, name), order) for name in _UNCHANGED]
    return Released(settings.number, partition, seq, system_us, *[*columns, lazy_rows]), outflow


def _assign_seq(settings: ModelSettings, state: State, partition: NDArray[np.int32], channel_order: Ints | None) -> Ints:
    """Return the seq of each event: the events of a channel continue from ``state.seq`` without a gap."""
    if settings.only_partition is not None:
        first = int(state.seq[settings.only_partition])
        return np.arange(first, first + len(partition))
    seq = np.empty(len(partition), dtype=np.int64)
    counts = np.bincount(partition, minlength=settings.output_partitions)
    starts = np.cumsum(counts) - counts
    order = group_order(partition) if channel_order is None else channel_order
    seq[order] = np.arange(len(partition)) - np.repeat(starts - state.seq, counts)
    return seq


def _select_from_start(start: OutputStart, system_us: Ints, partition: NDArray[np.int32]) -> tuple[Mask, Mask]:
    """Return which released events belong to the output from *start*, and which of those are already written."""
    wanted = system_us >= start.start_us[partition]
    is_skipped = np.zeros(len(wanted), dtype=np.bool_)
    for channel in np.flatnonzero(start.skip_counts).tolist():
        first = np.flatnonzero(wanted & (partition == channel))[: start.skip_counts[channel]]
        is_skipped[first] = True
        start.skip_counts[channel] -= len(first)
    return wanted, is_skipped
