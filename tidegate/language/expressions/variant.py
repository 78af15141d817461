"""
Variants: columns whose values may differ in kind from row to row.

A variant has one Arrow array per kind that occurs; in every row at most one of them is not null, and a row in which all are null is NULL.
Kinds that do not occur are left out, so a column of one kind costs no more than a plain Arrow array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.columns import payload_columns
from tidegate.language.expressions.kinds import VALUE_KINDS, Kind

# Per row the number of its kind in ``Kind``; 0 is NULL.
Codes = npt.NDArray[np.int8]

KIND_CODES = {kind: code for code, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A column of *length* rows, given as one array per kind."""

    length: int
    parts: Mapping[Kind, pa.Array]

    @classmethod
    def of(cls, length: int, parts: Mapping[Kind, pa.Array | pa.ChunkedArray]) -> Variant:
        """Build a variant: drop parts without values and put kinds in their fixed order."""
        filled_parts: dict[Kind, pa.Array] = {
            kind: _one_array(parts[kind]) for kind in VALUE_KINDS if kind in parts and parts[kind].null_count < length
        }
        return cls(length, filled_parts)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self.parts)

    def codes(self) -> Codes:
        """Return the kind of each row as a number (``KIND_CODES``)."""
        codes = np.zeros(self.length, dtype=np.int8)
        for kind, part in self.parts.items():
            codes[valid_mask(part)] = KIND_CODES[kind]
        return codes

    def of_kind(self, kind: Kind) -> pa.Array:
        """Return the array of one kind, all null if it does not occur."""
        part = self.parts.get(kind)
        return pa.nulls(self.length, kind.arrow) if part is None else part

    def valid_mask(self) -> Mask:
        mask = np.zeros(self.length, dtype=np.bool_)
        for part in self.parts.values():
            mask |= valid_mask(part)
        return mask

    def take_rows(self, rows: Ints) -> Variant:
        return Variant.of(len(rows), {kind: part.take(pa.array(rows)) for kind, part in self.parts.items()})

    def filter_rows(self, mask: Mask) -> Variant:
        row_count = int(mask.sum())
        if row_count == self.length:
            return self
        return Variant.of(row_count, {kind: part.filter(pa.array(mask)) for kind, part in self.parts.items()})

    def columns(self, name: str) -> dict[str, pa.Array]:
        """Return the arrays as table columns named ``{name}_{letter of the kind}``."""
        return {f"{name}_{kind.value}": part for kind, part in self.parts.items()}


def from_columns(table: pa.Table, name: str) -> Variant:
    """Read a variant that :meth:`Variant.columns` wrote into *table*."""
    places = {kind: table.schema.get_field_index(f"{name}_{kind.value}") for kind in VALUE_KINDS}
    parts: dict[Kind, pa.ChunkedArray] = {kind: table.column(place) for kind, place in places.items() if place >= 0}
    return Variant.of(table.num_rows, parts)


def gather(length: int, pieces: Sequence[tuple[Ints, Variant]]) -> Variant:
    """Combine variants computed for disjoint sets of rows; rows in no set are NULL."""
    if len(pieces) == 1 and len(pieces[0][0]) == length:
        return pieces[0][1]
    parts: dict[Kind, pa.Array] = {}
    for kind in VALUE_KINDS:
        pieces_of_kind = [(rows, variant.parts[kind]) for rows, variant in pieces if kind in variant.parts]
        if pieces_of_kind:
            parts[kind] = _scatter(length, [rows for rows, _ in pieces_of_kind], [part for _, part in pieces_of_kind])
    return Variant.of(length, parts)


def valid_mask(part: pa.Array) -> Mask:
    """Return which values of *part* are not null."""
    if part.null_count == 0:
        return np.ones(len(part), dtype=np.bool_)
    mask: Mask = part.is_valid().to_numpy(zero_copy_only=False)
    return mask


def finite(part: pa.Array) -> pa.Array:
    """Return floats with infinities and NaN replaced by null, and negative zero by zero."""
    positive_zero = pc.add(part, 0.0)
    is_finite = pc.is_finite(positive_zero)
    return positive_zero if pc.all(is_finite).as_py() in (True, None) else pc.if_else(is_finite, positive_zero, None)


def _scatter(length: int, rows: Iterable[Ints], parts: Sequence[pa.Array]) -> pa.Array:
    source = np.full(length, -1, dtype=np.int64)
    start = 0
    for numbers, part in zip(rows, parts, strict=True):
        source[numbers] = np.arange(start, start + len(part))
        start += len(part)
    return _concat(parts).take(pa.array(source, mask=source < 0))


def _one_array(part: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a part in one piece: texts as ``string``, or ``large_string`` if their bytes are beyond offsets of 32 bits."""
    if isinstance(part, pa.ChunkedArray):
        part = part.chunk(0) if part.num_chunks == 1 else _concat(part.chunks) if part.num_chunks else pa.array([], part.type)
    return part.cast(pa.string()) if pa.types.is_large_string(part.type) and part.nbytes <= payload_columns.BYTES_MAX else part


def _concat(parts: Sequence[pa.Array]) -> pa.Array:
    if len({part.type for part in parts}) > 1 or sum(part.nbytes for part in parts) > payload_columns.BYTES_MAX:
        parts = [part.cast(pa.large_string()) if pa.types.is_string(part.type) else part for part in parts]
    return pa.concat_arrays(list(parts))
