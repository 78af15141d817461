"""
Which payloads are JSON, for ingest, queries and files alike.

Law: a payload is JSON if it is UTF-8 and DuckDB's parser takes it (RFC 8259, with a comma after the last member or element, and NaN and
infinities as numbers), and if its objects and arrays are nested at most ``NESTING_MAX`` deep. So no later reader of a payload can run out
of stack.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Mask

NESTING_MAX = 500
# Possessive: otherwise the regular expression would store a backtracking state for each character of a text.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def too_deep(payloads: pa.Array) -> Mask:
    """Return which JSON payloads (binary or string) are nested too deeply; of other payloads the answer has no meaning."""
    mask = np.zeros(len(payloads), dtype=np.bool_)
    # Shorter payloads have too few brackets.
    is_long = pc.fill_null(pc.greater(pc.binary_length(payloads), 2 * NESTING_MAX), False)
    if pc.any(is_long).as_py():
        for row in np.flatnonzero(is_long.to_numpy(zero_copy_only=False)).tolist():
            mask[row] = is_too_deep(payloads[row].as_buffer().to_pybytes())
    return mask


def is_too_deep(payload: bytes) -> bool:
    """Return whether one JSON payload is nested too deeply."""
    if len(payload) <= 2 * NESTING_MAX or payload.count(b"[") + payload.count(b"{") <= NESTING_MAX:
        return False
    brackets = np.frombuffer(_STRING.sub(b"", payload).translate(None, _NO_BRACKETS), dtype=np.uint8)
    steps = np.where((brackets == ord("[")) | (brackets == ord("{")), 1, -1)
    return bool(np.cumsum(steps).max(initial=0) > NESTING_MAX)
