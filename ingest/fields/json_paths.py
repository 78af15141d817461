"""
Fields of JSON payloads, each read on its own by DuckDB's parser. Names in paths match exactly, of members with equal names the first
counts, NaN and Infinity count as null. :mod:`tidegate.expressions.json_texts` defines which texts are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.fields.columns import ExtractedFields, Ticks
from ordering.arrays import Mask
from ordering.columns.timestamps import to_ticks
from ordering.protocol.keys import key_bytes
from tidegate.expressions.duckdb_pool import quote, run
from tidegate.expressions.json_members import json_path
from tidegate.expressions.json_texts import too_deep

Path = tuple[str, ...]


class JsonPaths:
    """Extracts fields, given as *paths* by name, from JSON payloads."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._names = tuple(paths)
        # TRY gives NULL for the one row that has bad UTF-8 or broken JSON, instead of an error for all rows.
        columns = [f'TRY(json_extract(text, {quote(json_path(path))})) AS "{name}"' for name, path in paths.items()]
        chosen = ", ".join([*columns, "text IS NOT NULL AND json_valid(text) AS ok"])
        self._sql = f"SELECT {chosen} FROM (SELECT TRY(decode(value)) AS text FROM input)"

    def extract(self, payloads: pa.Array) -> ExtractedFields:
        table = run(self._sql, input=pa.table({"value": payloads})).combine_chunks()
        ok = table["ok"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False) & ~too_deep(payloads)
        return ExtractedFields(ok, {name: JsonTexts(single_chunk(table[name]).cast(pa.string())) for name in self._names})


@dataclass(frozen=True, slots=True)
class JsonTexts:
    """A field as the JSON text of each payload's value; null if there is none."""

    raw: pa.Array

    def ticks(self, unit: str) -> tuple[Ticks, Mask]:
        return to_ticks(_scalar_values(self.raw), unit)

    def keys(self) -> pa.DictionaryArray:
        encoded = self.raw.cast(pa.string()).dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        keys = pa.array([*map(key_bytes, distinct), b""], type=pa.binary())
        return pa.DictionaryArray.from_arrays(encoded.indices.fill_null(len(distinct)), keys)

    def present(self) -> Mask:
        present: Mask = pc.not_equal(self.raw.cast(pa.string()), "null").fill_null(False).to_numpy(zero_copy_only=False)
        return present


def single_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of a table in one piece."""
    merged = column.combine_chunks()
    return merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged


def _scalar_values(raw: pa.Array) -> pa.Array:
    """Turn JSON texts of scalars into plain values: integers if all are integers, else text."""
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
    unescaped = pa.array([json.loads(text_literal) for text_literal in text.filter(escaped).to_pylist()], type=pa.string())
    return pc.replace_with_mask(plain, escaped.fill_null(False), unescaped)
