"""
A file as an input of a script: each partition of its records goes through a time model of its own.

A record's arrival is its ``EventEnqueuedUtcTime``, its partition its ``PartitionId``, if the first record (or the header) has such
fields. Without TIMESTAMP BY the event time is the arrival; if the file has no arrivals either, it is the file's last change.
With TIMESTAMP BY but without arrivals nothing is early or late: only reorder applies. An end edge belongs to the start edge with the
same substream and start; without OVER, with the same start, since a file's records have no key beside their payload.

Law: which events leave, and in which order, depends on the file and the settings alone, not on how the file was cut into blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.model.state import State
from ordering.model.step import Batch, Counts, Model, Step
from ordering.policies import JUMP_WARN_US, Policies, Shape
from ordering.protocol.frontier import Frontier
from ordering.protocol.keys import KEY_BYTES_MAX
from ordering.ticks import NEVER
from query.local.files import LocalFile, open_file_records
from query.local.ordered_log import FileRoster
from query.plan.nodes import Scan
from tidegate.language.expressions.binding.setting_expressions import path_of
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr, Field, keys_of
from tidegate.language.expressions.variant import Variant
from tidegate.platform.observe.time_jumps import JumpsByCause, find_moved_events, find_time_jumps
from tidegate.records.fields.columns import FieldColumn, drop_long_keys, over_name, substream_keys
from tidegate.records.fields.json_source import JsonSource
from tidegate.records.fields.values import ReaderSource, Values
from tidegate.records.files.blocks import Block, Fault, FileRecords, OrderFileError
from tidegate.records.files.fields import find_well_known
from tidegate.records.files.flags import without_arrival
from tidegate.records.files.record_columns import RecordColumns
from tidegate.records.files.summary import add_counts
from tidegate.records.payloads.formats import JSON, reader_of

ARRIVAL = "EventEnqueuedUtcTime"
PARTITION = "PartitionId"
PARTITION_MAX = 2**31 - 1
# Stands for the partitions that standard input may still bring. It never gets a CTI, so no time passes before the end.
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class BadRecord:
    """
    A record that cannot be used. ``value`` is its JSON; ``input`` is None for a row between two operators.
    ``partition`` and ``line`` are None if they are not known.
    """

    input: str | None
    reason: str
    partition: int | None
    line: int | None
    value: bytes


@dataclass(frozen=True, slots=True)
class TimeRules:
    """How the time of an input's records is determined."""

    # The time policies; without arrivals only reorder applies.
    policies: Policies
    # How event times are written; one of :data:`ordering.columns.timestamps.UNITS`.
    time_format: str = "auto"
    shape: Shape = Shape.POINT
    # Field path of the end of an interval or edge; None for points.
    end: str | None = None
    # Most bytes of a substream's key.
    key_bytes_max: int = KEY_BYTES_MAX
    # A record that moves time by more is reported.
    jump_warn_us: int = JUMP_WARN_US
    # The wall clock at the start, microseconds: arrivals far above it are reported. None: no arrival is.
    clock_us: int | None = None


@dataclass
class _Partition:
    model: Model
    state: State
    next_line: int = 0


@dataclass(slots=True)
class InputCounts:
    """Counts of an input's records so far."""

    records: int = 0
    policies: Counts = field(default_factory=Counts)
    bad: Counter[str] = field(default_factory=Counter)
    jumps: JumpsByCause = field(default_factory=JumpsByCause)


