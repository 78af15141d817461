"""
A bucket: the part of a query's work that one writer does in one fixed order, and its memory.

A bucket reads ordered partitions by the reader's rule, keeps the rows that later results need, and gives out results
that are final, numbered in their channel, with the CTI that follows them. Two kinds:

- :class:`~query.substreams.SubstreamBucket` (OVER): one ordered partition. A substream has moved past an instant when an event above it
  was accepted or its channel's CTI passed it. Law, level 2: results come after each accepted record, ordered (s, key)
  within it; they depend on the log alone, not on batches.
- :class:`~query.merged.MergedBucket` (no OVER): all ordered partitions, merged up to the least of their frontiers in the order
  (s, input partition, offset). Law, level 3: results depend on the events alone.

Both take notice of each channel's CTIs at the query's own pace (:mod:`query.heeding`), which follows from the log; so a pace
changes when results come, and with OVER upon which record, and nothing else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.columns import to_objects
from ordering.errors import ProtocolError
from ordering.frontier import Pace
from ordering.punctuation import Cause, Cti, Roster
from ordering.reader import Accepted, Log, PartitionReader
from ordering.step import Released
from ordering.ticks import INFINITY, NEVER, TICK_MIN
from query.decode import Events
from query.heeding import Heeding
from query.program import Program
from query.retention import Changes, Retention, octets_of

Ints = NDArray[np.int64]
Objects = NDArray[np.object_]

BUCKET_STATE_VERSION = 3
"""1 had no pace: each CTI of the input counted. Up to 2 a query had one operator, and told results from its start on only."""
EACH_CTI = Pace()


@dataclass(slots=True)
class Bad:
    """Events that the query could not evaluate: the events, and the reason of each."""

    events: list[Events]
    reason: list[str]


@dataclass(slots=True)
class _Numbering:
    """The bucket's own channel: the next number, and the released results not below the last CTI."""

    seq: int = 0
    c: int = NEVER
    largest_us: int = TICK_MIN
    written: tuple[int, int] | None = None
    ahead: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Bucket(ABC):
    """
    What both kinds share: readers, retention, numbering, result files.

    Args:
        program: The query; this bucket's own, as it holds what fails between operators.
        input: The name of the input it reads.
        number: The bucket's number, which is its roster number and partition in the result topic.
        roster: The result topic's roster.
        partitions: The ordered partitions it reads.
        output_partitions: How many partitions the ordered topic has.
        start_us: S: results from here on, None for all.
        read_from_us: X: events from here on count, None for all.
        span_us: Span of System.Timestamp of a result file; None without files.
        pace: How often the bucket takes notice of a channel's CTIs.
    """

    def __init__(
        self,
        program: Program,
        input: str,
        number: int,
        roster: Roster,
        partitions: tuple[int, ...],
        output_partitions: int,
        start_us: int | None,
        read_from_us: int | None,
        span_us: int | None,
        pace: Pace = EACH_CTI,
    ) -> None:
        self._program, self._input, self._number, self._roster = program, input, number, roster
        program.start_us = NEVER if start_us is None else start_us
        self._span_us = span_us
        self._output_partitions = output_partitions
        self.readers = {partition: PartitionReader(partition, output_partitions, read_from_us) for partition in partitions}
        self._heeding = Heeding(pace, partitions, output_partitions)
        self._carried = {partition: Events.none() for partition in partitions}
        self._retention = Retention()
        self._numbering = _Numbering()
        self._next_offset = dict.fromkeys(partitions, 0)
        self._position = 0
        self._ended = False
        self.totals: dict[str, int] = {}
        self._bad = Bad([], [])

    @property
    def c(self) -> int:
        """
        No later result has a System.Timestamp below this; ``INFINITY`` once the input has ended.

        It is the input's: filters, projections and windows pass it on (:func:`ordering.transforms.same`).
        """
        return INFINITY if self._ended else self._heeding.frontier

    def take(self, partition: int, log: Log, events: Events, next_offset: int) -> Released:
        """Take the next range of a partition's log; return the results that became final, numbered."""
        accepted = self.readers[partition].accept(log)
        self._next_offset[partition] = next_offset
        carried = self._carried[partition]
        both = Events.concat([carried, events]) if len(carried) else events
        self._carried[partition] = both.take(accepted.carried)
        self._add("events", len(accepted.rows))
        chosen = both.take(accepted.rows)
        heeded = self._heeding.take(partition, self.readers[partition].roster, chosen, accepted)
        self._add("withheld_ctis", len(accepted.progress) - len(heeded))
        return self._release(self._accept(chosen, replace(accepted, progress=heeded)))

    def end(self) -> Released:
        """Close everything: the run ends here."""
        self._ended = True
        return self._release(self._close())

    def settle(self) -> Released:
        """Return the results that only now, after all ranges of the batch, became final."""
        return self._release(self._close())

    @abstractmethod
    def _accept(self, events: Events, accepted: Accepted) -> pa.Table | None:
        """Take accepted events; return results in emission order, if any are final."""

    @abstractmethod
    def _close(self) -> pa.Table | None:
        """Return the results that became final without further events."""

    def cti(self) -> Cti | None:
        """Return the CTI to write once everything released so far is acknowledged; None if it would say nothing new."""
        numbering = self._numbering
        numbering.c = max(numbering.c, self.c)
        numbering.ahead = numbering.ahead[numbering.ahead >= numbering.c]
        promise = numbering.c, numbering.seq
        if numbering.c == NEVER or promise == numbering.written:
            return None
        numbering.written = promise
        return Cti(
            number=self._number,
            output_partition=self._number,
            c=numbering.c,
            n=numbering.seq,
            ahead=len(numbering.ahead),
            next_offset=sum(self._next_offset.values()),
            arrival_us=numbering.c,
            largest_us=numbering.largest_us,
            roster=self._roster,
            cause=Cause.SHUTDOWN if numbering.c == INFINITY else Cause.EVENT,
        )

    def full_spans(self) -> list[tuple[int, list[tuple[int, bytes, bytes]]]]:
        """Return (span start, rows) of each result file that no later result can belong to, and forget its rows."""
        rows = self._retention.rows("results") if self._span_us else None
        if rows is None or self._span_us is None:
            return []
        span_us, until = self._span_us, _first_open(self.c, self._span_us)
        if until <= int(pc.min(rows["system_us"]).as_py()):
            return []
        due = rows.filter(pc.less(rows["system_us"], until))
        # Among equals of several input partitions the log's order is chance; a file depends on the events alone.
        due = due.sort_by([("system_us", "ascending"), ("key", "ascending"), ("number", "ascending")])
        spans: dict[int, list[tuple[int, bytes, bytes]]] = {}
        for system_us, key, value in zip(*(due[name].to_pylist() for name in ("system_us", "key", "value")), strict=True):
            spans.setdefault(system_us // span_us * span_us, []).append((system_us, key, value))
        self._retention.reduce("results", lambda table: table.filter(pc.greater_equal(table["system_us"], until)))
        return sorted(spans.items())

    def bad(self) -> Bad:
        """Return the rows that could not be evaluated since the last call."""
        bad, self._bad = self._bad, Bad([], [])
        return bad

    def _prepare(self, events: Events, sub: Ints, position: Ints) -> None:
        """Evaluate what is computed per event; keep what later results need."""
        table = pa.table(
            {
                "position": position,
                "sub": sub,
                "system_us": events.system_us,
                "partition_id": events.number.astype(np.int32),
                "value": pa.array(events.value, type=pa.binary()),
            }
        )
        prepared, bad = self._program.prepare(self._input, table)
        for name, rows in prepared:
            self._retention.add(name, rows)
        for place, reason in zip(bad["position"].to_pylist(), bad["reason"].to_pylist(), strict=True):
            self._bad.events.append(events.take(np.searchsorted(position, [place])))
            self._bad.reason.append(reason)
        self._add("bad_rows", bad.num_rows)

    def _finish(self, closing: pa.Table) -> pa.Table | None:
        """Return the results of the windows in *closing* (sub, from_us, to_us), unordered between substreams."""
        (results,) = self._program.finish(self._retention, closing)
        for system_us, value, reason in self._program.bad:
            self._bad.events.append(_between(system_us, value))
            self._bad.reason.append(reason)
        self._add("bad_rows", len(self._program.bad))
        self._program.bad = []
        return results

    def _release(self, results: pa.Table | None) -> Released:
        if results is None or not results.num_rows:
            return _released(self._number, self._numbering.seq, np.empty(0, dtype=np.int64), [], [])
        if self._span_us:
            kept = results.select(["system_us", "key", "value"])
            self._retention.add("results", kept.append_column("number", pa.array(self._inputs_of(results))))
        system_us = results["system_us"].to_numpy()
        numbering = self._numbering
        released = _released(self._number, numbering.seq, system_us, results["key"].to_pylist(), results["value"].to_pylist())
        numbering.seq += len(released)
        numbering.largest_us = max(numbering.largest_us, int(system_us.max()))
        numbering.ahead = np.concatenate([numbering.ahead, system_us])
        self._add("results", len(released))
        return released

    def _inputs_of(self, results: pa.Table) -> Ints:
        """Return the input partition of each result's substream; 0 where one timeline goes through all of them."""
        return np.zeros(results.num_rows, dtype=np.int64)

    def _add(self, name: str, count: int) -> None:
        if count:
            self.totals[name] = self.totals.get(name, 0) + count

    def save(self) -> tuple[bytes, Changes]:
        """Return the small head and the changed chunks that make the last saved bucket this one. Call once after each batch."""
        numbering = self._numbering
        self._keep_progress()
        changes = self._retention.save()
        head = {
            "version": BUCKET_STATE_VERSION,
            "readers": {str(partition): reader.save().decode() for partition, reader in self.readers.items()},
            "heeding": self._heeding.save(),
            "carried": {
                str(partition): b64encode(octets_of(table_of(events))).decode()
                for partition, events in self._carried.items()
                if len(events)
            },
            "next_offset": {str(partition): offset for partition, offset in self._next_offset.items()},
            "numbering": [numbering.seq, numbering.c, numbering.largest_us, numbering.written, numbering.ahead.tolist()],
            "chunks": self._retention.head(),
            "position": self._position,
            "ended": self._ended,
            "totals": self.totals,
            **self._own_head(),
        }
        return json.dumps(head, sort_keys=True).encode(), changes

    def restore(self, head: bytes, chunks: dict[int, bytes]) -> None:
        """
        Become the bucket that was saved, by this or an older version.

        Raises:
            ProtocolError: It was saved by a newer version.
        """
        fields = json.loads(head)
        if fields["version"] > BUCKET_STATE_VERSION:
            raise ProtocolError(
                f"a bucket's saved state has version {fields['version']}, this program reads up to {BUCKET_STATE_VERSION}",
                fix="run the version that saved it",
            )
        self.readers = {
            int(partition): PartitionReader.restore(saved.encode(), int(partition), self._output_partitions)
            for partition, saved in fields["readers"].items()
        }
        self._heeding.restore(fields.get("heeding"), self.readers)
        for partition, text in fields["carried"].items():
            self._carried[int(partition)] = events_of(pa.ipc.open_stream(b64decode(text)).read_all())
        self._next_offset = {int(partition): offset for partition, offset in fields["next_offset"].items()}
        seq, c, largest_us, written, ahead = fields["numbering"]
        promise = None if written is None else (written[0], written[1])
        self._numbering = _Numbering(seq, c, largest_us, promise, np.array(ahead, dtype=np.int64))
        self._position, self._ended, self.totals = fields["position"], fields["ended"], fields["totals"]
        self._retention = Retention.restore(fields["chunks"], chunks)
        self._restored(fields)
        if self._span_us and c > NEVER:
            until = _first_open(c, self._span_us)
            self._retention.reduce("results", lambda table: table.filter(pc.greater_equal(table["system_us"], until)))

    @abstractmethod
    def _keep_progress(self) -> None:
        """Add to the retention what a restore needs beyond the head."""

    @abstractmethod
    def _own_head(self) -> dict[str, Any]:
        """Return the kind's own part of the head."""

    @abstractmethod
    def _restored(self, fields: dict[str, Any]) -> None:
        """Read the kind's own part, and drop restored rows that are no longer needed."""


def _first_open(c: int, span_us: int) -> int:
    """Return the start of the first span that a CTI at *c* leaves open."""
    return c // span_us * span_us if c < INFINITY else INFINITY


def _released(number: int, seq: int, system_us: Ints, key: list[bytes], value: list[bytes]) -> Released:
    count = len(system_us)
    keys, values = to_objects(key), to_objects(value)
    numbers = np.arange(seq, seq + count)
    flags = np.zeros(count, dtype=np.uint16)
    return Released(number, np.full(count, number, dtype=np.int32), numbers, system_us, system_us, system_us, numbers, flags, keys, values)


def _between(system_us: int, value: bytes) -> Events:
    """Return a row between two operators as an event; it comes from no partition."""
    nowhere = np.array([-1])
    return Events(nowhere, nowhere, np.array([system_us]), to_objects([b""]), to_objects([value]), np.zeros(1, dtype=np.uint16))


_HELD = pa.schema(
    [
        ("number", pa.int64()),
        ("offset", pa.int64()),
        ("system_us", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("flags", pa.uint16()),
    ]
)


def table_of(events: Events) -> pa.Table:
    """Return events as an Arrow table, to be kept."""
    columns = [events.number, events.offset, events.system_us]
    return pa.Table.from_arrays(
        [*map(pa.array, columns), pa.array(events.key, pa.binary()), pa.array(events.value, pa.binary()), pa.array(events.flags)],
        schema=_HELD,
    )


def events_of(table: pa.Table) -> Events:
    """Return the events of a table made by :func:`table_of`, also by version 1, which kept no flags."""
    key, value = to_objects(table["key"]), to_objects(table["value"])
    flags = np.zeros(table.num_rows, dtype=np.uint16)
    if "flags" in table.column_names:
        flags = pc.fill_null(table["flags"], 0).to_numpy()
    return Events(table["number"].to_numpy(), table["offset"].to_numpy(), table["system_us"].to_numpy(), key, value, flags)
