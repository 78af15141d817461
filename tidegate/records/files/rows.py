"""
Reads the records of a file as columns, by the fields that flags of ``tidegate order`` name or by well-known fields.

Law: fields are read from a record's JSON as ingest reads them from a payload (:class:`~tidegate.records.fields.json_source.JsonSource`), so
a file and a topic with the same records have the same times and substreams. Only what files have beyond that is here: times of day such as
``12:07``, and partitions that are texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.policies import Policies, Shape
from ordering.protocol.keys import KEY_BYTES_MAX
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.records.fields.columns import FieldColumn, drop_long_keys
from tidegate.records.fields.json_source import JsonSource
from tidegate.records.fields.values import Values
from tidegate.records.files.blocks import Block
from tidegate.records.files.fields import (
    ARRIVAL_NAMES,
    PARTITION_NAMES,
    FieldPath,
    FilePartition,
    find_well_known,
    has_member,
    partition_of,
    read_ticks,
)
from tidegate.records.files.record_columns import RecordColumns

# The partition of all records if none is named.
SINGLE_PARTITION = FilePartition(2, 0, "", b"0")


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """How a file is ordered."""

    # Time policies; without arrivals only ``reorder_us`` and ``out_of_order_action`` count.
    policies: Policies
    # Field with the event time; for a span, with its start.
    timestamp_by: FieldPath
    # How event time and end are written: one of :data:`ordering.columns.timestamps.UNITS`.
    timestamp_format: str = "auto"
    # Field whose values are the substreams, or None.
    over: FieldPath | None = None
    # Fields with the arrival time and the partition; None: a well-known one, if the file has it.
    arrival: FieldPath | None = None
    # Whether arrivals are used; if not, no well-known arrival field is looked for either.
    has_arrival: bool = True
    partition: FieldPath | None = None
    shape: Shape = Shape.POINT
    # Field with the end of a span; an edge without it is a start edge.
    end: FieldPath | None = None
    # Field by which an end edge finds its start edge if there is no OVER.
    key: FieldPath | None = None
    # Whether the format distinguishes numbers from text.
    is_typed: bool = True
    # Whether each line has its explanation.
    should_explain: bool = False
    # The wall clock at the start, microseconds: arrivals far above it are reported. None: no arrival is.
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
    _source: JsonSource | None = None
    _partitions: dict[Any, FilePartition | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrival, self.partition, self.missing = self.plan.arrival, self.plan.partition, set(self.plan.named_fields())

    def resolve(self, names: Sequence[str]) -> None:
        """Find the well-known fields among *names*."""
        self.is_resolved, self.available, self._source = True, list(names), None
        if self.plan.has_arrival:
            self.arrival = self.arrival or find_well_known(names, ARRIVAL_NAMES)
        self.partition = self.partition or find_well_known(names, PARTITION_NAMES)

    def extract(self, block: Block) -> Mapping[FieldPath, Values]:
        """Return the fields of a block's records by their paths; note which of the named ones are there."""
        paths = [path for path in (*self.plan.named_fields(), self.arrival, self.partition) if path is not None]
        names = {path: str(place) for place, path in enumerate(dict.fromkeys(paths))}
        if self._source is None:
            self._source = JsonSource({name: Field(path) for path, name in names.items()})
        columns = self._source.extract(block.payloads()).columns
        found = {path: _values(columns[name]) for path, name in names.items()}
        self.missing -= {path for path in self.missing if found[path].present().any() or has_member(block.fields, path)}
        return found

    def partition_of(self, value: Any) -> FilePartition | None:
        """Return the partition that a value names, or None if it names none."""
        # With the type in the key, since 1, 1.0 and True are equal in Python but may name different partitions.
        cache_key = (type(value), value)
        if cache_key not in self._partitions:
            self._partitions[cache_key] = partition_of(value, is_typed=self.plan.is_typed)
        return self._partitions[cache_key]


def _values(column: FieldColumn) -> Values:
    assert isinstance(column, Values), "a computed column has values"
    return column


class Rows(RecordColumns):
    """One block of a file; ``codes`` has the index of each record's partition in ``partitions``, -1 if it has none."""

    def __init__(self, names: FieldNames, block: Block) -> None:
        value = np.empty(len(block), dtype=object)
        value[:] = block.text
        super().__init__(block, value)
        plan, columns = names.plan, names.extract(block)
        self.partitions, self.codes = self._partition_codes(names, columns)
        if names.arrival is not None:
            self.arrival_us, valid = read_ticks(columns[names.arrival], "auto")
            self.mark_bad(~valid, "arrival", is_walked=False)
        self.event_us, valid = read_ticks(columns[plan.timestamp_by], plan.timestamp_format)
        self.mark_bad(~valid, "timestamp")
        if plan.end is not None and plan.shape is not Shape.POINT:
            self.set_ends(plan.shape, *read_ticks(columns[plan.end], plan.timestamp_format), columns[plan.end].present())
        if plan.over is not None:
            substream, too_long = drop_long_keys(columns[plan.over].keys(), KEY_BYTES_MAX)
            self.substream = substream.dictionary_decode().cast(pa.binary())
            self.mark_bad(too_long, "key_too_long")
        if plan.key is not None:
            self.key = columns[plan.key].keys().dictionary_decode().cast(pa.binary())

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

    def _partition_codes(self, names: FieldNames, columns: Mapping[FieldPath, Values]) -> tuple[list[FilePartition], Ints]:
        if names.partition is None:
            return [SINGLE_PARTITION], np.where(self.is_bad, -1, 0)
        values = columns[names.partition].variant
        # Values without a part are null, which is a partition too.
        named = np.full(len(self.block), names.partition_of(None), dtype=object)
        for kind, part in values.parts.items():
            encoded, rows = part.dictionary_encode(), np.flatnonzero(part.is_valid().to_numpy(zero_copy_only=False))
            is_named = kind in (Kind.NVARCHAR, Kind.BIGINT, Kind.FLOAT, Kind.BIT)
            found = [names.partition_of(value) if is_named else None for value in encoded.dictionary.to_pylist()]
            named[rows] = np.array([*found, None], dtype=object)[:-1][encoded.indices.take(pa.array(rows)).to_numpy(zero_copy_only=False)]
        places: dict[FilePartition | None, int] = {None: -1}
        codes = np.full(len(self.block), -1, dtype=np.int64)
        for row in np.flatnonzero(self.is_walked).tolist():
            codes[row] = places.setdefault(named[row], len(places) - 1)
        self.mark_bad(codes < 0, "partition", is_walked=False)
        return [partition for partition in places if partition is not None], codes
