"""
A bucket: the part of a query's work that one writer does in one fixed order, and its memory.

A bucket reads ordered partitions by the reader's rule, keeps the rows that later results need, and gives out results
that are final, numbered in their channel of each output, with the CTI that follows them. The ordered partitions it reads are
*logs*, numbered over all topics of the query. Two kinds:

- :class:`~query.buckets.substreams.SubstreamBucket` (OVER): one log. A substream has moved past an instant when an event above it
  was accepted or its channel's CTI passed it. Law, level 2: results come after each accepted record, ordered (s, key)
  within it; they depend on the log alone, not on batches.
- :class:`~query.buckets.merged.MergedBucket` (no OVER): all logs, merged up to the least of their frontiers in the order (s, input's
  position in the script, input partition, offset). Law, level 3: results depend on the events alone.

Both take notice of each channel's CTIs at the query's own pace (:mod:`query.buckets.cti_pacing`), which follows from the log; so a pace
changes when results come, and with OVER upon which record, and nothing else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.errors import ProtocolError
from ordering.model.step import Released
from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Cause, Cti, Roster, shift_cti
from ordering.protocol.reader import Accepted, Log, PartitionReader
from ordering.ticks import INFINITY, NEVER, TICK_MIN
from query.buckets.cti_pacing import CtiPacing
from query.columns.decode import Events
from query.columns.large_tables import combine_column, take_rows
from query.config import Promise
from query.engine.compile import RESULT_SCHEMA
from query.engine.lead import shift_slices
from query.engine.pending_events import events_of, sort_by_time, table_of
from query.engine.program import Program
from query.engine.retention import Changes, Retention, encode_table
from query.reference.lookup import LATE, KnownReferences, ReferenceLookup

Ints = NDArray[np.int64]
Objects = NDArray[np.object_]

# The format of a saved bucket; it is raised if an older program could misread what this one saves.
BUCKET_STATE_VERSION = 1
EACH_CTI = Pace()


@dataclass(slots=True)
class Bad:
    """Events that the query could not evaluate: the number of their source, -1 for rows between two operators, and the reason of each."""

    events: list[Events] = field(default_factory=list)
    source: list[int] = field(default_factory=list)
    reason: list[str] = field(default_factory=list)

    def add(self, event: Events, source: int, reason: str) -> None:
        """Add one of them."""
        self.events.append(event)
        self.source.append(source)
        self.reason.append(reason)


@dataclass(slots=True)
class ChannelNumbering:
    """The bucket's own channel of one output: the next number, and what its CTIs have promised."""

    seq: int = 0
    c: int = NEVER
    largest_us: int = TICK_MIN
    written: tuple[int, int] | None = None
    resumed_us: int = NEVER
    """Results below this stand in the channel already, where it was begun by another run."""
    skipped: int = 0
    """How many of the others, which this run has not come to yet, do too."""
    keys: dict[bytes, int] = field(default_factory=dict)
    """Where they are known by their keys and times, which are among those ahead: how many of each key."""

    @classmethod
    def resume(cls, promise: Promise | None) -> ChannelNumbering:
        """Return the numbering of a channel that a run before has left with *promise*."""
        if promise is None:
            return cls()
        whole = cls(promise.n, promise.c, promise.largest_us, (promise.c, promise.n), resumed_us=promise.c)
        if promise.by_key is None:
            return replace(whole, skipped=promise.ahead)
        return replace(whole, keys={key: len(times) for key, times in promise.by_key.items()})

    def drop_written(self, results: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the results that do not stand in the channel yet, and those that do and of which the run did not know when they are."""
        if self.resumed_us > NEVER:
            results = results.filter(pc.greater_equal(results["system_us"], self.resumed_us))
        if self.keys:
            return results.filter(pa.array(~self._is_written(results))), results.slice(0, 0)
        known = min(self.skipped, results.num_rows)
        self.skipped -= known
        return results.slice(known), results.slice(0, known)

    def _is_written(self, results: pa.Table) -> NDArray[np.bool_]:
        """Tell which results are the first ones of a key, of which some stand in the channel already."""
        known = np.zeros(results.num_rows, dtype=np.bool_)
        key = pc.fill_null(results["key"], b"")
        of_known_keys = pc.is_in(key, pa.array(list(self.keys), pa.binary()))
        for row in np.flatnonzero(of_known_keys.to_numpy()).tolist():
            name = key[row].as_py()
            left = self.keys.get(name, 0)
            known[row] = left > 0
            if left > 1:
                self.keys[name] = left - 1
            else:
                self.keys.pop(name, None)
        return known

    def save(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs, fit for JSON."""
        return {**asdict(self), "keys": {key.hex(): count for key, count in self.keys.items()}}

    @classmethod
    def restore(cls, saved: dict[str, Any]) -> ChannelNumbering:
        """Return the numbering that was saved."""
        written = None if saved["written"] is None else (saved["written"][0], saved["written"][1])
        return cls(**{**saved, "written": written, "keys": {bytes.fromhex(key): count for key, count in saved["keys"].items()}})


@dataclass(frozen=True, slots=True)
class Source:
    """
    An ordered topic as a bucket reads it.

    Args:
        input: The name the script gives it.
        partitions: How many partitions it has.
        logs: Number of each log of it that the bucket reads, and the partition it is.
    """

    input: str
    partitions: int
    logs: Mapping[int, int]


class Bucket(ABC):
    """
    What both kinds share: readers, retention, numbering, result files.

    Args:
        program: The query; this bucket's own, as it holds what fails between operators.
        sources: What it reads, in the order of the script.
        number: The bucket's number, which is its roster number and partition in the result topics.
        roster: The result topics' roster.
        start_us: S: results from here on, None for all.
        read_from_us: X: events from here on count, None for all.
        spans_us: For each output the span of System.Timestamp of a result file; None without files.
        promises: For each output what its channel had promised when a run before lost its state; empty: there was none.
        until_us: E: no result from here on, and nothing to do once time has come so far.
        pace: How often the bucket takes notice of a channel's CTIs.
    """

    def __init__(
        self,
        program: Program,
        sources: Sequence[Source],
        number: int,
        roster: Roster,
        start_us: int | None,
        read_from_us: int | None,
        spans_us: Sequence[int | None],
        pace: Pace = EACH_CTI,
        promises: Sequence[Promise | None] = (),
        until_us: int = INFINITY,
    ) -> None:
        self._program, self._sources, self._number, self._roster = program, tuple(sources), number, roster
        program.start_us = NEVER if start_us is None else start_us
        self._spans_us = tuple(spans_us)
        self._source_of = {log: at for at, source in enumerate(sources) for log in source.logs}
        self.readers = {
            log: PartitionReader(partition, source.partitions, read_from_us) for source in sources for log, partition in source.logs.items()
        }
        self._pacing = [CtiPacing(pace, source.logs.values(), source.partitions) for source in sources]
        self._carried = {log: Events.none() for log in self.readers}
        self._retention = Retention()
        self._numbering = [ChannelNumbering.resume(promise) for promise in promises or [None] * len(spans_us)]
        for output, promise in enumerate(promises):
            if promise is not None and promise.by_key is not None:
                self._keep_ahead(output, [us for times in promise.by_key.values() for us in times])
        self._until_us = program.until_us = until_us
        self._next_offset = dict.fromkeys(self.readers, 0)
        self._position = 0
        self._ended = False
        self.totals: dict[str, int] = {}
        self._bad = Bad()
        self._referring, self._referred = ReferenceLookup(), 0

    def update_references(self, known: KnownReferences) -> None:
        """Look rows up in the reference data that the run knows by now. Called before each batch whose run has taken some up."""
        self._count(LATE, self._referring.accept_versions(known))
        if self._referred != len(known.added):
            self._referred = len(known.added)
            self._program.replace_references(self._referring.tables(known))

    @property
    def frontier_us(self) -> int:
        """
        Time has come so far: no later event has a System.Timestamp below this; ``INFINITY`` once the input has ended.

        It is the least of the inputs', which filters, projections and windows pass on.
        """
        return min(INFINITY if self._ended else min(heeding.frontier for heeding in self._pacing), self._until_us)

    def output_frontier_us(self, output: int) -> int:
        """Return the instant, microseconds, below which no later result of an output lies; see :mod:`query.engine.lead`."""
        return min(shift_cti(self.frontier_us, self._program.ahead_us(output)), self._until_us)

    @property
    def looks_up_from(self) -> tuple[int, int]:
        """From which instant on (microseconds) rows may still be looked up in reference data, and how many added versions are known."""
        return self._referring.lookup_from_us(self.frontier_us), self._referring.count

    @property
    def duplicates(self) -> int:
        """How many events stood in the logs more than once."""
        return sum(reader.duplicates for reader in self.readers.values())

    @property
    def is_finished(self) -> bool:
        """Tell whether nothing is left to do: the input has ended, or time has come to E."""
        return all(self.output_frontier_us(output) == self._until_us for output in range(len(self._numbering)))

    def accept_records(self, log: int, read: Log, events: Events, next_offset: int) -> list[Released]:
        """Take the next range of a log; return, for each output, the results that became final, numbered."""
        reader, at = self.readers[log], self._source_of[log]
        accepted = reader.accept(read)
        self._next_offset[log] = next_offset
        carried = self._carried[log]
        both = Events.concat([carried, events]) if len(carried) else events
        self._carried[log] = both.take(accepted.carried)
        chosen = both.take(accepted.rows)
        heeded = self._pacing[at].accept_progress(self._sources[at].logs[log], reader.roster, chosen, accepted)
        self._count("withheld_ctis", len(accepted.progress) - len(heeded))
        own = self._select_own(chosen, accepted)
        self._count("events", len(own))
        return self._release(self._accept_events(at, own, replace(accepted, progress=heeded)))

    def _select_own(self, events: Events, accepted: Accepted) -> Events:
        """Return those of the accepted events on which this bucket works: all, unless rows are exchanged."""
        return events

    def end(self) -> list[Released]:
        """Close everything: the run ends here. Return what :meth:`settle` does then."""
        self._ended = True
        return self.settle()

    def settle(self) -> list[Released]:
        """
        Return the results that only now, after all ranges of the batch, became final.

        Where much is due at once these may not be all; ask again until :attr:`is_settled`, or numbers and CTIs would depend on it.
        """
        return self._release(self._close_due())

    @property
    def is_settled(self) -> bool:
        """Tell whether :meth:`settle` has given all that is final."""
        return True

    @abstractmethod
    def _accept_events(self, at: int, events: Events, accepted: Accepted) -> list[pa.Table] | None:
        """Take accepted events of source number *at*; return each output's results in emission order, if any are final."""

    @abstractmethod
    def _close_due(self) -> list[pa.Table] | None:
        """Return each output's results that became final without further events."""

    def next_ctis(self) -> list[Cti | None]:
        """Return for each output the CTI to write once everything released so far is acknowledged; None if it would say nothing new."""
        return [self._next_cti(output) for output in range(len(self._numbering))]

    def _next_cti(self, output: int) -> Cti | None:
        numbering = self._numbering[output]
        if (c := self.output_frontier_us(output)) > numbering.c:
            numbering.c = c
            self._drop_below(_ahead_name(output), c)
        promise = numbering.c, numbering.seq
        if numbering.c == NEVER or promise == numbering.written:
            return None
        numbering.written = promise
        return Cti(
            number=self._number,
            output_partition=self._number,
            c=numbering.c,
            n=numbering.seq,
            # What is still to be found written by another run comes later, so it does not lie below c.
            ahead=sum(piece.num_rows for piece in self._retention.pieces(_ahead_name(output))) + numbering.skipped,
            next_offset=sum(self._next_offset.values()),
            arrival_us=numbering.c,
            largest_us=numbering.largest_us,
            roster=self._roster,
            cause=Cause.SHUTDOWN if numbering.c == INFINITY else Cause.EVENT,
        )

    def pop_full_spans(self, output: int = 0) -> list[tuple[int, list[tuple[int, bytes, bytes]]]]:
        """Return (span start, rows) of each result file of an output that no later result can belong to, and forget its rows."""
        span_us, name = self._spans_us[output], _results_name(output)
        rows = self._retention.rows(name) if span_us else None
        if rows is None or span_us is None:
            return []
        until = _first_open_span(self.output_frontier_us(output), span_us)
        if until <= int(pc.min(rows["system_us"]).as_py()):
            return []
        due = rows.filter(pc.less(rows["system_us"], until))
        # Among equals of several input partitions the log's order is chance; a file depends on the events alone.
        order = pc.sort_indices(due, [("system_us", "ascending"), ("key", "ascending"), ("number", "ascending")])
        due = take_rows(due, order.to_numpy())
        spans: dict[int, list[tuple[int, bytes, bytes]]] = {}
        for system_us, key, value in zip(*(due[column].to_pylist() for column in ("system_us", "key", "value")), strict=True):
            spans.setdefault(system_us // span_us * span_us, []).append((system_us, key, value))
        self._drop_below(_results_name(output), until)
        return sorted(spans.items())

    def pop_bad_rows(self) -> Bad:
        """Return the rows that could not be evaluated since the last call."""
        bad, self._bad = self._bad, Bad()
        return bad

    def _prepare(self, at: int, events: Events, sub: Ints, position: Ints) -> None:
        """Evaluate what is computed per event of source number *at*; keep what later results need."""
        prepared, bad = self._program.prepare(self._sources[at].input, events.rows(sub, position))
        for name, rows in prepared:
            self._retention.add(name, rows)
        for place, reason in zip(bad["position"].to_pylist(), bad["reason"].to_pylist(), strict=True):
            self._bad.add(events.take(np.searchsorted(position, [place])), at, reason)
        self._count("bad_rows", bad.num_rows)

    def _prepare_in_order(self, at: int, due: pa.Table) -> None:
        """Do so with events that waited, in the order of time; *due* tells their substreams, too (``sub``)."""
        for part in sort_by_time(due):
            position = np.arange(self._position, self._position + part.num_rows)
            self._position += part.num_rows
            self._prepare(at, events_of(part), part["sub"].to_numpy(), position)

    def _finish(self, closing: pa.Table) -> list[pa.Table]:
        """Return each output's results in *closing* (sub, from_us, to_us), unordered between substreams."""
        results = self._program.finish(self._retention, closing)
        self._referring.observe_finished(shift_slices(closing, self._program.looked_up_ahead_us))
        for system_us, value, reason in self._program.bad:
            self._bad.add(_between(system_us, value), -1, reason)
        self._count("bad_rows", len(self._program.bad))
        self._program.bad = []
        return results

    def _release(self, results: Sequence[pa.Table] | None) -> list[Released]:
        found = results or [RESULT_SCHEMA.empty_table()] * len(self._numbering)
        return [self._number_results(output, rows) for output, rows in enumerate(found)]

    def _number_results(self, output: int, results: pa.Table) -> Released:
        numbering = self._numbering[output]
        if (span_us := self._spans_us[output]) and results.num_rows:
            kept = results.select(["system_us", "key", "value"]).append_column("number", pa.array(self._partition_ids_of(results)))
            if numbering.resumed_us > NEVER:
                # For the sake of another output results may begin in the middle of a file, which is written by then.
                kept = kept.filter(pc.greater_equal(kept["system_us"], _first_open_span(numbering.resumed_us, span_us)))
            self._retention.add(_results_name(output), kept)
        results, known = numbering.drop_written(results)
        self._keep_ahead(output, known["system_us"])
        if not results.num_rows:
            nothing = pa.array([], pa.binary())
            return _make_released(self._number, numbering.seq, np.empty(0, dtype=np.int64), nothing, nothing)
        system_us = results["system_us"].to_numpy()
        key, value = (combine_column(results[name]) for name in ("key", "value"))
        released = _make_released(self._number, numbering.seq, system_us, key, value)
        numbering.seq += len(released)
        numbering.largest_us = max(numbering.largest_us, int(system_us.max()))
        self._keep_ahead(output, system_us)
        self._count("results", len(released))
        return released

    def _partition_ids_of(self, results: pa.Table) -> Ints:
        """Return the input partition of each result's substream; 0 where one timeline goes through all of them."""
        return np.zeros(results.num_rows, dtype=np.int64)

    def _count(self, name: str, count: int) -> None:
        if count:
            self.totals[name] = self.totals.get(name, 0) + count

    def save(self) -> tuple[bytes, Changes]:
        """Return the small head and the changed chunks that make the last saved bucket this one. Call once after each batch."""
        self._save_progress()
        changes = self._retention.save(self._program.compact_rows)
        head = {
            "version": BUCKET_STATE_VERSION,
            "readers": {str(log): reader.save().decode() for log, reader in self.readers.items()},
            "pacing": [heeding.save() for heeding in self._pacing],
            "carried": {
                str(log): b64encode(encode_table(table_of(events))).decode() for log, events in self._carried.items() if len(events)
            },
            "next_offset": {str(log): offset for log, offset in self._next_offset.items()},
            "numbering": [numbering.save() for numbering in self._numbering],
            "chunks": self._retention.head(),
            "position": self._position,
            "ended": self._ended,
            "totals": self.totals,
            **({"referring": self._referring.save()} if self._program.references else {}),
            **self._head_fields(),
        }
        return json.dumps(head, sort_keys=True).encode(), changes

    def restore(self, head: bytes, chunks: dict[int, bytes]) -> None:
        """
        Become the bucket that was saved.

        Raises:
            ProtocolError: It was saved by a newer version.
        """
        fields = json.loads(head)
        if fields["version"] > BUCKET_STATE_VERSION:
            raise ProtocolError(
                f"a bucket's saved state has version {fields['version']}, this program reads version {BUCKET_STATE_VERSION}",
                fix="run the version that saved it",
            )
        for source, heeding, saved in zip(self._sources, self._pacing, fields["pacing"], strict=True):
            restored = {
                partition: PartitionReader.restore(fields["readers"][str(log)].encode(), partition, source.partitions)
                for log, partition in source.logs.items()
            }
            self.readers |= {log: restored[partition] for log, partition in source.logs.items()}
            heeding.restore(saved, restored)
        for log, text in fields["carried"].items():
            self._carried[int(log)] = events_of(pa.ipc.open_stream(b64decode(text)).read_all())
        self._next_offset = {int(log): offset for log, offset in fields["next_offset"].items()}
        self._numbering = [ChannelNumbering.restore(saved) for saved in fields["numbering"]]
        self._position, self._ended, self.totals = fields["position"], fields["ended"], fields["totals"]
        self._retention = Retention.restore(fields["chunks"], chunks)
        if "referring" in fields:
            self._referring = ReferenceLookup.restore(fields["referring"])
        self._restore_own(fields)
        for output, (numbering, span_us) in enumerate(zip(self._numbering, self._spans_us, strict=True)):
            if numbering.c > NEVER:
                self._drop_below(_ahead_name(output), numbering.c)
                if span_us:
                    self._drop_below(_results_name(output), _first_open_span(numbering.c, span_us))

    def _keep_ahead(self, output: int, system_us: Ints | pa.ChunkedArray | list[int]) -> None:
        """Keep the times of results that its next CTI is to count as ahead of it, unless it passes them."""
        if len(system_us):
            self._retention.add(_ahead_name(output), pa.table({"system_us": system_us}, schema=_AHEAD))

    def _drop_below(self, name: str, until_us: int) -> None:
        self._retention.reduce(name, lambda table: table.filter(pc.greater_equal(table["system_us"], until_us)))

    @abstractmethod
    def _save_progress(self) -> None:
        """Add to the retention what a restore needs beyond the head."""

    @abstractmethod
    def _head_fields(self) -> dict[str, Any]:
        """Return the kind's own part of the head."""

    @abstractmethod
    def _restore_own(self, fields: dict[str, Any]) -> None:
        """Read the kind's own part, and drop restored rows that are no longer needed."""


def _results_name(output: int) -> str:
    """Return the name under which an output's results wait for their files."""
    return f"results{output or ''}"


_AHEAD = pa.schema([("system_us", pa.int64())])


def _ahead_name(output: int) -> str:
    """Return the name under which the times of an output's results that are not below its last CTI are kept."""
    return f"ahead{output or ''}"


def _first_open_span(c: int, span_us: int) -> int:
    """Return the start of the first span that a CTI at *c* leaves open."""
    return c // span_us * span_us if c < INFINITY else INFINITY


def _make_released(number: int, seq: int, system_us: Ints, key: pa.Array, value: pa.Array) -> Released:
    count = len(system_us)
    numbers = np.arange(seq, seq + count)
    flags = np.zeros(count, dtype=np.uint16)
    return Released(number, np.full(count, number, dtype=np.int32), numbers, system_us, system_us, system_us, numbers, flags, key, value)


def _between(system_us: int, value: bytes) -> Events:
    """Return a row between two operators as an event; it comes from no partition."""
    nowhere, instant = np.array([-1]), np.array([system_us])
    return Events(
        nowhere, nowhere, instant, pa.array([b""], pa.binary()), pa.array([value], pa.binary()), np.zeros(1, dtype=np.uint16), instant
    )
