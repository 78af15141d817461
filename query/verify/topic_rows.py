"""
Compares a result topic with the computed results.

Law: the topic is read by the reader's rule, so repeated and torn writes do not count. Its rows must be the computed ones in the same order,
with the same key, value, Kafka timestamp and System.Timestamp, and with the same number unless the computation began in the middle. The
promises of its CTIs must hold for standing and computed rows. If several runs wrote the rows, those below the number at which the next run
went on must be the first ones that a run computes, and no row of it may be missing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ordering.model.step import Released
from ordering.ticks import INFINITY, NEVER
from query.verify.rows import ROWS_FROM_DIFFERENCE, RowDifference, RowDigest, first_difference, kind_of_difference, row_at
from tidegate.ordered_topic.compare.copies import Copies
from tidegate.ordered_topic.compare.sides import Side
from tidegate.ordered_topic.compare.topics import PartitionSummary, add_piece, summarize_skipped
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.released import event_columns
from tidegate.ordered_topic.walk import PartitionWalk


@dataclass
class TopicPartition:
    """One partition of the topic: its rows are read as the computed ones come."""

    side: Side
    partition: int
    # Only rows with a System.Timestamp in [since, until) are compared, microseconds; None: no limit.
    since_us: int | None
    until_us: int | None
    digest: RowDigest = field(default_factory=RowDigest)
    difference: RowDifference | None = None
    # Computed rows after the last standing one, the first of them, and their least System.Timestamp.
    ahead: int = 0
    summary: PartitionSummary = field(default_factory=PartitionSummary)
    _first_ahead: OrderedEvents | None = None
    _least_ahead_us: int | None = None
    # How many equal rows there were when each run's rows began.
    begun: list[int] = field(default_factory=list)
    # Standing rows that were read and not compared yet.
    _waiting: OrderedEvents | None = None
    # The number of the first row that a later run wrote; None: none did.
    _limit: int | None = None

    def __post_init__(self) -> None:
        self._copies = Copies()
        self._walk = PartitionWalk(self.side, self.partition, on_copies=self._copies.add)
        self._pieces = self._read_rows()

    def begin_run(self, limit: int | None, *, has_own_numbers: bool) -> None:
        """
        Go on to the rows of the next run, which are those below the number *limit*; *has_own_numbers* as in :class:`Side`, for its computed
        rows.
        """
        self._end_run()
        self.side, self._limit = replace(self.side, has_own_numbers=has_own_numbers), limit
        self.begun.append(self.digest.count)

    def accept_rows(self, released: Released) -> None:
        """Compare the next computed rows."""
        computed = rows_between(event_columns(released), self.since_us, self.until_us)
        if self.side.has_own_numbers:
            computed = computed.without_numbers("offset")
        while len(computed) and self.difference is None:
            standing = self._next_rows()
            if standing is None:
                # Without numbers nothing tells further rows of an earlier run from those that the next run has written in their place.
                if self._limit is None or not self.side.has_own_numbers:
                    self._note_ahead(computed)
                return
            count = min(len(standing), len(computed))
            self._compare(standing, computed, count)
            assert self._waiting is not None, "it has the standing rows"
            self._waiting, computed = self._waiting.slice(count, len(self._waiting)), computed.slice(count, len(computed))

    def finish(self) -> None:
        """Read the rest of the topic: find rows that should not stand there, and check the CTIs."""
        self._end_run()
        self._limit = None
        while self._next_rows() is not None:
            self._waiting = None
        summarize_skipped(self.summary, self._walk, self._copies, self.side, self.partition)
        if self.difference is None and self._first_ahead is not None and self._is_due():
            self._differ(self.digest.count, None, 0, self._first_ahead, 0)

    @property
    def c(self) -> int:
        """The largest instant that the topic's CTIs promise, microseconds: no later row is below it."""
        return max((channel.check.c for channel in self.summary.channels.values()), default=NEVER)

    def _is_due(self) -> bool:
        """Return whether a CTI says that a row is written which does not stand: by its number, or by its time."""
        return self._walk.unmet_promise() is not None or (self._least_ahead_us is not None and self._least_ahead_us < self.c)

    def _read_rows(self) -> Iterator[OrderedEvents]:
        for piece in self._walk.run(self.until_us):
            add_piece(self.summary, piece, self.side, self.partition, self.until_us)
            rows = rows_between(piece.events, self.since_us, self.until_us)
            if len(rows):
                yield rows

    def _end_run(self) -> None:
        """Find rows of the present run that should not stand there."""
        if self.difference is None and self.begun and (standing := self._next_rows()) is not None:
            self._differ(self.digest.count, standing, 0, None, 0)

    def _next_rows(self) -> OrderedEvents | None:
        """Return standing rows of the present run that were not compared yet, None if there are no more."""
        if self._waiting is None or not len(self._waiting):
            self._waiting = next(self._pieces, None)
        if self._waiting is None or self._limit is None:
            return self._waiting
        count = int(np.searchsorted(self._waiting.seq, self._limit))
        return self._waiting.slice(0, count) if count else None

    def _compare(self, standing: OrderedEvents, computed: OrderedEvents, count: int) -> None:
        same = standing.slice(0, count)
        # The header of a result has its number twice: as seq, and as the offset of its origin.
        compared = same.without_numbers("offset") if self.side.has_own_numbers else same
        index = first_difference(compared, computed.slice(0, count))
        self.digest.add(same if index is None else same.slice(0, index))
        if index is not None:
            self._differ(self.digest.count, standing, index, computed, index)

    def _note_ahead(self, computed: OrderedEvents) -> None:
        self.ahead += len(computed)
        if self._first_ahead is None:
            self._first_ahead = computed.slice(0, min(ROWS_FROM_DIFFERENCE, len(computed)))
        least_us = int(computed.system_us.min())
        self._least_ahead_us = least_us if self._least_ahead_us is None else min(self._least_ahead_us, least_us)

    def _differ(
        self, index: int, standing: OrderedEvents | None, standing_row: int, computed: OrderedEvents | None, computed_row: int
    ) -> None:
        topic, partition = self.side.topic, self.partition
        stands = [] if standing is None else [row_at(standing, row, topic, partition) for row in _rows_from(standing, standing_row)]
        should = [] if computed is None else [row_at(computed, row) for row in _rows_from(computed, computed_row)]
        kind = kind_of_difference(stands, should)
        first_standing = stands[0] if stands and kind != "missing" else None
        first_computed = should[0] if should and kind != "extra" else None
        self.difference = RowDifference(topic, partition, index, kind, first_standing, first_computed)


def rows_between(rows: OrderedEvents, since_us: int | None, until_us: int | None) -> OrderedEvents:
    """Return the rows with a System.Timestamp in [*since_us*, *until_us*), microseconds; None: no limit."""
    if since_us is None and until_us is None:
        return rows
    first_us, end_us = NEVER if since_us is None else since_us, INFINITY if until_us is None else until_us
    return rows.take_rows(((rows.system_us >= first_us) & (rows.system_us < end_us)).nonzero()[0])


def _rows_from(rows: OrderedEvents, first: int) -> range:
    return range(first, min(first + ROWS_FROM_DIFFERENCE, len(rows)))
