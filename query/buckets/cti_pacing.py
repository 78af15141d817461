"""
CTI pacing: the progress of each input channel, thinned to the pace that the query asks for.

The bucket is as far as its slowest channel. Law, level 2: which rises of a channel pass, and with which record, follows from its ordered
partition's log alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.protocol.frontier import Frontier, Pace, PacedStream, Rises
from ordering.protocol.punctuation import Roster, shift_cti
from ordering.protocol.reader import Accepted, ChannelRise, PartitionReader
from query.buckets.arrival_frontiers import ArrivalFrontiers, Channel
from query.columns.events import end_edges

# The rises of channels, in log order.
Progress = list[ChannelRise]

_NO_OFFSETS = np.empty(0, dtype=np.int64)


class CtiPacing:
    """The paced channels of some ordered *partitions*, of a topic with *output_partitions* in all, and the *arrivals* of their CTIs."""

    def __init__(self, pace: Pace, partitions: Iterable[int], output_partitions: int, arrivals: ArrivalFrontiers) -> None:
        self._pace, self._partitions, self._output_partitions = pace, tuple(partitions), output_partitions
        self._paced: dict[Channel, PacedStream] = {}
        self._frontier: Frontier[Channel] = Frontier()
        self._newest: Roster | None = None
        self.arrivals = arrivals

    @property
    def frontier(self) -> int:
        """No event still to be accepted has s below this, microseconds; ``NEVER`` until each channel of the roster has a CTI."""
        return self._frontier.value

    def channel_c(self, partition: int, number: int) -> int:
        """Return the last c of one channel that passed, microseconds."""
        return self._frontier.c((partition, number))

    def accept_progress(self, partition: int, roster: Roster | None, events: pa.Table, accepted: Accepted) -> Progress:
        """Accept a range of an ordered partition, its newest *roster* and accepted *events*, in order; return the rises that pass."""
        self._join_roster(roster)
        rises: dict[int, Rises] = {}
        for offset, number, c in accepted.progress:
            rises.setdefault(number, []).append((offset, c))
        # The rises of a channel have different c.
        arrivals = zip(accepted.progress, accepted.arrivals_us, strict=True)
        arrival_of = {(number, shift_cti(c, -self._pace.delay_us)): arrival_us for (_, number, c), arrival_us in arrivals}
        counted = self._counted_offsets(events, accepted.position)
        passed: Progress = []
        for number in sorted(rises.keys() | counted.keys()):
            paced = self._paced.setdefault((partition, number), PacedStream(self._pace))
            for offset, c in paced.thin(rises.get(number, []), counted.get(number, _NO_OFFSETS)):
                passed.append(ChannelRise(offset, number, c))
                self.arrivals.rise((partition, number), c, arrival_of[number, c])
            self._frontier.rise((partition, number), paced.last_c)
        return sorted(passed)

    def _counted_offsets(self, events: pa.Table, position: Ints) -> dict[int, Ints]:
        """Return for each input partition the log offsets of its accepted events, if the pace counts events."""
        if self._pace.every_events is None or not events.num_rows:
            return {}
        is_counted, partition_id = ~end_edges(events), events["partition_id"].to_numpy()
        return {number: position[is_counted & (partition_id == number)] for number in np.unique(partition_id).tolist()}

    def _join_roster(self, roster: Roster | None) -> None:
        """Wait for every channel of the newest roster that any partition has shown."""
        if roster is not None and (self._newest is None or roster.version > self._newest.version):
            self._newest = roster
            for partition in self._partitions:
                self._frontier.join(*((partition, number) for number in roster.channels_of(partition, self._output_partitions)))

    def save(self) -> dict[str, Any]:
        paced = [[*channel, paced.last_c, paced.events_since] for channel, paced in sorted(self._paced.items())]
        return {"frontier": self._frontier.value, "paced": paced, "arrivals": self.arrivals.save()}

    def restore(self, saved: dict[str, Any], readers: Iterable[PartitionReader]) -> None:
        for reader in readers:
            self._join_roster(reader.roster)
        self._paced = {(partition, number): PacedStream.restore(self._pace, c, events) for partition, number, c, events in saved["paced"]}
        # A state of an earlier version has none.
        self.arrivals.restore(saved.get("arrivals", []))
        passed = {channel: paced.last_c for channel, paced in self._paced.items()}
        self._frontier = Frontier.restore(saved["frontier"], dict(self._frontier.members) | passed)
