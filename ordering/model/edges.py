"""
Edges: a span given by two events, its start and later its end.

An end edge names the event time of its start edge. Policies may move both, so an end could be at or before its start; it then becomes the
start's system timestamp plus one tick.

Law: only held start edges matter. A released start edge lies below its timeline's watermark, and no later event of the timeline does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordering.arrays import Ints
from ordering.columns.payload_columns import Payload, concat_columns, to_arrow
from ordering.columns.segments import running_max
from ordering.ticks import INFINITY, NEVER


@dataclass(slots=True)
class Edges:
    """Columns of edges. They are matched by ``key`` and event time, or with OVER (``key`` is None) by timeline and event time."""

    key: Payload | None
    timeline: NDArray[np.integer[Any]]
    event_time_us: Ints
    system_us: Ints


def least_ends(held: Edges, arrived: Edges, start_us: Ints, latest_us: Ints | None = None) -> Ints:
    """
    Return the smallest system timestamp allowed for each end edge of a batch, microseconds. *held* are start edges of earlier batches,
    *arrived* the batch's kept edges in offset order; *start_us* is the event time of the start edge that each end edge names. Both it and
    the result are ``NEVER`` for start edges. *latest_us*: the latest time that is not early, for each edge; a start edge that was early has
    been moved back at least to there (None: nothing is early).
    """
    is_end = start_us > NEVER
    names = np.concatenate([held.timeline, arrived.timeline])
    if arrived.key is not None:
        keys = to_arrow(concat_columns([held.key, arrived.key])).fill_null(b"")
        names = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    begins = np.concatenate([held.event_time_us, np.where(is_end, start_us, arrived.event_time_us)])
    order = np.lexsort((np.arange(len(begins)), begins, names))
    is_same = (np.diff(names[order]) == 0) & (np.diff(begins[order]) == 0)
    span_of = np.concatenate([[0], np.cumsum(~is_same)])
    # Below every start, but so near that running_max need not take its slow path.
    bottom = int(min(held.system_us.min(initial=INFINITY), arrived.system_us.min(initial=INFINITY))) - 1
    starts = np.concatenate([held.system_us, np.where(is_end, bottom, arrived.system_us)])
    latest = np.empty_like(starts)
    latest[order] = running_max(starts[order], span_of)
    latest = latest[len(held.system_us) :]
    named_us = start_us if latest_us is None else np.minimum(start_us, latest_us)
    return np.where(is_end, np.maximum(np.where(latest > bottom, latest, NEVER), named_us) + 1, NEVER)
