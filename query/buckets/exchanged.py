"""
A query whose rows are exchanged: all logs in one line, of whose events one bucket keeps those that fall to it.

Every bucket reads all partitions, so it applies the reader's rule and heeds the CTIs of all channels as any other would. Law,
level 3: its results are those of the one bucket of :mod:`query.buckets.merged` over the same logs whose keys fall to it, in their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ordering.model.step import Released
from ordering.protocol.reader import Accepted, Log
from query.buckets.merged import MergedBucket
from query.columns.decode import Events
from query.engine.exchange import Ints, Router


class ExchangedBucket(MergedBucket):
    """
    One bucket of an exchange; see the module.

    Args:
        router: Tells the bucket of each event.
        rest: As for :class:`query.buckets.bucket.Bucket`.
    """

    def __init__(self, router: Router, *rest: Any) -> None:
        super().__init__(*rest)
        self._router = router
        self._buckets: Ints = np.empty(0, dtype=np.int32)

    def accept_records(self, log: int, read: Log, events: Events, next_offset: int, to: Ints | None = None) -> list[Released]:
        """
        Take the next range of a log; return, for each output, the results that became final, numbered.

        Args:
            log: The log.
            read: The range, for the reader's rule.
            events: Its events, whichever bucket they fall to.
            next_offset: The first offset beyond it.
            to: The bucket of each event, where it has been told already.
        """
        carried, fresh = self._carried[log], self.route_events(log, events) if to is None else to
        self._buckets = np.concatenate([self.route_events(log, carried), fresh]) if len(carried) else fresh
        released = super().accept_records(log, read, events, next_offset)
        if self._number:
            # All buckets hear of the same CTIs; one tells how many it left alone.
            self.totals.pop("withheld_ctis", None)
        return released

    def route_events(self, log: int, events: Events) -> Ints:
        """Return the bucket of each event of a log."""
        return self._router.buckets_of(self._sources[self._source_of[log]].input, events)

    def _select_own(self, events: Events, accepted: Accepted) -> Events:
        return events.take(np.flatnonzero(self._buckets[accepted.rows] == self._number))

    @property
    def duplicates(self) -> int:
        """How many events stood in the logs more than once; all buckets see the same, one tells."""
        return 0 if self._number else super().duplicates
