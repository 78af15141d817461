"""
Reads the records of a file as columns, by the fields that flags of ``tidegate order`` name or by well-known fields.

Law: whether a record is readable, and why not, depends on the record and the field names alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.policies import Policies, Shape
from ordering.protocol.keys import KEY_BYTES_MAX
from tidegate.records.files.blocks import Block
from tidegate.records.files.fields import (
    ARRIVAL_NAMES,
    MISSING,
    PARTITION_NAMES,
    FieldPath,
    FilePartition,
    find_well_known,
    key_of,
    partition_of,
    path_getter,
    ticks_of,
)
from tidegate.records.files.record_columns import RecordColumns

# The partition of all records if none is named.
SINGLE_PARTITION = FilePartition(2, 0, "", b"0")


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """
    How a file is ordered.

    Args:
        policies: Time policies; without arrivals only ``reorder_us`` and ``out_of_order_action`` count.
        timestamp_by: Field with the event time; for a span, with its start.
        timestamp_format: How event time and end are written: one of :data:`ordering.columns.timestamps.UNITS`.
        over: Field whose values are the substreams, or None.
        arrival, partition: Fields with the arrival time and the partition; None: a well-known one, if the file has it.
        has_arrival: Whether arrivals are used; if not, no well-known arrival field is looked for either.
        end: Field with the end of a span; an edge without it is a start edge.
        key: Field by which an end edge finds its start edge if there is no OVER.
        is_typed: Whether the format distinguishes numbers from text.
        should_explain: Whether each line has its explanation.
        clock_us: The wall clock at the start, microseconds: arrivals far above it are reported. None: no arrival is.
    """

    policies: Policies
    timestamp_by: FieldPath
    timestamp_format: str = "auto"
    over: FieldPath | None = None
    arrival: FieldPath | None = None
    has_arrival: bool = True
    partition: FieldPath | None = None
    shape: Shape = Shape.POINT
    end: FieldPath | None = None
    key: FieldPath | None = None
    is_typed: bool = True
    should_explain: bool = False
    clock_us: int | None = None

    def named_fields(self) -> list[FieldPath]:
        """Return the fields that flags name; each should be in some record."""
        return [path for path in (self.timestamp_by, self.over, self.arrival, self.partition, self.end, self.key) if path is not None]


@dataclass(slots=True)
class FieldNames:
    """
    The field names that apply to one file, resolved by its header or first object, whose names are ``available``.
    ``missing`` are the fields that flags name and no record has had so far.
    """

    plan: OrderPlan
    arrival: FieldPath | None = None
    partition: FieldPath | None = None
    is_resolved: bool = False
    available: list[str] = field(default_factory=list)
    missing: set[FieldPath] = field(default_factory=set)
    _partitions: dict[Any, FilePartition | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrival, self.partition, self.missing = self.plan.arrival, self.plan.partition, set(self.plan.named_fields())

    def resolve(self, names: Sequence[str]) -> None:
        """Find the well-known fields among *names*."""
        self.is_resolved, self.available = True, list(names)
        if self.plan.has_arrival:
            self.arrival = self.arrival or find_well_known(names, ARRIVAL_NAMES)
        self.partition = self.partition or find_well_known(names, PARTITION_NAMES)

    def partition_of(self, value: Any) -> FilePartition | None:
        """Return the partition that a value names, or None if it names none."""
        if isinstance(value, dict | list):
            return None
        # With the type in the key, since 1, 1.0 and True are equal in Python but may name different partitions.
        cache_key = (type(value), value)
        if cache_key not in self._partitions:
            self._partitions[cache_key] = partition_of(value, is_typed=self.plan.is_typed)
        return self._partitions[cache_key]


class Rows(RecordColumns):
    """One block of a file; ``codes`` has the index of each record's partition in ``partitions``, -1 if it has none."""

    def __init__(self, names: FieldNames, block: Block) -> None:
        value = np.empty(len(block), dtype=object)
        value[:] = block.text
        super().__init__(block, value)
        self._names, self._plan = names, names.plan
        self._read_repeated_names()
        self.partitions, self.codes = self._partition_codes()
        self._read_arrivals()
        self.event_us, valid = ticks_of(self._column(self._plan.timestamp_by), self._plan.timestamp_format)
        self.mark_bad(~valid, "timestamp")
        self._read_ends()
        self.substream, self.key = self._parse_keys(self._plan.over), self._parse_keys(self._plan.key)
        if self.substream is not None:
            self.mark_bad(pc.greater(pc.binary_length(self.substream), KEY_BYTES_MAX).to_numpy(zero_copy_only=False), "key_too_long")

    def by_partition(self) -> list[tuple[FilePartition, Ints]]:
        """Return the partitions with records for the model, each with its rows."""
        codes = np.where(self.is_walked, self.codes, -1)
        # One stable sort for all partitions, so that each keeps the order of the file.
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(self.partitions) + 1))
        slices = [(partition, order[starts[code] : starts[code + 1]]) for code, partition in enumerate(self.partitions)]
        return [(partition, rows) for partition, rows in slices if len(rows)]

    def partition_at(self, row: int) -> FilePartition | None:
        return self.partitions[self.codes[row]] if self.codes[row] >= 0 else None

    def _read_repeated_names(self) -> None:
        """Read records with repeated names again: the first of them counts, as in ingest and queries, and orjson takes the last."""
        if not self.block.may_repeat_names:
            return
        from tidegate.records.files.json_values import read_value, rows_with_repeated_names

        fields = [*self._plan.named_fields(), self._names.arrival or (), self._names.partition or ()]
        for row in rows_with_repeated_names(self.block.payloads(), {name for path in fields for name in path}):
            if self.block.fields[row] is not None:
                self.block.fields[row] = read_value(self.block.text[row])

    def _column(self, path: FieldPath) -> list[Any]:
        """Return each record's value at *path*, or ``MISSING`` if the record lacks it or has a fault."""
        get, missing = path_getter(path), self._names.missing
        values = [MISSING if fields is None else get(fields) for fields in self.block.fields]
        if path in missing and any(value is not MISSING for value in values):
            missing.discard(path)
        return values

    def _partition_codes(self) -> tuple[list[FilePartition], Ints]:
        size, path = len(self.block), self._names.partition
        if path is None:
            return [SINGLE_PARTITION], np.where(self.is_bad, -1, 0)
        places: dict[FilePartition | None, int] = {None: -1}
        codes = np.full(size, -1, dtype=np.int64)
        for row, value in enumerate(self._column(path)):
            if self.is_walked[row]:
                codes[row] = places.setdefault(self._names.partition_of(value), len(places) - 1)
        self.mark_bad(codes < 0, "partition", is_walked=False)
        return [partition for partition in places if partition is not None], codes

    def _read_arrivals(self) -> None:
        if (path := self._names.arrival) is not None:
            self.arrival_us, valid = ticks_of(self._column(path), "auto")
            self.mark_bad(~valid, "arrival", is_walked=False)

    def _read_ends(self) -> None:
        if (path := self._plan.end) is None or self._plan.shape is Shape.POINT:
            return
        values = self._column(path)
        ticks, valid = ticks_of(values, self._plan.timestamp_format)
        present = np.array([not (value is None or value is MISSING or value == "") for value in values], dtype=np.bool_)
        self.set_ends(self._plan.shape, ticks, valid, present)

    def _parse_keys(self, path: FieldPath | None) -> pa.Array | None:
        if path is None:
            return None
        keys = [key_of(self._with_first_members(row, value, path)) for row, value in enumerate(self._column(path))]
        return pa.array(keys, type=pa.binary())

    def _with_first_members(self, row: int, value: Any, path: FieldPath) -> Any:
        # orjson takes the last of equal names, also inside objects and arrays.
        if type(value) in (dict, list) and self.block.may_repeat_names:
            from tidegate.records.files.json_values import read_value

            return path_getter(path)(read_value(self.block.text[row]))
        return value
