"""
Counts of NULL in the columns that a query reads, over the last minutes, from a sample of each piece that a bucket reads.

A field that is renamed upstream is no error: it is NULL from then on. So running jobs count, and
:mod:`tidegate.platform.metrics.null_shares` tells.

Law: no result depends on the counts, which are not saved with the bucket. Of a piece at most ``SAMPLE_RECORDS`` records are parsed once
more, and the small pieces of an open batch are counted together, ten times a second, so the cost does not grow with the load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Mask
from ordering.columns.framed_payloads import payloads_of
from query.columns.large_tables import combine_column
from query.plan.columns_read import leaves_read
from query.plan.nodes import Plan
from tidegate.language.expressions.tree import Field
from tidegate.platform.observe.reports import ColumnNulls, InputNulls
from tidegate.records.payloads.formats import JSON, PayloadFormat, PayloadReader, reader_of

SAMPLE_RECORDS = 256
# Small pieces of an input are counted together, if less time than this has passed since the last count, seconds.
_PAUSE_S = 0.1
# Counts are kept in two parts of this length, the present one and the one before: "the last minutes" are two to five.
_PART_S = 150.0


@dataclass(slots=True)
class _Counts:
    records: int = 0
    # By column: how many records are NULL in it, and how many of them have no such field.
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, records: int, columns: Mapping[str, tuple[int, int]]) -> None:
        self.records += records
        for column, (nulls, absent) in columns.items():
            before = self.columns.get(column, (0, 0))
            self.columns[column] = before[0] + nulls, before[1] + absent


class NullCounts:
    """The counts of one bucket in one process. *now_s*: a monotonic clock, seconds."""

    def __init__(self, plans: Sequence[Plan], now_s: Callable[[], float] = time.monotonic) -> None:
        self._plans, self._now_s = plans, now_s
        self._part_began_s = now_s()
        self._present: dict[str, _Counts] = {}
        self._before: dict[str, _Counts] = {}
        # By input: the newest records that are not counted yet, and when they are to be counted.
        self._held: dict[str, pa.ChunkedArray] = {}
        self._next_s: dict[str, float] = {}
        self._fields: dict[str, list[Field]] = {}
        self._readers: dict[str, PayloadReader] = {}
        self._formats: dict[str, PayloadFormat] = {}

    def look_at(self, input: str, payloads: pa.ChunkedArray, payload_format: PayloadFormat = JSON) -> None:
        """Count a sample of a piece: its newest records. Small pieces that follow one another at once are one piece."""
        if input not in self._fields:
            self._fields[input] = list(leaves_read(self._plans, input, Field))
            self._formats[input], self._readers[input] = payload_format, reader_of(payload_format)
        if not self._fields[input]:
            return
        held = self._held.get(input)
        self._held[input] = _newest(payloads if held is None else pa.chunked_array([*held.chunks, *payloads.chunks], payloads.type))
        if len(payloads) >= SAMPLE_RECORDS or self._now_s() >= self._next_s.get(input, 0.0):
            self._count(input)

    def _count(self, input: str) -> None:
        """Count what is held of an input."""
        self._turn()
        held, fields = self._held.pop(input), self._fields[input]
        if not len(held):
            return
        self._next_s[input] = self._now_s() + _PAUSE_S
        sample = combine_column(held)
        columns = self._readers[input].extract(sample, fields).columns
        names_of = _bare_texts(sample, self._formats[input])
        counts = {}
        for each in fields:
            is_null = ~columns[each].valid_mask()
            if nulls := int(is_null.sum()):
                counts[str(each)] = nulls, 0 if names_of is None else _count_absent(names_of, is_null, each)
        self._present.setdefault(input, _Counts()).add(len(sample), counts)

    def report(self) -> dict[str, InputNulls]:
        """Return by input how many records were looked at in the last minutes, and the counts of columns with a NULL."""
        for input in list(self._held):
            self._count(input)
        self._turn()
        total: dict[str, _Counts] = {}
        for part in (self._before, self._present):
            for input, counts in part.items():
                total.setdefault(input, _Counts()).add(counts.records, counts.columns)
        return {
            input: InputNulls(counts.records, {column: ColumnNulls(*pair) for column, pair in counts.columns.items()})
            for input, counts in total.items()
        }

    def _turn(self) -> None:
        """Let counts that are too old go."""
        age_s = self._now_s() - self._part_began_s
        if age_s < _PART_S:
            return
        self._before, self._present = (self._present if age_s < 2 * _PART_S else {}), {}
        self._part_began_s = self._now_s()


def _newest(payloads: pa.ChunkedArray) -> pa.ChunkedArray:
    return payloads.slice(max(len(payloads) - SAMPLE_RECORDS, 0))


def _bare_texts(sample: pa.Array, payload_format: PayloadFormat) -> pa.Array | None:
    """Return JSON payloads without the frames of headers; None for formats in which every record has every field."""
    if payload_format.name != "json":
        return None
    return payloads_of(sample) if payload_format.headers else sample


def _count_absent(payloads: pa.Array, is_null: Mask, field: Field) -> int:
    """Return how many records do not have the name of *field* among their members: as text, since parsing says only that it is NULL."""
    rows = payloads.filter(pa.array(is_null))
    has_name = pc.match_substring(rows, f'"{field.path[-1]}"', ignore_case=True)
    return int(np.count_nonzero(~has_name.fill_null(False).to_numpy(zero_copy_only=False)))