class FileInput:
    """
    One input of a script, read from a file; *scan* gives its event time and its substreams.
    Raises OrderFileError if the file does not have the format of its ending, or has no time at all.
    """

    def __init__(self, file: LocalFile, scan: Scan, rules: TimeRules, block_bytes: int) -> None:
        self.file, self.name, self.counts = file, scan.input, InputCounts()
        self.is_ended = False
        self.rules, self._scan, self._over = rules, scan, scan.over is not None
        self._open = ExitStack()
        self.records: FileRecords = self._open.enter_context(open_file_records(file, block_bytes))
        self._blocks = self.records.blocks()
        first, self._blocks = _read_first_names(self._blocks)
        names = self.records.columns or first
        self.has_arrival = find_well_known(names, [ARRIVAL]) is not None
        self.has_partition = find_well_known(names, [PARTITION]) is not None
        self.changed_us = self._file_change_us()
        self.reader = JsonSource(self._needed_exprs())
        self._policies = self._effective_policies()
        self._partitions: dict[int, _Partition] = {}
        partitions = self._find_partitions(block_bytes)
        self.roster = self._make_roster(partitions) if partitions else None
        self.frontier: Frontier[int] = Frontier(partitions or [_UNKNOWN])

    @property
    def partitions(self) -> int:
        """How many partitions have had records so far."""
        return sum(partition.next_line > 0 for partition in self._partitions.values())

    def close(self) -> None:
        self._open.close()

    def read(self) -> tuple[list[Step], list[BadRecord]]:
        """Read one block; return a step for each of its partitions (after the last block: for all) and the records that cannot be used."""
        block = next(self._blocks, None)
        if block is None:
            return self._finish(), []
        self.counts.records += len(block)
        rows = _Rows(self, block)
        steps = [self._step(partition, rows.batch(chosen)) for partition, chosen in rows.by_partition()]
        bad = rows.bad_records()
        self.counts.bad.update(record.reason for record in bad)
        return steps, bad

    # Reading

    def _needed_exprs(self) -> dict[str, Expr]:
        wanted: dict[str, Expr | None] = {
            "time": _without_type(self._scan.timestamp_by),
            "end": Field(tuple(self.rules.end.split("."))) if self.rules.end is not None else None,
            **{over_name(place): _without_type(key) for place, key in enumerate(keys_of(self._scan.over))},
            "arrival": Field((ARRIVAL,)) if self.has_arrival else None,
            "partition": Field((PARTITION,)) if self.has_partition else None,
        }
        return {name: expr for name, expr in wanted.items() if expr is not None}

    def _effective_policies(self) -> Policies:
        if self._scan.timestamp_by is None:
            # Without TIMESTAMP BY the event time is the arrival: nothing is early, late or out of order.
            return Policies.arrival_order()
        if self.has_arrival:
            return self.rules.policies
        return without_arrival(self.rules.policies, has_over=self._over)

    def _file_change_us(self) -> int:
        if self.has_arrival or self._scan.timestamp_by is not None:
            return NEVER
        if not self.file.can_be_read_twice:
            what = f"{self.name} has neither TIMESTAMP BY nor {ARRIVAL}, and standard input was never changed"
            example = f"FROM {self.name} TIMESTAMP BY at"
            raise OrderFileError(what, code="TG-LOCAL-INPUT", where=f"{self.file.path}:1", fix="say what event time is", example=example)
        return Path(self.file.path).stat().st_mtime_ns // 1_000

    def _find_partitions(self, block_bytes: int) -> list[int]:
        """Return the file's partitions, or none if they cannot be known before its end."""
        if not self.has_partition:
            return [0]
        # Standard input cannot be read twice. Time waits for its end, since any record may bring a new partition.
        if not self.file.can_be_read_twice:
            return []
        # An extra pass: the roster must list all partitions before a watermark may advance.
        partitions: set[int] = set()
        reader = ReaderSource(reader_of(JSON), {"partition": Field((PARTITION,))})
        with open_file_records(self.file, block_bytes) as records:
            for block in records.blocks():
                numbers, valid = parse_partitions(_variant(reader.extract(block.payloads()).columns["partition"]))
                readable = np.array([fault is None for fault in block.fault], dtype=np.bool_)
                partitions.update(np.unique(numbers[valid & readable]).tolist())
        return sorted(partitions) or [0]

    def _make_roster(self, partitions: Sequence[int]) -> FileRoster:
        return FileRoster.of(partitions, has_over=self._over)

    # The time model

    def _partition(self, number: int) -> _Partition:
        partition = self._partitions.get(number)
        if partition is None:
            model = Model(self._policies, self._over, 1, number, shape=self.rules.shape)
            partition = self._partitions[number] = _Partition(model, model.new_state())
        return partition

    def _step(self, number: int, batch: Batch) -> Step:
        partition, rules = self._partition(number), self.rules
        if self.has_arrival:
            found = find_time_jumps(batch, self._policies, partition.state.arrival_us, rules.clock_us, rules.jump_warn_us)
            self.counts.jumps.add(str(number), found)
        step = partition.model.step(partition.state, batch)
        if not self.has_arrival:
            self.counts.jumps.add(str(number), find_moved_events(step.released, rules.jump_warn_us))
        if len(batch.offset):
            partition.next_line = batch.end_offset
        add_counts(self.counts.policies, step.counts)
        for cti in step.ctis:
            self.frontier.rise(number, cti.c)
        return step

    def _finish(self) -> list[Step]:
        self.is_ended = True
        self.close()
        self.roster = self.roster or self._make_roster(sorted(self._partitions) or [0])
        # A partition without records ends too: readers wait for every channel of the roster.
        ending = [(number, self._partition(number)) for number in self.roster.partitions]
        # A time-only batch has no records; it moves every watermark to the end.
        return [self._step(number, partition.model.time_only_batch(partition.next_line, finish=True)) for number, partition in ending]


