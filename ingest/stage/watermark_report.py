"""
The watermark of an input partition, its cause, and the events that wait for it.
Law: nothing here changes a state. :func:`find_watermark` costs the same for any state, except for one pass over the substream table;
:func:`look_at_held` visits every held event and is called only while a client asks.
"""

from __future__ import annotations

import numpy as np

from ordering.arrays import Ints
from ordering.model.state import State
from ordering.model.watermark import events_watermark_of, watermark_of
from ordering.policies import Policies
from ordering.ticks import INFINITY, NEVER
from tidegate.platform.observe.reports import HeldReport, SubstreamReport, Watermark


def find_watermark(state: State, policies: Policies, over: bool) -> Watermark:
    """Return the watermark of an input partition, with its cause."""
    largest_us = int(state.timelines.largest_us.max(initial=NEVER))
    events_watermark_us = NEVER if over else events_watermark_of(largest_us, policies.reorder_us)
    return Watermark(max(events_watermark_us, state.floor_us), largest_us, _cause(state, policies, events_watermark_us))


def _cause(state: State, policies: Policies, events_watermark_us: int) -> str:
    if state.is_finished or state.c == INFINITY:
        return "end"
    if events_watermark_us > NEVER and events_watermark_us >= state.floor_us:
        return "event"
    if state.floor_us == NEVER:
        return "nothing"
    late_us = NEVER if policies.late_us is None or state.arrival_us == NEVER else state.arrival_us - policies.late_us
    if late_us >= state.floor_us:
        return "estimate" if state.is_estimated else "late floor"
    if state.promise_us >= state.floor_us:
        return "import" if state.is_imported else "source CTI"
    return "join"


def look_at_held(state: State, policies: Policies, over: bool, substreams: int) -> HeldReport:
    """Return what is held, with OVER for up to *substreams* substreams."""
    count = len(state.timelines)
    held, least_us = np.zeros(count, dtype=np.int64), np.full(count, INFINITY, dtype=np.int64)
    for chunk in state.all_chunks():
        rows = chunk.held.rows
        timeline, system_us = rows.timeline[chunk.held.is_waiting], rows.system_us[chunk.held.is_waiting]
        held += np.bincount(timeline, minlength=count)
        np.minimum.at(least_us, timeline, system_us)
    top = _fullest(state, policies, held, least_us, substreams) if over and substreams else ()
    return HeldReport(int(least_us.min(initial=INFINITY)) if held.any() else None, top)


def _fullest(state: State, policies: Policies, held: Ints, least_us: Ints, substreams: int) -> tuple[SubstreamReport, ...]:
    largest_us = state.timelines.largest_us
    chosen = np.lexsort((-largest_us, -held))[:substreams]
    keys = state.timelines.keys(chosen).to_pylist()
    return tuple(
        SubstreamReport(
            key=key.decode("utf-8", "backslashreplace"),
            watermark_us=watermark_of(int(largest_us[row]), policies.reorder_us, state.floor_us),
            cause="event" if events_watermark_of(int(largest_us[row]), policies.reorder_us) > state.floor_us else "floor",
            largest_us=int(largest_us[row]),
            held=int(held[row]),
            held_from_us=int(least_us[row]) if held[row] else None,
        )
        for row, key in zip(chosen.tolist(), keys, strict=True)
    )
