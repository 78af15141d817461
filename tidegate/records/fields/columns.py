"""The fields read from a column of payloads in any format: times, keys, and which payloads are unusable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.policies import Shape
from ordering.protocol.keys import list_part
from ordering.ticks import NEVER
from tidegate.basics.dead_letter_reasons import IngestReason

Ticks = Ints


@dataclass(slots=True)
class Fields:
    """The fields of a column of payloads."""

    # Event times; for an end edge its end.
    event_time_us: Ticks
    # Whether all times that the event's shape needs are valid.
    readable: Mask
    # Whether the payload is valid in its format.
    well_formed: Mask
    # Whether its event time is valid.
    timed: Mask
    # Key bytes; None without OVER.
    substream: pa.DictionaryArray | None
    # The ends of intervals.
    end_us: Ticks | None = None
    # For an end edge the time of its start edge, for a start edge ``NEVER``.
    start_us: Ticks | None = None
    # By row, why it is not well formed; default: "malformed".
    reasons: Mapping[int, IngestReason] = field(default_factory=dict)
    # For each key of OVER, how many values are texts, and how many are others; NULL counts for neither.
    key_counts: tuple[tuple[int, int], ...] = ()

    def mark_unusable(self, rows: Mask, reason: IngestReason) -> None:
        if rows.any():
            self.readable &= ~rows
            self.well_formed = self.well_formed & ~rows
            self.reasons = {**self.reasons, **dict.fromkeys(np.flatnonzero(rows).tolist(), reason)}

    def limit_keys(self, bytes_max: int) -> None:
        """Mark the records with a key of more than *bytes_max* bytes as unusable, and drop their keys."""
        if self.substream is not None:
            self.substream, too_long = drop_long_keys(self.substream, bytes_max)
            self.mark_unusable(too_long, IngestReason.KEY_TOO_LONG)


def drop_long_keys(substream: pa.DictionaryArray, bytes_max: int) -> tuple[pa.DictionaryArray, Mask]:
    """Return substream keys, with zero bytes in place of keys longer than *bytes_max*, and the mask of the rows with longer keys."""
    keys, indices = substream.dictionary, substream.indices
    too_long = pc.greater(pc.binary_length(keys), bytes_max)
    if not pc.any(too_long).as_py():
        return substream, np.zeros(len(substream), dtype=np.bool_)
    rows: Mask = too_long.take(indices).to_numpy(zero_copy_only=False)
    return pa.DictionaryArray.from_arrays(indices, pc.if_else(too_long, b"", keys)), rows


class FieldColumn(Protocol):
    """One field of a column of payloads."""

    def ticks(self, unit: str) -> tuple[Ticks, Mask]:
        """Return times in microseconds, and which of them are valid."""
        ...

    def keys(self) -> pa.DictionaryArray:
        """Return substream key bytes; no key is zero bytes."""
        ...

    def present(self) -> Mask:
        """Return which rows have a value that is not null."""
        ...

    def count_texts(self) -> tuple[int, int]:
        """Return how many values are texts, and how many are others."""
        ...


@dataclass(slots=True)
class ExtractedFields:
    """The fields that a format's reader has extracted from a column of payloads."""

    well_formed: Mask
    # The requested ones of ``time``, ``end`` and the names of keys (:func:`over_name`).
    columns: Mapping[str, FieldColumn]
    # By row: why it is not well formed.
    reasons: Mapping[int, IngestReason] = field(default_factory=dict)


class FieldSource(Protocol):
    """Extracts fields from payloads of one format."""

    def extract(self, payloads: pa.Array) -> ExtractedFields: ...


def over_name(place: int) -> str:
    """Return the name of the column of OVER's key number *place*."""
    return f"over{place or ''}"


def substream_keys(columns: Mapping[str, FieldColumn]) -> pa.DictionaryArray | None:
    """Return the substream key bytes of each row: those of a single key, or a JSON array of several keys as texts; None without OVER."""
    parts = [columns[name].keys() for name in map(over_name, range(len(columns))) if name in columns]
    if len(parts) < 2:
        return parts[0] if parts else None
    texts = [pa.array(map(list_part, part.dictionary.to_pylist()), pa.binary()).take(part.indices) for part in parts]
    joined = pc.binary_join_element_wise(*texts, b",").dictionary_encode()
    keys = [b"[%b]" % key for key in joined.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(joined.indices, pa.array(keys, pa.binary()))


def assemble_fields(extracted: ExtractedFields, unit: str, shape: Shape) -> Fields:
    """Return the *extracted* columns as an ingest job needs them: times in *unit*, and the span of an event of that *shape*."""
    ok, columns = extracted.well_formed, extracted.columns
    substream = substream_keys(columns)
    counts = tuple(columns[name].count_texts() for name in map(over_name, range(len(columns))) if name in columns)
    if "time" not in columns:
        return Fields(np.zeros(len(ok), dtype=np.int64), ok.copy(), ok, ok, substream, reasons=extracted.reasons, key_counts=counts)
    time_us, valid = columns["time"].ticks(unit)
    timed = valid & ok
    fields = Fields(time_us, timed.copy(), ok, timed, substream, reasons=extracted.reasons, key_counts=counts)
    return fields if shape is Shape.POINT else _with_span(fields, columns["end"], unit, shape)


def _with_span(fields: Fields, end: FieldColumn, unit: str, shape: Shape) -> Fields:
    end_us, valid = end.ticks(unit)
    if shape is Shape.INTERVAL:
        fields.readable, fields.end_us = fields.timed & valid, end_us
        return fields
    ends = end.present()
    fields.readable = fields.timed & (valid | ~ends)
    fields.start_us = np.where(ends, fields.event_time_us, NEVER)
    fields.event_time_us = np.where(ends, end_us, fields.event_time_us)
    return fields
