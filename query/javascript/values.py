"""
Values between columns and JavaScript, as Stream Analytics converts them: by value.

A bigint and a float become a number, a datetime a Date (milliseconds: a part of one is cut off), a record an object, an array an array.
A whole number within 64 bits comes back as a bigint, any other as a float; NaN and infinities are NULL, as everywhere in the language.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from tidegate.basics.dead_letter_reasons import QueryReason
from tidegate.language.expressions.functions.column_functions import FailedRows, is_accepted
from tidegate.language.expressions.kinds import Kind, mismatch_reason
from tidegate.language.expressions.variant import KIND_CODES, Variant, gather

_KINDS = list(Kind)
_LETTERS = {"i": Kind.BIGINT, "s": Kind.NVARCHAR, "t": Kind.DATETIME, "r": Kind.RECORD, "a": Kind.ARRAY}
_TIMES_MS = (int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000, int(datetime(9999, 12, 31, tzinfo=UTC).timestamp() + 86_400) * 1_000)


def row_groups(args: Sequence[Variant], rows: Ints) -> list[tuple[Ints, tuple[Kind, ...]]]:
    """Return *rows* by the kinds that their arguments have, in the order of their first row."""
    if all(len(arg.kinds) == 1 and arg.parts[arg.kinds[0]].null_count == 0 for arg in args):
        return [(rows, tuple(arg.kinds[0] for arg in args))] if len(rows) else []
    signature = np.zeros(len(rows), dtype=np.int64)
    for arg in args:
        signature = signature * len(_KINDS) + arg.codes()[rows]
    found, first, number = np.unique(signature, return_index=True, return_inverse=True)
    groups = []
    for place in np.argsort(first):
        members, code, kinds = rows[number == place], int(found[place]), list[Kind]()
        for _ in args:
            code, kind = divmod(code, len(_KINDS))
            kinds.insert(0, _KINDS[kind])
        groups.append((members, tuple(kinds)))
    return groups


def argument(arg: Variant, kind: Kind, rows: Ints) -> tuple[str, list[Any]]:
    """Return the values of *rows*, which are all of *kind*, as the engine takes them, and their form (``Engine.function``)."""
    if kind is Kind.NULL:
        return "v", [None] * len(rows)
    part = arg.parts[kind]
    part = part if len(rows) == len(part) else part.take(pa.array(rows))
    if kind is Kind.BIGINT:
        return "v", part.to_numpy().astype(np.float64).tolist()
    if kind is Kind.FLOAT:
        return "v", part.to_numpy().tolist()
    if kind is Kind.DATETIME:
        return "d", (part.to_numpy() // 1_000).astype(np.float64).tolist()
    values = part.to_pylist()
    if kind is Kind.NVARCHAR and any("\0" in value for value in values):
        # The engine would end the text there.
        return "j", [json.dumps(value) for value in values]
    return "j" if kind in (Kind.RECORD, Kind.ARRAY) else "v", values


def json_argument(arg: Variant, rows: Ints) -> list[str]:
    """Return the values of *rows* as JSON within rows (``Engine.aggregate``)."""
    texts = ["null"] * len(rows)
    for members, (kind,) in row_groups([arg], rows):
        form, values = argument(arg, kind, members)
        written = [f"[{value:.0f}]" for value in values] if form == "d" else values if form == "j" else map(json.dumps, values)
        for place, text in zip(np.searchsorted(rows, members).tolist(), written, strict=True):
            texts[place] = f"[0,{text}]" if kind in (Kind.RECORD, Kind.ARRAY) else text
    return texts


def results(values: Sequence[Any], gives: Kind | None, called: str) -> tuple[Variant, list[FailedRows]]:
    """Return what calls returned as a column, of kind *gives* if there is one, and the rows whose value cannot be taken."""
    count = len(values)
    column = _numbers(values) if {*map(type, values)} <= {float, int, type(None)} else None
    failures: list[FailedRows] = []
    if column is None:
        column, failures = _by_kind(values, called)
    if gives is None:
        return column, failures
    pieces = []
    for kind, part in column.parts.items():
        rows = np.flatnonzero(column.codes() == KIND_CODES[kind])
        if is_accepted(kind, gives):
            pieces.append((rows, Variant.of(len(rows), {gives: part.take(pa.array(rows)).cast(gives.arrow, safe=False)})))
        else:
            failures.append(FailedRows(rows, mismatch_reason(gives, kind)))
    return gather(count, pieces) if pieces else Variant.of(count, {}), failures


def _numbers(values: Sequence[Any]) -> Variant:
    """Return numbers as bigints where they are whole and fit, else as floats."""
    floats = np.array(values, dtype=np.float64)
    is_whole = (floats == np.floor(floats)) & (floats >= -(2.0**63)) & (floats < 2.0**63)
    parts = {}
    if is_whole.any():
        parts[Kind.BIGINT] = pa.array(np.where(is_whole, floats, 0).astype(np.int64), mask=~is_whole)
    if not is_whole.all():
        parts[Kind.FLOAT] = pa.array(floats, mask=is_whole | ~np.isfinite(floats))
    return Variant.of(len(values), parts)


def _by_kind(values: Sequence[Any], called: str) -> tuple[Variant, list[FailedRows]]:
    found: dict[Kind, tuple[list[int], list[Any]]] = {}
    outside: list[int] = []
    for row, value in enumerate(values):
        if value is None:
            continue
        kind, plain = _kind_and_value(value)
        if kind is Kind.DATETIME and not (plain is None or _TIMES_MS[0] <= plain < _TIMES_MS[1]):
            outside.append(row)
        elif plain is not None:
            rows, kept = found.setdefault(kind, ([], []))
            rows.append(row)
            kept.append(plain * 1_000 if kind is Kind.DATETIME else plain)
    pieces = []
    for kind, (rows, kept) in found.items():
        column = _numbers(kept) if kind is Kind.FLOAT else Variant.of(len(kept), {kind: pa.array(kept, kind.arrow)})
        pieces.append((np.array(rows, dtype=np.int64), column))
    reason = QueryReason.CALL.text(called, "its Date lies outside the years 1 to 9999")
    failures = [FailedRows(np.array(outside, dtype=np.int64), reason)] if outside else []
    return gather(len(values), pieces) if pieces else Variant.of(len(values), {}), failures


def _kind_and_value(value: Any) -> tuple[Kind, Any]:
    if isinstance(value, bool):
        return Kind.BIT, value
    if isinstance(value, (int, float)):
        return Kind.FLOAT, value
    if isinstance(value, str):
        return Kind.NVARCHAR, value
    letter, plain = json.loads(value.json())
    kind = _LETTERS[letter]
    return kind, int(plain) if kind in (Kind.BIGINT, Kind.DATETIME) and plain is not None else plain
