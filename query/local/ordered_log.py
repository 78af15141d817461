"""
An ordered topic in memory: the records that ingest would write of one file and that a query's bucket reads.

Law: the log holds the numbered events of each partition and its CTIs, each CTI behind the events that it promises. The topic has one
partition; each partition of the file is a channel of it.
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
from query.columns.decoded_range import DecodedRange
from query.columns.events import DECODED_SCHEMA, NO_EVENTS


@dataclass(frozen=True, slots=True)
class FileRoster(Roster):
    """A roster whose input partitions have the numbers that the file's records give, not 0, 1, ..."""

    partitions: tuple[int, ...] = ()

    @classmethod
    def of(cls, partitions: Sequence[int], *, has_over: bool) -> FileRoster:
        return cls(1, len(partitions), Spread.ALL, has_over, tuple(partitions))

    def channels_of(self, output_partition: int, output_partitions: int) -> Sequence[int]:
        """Return the file's partitions: all of them write into the one partition of the topic."""
        return self.partitions


class OrderedLog:
    """The log of one file's ordered topic. Set ``roster`` before the first :meth:`append`."""

    def __init__(self) -> None:
        self.roster: FileRoster | None = None
        self._next_offset = 0

    def append(self, steps: Sequence[Step]) -> DecodedRange:
        """Append the events and CTIs of some partitions' steps; return them as a reader decodes them."""
        assert self.roster is not None, "CTIs carry the roster"
        offsets: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        ctis: list[tuple[int, Cti]] = []
        for step in steps:
            offsets.append(np.arange(self._next_offset, self._next_offset + len(step.released)))
            self._next_offset += len(step.released)
            # CTIs come after the events of their step: a CTI promises that those have been written.
            for cti in step.ctis:
                ctis.append((self._next_offset, replace(cti, roster=self.roster)))
                self._next_offset += 1
        nothing = np.empty(0, dtype=np.int64)
        released = [step.released for step in steps if len(step.released)]
        number = np.concatenate([nothing, *(np.full(len(part), part.number, dtype=np.int64) for part in released)])
        seq, system_us = (np.concatenate([nothing, *(getattr(part, name) for part in released)]) for name in ("seq", "system_us"))
        log = Log(np.concatenate([nothing, *offsets]), number, seq, system_us, ctis)
        events = pa.concat_tables(map(_to_events, released)) if released else NO_EVENTS
        return DecodedRange(log, events, self._next_offset)


def _to_events(released: Released) -> pa.Table:
    # Without arrivals the model leaves NEVER, where a job would have a broker's stamp.
    arrival_us = np.where(released.arrival_us > NEVER, released.arrival_us, released.system_us)
    partition_id = np.full(len(released), released.number, dtype=np.int32)
    key, value = (payload_columns.to_arrow(column).cast(pa.binary()) for column in (released.key, released.value))
    columns = [
        *map(pa.array, (partition_id, released.offset, released.system_us)),
        key,
        value,
        *map(pa.array, (released.flags, arrival_us)),
    ]
    return pa.Table.from_arrays(columns, schema=DECODED_SCHEMA)
