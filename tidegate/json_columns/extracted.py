"""
What is taken out of payloads, whatever they are written in: columns of fields, and the payloads that cannot be read.

Law: what a payload gives depends on that payload alone, never on its neighbours in a batch. A payload that cannot be read
is a result with a reason, never an exception, and NULL in every column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Field
from tidegate.expressions.variant import Variant, finite

NO_PAYLOAD = "payload is missing"
NOT_UTF8 = "payload is not UTF-8"


@dataclass(frozen=True, slots=True)
class ExtractedFields:
    """
    Columns taken from payloads.

    Args:
        columns: One column per field asked for.
        bad: Rows without a usable payload.
        reasons: One reason per bad row, in row order.
    """

    columns: dict[Field, Variant]
    bad_rows: npt.NDArray[np.int64]
    reasons: list[str]

    @classmethod
    def of(cls, columns: dict[Field, Variant], reasons: Mapping[int, str]) -> ExtractedFields:
        """Put together *columns* and the reason of each bad row."""
        rows = sorted(reasons)
        return cls(columns, np.array(rows, dtype=np.int64), [reasons[row] for row in rows])


class PayloadReader(Protocol):
    """Reads the payloads of one input."""

    def extract(self, payloads: pa.Array, fields: Sequence[Field]) -> ExtractedFields:
        """Take *fields* out of *payloads*, a binary column; every payload is judged, whatever is asked for."""
        ...


def decode_texts(payloads: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, dict[int, str]]:
    """Return payloads as strings, null where they are missing or no UTF-8, and the reason of each such row."""
    column = payloads.combine_chunks() if isinstance(payloads, pa.ChunkedArray) else payloads
    column = column if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type) else column.cast(pa.binary())
    reasons = (
        dict.fromkeys(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist(), NO_PAYLOAD) if column.null_count else {}
    )
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


def variant_from_values(values: Sequence[Any], kinds: Mapping[type, tuple[Kind, Callable[[Any], Any] | None]]) -> Variant:
    """
    Turn Python values, None among them, into a column.

    Args:
        values: One for each row.
        kinds: For each type of value its kind, and how it becomes what a column of that kind holds (None: it is that).
    """
    parts: dict[Kind, pa.Array] = {}
    present = set(map(type, values)) - {type(None)}
    for kind in dict.fromkeys(kinds[python][0] for python in present):
        of_kind = {python: kinds[python][1] for python in present if kinds[python][0] is kind}
        if len(of_kind) == len(present) and not any(of_kind.values()):
            chosen: Sequence[Any] = values
        else:
            chosen = [_convert(value, of_kind) for value in values]
        column = pa.array(chosen, kind.arrow)
        parts[kind] = finite(column) if kind is Kind.FLOAT else column
    return Variant.of(len(values), parts)


def _convert(value: Any, of_kind: Mapping[type, Callable[[Any], Any] | None]) -> Any:
    if type(value) not in of_kind:
        return None
    convert = of_kind[type(value)]
    return value if convert is None else convert(value)
