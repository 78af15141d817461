"""
The watermark of an input partition, its cause, and the events that wait for it.
Law: nothing here changes a state. :func:`watermark_report` costs the same for any state, except for one pass over the substream table;
:func:`watermark_details` visits every held event and is called only while a client asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ordering.arrays import Ints
from ordering.model.state import State
from ordering.policies import Policies
from ordering.ticks import INFINITY, NEVER


def watermark_report(state: State, policies: Policies, over: bool) -> dict[str, Any]:
    """
    Return ``watermark_us`` (with OVER the floor), ``largest_us`` (the largest system timestamp accepted) and ``cause``: ``event``, ``late
    floor``, ``estimate``, ``source CTI``, ``import``, ``join``, ``end``, or ``nothing`` before the first record.
    """
    largest_us = int(state.timelines.largest_us.max(initial=NEVER))
    own_us = NEVER if over or largest_us == NEVER else largest_us - policies.reorder_us
    watermark_us = max(own_us, state.floor_us)
    return {"watermark_us": watermark_us, "largest_us": largest_us, "cause": _cause(state, policies, own_us)}


def _cause(state: State, policies: Policies, own_us: int) -> str:
    if state.is_finished or state.c == INFINITY:
        return "end"
    if own_us > NEVER and own_us >= state.floor_us:
        return "event"
    if state.floor_us == NEVER:
        return "nothing"
    late_us = NEVER if policies.late_us is None or state.arrival_us == NEVER else state.arrival_us - policies.late_us
    if late_us >= state.floor_us:
        return "estimate" if state.is_estimated else "late floor"
    if state.promise_us >= state.floor_us:
        return "import" if state.is_imported else "source CTI"
    return "join"


def watermark_details(state: State, policies: Policies, over: bool, substreams: int) -> dict[str, Any]:
    """
    Return ``held_from_us``, the least system timestamp held (None if no event is held), and with OVER ``top``: up to *substreams*
    substreams, those that hold most first, then those with the highest watermark.
    """
    count = len(state.timelines)
    held, least_us = np.zeros(count, dtype=np.int64), np.full(count, INFINITY, dtype=np.int64)
    for chunk in state.all_chunks():
        rows = chunk.held.rows
        timeline, system_us = rows.timeline[chunk.held.is_waiting], rows.system_us[chunk.held.is_waiting]
        held += np.bincount(timeline, minlength=count)
        np.minimum.at(least_us, timeline, system_us)
    fields: dict[str, Any] = {"held_from_us": int(least_us.min(initial=INFINITY)) if held.any() else None}
    if over and substreams:
        fields["top"] = _top(state, policies, held, least_us, substreams)
    return fields


def _top(state: State, policies: Policies, held: Ints, least_us: Ints, substreams: int) -> list[dict[str, Any]]:
    largest_us = state.timelines.largest_us
    chosen = np.lexsort((-largest_us, -held))[:substreams]
    keys = state.timelines.keys(chosen).to_pylist()
    return [
        {
            "key": key.decode("utf-8", "backslashreplace"),
            "watermark_us": max(int(largest_us[row]) - policies.reorder_us if largest_us[row] > NEVER else NEVER, state.floor_us),
            "cause": "event" if largest_us[row] - policies.reorder_us > state.floor_us else "floor",
            "largest_us": int(largest_us[row]),
            "held": int(held[row]),
            "held_from_us": int(least_us[row]) if held[row] else None,
        }
        for row, key in zip(chosen.tolist(), keys, strict=True)
    ]
