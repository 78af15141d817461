"""
A query without OVER: all logs merged into one sequence, up to the least of their frontiers.

Law, level 3: the events of each input are evaluated in the order (s, input partition, offset), rows of several inputs in an order that
follows from theirs and the script, and windows close as the merged frontier passes them. So results and their order depend on the events
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.protocol.reader import Accepted
from ordering.ticks import NEVER
from query.buckets.bucket import Bucket, BucketConfig
from query.engine.pending_events import find_pending_step_end
from query.engine.program import Program
from query.engine.retention import RetainedKind


class MergedBucket(Bucket):
    """All logs merged into one sequence; see the module."""

    def __init__(self, program: Program, config: BucketConfig) -> None:
        super().__init__(program, config)
        # Results below this instant have been computed.
        self._closed_us = NEVER

    def _accept_events(self, source_index: int, events: pa.Table, accepted: Accepted) -> Iterable[list[pa.Table]]:
        self._retention.add(RetainedKind.PENDING.of(source_index), events)
        return ()

    @property
    def is_settled(self) -> bool:
        return super().is_settled and self._closed_us >= self.frontier_us

    def _close_due(self) -> Iterator[list[pa.Table]]:
        # One step: the next events that are due, and the results of the time up to them.
        frontier_us = self.frontier_us
        if self._closed_us >= frontier_us:
            return
        pending = [piece for index in range(len(self._sources)) for piece in self._retention.pieces(RetainedKind.PENDING.of(index))]
        due_us = find_pending_step_end([piece.rows() for piece in pending if piece.low_us < frontier_us], frontier_us)
        # A step is bounded twice: by the memory for its pending events, then by that for the retained rows.
        until_us = self._program.find_step_end(self._retention, self._closed_us, due_us)
        closing = pa.table({"sub": [0], "from_us": [self._closed_us], "to_us": [until_us]})
        self._closed_us = until_us
        for source_index in range(len(self._sources)):
            for _ in self._prepare_until(source_index, until_us):
                if self._program.is_streamed:
                    # No result depends on several events, so the results of this part can leave before the next part is evaluated.
                    yield from self._finish(closing)
        yield from self._finish(closing)

    def _prepare_until(self, source_index: int, until_us: int) -> Iterator[None]:
        """Evaluate the events of a source that lie below an instant, in parts; they are no longer pending."""
        name = RetainedKind.PENDING.of(source_index)
        pieces = [piece for piece in self._retention.pieces(name) if piece.low_us < until_us]
        if pieces:
            due = pa.concat_tables([_split_at(piece.rows(), until_us)[0] for piece in pieces])
            self._drop_pending(source_index, until_us)
            yield from self._prepare_by_time(source_index, due.append_column("sub", pa.array(np.zeros(due.num_rows, dtype=np.int64))))

    def _drop_pending(self, source_index: int, until_us: int) -> None:
        self._retention.reduce(RetainedKind.PENDING.of(source_index), lambda table: _split_at(table, until_us)[1])

    def _save_progress(self) -> None:
        pass  # the head has all of the progress

    def _head_fields(self) -> dict[str, Any]:
        return {"closed_us": self._closed_us}

    def _restore_own(self, fields: dict[str, Any]) -> None:
        self._closed_us = fields["closed_us"]
        for source_index in range(len(self._sources)):
            self._drop_pending(source_index, self._closed_us)
        self._program.forget(self._retention, pa.table({"sub": [0], "to_us": [self._closed_us]}))


def _split_at(table: pa.Table, until_us: int) -> tuple[pa.Table, pa.Table]:
    """Return the events below an instant, and the others. A chunk in order of time, such as those of one log, is cut without a copy."""
    parts = [_split_chunk(chunk, until_us) for chunk in table.to_batches()]
    below, above = zip(*parts, strict=True) if parts else ((), ())
    return pa.Table.from_batches(below, table.schema), pa.Table.from_batches(above, table.schema)


def _split_chunk(chunk: pa.RecordBatch, until_us: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    below = chunk["system_us"].to_numpy() < until_us
    count = int(np.count_nonzero(below))
    if below[:count].all():
        return chunk.slice(0, count), chunk.slice(count)
    return chunk.filter(pa.array(below)), chunk.filter(pa.array(~below))
