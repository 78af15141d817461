"""
A query without OVER: all logs in one line, merged up to the least of their frontiers.

Law, level 3: the events of each input are taken in the order (s, input partition, offset), what is computed of several
inputs in an order that follows from theirs and the script, and windows close as the merged frontier passes them; so results
and their order depend on the events alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ordering.protocol.reader import Accepted
from ordering.ticks import NEVER
from query.buckets.bucket import Bucket
from query.columns.decode import Events
from query.engine.pending_events import find_pending_step_end, table_of


class MergedBucket(Bucket):
    """All logs in one line; see the module."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._closed_us = NEVER

    def _accept_events(self, at: int, events: Events, accepted: Accepted) -> None:
        if len(events):
            self._retention.add(_pending_name(at), table_of(events))

    @property
    def is_settled(self) -> bool:
        """Tell whether all that is due has been worked on."""
        return self._closed_us >= self.frontier_us

    def _close_due(self) -> list[pa.Table] | None:
        if self.is_settled:
            return None
        waiting = [piece for at in range(len(self._sources)) for piece in self._retention.pieces(_pending_name(at))]
        due_us = find_pending_step_end([piece.rows() for piece in waiting if piece.low_us < self.frontier_us], self.frontier_us)
        until_us = self._program.find_step_end(self._retention, self._closed_us, due_us)
        for at in range(len(self._sources)):
            self._merge(at, until_us)
        closing = pa.table({"sub": [0], "from_us": [self._closed_us], "to_us": [until_us]})
        self._closed_us = until_us
        return self._finish(closing)

    def _merge(self, at: int, until_us: int) -> None:
        """Work on the events of a source that lie below an instant; they wait no more."""
        pieces = [piece for piece in self._retention.pieces(_pending_name(at)) if piece.low_us < until_us]
        if not pieces:
            return
        due = pa.concat_tables([_split_at(piece.rows(), until_us)[0] for piece in pieces], promote_options="default")
        self._retention.reduce(_pending_name(at), lambda table: _split_at(table, until_us)[1])
        self._prepare_in_order(at, due.append_column("sub", pa.array(np.zeros(due.num_rows, dtype=np.int64))))

    def _save_progress(self) -> None:
        pass  # the head says how far it has merged

    def _head_fields(self) -> dict[str, Any]:
        return {"closed_us": self._closed_us}

    def _restore_own(self, fields: dict[str, Any]) -> None:
        self._closed_us = fields["closed_us"]
        closed = pa.table({"sub": [0], "to_us": [self._closed_us]})
        for at in range(len(self._sources)):
            self._retention.reduce(_pending_name(at), lambda table: _split_at(table, self._closed_us)[1])
        self._program.forget(self._retention, closed)


def _split_at(table: pa.Table, until_us: int) -> tuple[pa.Table, pa.Table]:
    """Return the events below an instant and the others; where they are in order already, none is moved."""
    below = table["system_us"].to_numpy() < until_us
    count = int(np.count_nonzero(below))
    if below[:count].all():
        return table.slice(0, count), table.slice(count)
    return table.filter(pa.array(below)), table.filter(pa.array(~below))


def _pending_name(at: int) -> str:
    """Return the name under which the events of a source wait for the others."""
    return f"held{at or ''}"
