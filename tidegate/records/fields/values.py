"""
Fields as typed values: from readers of CSV and Avro, and from expressions over the payload. A datetime is a time by itself;
``timestamp_format`` says how text and numbers are read. One column may hold values of several kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Mask
from ordering.columns.timestamps import to_ticks
from ordering.protocol.keys import EMPTY_TEXT, key_bytes, number_key
from ordering.ticks import TICK_MAX, TICK_MIN
from tidegate.basics.dead_letter_reasons import UNKNOWN_ID, UNUSABLE, IngestReason
from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr, Field
from tidegate.language.expressions.variant import Variant
from tidegate.records.fields.columns import ExtractedFields, FieldColumn, Ticks
from tidegate.records.payloads.formats import PayloadReader

# Reasons that are reported instead of "malformed".
_REASON_WORDS = {UNKNOWN_ID: IngestReason.SCHEMA_UNKNOWN, UNUSABLE: IngestReason.SCHEMA_UNUSABLE}
_TIME_KINDS = (Kind.NVARCHAR, Kind.BIGINT, Kind.FLOAT)


@dataclass(frozen=True, slots=True)
class Values:
    """A field as a column of typed values."""

    variant: Variant

    def ticks(self, unit: str) -> tuple[Ticks, Mask]:
        ticks, valid = np.zeros(self.variant.length, dtype=np.int64), np.zeros(self.variant.length, dtype=np.bool_)
        for kind, part in self.variant.parts.items():
            if kind is Kind.DATETIME:
                part_ticks = part.fill_null(0).to_numpy()
                part_valid = (part_ticks >= TICK_MIN) & (part_ticks <= TICK_MAX) & part.is_valid().to_numpy(zero_copy_only=False)
            elif kind in _TIME_KINDS:
                part_ticks, part_valid = to_ticks(part, unit)
            else:
                continue
            ticks[part_valid], valid[part_valid] = part_ticks[part_valid], True
        return ticks, valid

    def keys(self) -> pa.DictionaryArray:
        parts = [_KEYS[kind](part) for kind, part in self.variant.parts.items()]
        merged = pc.coalesce(*parts) if parts else pa.nulls(self.variant.length, pa.binary())
        return pc.fill_null(merged, b"").dictionary_encode()

    def present(self) -> Mask:
        return self.variant.valid_mask()

    def count_texts(self) -> tuple[int, int]:
        counts = {kind: len(part) - part.null_count for kind, part in self.variant.parts.items()}
        texts = counts.pop(Kind.NVARCHAR, 0)
        return texts, sum(counts.values())


def _distinct(write: Callable[[Any], bytes]) -> Callable[[pa.Array], pa.Array]:
    def keys(part: pa.Array) -> pa.Array:
        encoded = part.dictionary_encode()
        return pa.array(map(write, encoded.dictionary.to_pylist()), pa.binary()).take(encoded.indices)

    return keys


def _digits(part: pa.Array) -> pa.Array:
    encoded = part.dictionary_encode()
    return encoded.dictionary.cast(pa.string()).cast(pa.binary()).take(encoded.indices)


def _iso8601(part: pa.Array) -> pa.Array:
    return run("SELECT iso8601(v) AS v FROM input", input=pa.table({"v": part}))["v"].combine_chunks().cast(pa.binary())


def _text_keys(part: pa.Array) -> pa.Array:
    keys = part.cast(pa.binary())
    is_empty = pc.equal(pc.binary_length(keys), 0)
    return pc.if_else(is_empty, EMPTY_TEXT, keys) if pc.any(is_empty).as_py() else keys


_KEYS: dict[Kind, Callable[[pa.Array], pa.Array]] = {
    Kind.NVARCHAR: _text_keys,
    Kind.BIGINT: _digits,
    Kind.BIT: lambda part: part.cast(pa.string()).cast(pa.binary()),
    Kind.FLOAT: _distinct(number_key),
    Kind.DATETIME: _iso8601,
    Kind.RECORD: _distinct(lambda value: key_bytes(str(value))),
    Kind.ARRAY: _distinct(lambda value: key_bytes(str(value))),
}


class ReaderSource:
    """Extracts fields, given as expressions by name, from payloads of a format that has a reader."""

    def __init__(self, reader: PayloadReader, exprs: Mapping[str, Expr]) -> None:
        self._reader, self._exprs = reader, dict(exprs)
        self._leaves = tuple(dict.fromkeys(leaf for expr in exprs.values() for leaf in expr.leaves() if isinstance(leaf, Field)))

    def extract(self, payloads: pa.Array) -> ExtractedFields:
        """Extract the fields; a row in which an expression fails has no value."""
        extracted = self._reader.extract(payloads, self._leaves)
        ok = np.ones(len(payloads), dtype=np.bool_)
        ok[extracted.bad_rows] = False
        reasons = {
            row: _REASON_WORDS[reason]
            for row, reason in zip(extracted.bad_rows.tolist(), extracted.reasons, strict=True)
            if reason in _REASON_WORDS
        }
        return ExtractedFields(ok, evaluate_by_name(self._exprs, extracted.columns, len(payloads)), reasons)


def evaluate_by_name(exprs: Mapping[str, Expr], fields: Mapping[Field, Variant], length: int) -> dict[str, FieldColumn]:
    """Return the values of expressions over *fields*; a row in which an expression fails has no value."""
    leaves: dict[Expr, Variant] = {field: column for field, column in fields.items()}  # noqa: C416 - Expr, not Field
    computed, _ = evaluate(tuple(exprs.values()), leaves, length)
    return {name: Values(variant) for name, variant in zip(exprs, computed, strict=True)}
