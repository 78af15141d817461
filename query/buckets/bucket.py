"""
A bucket: the part of a query's work that one writer does in one fixed order, and its memory.

A bucket reads ordered partitions by the reader's rule and retains the rows that later results need. It returns final results, and the CTIs
that follow them. Results are numbered: the results of one bucket are one channel of each output. The ordered partitions that a bucket reads
are *logs*, numbered over all topics of the query. The kinds:

- :class:`~query.buckets.substreams.SubstreamBucket` (OVER): one log. Law, level 2: results leave in emission order, so they depend on the
  log alone, not on batches.
- :class:`~query.buckets.keyed.KeyedBucket` (OVER over several inputs or over results): one partition of each topic.
- :class:`~query.buckets.merged.MergedBucket` (no OVER): all logs, merged up to the least of their frontiers. Law, level 3: results depend
  on the events alone. :class:`~query.buckets.exchanged.ExchangedBucket` keeps only the events of its keys.

All of them use each channel's CTIs at the query's own pace (:mod:`query.buckets.cti_pacing`). The pace decides when results become final,
and with OVER at which record. It changes no result.

A bucket needs neither Spark nor Kafka. A minimal driver, batch by batch::

    config = BucketConfig([SourceTopic("rides", partitions=1, logs={0: 0})], number=0, roster=Roster(1, 1, Spread.ONE, False))
    bucket = MergedBucket(Program(plans), config)
    released = [bucket.accept_records(log, decoded)]     # each range: numbers and CTIs (Log), a table of events (DECODED_SCHEMA)
    released.append(bucket.settle())                     # the end of the batch; again until bucket.is_settled
    released.append(bucket.end())                        # only if the run ends here; then settle again until bucket.is_settled
    bucket.pop_bad_rows(), bucket.next_ctis()            # rows that failed; for each output the CTI to write now

``released`` holds for each call and output the results that became final. :meth:`Bucket.save` and :meth:`Bucket.restore` are for drivers
that survive a crash.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.columns.framed_payloads import payload_of
from ordering.columns.payload_columns import rows_above
from ordering.errors import check_saved_version
from ordering.model.state import Delta
from ordering.model.step import Released
from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Cti, Roster, shift_cti
from ordering.protocol.reader import Accepted, PartitionReader
from ordering.ticks import INFINITY, NEVER, TICK_MAX
from query.buckets.arrival_frontiers import ArrivalFrontiers
from query.buckets.cti_pacing import CtiPacing
from query.buckets.result_channel import NUMBER_MASK, ResultChannel, Sheet
from query.columns.decoded_range import DecodedRange
from query.columns.events import NO_EVENTS, for_operators, take_events
from query.config import Promise
from query.engine.ahead import shift_slices
from query.engine.pending_events import sort_by_time
from query.engine.program import Divide, Program
from query.engine.retention import RetainedKind, Retention, encode_table
from query.plan.row_tables import RESULT_SCHEMA
from query.reference.lookup import LATE, KnownReferences, ReferenceLookup
from tidegate.basics.budget import BUDGET, compute_in_halves, halve_rows
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.records.payloads.formats import JSON

# The format of a saved bucket. Raise it if an older program could misread a newer save.
BUCKET_STATE_VERSION = 3
EACH_CTI = Pace()


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """An ordered topic as a bucket reads it."""

    # The name that the script gives it.
    input: str
    partitions: int
    # The partition of each log that the bucket reads, by the number of the log.
    logs: Mapping[int, int]
    # Whether it holds the results of another query.
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class BucketConfig:
    """What a bucket reads and writes."""

    # The topics it reads, in the order of the script.
    sources: Sequence[SourceTopic]
    # The bucket's number, which is its roster number and partition in the result topics.
    number: int
    roster: Roster
    # The output start: results from here on, None for all.
    start_us: int | None = None
    # The first instant needed: events from here on count, None for all.
    read_from_us: int | None = None
    # For each output the span of System.Timestamp of a result file, None without files; empty: no output has files.
    spans_us: Sequence[int | None] = ()
    # How often the bucket follows a channel's CTIs.
    pace: Pace = EACH_CTI
    # For each output what another run has promised in its channel; empty: all channels are new.
    promises: Sequence[Promise | None] = ()
    # For each output the largest result, bytes of key and value; None: any. Empty: no output has a limit.
    result_bytes_max: Sequence[int | None] = ()
    # The output end: no result from here on, and nothing to do once the frontier has reached it.
    until_us: int = INFINITY
    # The first instant needed of single logs, if it differs (:mod:`query.start.settling`).
    log_starts_us: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that the query could not evaluate, or a result that its topic does not take."""

    reason: str
    # Key and payload of the event; of a row between two operators its columns as JSON.
    key: bytes | None
    value: bytes | None
    # Number of the event's source; None for a row between two operators.
    source: int | None = None
    # Roster number of the event's input partition, and its offset there; of a result its number.
    partition_id: int = -1
    offset: int = -1
    # Of a result: number of its output, and System.Timestamp in microseconds.
    result: tuple[int, int] | None = None