class _Rows(RecordColumns):
    def __init__(self, source: FileInput, block: Block) -> None:
        # As in ingest, a JSON value that is no object is a record without fields, but no element of an array.
        if not block.is_plain and not source.file.explodes:
            block.fault = [None if fault is Fault.OBJECT else fault for fault in block.fault]
        super().__init__(block, block.payloads())
        self._name, size = source.name, len(block)
        extracted = source.reader.extract(self.value)
        columns = extracted.columns
        self.mark_bad(~extracted.well_formed, "malformed", is_walked=False)
        self.partition = np.zeros(size, dtype=np.int64)
        if source.has_partition:
            self.partition, valid = parse_partitions(_variant(columns["partition"]))
            self.mark_bad(~valid, "partition", is_walked=False)
        self.arrival_us = np.full(size, source.changed_us, dtype=np.int64)
        if source.has_arrival:
            self.arrival_us, valid = columns["arrival"].ticks("auto")
            self.mark_bad(~valid, "arrival", is_walked=False)
        if "time" in columns:
            self.event_us, valid = columns["time"].ticks(source.rules.time_format)
            self.mark_bad(~valid, "timestamp")
        if "end" in columns:
            self.set_ends(source.rules.shape, *columns["end"].ticks(source.rules.time_format), columns["end"].present())
        if (substream := substream_keys(columns)) is not None:
            self.substream, too_long = drop_long_keys(substream, source.rules.key_bytes_max)
            self.mark_bad(too_long, "key_too_long")
            self.key = self.substream.dictionary_decode().cast(pa.binary())

    def by_partition(self) -> Iterator[tuple[int, Ints]]:
        """Yield each partition with the rows that the model walks."""
        for partition in np.unique(self.partition[self.is_walked]).tolist():
            yield partition, np.flatnonzero(self.is_walked & (self.partition == partition))

    def bad_records(self) -> list[BadRecord]:
        records = []
        # A record that the model does not walk may have no valid partition.
        for row in np.flatnonzero(self.is_bad).tolist():
            partition = int(self.partition[row]) if self.is_walked[row] else None
            records.append(BadRecord(self._name, self.reason[row], partition, int(self.line[row]), self.block.text[row]))
        return records


def parse_partitions(values: Variant) -> tuple[Ints, Mask]:
    """Return the partition of each value, and which are valid: 32-bit integers, also as text, from 0 on; NULL is partition 0."""
    numbers, valid = np.zeros(values.length, dtype=np.int64), ~values.valid_mask()
    for kind, part in values.parts.items():
        if kind is Kind.NVARCHAR:
            part = pc.if_else(pc.match_substring_regex(part, "^[0-9]{1,10}$"), part, None).cast(pa.int64())
        # Only BIGINT and matching text name a partition. NULL has no part: its row is valid from the start, with 0.
        elif kind is not Kind.BIGINT:
            continue
        candidates = part.fill_null(-1).to_numpy()
        in_range = (candidates >= 0) & (candidates <= PARTITION_MAX)
        numbers[in_range], valid[in_range] = candidates[in_range], True
    return numbers, valid


def _without_type(expr: Expr | None) -> Expr | None:
    # As ingest reads it: the declared type of a field does not change its event time or key.
    path = path_of(expr) if expr is not None else None
    return expr if path is None else Field(path)


def _variant(column: FieldColumn) -> Variant:
    assert isinstance(column, Values), "a computed column has values"
    return column.variant


def _read_first_names(blocks: Iterator[Block]) -> tuple[list[str], Iterator[Block]]:
    """Return the field names of the first readable record, and all blocks, including those read to find it."""
    seen: list[Block] = []
    names: list[str] = []
    for block in blocks:
        seen.append(block)
        if (first := block.first_names()) is not None:
            names = first
            break
    return names, chain(seen, blocks)
