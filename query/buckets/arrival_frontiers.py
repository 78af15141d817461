"""
Arrival frontiers: which raw records had arrived when an instant became complete, so how long a result took from them.

Each CTI carries the arrival frontier of its input partition, or, in a topic of results, the least one of those that it follows from. A
channel *reaches* an instant with its first CTI at or above it. The arrival frontier of an instant is the least one with which any channel
reached it; a channel that has not reached it yet counts with its last CTI.

Law, level 2: the arrival frontier of an instant that all channels have reached follows from their logs alone, however far each had been
read and wherever batches were cut. No result depends on it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.ticks import INFINITY, NEVER
from query.engine.retention import Retention

# (ordered partition, roster number of the input partition).
Channel = tuple[int, int]

_SCHEMA = pa.schema([("partition", pa.int32()), ("number", pa.int32()), ("system_us", pa.int64()), ("arrival_us", pa.int64())])


class ArrivalFrontiers:
    """The arrival frontiers of some channels; the *retention* keeps earlier CTIs above the frontier under *name*."""

    def __init__(self, name: str) -> None:
        self._name = name
        # c and arrival frontier of each channel's last CTI, microseconds; the latter is INFINITY if it is not known.
        self._last: dict[Channel, tuple[int, int]] = {}
        # Partition, roster number, c and arrival frontier of the CTIs of this batch that others followed.
        self._followed: list[tuple[int, int, int, int]] = []
        self._forgotten_us = NEVER

    def rise(self, channel: Channel, c: int, arrival_us: int) -> None:
        """Accept a CTI of a channel: its *c*, above the last one, and its arrival frontier, microseconds."""
        if (last := self._last.get(channel)) is not None:
            self._followed.append((*channel, *last))
        # A channel without any arrival yet, whose CTIs come from elsewhere, holds nothing up.
        self._last[channel] = c, arrival_us if NEVER < arrival_us < INFINITY else INFINITY

    def of_instants(self, instants_us: Ints, retention: Retention) -> tuple[Ints, Ints]:
        """Return arrival frontiers, and the index of that of each instant; INFINITY stands for one that is not known."""
        channels = self._channels(retention)
        low_us, high_us = (int(instants_us.min()), int(instants_us.max())) if len(instants_us) else (0, 0)
        # Between two neighbouring edges all instants are reached with the same CTIs.
        edges = np.unique(np.concatenate([np.array([high_us]), *(c[(c >= low_us) & (c < high_us)] for c, _ in channels)]))
        least = np.full(len(edges), INFINITY, dtype=np.int64)
        for c, arrival_us in channels:
            least = np.minimum(least, arrival_us[np.minimum(np.searchsorted(c, edges), len(c) - 1)])
        return least, np.searchsorted(edges, instants_us) if len(edges) > 1 else np.zeros(len(instants_us), dtype=np.int64)

    def forget(self, frontier_us: int, retention: Retention) -> None:
        """Forget the CTIs below the *frontier_us*, which only rises; called once a batch."""
        if frontier_us > self._forgotten_us:
            retention.reduce(self._name, lambda table: table.filter(pc.greater_equal(table["system_us"], frontier_us)))
            self._forgotten_us = frontier_us
        kept = [rise for rise in self._followed if rise[2] >= frontier_us]
        if kept:
            retention.add(self._name, pa.table(list(zip(*kept, strict=True)), schema=_SCHEMA))
        self._followed = []

    def _channels(self, retention: Retention) -> list[tuple[Ints, Ints]]:
        """Return c and arrival frontier of the CTIs of each channel, both rising."""
        found: dict[Channel, list[tuple[int, int]]] = {}
        for partition, number, c, arrival_us in self._followed:
            found.setdefault((partition, number), []).append((c, arrival_us))
        kept = retention.rows(self._name)
        channels = []
        for channel, last in self._last.items():
            rises = np.array([*found.get(channel, ()), last], dtype=np.int64)
            if kept is not None:
                own = kept.filter(pc.and_(pc.equal(kept["partition"], channel[0]), pc.equal(kept["number"], channel[1])))
                earlier = np.column_stack([own["system_us"].to_numpy(), own["arrival_us"].to_numpy()])
                rises = np.concatenate([earlier, rises])
            channels.append((rises[:, 0], rises[:, 1]))
        return channels

    def save(self) -> list[list[int]]:
        """Return what a restore needs beside the retention; :meth:`forget` precedes it."""
        return [[*channel, *last] for channel, last in sorted(self._last.items())]

    def restore(self, saved: list[list[int]]) -> None:
        self._last = {(partition, number): (c, arrival_us) for partition, number, c, arrival_us in saved}
