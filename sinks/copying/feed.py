"""
Reads one partition of a result topic from a store's progress on.

Law: after :meth:`PartitionFeed.seek` the feed yields exactly the results that a reader of the topic accepts
(:mod:`ordering.protocol.reader`) from that position on, each once, in the order of their positions. Results are final, so they do not wait
for a CTI.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing, nullcontext

import numpy as np

from ordering.errors import RefusedError
from sinks.copying.ahead import read_ahead
from sinks.stores.base import Progress, Rows, Stream
from tidegate.ordered_topic.decode import decode
from tidegate.ordered_topic.walk import ChannelPosition, PartitionWalk, TopicRange
from tidegate.platform.kafka.ranges import CHUNK_EVENTS, RangeReader, Records, SharedConnections

# How long results that a CTI promises may be missing (PROTOCOL.md).
GAP_WAIT_S = 60.0
# After a silence of this length the feed gives up, so that its caller can see whether the job must stop and whether the brokers answer.
_SILENCE_MAX_S = 5.0


class PartitionFeed:
    """
    Reads one partition of *stream*; ``offset`` is the next log offset, ``position`` the number of the next result. Feeds of one thread may
    share *connections*.
    """

    def __init__(self, kafka: Mapping[str, str], stream: Stream, partition: int, connections: SharedConnections | None = None) -> None:
        self._kafka, self._stream, self.partition, self._connections = kafka, stream, partition, connections
        self._source: RangeReader | None = None
        self.seek(Progress(stream.id, 0, 0))

    def seek(self, progress: Progress) -> None:
        """Continue from a store's progress."""
        # What was missing may have come while store or brokers did not answer.
        self._gap_since_s: float | None = None
        self.offset, last = progress.offset, progress.position - 1
        resume = ChannelPosition(progress.offset, self.partition, last)
        self._walk = PartitionWalk(TopicRange(self._stream.name, self._kafka, self._stream.partitions), self.partition, resume)

    @property
    def position(self) -> int:
        return self._walk.reader.last(self.partition) + 1

    @property
    def is_finished(self) -> bool:
        """Whether the final CTI of the partition has been read."""
        return self._walk.reader.finished

    def read(self, end: int, rows_max: int = CHUNK_EVENTS) -> Generator[Rows, None, None]:
        """
        Yield the results below the log offset *end* in pieces of at most *rows_max*. While one piece is used the next is fetched, until the
        generator is closed. Raises UnreachableError: the brokers are silent, and the call may be repeated; RefusedError: retention has
        deleted results that are needed; GapError: results are missing in the log.
        """
        chunk = min(rows_max, CHUNK_EVENTS)
        pieces = self.source.read(self.offset, end, chunk, silence_max_s=_SILENCE_MAX_S)
        # A single piece is not worth a thread.
        with closing(read_ahead(pieces)) if end - self.offset > chunk else nullcontext(pieces) as pieces_read:
            for records in pieces_read:
                rows = self._accept(records)
                if len(rows):
                    yield rows
        self.offset = max(self.offset, end)
        self._check_gap()

    def read_on(self, rows_max: int = CHUNK_EVENTS) -> Rows | None:
        """Return the results that have come since; None if no record has. Raises as :meth:`read` does."""
        records = self.source.read_on(self.offset, 0, min(rows_max, CHUNK_EVENTS))
        if records is None:
            return None
        rows = self._accept(records)
        self._check_gap()
        return rows

    @property
    def source(self) -> RangeReader:
        """What it reads with; it connects when it is asked for first."""
        if self._source is None:
            self._source = RangeReader(self._kafka, self._stream.name, self.partition, headers=True, connections=self._connections)
        return self._source

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _accept(self, records: Records) -> Rows:
        piece = decode(records, self._stream.name, self.partition)
        of_others = np.flatnonzero(piece.events.number != self.partition)
        if len(of_others):
            what = "a record belongs to a channel that no query writes: this is no result topic"
            where = f"{self._stream.name}-{self.partition}@{piece.events.log_offset[of_others[0]]}"
            raise RefusedError(what, code="TG-STORE-TOPIC", where=where, fix="name an output whose topic a query writes")
        results = self._walk.accept(piece).events
        self.offset = int(records.offset[-1]) + 1
        return Rows(results.seq, results.log_offset, results.system_us, results.key, results.value)

    def _check_gap(self) -> None:
        """Raise GapError if results that a CTI promises have been missing for a minute."""
        missing = self._walk.unmet_promise()
        if missing is None:
            self._gap_since_s = None
            return
        self._gap_since_s = self._gap_since_s or time.monotonic()
        if time.monotonic() - self._gap_since_s > GAP_WAIT_S:
            raise missing
