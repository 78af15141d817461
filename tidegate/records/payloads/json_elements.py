"""
Elements of JSON arrays: a column of payloads, some of them arrays -> a column of the bytes of each element, as they stand there.

Law: a payload that is JSON (:mod:`tidegate.language.expressions.json_texts`) and an array is split at its own commas; any other stays
whole. Which bytes an element has depends on its payload alone. C splits strict JSON; the rest is split here, with the same result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.protocol.elements import ELEMENTS_MAX
from tidegate.language.expressions.json_members import NOT_OBJECT, extract_parsed
from tidegate.language.expressions.tree import Field
from tidegate.language.json_columns.json_fields import read_elements

_SPACE = b" \t\r\n"
_STARTS_AS_ARRAY = r"^[ \t\r\n]*\["
_SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a column of payloads, payload by payload."""

    # The payload of each element.
    row: Ints
    # Its place in the array, from 0; 0 of a payload that stays whole.
    index: Ints
    # Its bytes (binary or large_binary); null for a null payload, and for an empty array, which stands here as well.
    value: pa.Array
    # Whether it stands for an empty array.
    is_empty: Mask


def split_elements(payloads: pa.Array) -> Elements:
    """Split the arrays in a binary or large_binary column. An array of more elements than can be numbered stays whole."""
    counts, spans = read_elements(payloads) or (np.full(len(payloads), -1, dtype=np.int64), np.empty((0, 2), dtype=np.int64))
    rows = np.repeat(np.arange(len(payloads)), np.maximum(counts, 0))
    starts = _bounds(payloads)
    by_row = _split_odd_arrays(payloads, np.flatnonzero(counts < 0))
    large = set(np.flatnonzero(counts >= ELEMENTS_MAX).tolist())
    whole = [row for row in np.flatnonzero(counts < 0).tolist() if row not in by_row] + sorted(large)
    kept = ~np.isin(rows, list(large)) if large else np.ones(len(rows), dtype=np.bool_)
    empty = [*np.flatnonzero(counts == 0).tolist(), *(row for row, found in by_row.items() if not found)]
    odd = [(row, start + int(starts[row]), end + int(starts[row])) for row, found in by_row.items() for start, end in found]
    odd += [(row, int(starts[row]), int(starts[row + 1])) for row in whole]
    # An empty span at the end of its payload keeps the places in order.
    odd += [(row, int(starts[row + 1]), int(starts[row + 1])) for row in empty]
    others = np.array(odd, dtype=np.int64).reshape(-1, 3)
    row = np.concatenate([rows[kept], others[:, 0]])
    span = np.concatenate([spans[kept] + starts[0] if len(spans) else spans, others[:, 1:]])
    order = np.argsort(row, kind="stable")
    row, span = row[order], span[order]
    is_empty = np.isin(row, empty)
    valid = payloads.is_valid().to_numpy(zero_copy_only=False)[row] & ~is_empty
    first = np.searchsorted(row, row, side="left")
    return Elements(row, np.arange(len(row)) - first, _cut(payloads, span, valid), is_empty)


def _split_odd_arrays(payloads: pa.Array, rows: Ints) -> dict[int, list[tuple[int, int]]]:
    """Return the spans of the elements, from the payload's start, of those *rows* that are arrays but not in strict JSON."""
    chosen = payloads.take(pa.array(rows))
    is_array = pc.fill_null(pc.match_substring_regex(chosen, _STARTS_AS_ARRAY), False).to_numpy(zero_copy_only=False)
    rows = rows[is_array]
    if not len(rows):
        return {}
    arrays = payloads.take(pa.array(rows))
    parsed = extract_parsed(arrays, (Field(()),))
    malformed = {row for row, reason in zip(parsed.bad_rows.tolist(), parsed.reasons, strict=True) if reason != NOT_OBJECT}
    split = {row: _spans(arrays[place].as_py()) for place, row in enumerate(rows.tolist()) if place not in malformed}
    return {row: spans for row, spans in split.items() if len(spans) < ELEMENTS_MAX}


def _spans(array: bytes) -> list[tuple[int, int]]:
    """Return the bytes of each element of an array that is known to be JSON; a comma may follow the last one."""
    spans: list[tuple[int, int]] = []
    depth, start = 0, 0
    for match in _SIGN.finditer(array):
        sign = match[0]
        if depth == 1 and sign in b",]":
            _add_span(spans, array, start, match.start())
            start = match.end()
        if sign in b"[{":
            depth += 1
            start = match.end() if depth == 1 else start
        elif sign in b"]}":
            depth -= 1
    return spans


def _add_span(spans: list[tuple[int, int]], array: bytes, start: int, end: int) -> None:
    while start < end and array[start] in _SPACE:
        start += 1
    while end > start and array[end - 1] in _SPACE:
        end -= 1
    if end > start:
        spans.append((start, end))


def _bounds(payloads: pa.Array) -> Ints:
    """Return where each payload begins in the column's bytes, and where the last one ends."""
    kind = np.int64 if pa.types.is_large_binary(payloads.type) else np.int32
    return np.frombuffer(payloads.buffers()[1], dtype=kind)[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)


def _cut(payloads: pa.Array, spans: Ints, valid: Mask) -> pa.Array:
    """Return pieces of the column's bytes, given in the order of their places, in a column of the same type."""
    # What lies between the pieces belongs to others: all together are one column over the same bytes.
    places = pa.py_buffer(np.ascontiguousarray(spans).reshape(-1))
    data = payloads.buffers()[2] or pa.py_buffer(b"")
    segments = pa.Array.from_buffers(pa.large_binary(), max(2 * len(spans) - 1, 0), [None, places, data])
    return segments.take(pa.array(2 * np.arange(len(spans)), mask=~valid)).cast(payloads.type)
