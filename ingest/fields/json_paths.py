"""
Field paths in JSON payloads: the common and fast case. DuckDB's parser reads each payload on its own. Names match exactly; of members with
equal names the first counts; NaN and Infinity count as null. What is JSON says :mod:`tidegate.expressions.json_texts`. Plain objects, on
which no two parsers differ, are read by :mod:`tidegate.json_columns.plain_json` if it was compiled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.fields.columns import ExtractedFields, Mask, Ticks
from ordering.columns.timestamps import to_ticks
from ordering.protocol.keys import key_bytes
from tidegate import native_parts
from tidegate.expressions.duckdb_pool import run
from tidegate.expressions.json_texts import too_deep
from tidegate.json_columns import plain_json
from tidegate.json_columns.plain_json import PlainTexts

Path = tuple[str, ...]
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_ .:@-]+")


class JsonPaths:
    """Extracts fields, given as *paths* by name, from JSON payloads."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._names = tuple(paths)
        # TRY gives NULL for the one row that has bad UTF-8 or broken JSON, instead of an error for all rows.
        columns = [f"TRY(json_extract(text, '{_json_path(path)}')) AS \"{name}\"" for name, path in paths.items()]
        chosen = ", ".join([*columns, "text IS NOT NULL AND json_valid(text) AS ok"])
        self._sql = f"SELECT {chosen} FROM (SELECT TRY(decode(value)) AS text FROM payloads)"
        # Nested members, and names that JSON can escape in several ways, are left to DuckDB.
        plain = all(len(path) == 1 and _PLAIN_NAME.fullmatch(path[0]) for path in paths.values())
        self._chosen = [path[0] for path in paths.values()] if plain else None

    def extract(self, payloads: pa.Array) -> ExtractedFields:
        plain_rows = self._extract_plain(payloads)
        if plain_rows is None:
            ok, texts = self._parse(payloads)
        elif not len(plain_rows.other_rows):
            ok, texts = plain_rows.is_plain, plain_rows.texts
        else:
            parsed_ok, parsed_texts = self._parse(payloads.take(pa.array(plain_rows.other_rows)))
            ok = plain_rows.is_plain
            ok[plain_rows.other_rows] = parsed_ok
            mask = np.zeros(len(ok), dtype=np.bool_)
            mask[plain_rows.other_rows] = True
            texts = [
                pc.replace_with_mask(plain_text, pa.array(mask), parsed_text)
                for plain_text, parsed_text in zip(plain_rows.texts, parsed_texts, strict=True)
            ]
        return ExtractedFields(ok, {name: JsonTexts(text) for name, text in zip(self._names, texts, strict=True)})

    def _extract_plain(self, payloads: pa.Array) -> PlainTexts | None:
        """Return the texts of plain objects; None if too few payloads are plain, or the compiled reader is missing."""
        library = plain_json.library() if native_parts.is_enabled() and self._chosen is not None else None
        if library is None or self._chosen is None:
            return None
        # Two fields may be the same member, which is read once.
        members = list(dict.fromkeys(self._chosen))
        plain_rows = plain_json.read_texts(library, payloads, members)
        if plain_rows is None or len(plain_rows.other_rows) > len(payloads) // 4:
            return None
        texts = dict(zip(members, plain_rows.texts, strict=True))
        return replace(plain_rows, texts=[texts[name] for name in self._chosen])

    def _parse(self, payloads: pa.Array) -> tuple[Mask, list[pa.Array]]:
        table = run(self._sql, payloads=pa.table({"value": payloads})).combine_chunks()
        ok = table["ok"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False) & ~too_deep(payloads)
        return ok, [_single_chunk(table[name]).cast(pa.string()) for name in self._names]


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


def as_binary(payloads: object) -> pa.Array:
    """Return payloads, in any kind of column, as one binary array."""
    if isinstance(payloads, pa.ChunkedArray):
        return _single_chunk(payloads)
    if isinstance(payloads, pa.Array):
        return payloads
    return pa.array(np.asarray(payloads, dtype=object), type=pa.binary())


def _json_path(path: Path) -> str:
    steps = "".join('."' + step.replace("\\", "\\\\").replace('"', '\\"') + '"' for step in path)
    return f"${steps}".replace("'", "''")


def _single_chunk(column: pa.ChunkedArray) -> pa.Array:
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
