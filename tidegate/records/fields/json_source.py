"""
Fields of JSON payloads, read as queries read them (:mod:`tidegate.language.expressions.json_members`): a member of exactly the name counts,
else the first whose name matches ignoring case.

Law: which payloads can be read does not depend on the fields. A payload is well formed if it is JSON; a value that is no object has no
fields.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidegate.language.expressions.json_members import NOT_OBJECT, extract, extract_parsed, walk_members
from tidegate.language.expressions.tree import Expr, Field
from tidegate.records.fields.columns import ExtractedFields
from tidegate.records.fields.values import evaluate_by_name

_WHOLE = Field(())


class JsonSource:
    """Extracts fields, given as expressions by name, from JSON payloads."""

    def __init__(self, exprs: Mapping[str, Expr]) -> None:
        self._exprs = dict(exprs)
        self._leaves = tuple(dict.fromkeys(leaf for expr in exprs.values() for leaf in expr.leaves() if isinstance(leaf, Field)))

    def extract(self, payloads: pa.Array) -> ExtractedFields:
        """Extract the fields; a row in which an expression fails has no value."""
        ok = np.ones(len(payloads), dtype=np.bool_)
        if not self._leaves:
            ok[_malformed_rows(payloads)] = False
            return ExtractedFields(ok, evaluate_by_name(self._exprs, {}, len(payloads)))
        found = extract(payloads, self._leaves)
        ok[[row for row, reason in zip(found.bad_rows.tolist(), found.reasons, strict=True) if reason != NOT_OBJECT]] = False
        return ExtractedFields(ok, evaluate_by_name(self._exprs, found.columns, len(payloads)))


def _malformed_rows(payloads: pa.Array) -> list[int]:
    """Return the rows that are not JSON; without a wanted member the C code walks a payload and keeps nothing."""
    walked = walk_members(payloads, ())
    rows = np.arange(len(payloads)) if walked is None else walked.other_rows
    parsed = extract_parsed(payloads.take(pa.array(rows)), (_WHOLE,)) if len(rows) else None
    missing = [] if walked is None else np.flatnonzero(walked.missing).tolist()
    if parsed is None:
        return missing
    reasons = zip(parsed.bad_rows.tolist(), parsed.reasons, strict=True)
    return [*missing, *(int(rows[row]) for row, reason in reasons if reason != NOT_OBJECT)]
