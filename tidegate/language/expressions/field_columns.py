"""
The fields of payloads as columns, whatever format the payloads have, and the payloads that cannot be read.

Law: the values read from a payload depend on that payload alone, never on its neighbours in a batch. A payload that cannot be read is a
result with a reason, never an exception, and NULL in every column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText
from tidegate.language.expressions.tree import Field
from tidegate.language.expressions.variant import Variant

NO_PAYLOAD = QueryReason.NO_PAYLOAD.text()
NOT_UTF8 = QueryReason.NOT_UTF8.text()


@dataclass(frozen=True, slots=True)
class FieldColumns:
    """A column for each field; *reasons* has one entry per bad row, in row order."""

    columns: dict[Field, Variant]
    bad_rows: Ints
    reasons: list[ReasonText]

    @classmethod
    def of(cls, columns: dict[Field, Variant], reasons: Mapping[int, ReasonText]) -> FieldColumns:
        rows = sorted(reasons)
        return cls(columns, np.array(rows, dtype=np.int64), [reasons[row] for row in rows])


def decode_texts(payloads: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, dict[int, ReasonText]]:
    """Return payloads as strings, null if missing or not UTF-8, and the reason for each such row."""
    column = payloads.combine_chunks() if isinstance(payloads, pa.ChunkedArray) else payloads
    column = column if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type) else column.cast(pa.binary())
    reasons: dict[int, ReasonText] = {}
    if column.null_count:
        reasons = dict.fromkeys(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist(), NO_PAYLOAD)
    string = pa.large_string() if pa.types.is_large_binary(column.type) else pa.string()
    try:
        texts = column.view(string)
        texts.validate(full=True)
    except pa.ArrowInvalid:
        decoded = [_decode(value) for value in column.to_pylist()]
        reasons |= {row: NOT_UTF8 for row, text in enumerate(decoded) if text is None and row not in reasons}
        texts = pa.array(decoded, string)
    return texts, reasons


def _decode(payload: bytes | None) -> str | None:
    try:
        return None if payload is None else payload.decode()
    except UnicodeDecodeError:
        return None
