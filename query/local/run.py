"""
A script run on files: the ordering step of ingest writes each file's ordered log, and a bucket of the query reads all logs.

Law: the results of each output, and their order, depend on the files, the script and the policies alone. The order is that in which a
job writes results to its topic: (s, fixed row order). With OVER it is the order in result files: (s, key bytes, partition, row order);
over several inputs a substream is a key across all partitions, and the order is (s, key bytes, row order).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.columns.payload_columns import to_arrow
from ordering.model.step import Released, Step
from ordering.protocol.punctuation import Roster, Spread
from ordering.ticks import INFINITY, SECOND_US
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.keyed import KeyedBucket
from query.buckets.merged import MergedBucket
from query.buckets.substreams import SubstreamBucket
from query.columns.large_tables import combine_column
from query.engine.program import Program
from query.local.inputs import BadRecord, FileInput
from query.local.ordered_log import OrderedLog

# With OVER results leave by whole spans, as into result files. Short spans let results leave early.
_SPAN_US = SECOND_US
# Small pieces are merged and idle substreams forgotten this often. What is retained is packed only then.
_STEPS_PER_TIDYING = 4


@dataclass(slots=True)
class Results:
    """Results of one output in pieces: their system timestamps, rising, and their values (large_binary)."""

    pieces: list[tuple[Ints, pa.Array]] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(instants) for instants, _ in self.pieces)

    def add(self, system_us: Ints, values: pa.Array) -> None:
        if len(system_us):
            self.pieces.append((system_us, to_arrow(values)))

    def pop_before(self, until_us: int) -> Results:
        """Remove and return the results before an instant."""
        counts = [int(np.searchsorted(instants, until_us)) for instants, _ in self.pieces]
        due = [(instants[:count], values[:count]) for count, (instants, values) in zip(counts, self.pieces, strict=True) if count]
        rest = [(instants[count:], values[count:]) for count, (instants, values) in zip(counts, self.pieces, strict=True)]
        self.pieces = [piece for piece in rest if len(piece[0])]
        return Results(due)

    def timed_values(self) -> Iterator[tuple[int, bytes]]:
        """Yield each result: its system timestamp and its value."""
        for instants, values in self.pieces:
            yield from zip(instants.tolist(), values.to_pylist(), strict=True)

    def texts(self) -> Iterator[memoryview]:
        """Yield the values as lines, piece by piece."""
        return (_joined_lines(values) for _, values in self.pieces)


def _joined_lines(values: pa.Array) -> memoryview:
    lines = pc.binary_join_element_wise(values, pa.scalar(b"\n", values.type), pa.scalar(b"", values.type))
    return memoryview(lines.buffers()[2])


@dataclass
class RunStep:
    """The results of each output that one step made final, in order, and the records that cannot be used."""

    results: list[Results]
    bad: list[BadRecord] = field(default_factory=list)


class LocalRun:
    """The run of a script over files; *inputs* are in the order of the script."""

    def __init__(self, program: Program, inputs: Sequence[FileInput], *, has_over: bool) -> None:
        self.inputs, self._has_over = inputs, has_over
        self._bucket = new_bucket(program, [source.name for source in inputs], has_over=has_over, span_us=_SPAN_US if has_over else None)
        self._logs = [OrderedLog() for _ in inputs]
        self._unwritten: list[list[list[Step]]] = [[] for _ in inputs]
        self._pending = [Results() for _ in program.plans]
        # Results of one output leave in their order, so none has to wait for those of another.
        self._is_in_order = not has_over and len(self._pending) == 1

    def steps(self) -> Iterator[RunStep]:
        """Read to the end of all files; yield the results and bad records of each step."""
        number = 0
        while reading := [index for index, source in enumerate(self.inputs) if not source.is_ended]:
            # Reading the input that is furthest behind keeps memory small: the other inputs' events wait for it.
            index = min(reading, key=lambda index: self.inputs[index].frontier.value)
            written, bad = self.inputs[index].read()
            self._write(index, written)
            yield from self._settle(self._bucket.settle())
            if all(source.is_ended for source in self.inputs):
                yield from self._settle(self._bucket.end())
            number += 1
            if number % _STEPS_PER_TIDYING == 0:
                self._bucket.tidy()
            yield RunStep(self._pop_results(), bad + self._pop_bad())

    def _write(self, index: int, written: list[Step]) -> None:
        """Append steps to the log of an input once its roster is known, and give them to the bucket."""
        log, waiting = self._logs[index], self._unwritten[index]
        waiting.append(written)
        log.roster = self.inputs[index].roster
        while log.roster is not None and waiting:
            appended = log.append(waiting.pop(0))
            for released in self._bucket.accept_in_parts(index, appended):
                self._collect(released)

    def _settle(self, released: Sequence[Released]) -> Iterator[RunStep]:
        """Collect all that is final; yield results on the way if they need not wait."""
        self._collect(released)
        # One call may not return everything if much is due at once.
        while not self._bucket.is_settled:
            if self._is_in_order:
                yield RunStep(self._pop_results())
            self._collect(self._bucket.settle())
        # The CTIs go nowhere; taking them lets the bucket forget what they promise.
        self._bucket.next_ctis()

    def _collect(self, released: Sequence[Released]) -> None:
        # With OVER the bucket keeps the results in the order of result files; :meth:`_pop_results` takes them from there.
        if not self._has_over:
            for pending, results in zip(self._pending, released, strict=True):
                pending.add(results.system_us, results.value)

    def _pop_results(self) -> list[Results]:
        """Return the results that no later result of any output can precede."""
        if self._is_in_order:
            return [pending.pop_before(INFINITY) for pending in self._pending]
        until_us = min(map(self._bucket.output_frontier_us, range(len(self._pending))))
        if self._has_over:
            for output, pending in enumerate(self._pending):
                if (rows := self._bucket.pop_file_rows(output)) is not None:
                    pending.add(rows["system_us"].to_numpy(), combine_column(rows["value"]))
            # File rows come by whole spans: results are final up to the start of the span that is still open.
            until_us = until_us if until_us == INFINITY else until_us // _SPAN_US * _SPAN_US
        return [pending.pop_before(until_us) for pending in self._pending]

    def _pop_bad(self) -> list[BadRecord]:
        """Return the rows on which an expression failed."""
        records = []
        for row in self._bucket.pop_bad_rows():
            if row.source is None:
                records.append(BadRecord(None, row.reason, None, None, row.value or b""))
            else:
                source = self.inputs[row.source]
                source.counts.bad[row.reason] += 1
                records.append(BadRecord(source.name, row.reason, row.partition_id, row.offset, row.value or b""))
        return records


def new_bucket(
    program: Program,
    inputs: Sequence[str],
    *,
    has_over: bool,
    span_us: int | None = None,
    start_us: int | None = None,
    read_from_us: int | None = None,
) -> Bucket:
    """
    Return the bucket of a job whose ordered topics and result topics have one partition each.

    Args:
        inputs: Their names, in the order of the script.
        span_us: The span of result files, microseconds; None: results leave as a topic has them.
        start_us: Results from here on; None: all.
        read_from_us: Events from here on count; None: all.
    """
    sources = [SourceTopic(name, 1, {index: 0}) for index, name in enumerate(inputs)]
    spans_us = [span_us] * len(program.plans)
    config = BucketConfig(sources, 0, Roster(1, 1, Spread.ONE, has_over), start_us, read_from_us, spans_us=spans_us)
    if not has_over:
        return MergedBucket(program, config)
    return SubstreamBucket(program, config) if len(inputs) == 1 else KeyedBucket(program, config, [None] * len(inputs))