class Bucket(ABC):
    """The common part of all kinds: readers, retention, result channels. Each bucket has its own *program*, which collects failed rows."""

    def __init__(self, program: Program, config: BucketConfig) -> None:
        self._program, self._sources, self._number = program, tuple(config.sources), config.number
        program.start_us = NEVER if config.start_us is None else config.start_us
        self._until_us = program.until_us = config.until_us
        self._source_of = {log: index for index, source in enumerate(self._sources) for log in source.logs}
        self.readers = {
            log: PartitionReader(partition, source.partitions, config.log_starts_us.get(log, config.read_from_us))
            for source in self._sources
            for log, partition in source.logs.items()
        }
        self._pacing = [
            CtiPacing(config.pace, source.logs.values(), source.partitions, ArrivalFrontiers(RetainedKind.ARRIVALS.of(index)))
            for index, source in enumerate(self._sources)
        ]
        # Events that a reader has collected after a start in the middle and not accepted yet.
        self._carried = dict.fromkeys(self.readers, NO_EVENTS)
        self._retention = Retention()
        outputs = range(len(program.outputs))
        promises = config.promises or [None for _ in outputs]
        spans_us = config.spans_us or [None for _ in outputs]
        self._channels = [
            ResultChannel(output, self._number, config.roster, spans_us[output], promises[output], self._retention) for output in outputs
        ]
        self._result_bytes_max = config.result_bytes_max or [None for _ in outputs]
        self._next_offset = dict.fromkeys(self.readers, 0)
        # How many events have been evaluated: the position of the next one.
        self._position = 0
        self._ended = False
        # The results of a settle that has not returned all of them yet.
        self._unreturned: Iterator[list[pa.Table]] | None = None
        self.totals: dict[str, int] = {}
        self._bad_rows: list[BadRow] = []
        self._lookup, self._versions_used = ReferenceLookup(), 0

    # Progress

    @property
    def frontier_us(self) -> int:
        """No later event has a System.Timestamp below this: the least frontier of the inputs, ``INFINITY`` once the input has ended."""
        return min(INFINITY if self._ended else min(pacing.frontier for pacing in self._pacing), self._until_us)

    def output_frontier_us(self, output: int) -> int:
        """Return the instant, microseconds, below which no later result of an output lies; see :mod:`query.engine.ahead`."""
        return min(shift_cti(self.frontier_us, self._program.ahead_us(output)), self._until_us)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do: the input has ended, or the frontier has reached the output end."""
        return all(self.output_frontier_us(output) == self._until_us for output in range(len(self._channels)))

    def next_offset(self, log: int) -> int:
        """Return up to where a log was accepted: the offset after its last record; 0 before the first."""
        return self._next_offset[log]

    @property
    def is_settled(self) -> bool:
        """Whether :meth:`settle` has returned all that is final."""
        return self._unreturned is None

    @property
    def duplicates(self) -> int:
        return sum(reader.duplicates for reader in self.readers.values())

    @property
    def looks_up_from(self) -> tuple[int, int]:
        """The instant from which on rows may still be looked up in reference data, microseconds, and how many added versions are known."""
        return self._lookup.lookup_from_us(self.frontier_us), self._lookup.count

    # A batch

    def update_references(self, known: KnownReferences) -> None:
        """Use the reference data that the run knows. Called before each batch of a run with reference data."""
        self._count(LATE, self._lookup.accept_versions(known))
        if self._versions_used != len(known.added):
            self._versions_used = len(known.added)
            self._program.replace_references(self._lookup.tables(known))

    def route(self, log: int, decoded: DecodedRange) -> DecodedRange:
        """Return a range, with the bucket of each of its events if rows are exchanged."""
        return decoded

    def accept_records(self, log: int, decoded: DecodedRange) -> list[Released]:
        """Accept the next range of a log; return, for each output, the results that became final, numbered."""
        return self._release(self._concat(self._accept(log, decoded)))

    def accept_in_parts(self, log: int, decoded: DecodedRange) -> Iterator[list[Released]]:
        """Do the same; yield the results in parts that fit into memory, however many have become final at once."""
        for tables in self._accept(log, decoded):
            yield self._release(tables)

    def _accept(self, log: int, decoded: DecodedRange) -> Iterator[list[pa.Table]]:
        reader, source_index = self.readers[log], self._source_of[log]
        accepted = reader.accept(decoded.log)
        self._count("foreign_records", decoded.foreign.count)
        self._next_offset[log] = decoded.next_offset
        carried = self._carried[log]
        events = pa.concat_tables([carried, decoded.events]) if carried.num_rows else decoded.events
        self._carried[log] = take_events(events, accepted.carried)
        events = take_events(events, accepted.rows)
        # Pacing counts all accepted events, also those of other buckets of an exchange, so all of these use the same CTIs.
        partition = self._sources[source_index].logs[log]
        progress = self._pacing[source_index].accept_progress(partition, reader.roster, events, accepted)
        self._count("withheld_ctis", len(accepted.progress) - len(progress))
        events = self._select_own(events, accepted)
        self._count("events", events.num_rows)
        yield from self._accept_events(source_index, events, replace(accepted, progress=progress))

    def settle(self) -> list[Released]:
        """
        Return the results that become final once all ranges of the batch have been accepted.

        If much is due at once, one call does not return all: call it until :attr:`is_settled`. Otherwise results below the next CTI would
        still follow it.
        """
        if self._unreturned is None:
            self._unreturned = self._close_due()
        parts, size = [], 0
        for tables in self._unreturned:
            parts.append(tables)
            size += sum(table.nbytes for table in tables)
            if size >= BUDGET.released_bytes:
                break
        else:
            self._unreturned = None
        return self._release(self._concat(parts))

    def end(self) -> list[Released]:
        """Make everything final, because the run ends here; return the results as :meth:`settle` does."""
        self._ended = True
        return self.settle()

    def next_ctis(self) -> list[Cti | None]:
        """Return for each output the CTI to write once everything released so far is acknowledged; None if it would state nothing new."""
        next_offset, arrival_us = sum(self._next_offset.values()), self._arrival_of_frontier()
        for pacing in self._pacing:
            pacing.arrivals.forget(self.frontier_us, self._retention)
        return [
            channel.next_cti(self.output_frontier_us(output), next_offset, arrival_us, self._retention)
            for output, channel in enumerate(self._channels)
        ]

    def _arrival_of_frontier(self) -> int:
        """Return the arrival frontier that CTIs follow from, microseconds; ``NEVER`` if it is not known."""
        if self.frontier_us == NEVER:
            return NEVER
        ((arrival_us, _),) = self._count_by_arrival(np.array([self.frontier_us]))
        return NEVER if arrival_us == INFINITY else arrival_us

    def count_by_arrival(self, output: int, results: Released) -> list[tuple[int, int]]:
        """
        Return (arrival frontier, count) of results that have just become final: by then the raw records had arrived that made them final.
        Results whose arrival frontier is not known are not counted. With OVER a result may be ahead of all CTIs, and counts with the last.
        """
        if not len(results):
            return []
        # A result is final once its input is complete up to and including its instant.
        counts = self._count_by_arrival(results.system_us - self._program.ahead_us(output) + 1)
        return [(arrival_us, count) for arrival_us, count in counts if count and arrival_us < INFINITY]

    def _count_by_arrival(self, instants_us: Ints) -> list[tuple[int, int]]:
        sources = [pacing.arrivals.of_instants(instants_us, self._retention) for pacing in self._pacing]
        if all(len(arrivals_us) == 1 for arrivals_us, _ in sources):
            return [(min(int(arrivals_us[0]) for arrivals_us, _ in sources), len(instants_us))]
        if len(sources) == 1:
            ((arrivals_us, index),) = sources
            return list(zip(arrivals_us.tolist(), np.bincount(index, minlength=len(arrivals_us)).tolist(), strict=True))
        least_us = np.minimum.reduce([arrivals_us[index] for arrivals_us, index in sources])
        return list(zip(*(column.tolist() for column in np.unique(least_us, return_counts=True)), strict=True))

    def pop_sheets(self, output: int = 0) -> list[Sheet]:
        """Return the sheets of an output to which no later result can belong, and forget their rows."""
        return self._channels[output].pop_sheets(self._files_frontier_us(output), self._retention)

    def pop_file_rows(self, output: int) -> pa.Table | None:
        """Like :meth:`pop_sheets`, but return the rows of all these sheets in one table; None if there are none."""
        return self._channels[output].pop_file_rows(self._files_frontier_us(output), self._retention)

    def _files_frontier_us(self, output: int) -> int:
        # At its end, wherever in a span that is (--until), a run writes the results that it has.
        frontier_us = self.output_frontier_us(output)
        return INFINITY if frontier_us == self._until_us else frontier_us

    def pop_bad_rows(self) -> list[BadRow]:
        """Return the rows that failed since the last call."""
        bad_rows, self._bad_rows = self._bad_rows, []
        return bad_rows

    # Methods of each kind

    def _select_own(self, events: pa.Table, accepted: Accepted) -> pa.Table:
        """Return the accepted events that this bucket evaluates: all, unless rows are exchanged."""
        return events

    @abstractmethod
    def _accept_events(self, source_index: int, events: pa.Table, accepted: Accepted) -> Iterable[list[pa.Table]]:
        """Accept events; return each output's results in emission order, part after part."""

    @abstractmethod
    def _close_due(self) -> Iterator[list[pa.Table]]:
        """Yield each output's results that became final with all ranges of the batch, in emission order, part after part."""

    @abstractmethod
    def _save_progress(self) -> None:
        """Add the rows to the retention that a restore needs beside the head."""

    @abstractmethod
    def _head_fields(self) -> dict[str, Any]:
        """Return the fields of the head that this kind of bucket needs."""

    @abstractmethod
    def _restore_own(self, fields: dict[str, Any]) -> None:
        """Read these fields, and drop restored rows that are no longer needed."""

    # Methods for the kinds

    def _prepare(self, source_index: int, events: pa.Table, sub: Ints) -> None:
        """Evaluate events; retain the rows that later results need."""
        for _ in self._prepare_in_parts(source_index, events, sub):
            pass

    def _prepare_in_parts(self, source_index: int, events: pa.Table, sub: Ints) -> Iterator[None]:
        """Do the same, part after part if the values of all events might be too large for memory; yield after each part."""

        def prepare(rows: Ints) -> None:
            first, count = (int(rows[0]), len(rows)) if len(rows) else (0, 0)
            self._prepare_part(source_index, events.slice(first, count), sub[first : first + count])

        yield from compute_in_halves(np.arange(events.num_rows), prepare, halve_rows)

    def _prepare_part(self, source_index: int, events: pa.Table, sub: Ints) -> None:
        """Evaluate events. Raises TooMuchAtOnce, before anything is kept: they are too many together."""
        position = np.arange(self._position, self._position + events.num_rows)
        prepared, bad = self._program.prepare(self._sources[source_index].input, for_operators(events.combine_chunks(), sub, position))
        self._position += events.num_rows
        for name, rows in prepared:
            self._retention.add(name, rows)
        for row, reason in zip(np.searchsorted(position, bad["position"].to_numpy()).tolist(), bad["reason"].to_pylist(), strict=True):
            self._add_bad_row(events, row, source_index, reason)
        self._count("bad_rows", bad.num_rows)

    def _prepare_by_time(self, source_index: int, due: pa.Table) -> Iterator[None]:
        """Evaluate events that were pending, with their substreams (``sub``), in the order of time; yield after each part."""
        for part in sort_by_time(due, by_key=self._holds_results_by_key(source_index)):
            yield from self._prepare_in_parts(source_index, part, part["sub"].to_numpy())

    def _holds_results_by_key(self, source_index: int) -> bool:
        """Whether a source holds the results of a query with OVER, whose order between keys is chance."""
        source = self._sources[source_index]
        rosters = (self.readers[log].roster for log in source.logs)
        return source.is_result and any(roster.substreams for roster in rosters if roster is not None)

    def _add_bad_row(self, events: pa.Table, row: int, source_index: int, reason: str) -> None:
        key, value, partition_id, offset = (events[name][row].as_py() for name in ("key", "value", "partition_id", "offset"))
        source = self._sources[source_index]
        if value is not None and self._program.payloads.get(source.input, JSON).headers:
            value = bytes(payload_of(value))
        offset = offset & NUMBER_MASK if source.is_result else offset
        self._bad_rows.append(BadRow(reason, key, value, source_index, partition_id, offset))

    def _finish(self, closing: pa.Table, divide: Divide | None = None) -> Iterator[list[pa.Table]]:
        """Yield each output's results in *closing* (``sub``, ``from_us``, ``to_us``); see :meth:`query.engine.program.Program.finish`."""
        for tables in self._program.finish(self._retention, closing, divide):
            self._take_failures()
            yield tables
        self._take_failures()
        self._lookup.observe_finished(shift_slices(closing, self._program.looked_up_ahead_us))

    def _concat(self, parts: Iterable[list[pa.Table]]) -> list[pa.Table]:
        nothing = [RESULT_SCHEMA.empty_table()] * len(self._channels)
        return [pa.concat_tables(tables) for tables in zip(nothing, *parts, strict=True)]

    def _take_failures(self) -> None:
        self._bad_rows += [BadRow(reason, b"", value) for _, value, reason in self._program.bad]
        self._count("bad_rows", len(self._program.bad))
        self._program.bad = []

    def _partition_ids_of(self, results: pa.Table) -> Ints:
        """Return the input partition of each result's substream; 0 if one timeline serves all partitions."""
        return np.zeros(results.num_rows, dtype=np.int64)

    def _release(self, results: Sequence[pa.Table]) -> list[Released]:
        tables = [self._drop_oversized(output, self._drop_timeless(output, table)) for output, table in enumerate(results)]
        pairs = zip(self._channels, tables, strict=True)
        released = [channel.number_results(table, self._partition_ids_of(table), self._retention) for channel, table in pairs]
        self._count("results", sum(map(len, released)))
        return released

    def _drop_timeless(self, output: int, results: pa.Table) -> pa.Table:
        """Return the results whose System.Timestamp lies in the years that there are; the others are dead letters and get no number."""
        if not results.num_rows or pc.max(results["system_us"]).as_py() <= TICK_MAX:
            return results
        is_late = pc.greater(results["system_us"], TICK_MAX)
        return self._refuse_results(output, results, is_late, "bad_rows", lambda row: QueryReason.NO_TIME.text())

    def _drop_oversized(self, output: int, results: pa.Table) -> pa.Table:
        """Return the results that the output's topic takes; the others become dead letters and get no number."""
        bytes_max = self._result_bytes_max[output]
        if bytes_max is None or results.nbytes <= bytes_max:
            return results
        is_oversized = pa.array(rows_above(bytes_max, results["key"], results["value"]))

        def reason(row: dict[str, Any]) -> str:
            return QueryReason.RESULT_TOO_LARGE.text(len(row["key"] or b"") + len(row["value"]), bytes_max)

        return self._refuse_results(output, results, is_oversized, "results_too_large", reason)

    def _refuse_results(
        self, output: int, results: pa.Table, is_refused: pa.Array, count_name: str, reason: Callable[[dict[str, Any]], str]
    ) -> pa.Table:
        """Return the results that are not refused; the others become dead letters, unless an earlier run has written theirs."""
        for row in self._channels[output].numbering.drop_resumed(results.filter(is_refused)).to_pylist():
            self._bad_rows.append(BadRow(reason(row), row["key"], row["value"], result=(output, row["system_us"])))
            self._count(count_name, 1)
        return results.filter(pc.invert(is_refused))

    def _count(self, name: str, count: int) -> None:
        if count:
            self.totals[name] = self.totals.get(name, 0) + count

    # State

    def tidy(self) -> None:
        """Merge, pack and compact retained rows as :meth:`save` does, for a driver that does not survive a crash."""
        self._save_progress()
        self._retention.save(self._program.compact_rows, is_written=False)

    def save(self) -> Delta:
        """Return what must be written to turn the last saved bucket into this one. Call once after each batch."""
        self._save_progress()
        changes = self._retention.save(self._program.compact_rows)
        # Small parts as JSON; rows are in the chunks. Carried events are few: only a start in the middle collects any.
        head = {
            "version": BUCKET_STATE_VERSION,
            "readers": {str(log): reader.save().decode() for log, reader in self.readers.items()},
            "pacing": [pacing.save() for pacing in self._pacing],
            "carried": {str(log): b64encode(encode_table(events)).decode() for log, events in self._carried.items() if events.num_rows},
            "next_offset": {str(log): offset for log, offset in self._next_offset.items()},
            "channels": [channel.numbering.save() for channel in self._channels],
            "chunks": self._retention.head(),
            "position": self._position,
            "ended": self._ended,
            "totals": self.totals,
            "lookup": self._lookup.save(),
            **self._head_fields(),
        }
        return Delta(json.dumps(head, sort_keys=True).encode(), changes.put, changes.delete)

    def restore(self, head: bytes, chunks: dict[int, bytes]) -> None:
        """Become the bucket that was saved. Raises ProtocolError: another version saved it."""
        fields = json.loads(head)
        check_saved_version("a bucket's saved state", fields["version"], BUCKET_STATE_VERSION)
        for source, pacing, saved in zip(self._sources, self._pacing, fields["pacing"], strict=True):
            for log, partition in source.logs.items():
                self.readers[log] = PartitionReader.restore(fields["readers"][str(log)].encode(), partition, source.partitions)
            pacing.restore(saved, [self.readers[log] for log in source.logs])
        for log, text in fields["carried"].items():
            self._carried[int(log)] = pa.ipc.open_stream(b64decode(text)).read_all()
        self._next_offset = {int(log): offset for log, offset in fields["next_offset"].items()}
        self._position, self._ended, self.totals = fields["position"], fields["ended"], fields["totals"]
        self._retention = Retention.restore(fields["chunks"], chunks)
        self._lookup = ReferenceLookup.restore(fields["lookup"])
        self._restore_own(fields)
        # A chunk comes back with all rows it was written with: rows dropped since then must be dropped again.
        for channel, saved in zip(self._channels, fields["channels"], strict=True):
            channel.restore(saved, self._retention)
