"""
Edges: a span told by two events, its start and later its end.

An end edge names the event time of its start edge. Policies may move either of them, so an end could come out at or
before its start; then it becomes the start's system timestamp plus one tick (spec section 4).

Law: only start edges that are still held have to be asked. One already released lies below its timeline's watermark,
and no later event of the timeline comes out below that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordering.columns import Payload, join, to_arrow
from ordering.segments import running_max
from ordering.ticks import NEVER

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Starts:
    """Start edges still held: identity (record key; None with OVER, where the timeline is it), timeline, event and system time."""

    key: Payload | None
    timeline: Ints
    event_time_us: Ints
    system_us: Ints


class Pairing:
    """
    Which end edges of a batch belong to which start edges, met before the batch or in it.

    Args:
        held: Start edges held from earlier batches.
        key: Record keys of the batch's kept events, in offset order; None with OVER.
        timeline: Their timelines.
        event_time_us: Event times of start edges (ends need none).
        start_us: Event time of its start edge for each end edge; ``NEVER`` for start edges.
    """

    def __init__(self, held: Starts, key: Payload | None, timeline: Ints, event_time_us: Ints, start_us: Ints) -> None:
        self._start_us, self._held_us = start_us, held.system_us
        self._is_end = start_us > NEVER
        names = np.concatenate([held.timeline, timeline])
        if key is not None:
            keys = to_arrow(join([held.key, key]) if held.key is not None else key).fill_null(b"")
            names = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
        begins = np.concatenate([held.event_time_us, np.where(self._is_end, start_us, event_time_us)])
        self._order = np.lexsort((np.arange(len(begins)), begins, names))
        names, begins = names[self._order], begins[self._order]
        same = (names[1:] == names[:-1]) & (begins[1:] == begins[:-1])
        self._span = np.concatenate([[0], np.cumsum(~same)]) if len(begins) else np.zeros(0, dtype=np.int64)

    def lifts(self, system_us: Ints, dropped: NDArray[np.bool_]) -> Ints:
        """Return below which system timestamp each event must not come out, given those of all (offset order)."""
        fresh = np.where(self._is_end | dropped, NEVER, system_us)
        starts = np.concatenate([self._held_us, fresh])
        latest = np.empty_like(starts)
        latest[self._order] = running_max(starts[self._order], self._span)
        latest = latest[len(self._held_us) :]
        lift = np.maximum(latest, self._start_us) + 1
        return np.where(self._is_end & ~dropped, lift, NEVER)
