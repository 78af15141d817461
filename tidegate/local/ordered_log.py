"""
An ordered topic in memory: what ingest would write of one file, and a query's bucket reads.

Law: the log of a file holds the events of each partition, numbered, and its CTIs, each behind the events that it promises.
The topic has one partition; every partition of the file is a channel of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ordering.columns import payload_columns
from ordering.model.step import Released, Step
from ordering.protocol.punctuation import Cti, Roster, Spread
from ordering.protocol.reader import Log
from ordering.ticks import NEVER
from query.columns.decode import Events


@dataclass(frozen=True, slots=True)
class FileRoster(Roster):
    """A roster whose input partitions are numbered as the file's records number them, not 0, 1, ..."""

    partitions: tuple[int, ...] = ()

    @classmethod
    def of(cls, partitions: Sequence[int], *, has_over: bool) -> FileRoster:
        """Return the roster of a file with these partitions."""
        return cls(1, len(partitions), Spread.ALL, has_over, tuple(partitions))

    def channels_of(self, output_partition: int, output_partitions: int) -> Sequence[int]:
        """Return the file's partitions: the topic has one partition, into which all of them write."""
        return self.partitions


@dataclass(frozen=True, slots=True)
class LogRange:
    """The next range of a log: what the reader's rule needs of it, its events, and the first offset beyond it."""

    log: Log
    events: Events
    next_offset: int


class OrderedLog:
    """The log of one file's ordered topic; ``roster`` must be known before the first range is appended."""

    def __init__(self) -> None:
        self.roster: FileRoster | None = None
        self._next_offset = 0

    def append(self, steps: Sequence[Step]) -> LogRange:
        """Write what a step of each of some partitions gave; return it as a reader finds it."""
        assert self.roster is not None, "CTIs carry the roster"
        offsets: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        ctis: list[tuple[int, Cti]] = []
        for step in steps:
            offsets.append(np.arange(self._next_offset, self._next_offset + len(step.released)))
            self._next_offset += len(step.released)
            for cti in step.ctis:
                ctis.append((self._next_offset, replace(cti, roster=self.roster)))
                self._next_offset += 1
        nothing = np.empty(0, dtype=np.int64)
        events = Events.concat([_to_events(step.released) for step in steps]) if steps else Events.none()
        seq = np.concatenate([nothing, *(step.released.seq for step in steps)])
        log = Log(np.concatenate([nothing, *offsets]), events.number, seq, events.system_us, ctis)
        return LogRange(log, events, self._next_offset)


def _to_events(released: Released) -> Events:
    if not len(released):
        return Events.none()
    # Without arrivals the model leaves NEVER, where a job would have a broker's stamp.
    arrival_us = np.where(released.arrival_us > NEVER, released.arrival_us, released.system_us)
    number = np.full(len(released), released.number, dtype=np.int64)
    key, value = (payload_columns.to_arrow(column).cast(pa.binary()) for column in (released.key, released.value))
    return Events(number, released.offset, released.system_us, key, value, released.flags, arrival_us)
