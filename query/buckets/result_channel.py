"""
A bucket's channel of one output: it numbers results, keeps the rows that result files and CTIs need, and makes the next CTI.

Law: numbers have no gaps; a CTI counts the results before it, and no result after it lies below it. If another run began the channel, its
results are recognized and get no second number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.model.step import Released
from ordering.protocol.punctuation import Cause, Cti, Roster
from ordering.protocol.wire import PARTITION_SHIFT
from ordering.ticks import INFINITY, NEVER, TICK_MIN
from query.columns.large_tables import combine_column, take_rows
from query.config import Promise, Substream
from query.engine.retention import RetainedKind, Retention
from sinks.base import SHEET_SCHEMA, SheetRows

NUMBER_MASK = (1 << PARTITION_SHIFT) - 1
_AHEAD_SCHEMA = pa.schema([("system_us", pa.int64())])


class Sheet(NamedTuple):
    """The results of one span and bucket (:mod:`sinks.base`): the start of the span, microseconds, and the rows."""

    start_us: int
    rows: SheetRows


@dataclass(slots=True)
class ChannelNumbering:
    """The next number, and the promises of the channel's CTIs."""

    # Number of the next result.
    seq: int = 0
    # The instant that the last CTI promises: no later result lies below it. And the largest System.Timestamp so far; microseconds.
    c: int = NEVER
    largest_us: int = TICK_MIN
    # The instant and the count of the last CTI; None before the first.
    written: tuple[int, int] | None = None
    # Results below this are in the channel already, if another run began it; else ``NEVER``.
    resumed_us: int = NEVER
    # How many of the other results are in the channel already and have not been computed by this run yet.
    skipped: int = 0
    # The same count for each substream, if it is known: the order between them may differ in this run, or its query may be another one.
    keys: dict[Substream, int] = field(default_factory=dict)

    @classmethod
    def resume(cls, promise: Promise | None) -> ChannelNumbering:
        """Return the numbering of a channel that another run has left with *promise*."""
        if promise is None:
            return cls()
        numbering = cls(promise.n, promise.c, promise.largest_us, (promise.c, promise.n), resumed_us=promise.c)
        if promise.by_substream is None:
            return replace(numbering, skipped=promise.ahead)
        return replace(numbering, keys={name: len(times) for name, times in promise.by_substream.items()})

    def drop_resumed(self, results: pa.Table) -> pa.Table:
        """Return the results that are not below the last CTI of another run that began the channel."""
        return results if self.resumed_us == NEVER else results.filter(pc.greater_equal(results["system_us"], self.resumed_us))

    def split_written(self, results: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the results that the channel lacks, and those that it has and whose times this run did not know."""
        results = self.drop_resumed(results)
        if self.keys:
            return results.filter(pa.array(~self._is_written(results))), results.slice(0, 0)
        count = min(self.skipped, results.num_rows)
        self.skipped -= count
        return results.slice(count), results.slice(0, count)

    def _is_written(self, results: pa.Table) -> Mask:
        """Return which results are the first ones of a substream, and so in the channel already."""
        is_written = np.zeros(results.num_rows, dtype=np.bool_)
        keys = pc.fill_null(results["key"], b"")
        has_known_key = pc.is_in(keys, pa.array([key for _, key in self.keys], pa.binary()))
        for row in np.flatnonzero(has_known_key.to_numpy()).tolist():
            substream = Substream(results["number"][row].as_py(), keys[row].as_py())
            count = self.keys.get(substream, 0)
            is_written[row] = count > 0
            if count > 1:
                self.keys[substream] = count - 1
            else:
                self.keys.pop(substream, None)
        return is_written

    def save(self) -> dict[str, Any]:
        return {**asdict(self), "keys": {name.text: count for name, count in self.keys.items()}}

    @classmethod
    def restore(cls, saved: dict[str, Any]) -> ChannelNumbering:
        written = None if saved["written"] is None else (saved["written"][0], saved["written"][1])
        keys = {Substream.of_text(name): count for name, count in saved["keys"].items()}
        return cls(**{**saved, "written": written, "keys": keys})


class ResultChannel:
    """
    The channel of one output; the number of *bucket* is its roster number and its partition of the result topic.

    *span_us* is the span of System.Timestamp of a result file, None without files. *promise* is what another run has promised in the
    channel, None if the channel is new. *retention* receives the times of the results that the other run has left ahead of its last CTI, if
    known.
    """

    def __init__(
        self, output: int, bucket: int, roster: Roster, span_us: int | None, promise: Promise | None, retention: Retention
    ) -> None:
        self._bucket, self._roster, self._span_us = bucket, roster, span_us
        self.numbering = ChannelNumbering.resume(promise)
        self._rows_name, self._ahead_name = RetainedKind.RESULTS.of(output), RetainedKind.AHEAD.of(output)
        if promise is not None and promise.by_substream is not None:
            self._keep_ahead([us for times in promise.by_substream.values() for us in times], retention)

    def number_results(self, results: pa.Table, partition_ids: Ints, retention: Retention) -> Released:
        """Number results (``RESULT_SCHEMA``) in emission order, by input partitions; keep the rows that files and the next CTI need."""
        numbering = self.numbering
        results = results.append_column("number", pa.array(partition_ids))
        if self._span_us and results.num_rows:
            rows = results.select(["system_us", "key", "value", "number"])
            if numbering.resumed_us > NEVER:
                # For another output this run may begin in the middle of a file of this one; that file has been written.
                rows = rows.filter(pc.greater_equal(rows["system_us"], _first_open_span(numbering.resumed_us, self._span_us)))
            retention.add(self._rows_name, rows)
        results, written = numbering.split_written(results)
        self._keep_ahead(written["system_us"], retention)
        count, system_us = results.num_rows, results["system_us"].to_numpy()
        bucket, seqs = np.full(count, self._bucket, dtype=np.int32), np.arange(numbering.seq, numbering.seq + count)
        flags = np.zeros(count, dtype=np.uint16)
        key, value = (combine_column(results[name]) for name in ("key", "value"))
        offset = seqs + (results["number"].to_numpy() << PARTITION_SHIFT)
        released = Released(self._bucket, bucket, seqs, system_us, system_us, system_us, offset, flags, key, value)
        if count:
            numbering.seq += count
            numbering.largest_us = max(numbering.largest_us, int(system_us.max()))
            self._keep_ahead(system_us, retention)
        return released

    def next_cti(self, c: int, next_offset: int, arrival_us: int, retention: Retention) -> Cti | None:
        """
        Return the CTI to write once all numbered results are acknowledged, with the arrival frontier that it follows from; None if it would
        state nothing new.
        """
        numbering = self.numbering
        if c > numbering.c:
            numbering.c = c
            _drop_below(retention, self._ahead_name, c)
        promise = numbering.c, numbering.seq
        if numbering.c == NEVER or promise == numbering.written:
            return None
        numbering.written = promise
        return Cti(
            number=self._bucket,
            output_partition=self._bucket,
            c=numbering.c,
            n=numbering.seq,
            # Results of the other run that are still to be recognized come later, so they do not lie below c.
            ahead=sum(piece.num_rows for piece in retention.pieces(self._ahead_name)) + numbering.skipped,
            next_offset=next_offset,
            arrival_us=arrival_us,
            largest_us=numbering.largest_us,
            roster=self._roster,
            cause=Cause.SHUTDOWN if numbering.c == INFINITY else Cause.EVENT,
        )

    def pop_sheets(self, c: int, retention: Retention) -> list[Sheet]:
        """Return the sheets that no result at or above *c* belongs to, and forget their rows."""
        rows = self.pop_file_rows(c, retention)
        if rows is None or self._span_us is None:
            return []
        spans, columns = rows["system_us"].to_numpy() // self._span_us, rows.select(SHEET_SCHEMA.names)
        edges = [0, *(np.flatnonzero(np.diff(spans)) + 1).tolist(), rows.num_rows]
        return [Sheet(int(spans[low]) * self._span_us, SheetRows(columns.slice(low, high - low))) for low, high in pairwise(edges)]

    def pop_file_rows(self, c: int, retention: Retention) -> pa.Table | None:
        """Return the rows of those files (``system_us``, ``key``, ``value``) in their order, None if there are none; forget them."""
        if self._span_us is None or (rows := retention.rows(self._rows_name)) is None:
            return None
        until_us = _first_open_span(c, self._span_us)
        if until_us <= int(pc.min(rows["system_us"]).as_py()):
            return None
        due = rows.filter(pc.less(rows["system_us"], until_us))
        _drop_below(retention, self._rows_name, until_us)
        # The log's order between input partitions is chance, and a file must depend on the events alone.
        order = pc.sort_indices(due, [("system_us", "ascending"), ("key", "ascending"), ("number", "ascending")])
        return take_rows(due, order.to_numpy())

    def restore(self, saved: dict[str, Any], retention: Retention) -> None:
        """Become the channel that was saved with *retention*; drop rows that are no longer needed."""
        self.numbering = ChannelNumbering.restore(saved)
        if self.numbering.c > NEVER:
            _drop_below(retention, self._ahead_name, self.numbering.c)
            if self._span_us:
                _drop_below(retention, self._rows_name, _first_open_span(self.numbering.c, self._span_us))

    def _keep_ahead(self, system_us: Ints | pa.ChunkedArray | list[int], retention: Retention) -> None:
        # The next CTI states how many results lie ahead of it.
        if len(system_us):
            retention.add(self._ahead_name, pa.table({"system_us": system_us}, schema=_AHEAD_SCHEMA))


def _drop_below(retention: Retention, name: str, until_us: int) -> None:
    retention.reduce(name, lambda table: table.filter(pc.greater_equal(table["system_us"], until_us)))


def _first_open_span(c: int, span_us: int) -> int:
    """Return the start of the first span that a CTI at *c* leaves open."""
    return c // span_us * span_us if c < INFINITY else INFINITY
