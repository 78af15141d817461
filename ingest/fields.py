"""
Which fields ingest reads: event time, end of the span and substream key, out of payloads that are passed on untouched.

Law: what a payload gives depends on that payload alone, never on its neighbours in a batch. So one parser reads every
row on its own (DuckDB's, over the whole column at once), and kinds are told value by value. Of members with equal names
the first counts; the parser is lenient about a comma too many and about NaN and Infinity, which count as null.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.keys import key_bytes
from ordering.policies import Shape
from ordering.ticks import NEVER
from ordering.timestamps import to_ticks

Objects = NDArray[np.object_]
Ticks = NDArray[np.int64]


@dataclass(slots=True)
class Fields:
    """
    What was read of a column of payloads.

    ``readable`` is False where the times an event needs are not valid (they are then anything); ``well_formed`` tells
    where the payload is JSON at all, ``timed`` where the field of the event time is valid. ``substream`` holds key bytes
    as a dictionary column (None without OVER). ``end_us`` are intervals' ends, ``start_us`` edges' starts: the time of
    its start edge for an end edge, whose event time is its end, and ``NEVER`` for a start edge (None for other shapes).
    """

    event_time_us: Ticks
    readable: NDArray[np.bool_]
    well_formed: NDArray[np.bool_]
    timed: NDArray[np.bool_]
    substream: pa.DictionaryArray | None
    end_us: Ticks | None = None
    start_us: Ticks | None = None


class FieldReader:
    """
    Reads event time, end and substream key from JSON payloads.

    Args:
        timestamp_by: Field path of the event time, or None.
        timestamp_format: How times are written: auto, iso, s, ms, us or ns.
        over: Field path of the substream key, or None.
        shape: What an event is in time.
        end: Field path of the end of the span; None for points.
    """

    def __init__(
        self, timestamp_by: str | None, timestamp_format: str, over: str | None, shape: Shape = Shape.POINT, end: str | None = None
    ) -> None:
        self._format, self._shape = timestamp_format, shape
        self._paths = {name: path for name, path in (("time", timestamp_by), ("end", end), ("over", over)) if path is not None}
        # TRY turns what one row cannot give - bad UTF-8, broken JSON - into NULL for that row alone.
        columns = [f"TRY(json_extract(text, '{_json_path(path)}')) AS \"{name}\"" for name, path in self._paths.items()]
        chosen = ", ".join([*columns, "text IS NOT NULL AND json_valid(text) AS ok"])
        self._sql = f"SELECT {chosen} FROM (SELECT TRY(decode(value)) AS text FROM payloads)"

    def read(self, values: Objects) -> Fields:
        """Return the fields of each payload (bytes or None)."""
        payloads = pa.table({"value": pa.array(values, type=pa.binary())})
        connection = _connection()
        connection.register("payloads", payloads)
        table = connection.sql(self._sql).to_arrow_table().combine_chunks()
        ok = table["ok"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False)
        columns = {name: _whole(table[name]) for name in self._paths}
        substream = _key_column(columns["over"]) if "over" in columns else None
        if "time" not in columns:
            return Fields(np.zeros(len(values), dtype=np.int64), ok, ok, ok, substream)
        time_us, valid = to_ticks(_scalars(columns["time"]), self._format)
        timed = valid & ok
        if self._shape is Shape.POINT:
            return Fields(time_us, timed, ok, timed, substream)
        return self._span(Fields(time_us, timed, ok, timed, substream), columns["end"])

    def _span(self, fields: Fields, raw: pa.Array) -> Fields:
        """Add the other end of each span."""
        end_us, valid = to_ticks(_scalars(raw), self._format)
        if self._shape is Shape.INTERVAL:
            fields.readable, fields.end_us = fields.timed & valid, end_us
            return fields
        ends = pc.not_equal(raw.cast(pa.string()), "null").fill_null(False).to_numpy(zero_copy_only=False)
        fields.readable = fields.timed & (valid | ~ends)
        fields.start_us = np.where(ends, fields.event_time_us, NEVER)
        fields.event_time_us = np.where(ends, end_us, fields.event_time_us)
        return fields


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1, "preserve_insertion_order": True, "enable_external_access": False})


def _json_path(field_path: str) -> str:
    steps = "".join('."' + step.replace("\\", "\\\\").replace('"', '\\"') + '"' for step in field_path.split("."))
    return f"${steps}".replace("'", "''")


def _whole(column: pa.ChunkedArray) -> pa.Array:
    merged = column.combine_chunks()
    return merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged


def _scalars(raw: pa.Array) -> pa.Array:
    """Turn JSON texts of scalars into plain values: integers where all are, else text."""
    text = raw.cast(pa.string())
    quoted = pc.starts_with(text, '"')
    if not pc.any(quoted).as_py():
        try:
            return text.cast(pa.int64())
        except pa.ArrowInvalid:
            return text
    plain = pc.if_else(quoted, pc.utf8_slice_codeunits(text, 1, -1), text)
    escaped = pc.and_(quoted, pc.match_substring(text, "\\"))
    if not pc.any(escaped).as_py():
        return plain
    unescaped = pa.array([json.loads(one) for one in text.filter(escaped).to_pylist()], type=pa.string())
    return pc.replace_with_mask(plain, escaped.fill_null(False), unescaped)


def _key_column(raw: pa.Array) -> pa.DictionaryArray:
    """Return substream key bytes (spec section 1) of JSON texts, each distinct one worked out once; missing is zero bytes."""
    encoded = raw.cast(pa.string()).dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    keys = pa.array([*map(key_bytes, distinct), b""], type=pa.binary())
    return pa.DictionaryArray.from_arrays(encoded.indices.fill_null(len(distinct)), keys)
