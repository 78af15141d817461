"""
A query whose rows are exchanged: all logs merged into one sequence, of which each bucket keeps the events of its own keys.

Every bucket reads all partitions, so it applies the reader's rule and uses the CTIs of all channels like any other bucket. Law, level 3:
its results are those of one :mod:`merged bucket <query.buckets.merged>` over the same logs, in the same order, without the results of other
keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ordering.protocol.reader import Accepted
from query.buckets.bucket import BucketConfig
from query.buckets.merged import MergedBucket
from query.columns.decoded_range import DecodedRange
from query.columns.events import take_events
from query.engine.exchange import BucketNumbers, Router
from query.engine.program import Program


class ExchangedBucket(MergedBucket):
    """One bucket of an exchange; see the module."""

    def __init__(self, program: Program, config: BucketConfig, router: Router) -> None:
        super().__init__(program, config)
        self._router = router
        self._buckets: BucketNumbers = np.empty(0, dtype=np.int32)

    def route(self, log: int, decoded: DecodedRange) -> DecodedRange:
        return decoded if decoded.buckets is not None else replace(decoded, buckets=self._route(log, decoded.events))

    def _accept(self, log: int, decoded: DecodedRange) -> Iterator[list[pa.Table]]:
        buckets = self.route(log, decoded).buckets
        assert buckets is not None
        carried = self._carried[log]
        self._buckets = np.concatenate([self._route(log, carried), buckets]) if carried.num_rows else buckets
        yield from super()._accept(log, decoded)
        if self._number:
            # All buckets see the same CTIs and strangers' records; one reports how many it withheld and passed over.
            self.totals.pop("withheld_ctis", None)
            self.totals.pop("foreign_records", None)

    def _route(self, log: int, events: pa.Table) -> BucketNumbers:
        return self._router.buckets_of(self._sources[self._source_of[log]].input, events)

    def _select_own(self, events: pa.Table, accepted: Accepted) -> pa.Table:
        return take_events(events, np.flatnonzero(self._buckets[accepted.rows] == self._number))

    @property
    def duplicates(self) -> int:
        """As for any bucket; all buckets of an exchange see the same duplicates, so only bucket 0 reports them."""
        return 0 if self._number else super().duplicates
