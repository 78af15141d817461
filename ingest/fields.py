"""
Which fields ingest reads: the event time and the substream key, out of payloads that are passed on untouched.

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
from ordering.timestamps import to_ticks

Objects = NDArray[np.object_]


@dataclass(slots=True)
class Fields:
    """
    What was read of a column of payloads.

    ``readable`` is False where there is no valid event time (``event_time_us`` is then anything); ``well_formed`` where
    the payload is JSON at all; ``substream`` holds key bytes as a dictionary column (None without OVER).
    """

    event_time_us: NDArray[np.int64]
    readable: NDArray[np.bool_]
    well_formed: NDArray[np.bool_]
    substream: pa.DictionaryArray | None


class FieldReader:
    """
    Reads event time and substream key from JSON payloads.

    Args:
        timestamp_by: Field path of the event time, or None.
        timestamp_format: How it is written: auto, iso, s, ms, us or ns.
        over: Field path of the substream key, or None.
    """

    def __init__(self, timestamp_by: str | None, timestamp_format: str, over: str | None) -> None:
        self._timestamp_by, self._format, self._over = timestamp_by, timestamp_format, over
        paths = [_json_path(path) for path in (timestamp_by, over) if path is not None]
        # TRY turns what one row cannot give - bad UTF-8, broken JSON - into NULL for that row alone.
        columns = [f"TRY(json_extract(text, '{path}')) AS p{place}" for place, path in enumerate(paths)]
        chosen = ", ".join([*columns, "text IS NOT NULL AND json_valid(text) AS ok"])
        self._sql = f"SELECT {chosen} FROM (SELECT TRY(decode(value)) AS text FROM payloads)"

    def read(self, values: Objects) -> Fields:
        """Return the fields of each payload (bytes or None)."""
        payloads = pa.table({"value": pa.array(values, type=pa.binary())})
        connection = _connection()
        connection.register("payloads", payloads)
        table = connection.sql(self._sql).to_arrow_table().combine_chunks()
        ok = table["ok"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False)
        columns = [_whole(table.column(place)) for place in range(table.num_columns - 1)]
        if self._timestamp_by is None:
            ticks, readable = np.zeros(len(values), dtype=np.int64), ok
        else:
            ticks, valid = to_ticks(_scalars(columns.pop(0)), self._format)
            readable = valid & ok
        return Fields(ticks, readable, ok, _key_column(columns.pop(0)) if self._over is not None else None)


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
