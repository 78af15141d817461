"""
Joined rows, the keys of rows and the conditions on pairs, for both kinds of joins.

A joined row has the substream and the key of its left row, the left row's columns, then the right row's; these are NULL without a match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Mask
from query.columns.large_tables import take_values
from query.operators.joins.lying import Geometries, keep, lying_of
from query.operators.joins.matching import Pairs
from query.operators.rows.row_stage import RowStage
from query.plan.columns_read import ColumnNumbers
from query.plan.row_tables import Ticks, append_values
from tidegate.basics.budget import BUDGET, cut
from tidegate.language.expressions.evaluation.evaluate import evaluate
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr, Slot
from tidegate.language.expressions.variant import Variant, from_columns

_COLUMN = re.compile(r"s([0-9]+)_([a-z])")


def add_keys(below: pa.Table, keys: Sequence[Expr]) -> tuple[pa.Table, pa.Table]:
    """Return rows with their keys (``g0_s``, ...) that are not columns already, and the bad rows."""
    computed = [(number, key) for number, key in enumerate(keys) if not isinstance(key, Slot)]
    kept, columns, bad = RowStage((), tuple(key for _, key in computed)).apply(below)
    for (number, _), column in zip(computed, columns, strict=True):
        kept = append_values(kept, f"g{number}", column)
    return kept, bad


def select_columns(rows: pa.Table, numbers: ColumnNumbers) -> pa.Table:
    """Return rows without the columns that have other numbers."""
    if numbers is None:
        return rows
    return rows.select([name for name in rows.column_names if (match := _COLUMN.fullmatch(name)) is None or int(match[1]) in numbers])


def has_computed_keys(keys: Sequence[tuple[Expr, Expr]]) -> bool:
    """Return whether :func:`add_keys` adds a column to the rows of either side."""
    return not all(isinstance(key, Slot) for pair in keys for key in pair)


def keys_of(table: pa.Table, keys: Sequence[Expr]) -> list[Variant]:
    """Return the keys of rows that :func:`add_keys` returned."""
    return [from_columns(table, f"s{key.index}" if isinstance(key, Slot) else f"g{number}") for number, key in enumerate(keys)]


def have_all_keys(table: pa.Table, keys: Sequence[Expr]) -> Mask:
    """Return which rows have no NULL among their keys: NULL equals nothing."""
    mask = np.ones(table.num_rows, dtype=np.bool_)
    for key in keys_of(table, keys):
        mask &= key.valid_mask()
    return mask


def join_rows(left: pa.Table, right: pa.Table, pairs: Pairs, width: int, system_us: Ticks) -> pa.Table:
    """Return the joined rows of pairs; -1 stands for no right row; left rows have *width* columns."""
    left_rows, right_rows = pairs
    return pa.table(_head(left, left_rows, system_us) | _columns(left, left_rows) | _columns(right, right_rows, width))


def unmatched_rows(left: pa.Table, rows: Ticks, system_us: Ticks) -> pa.Table:
    """Return the joined rows of left rows without a match."""
    return pa.table(_head(left, rows, system_us) | _columns(left, rows))


def portions(pairs: Pairs, left_bytes: Ticks, right_bytes: Ticks) -> Iterator[slice]:
    """Yield the slices of pairs whose rows are made at once, in order; at least one. -1 stands for no right row."""
    left, right = pairs
    row_bytes = left_bytes[left] + (np.append(right_bytes, 0)[right] if len(right) else right)
    yield from cut(row_bytes, BUDGET.bytes) if len(row_bytes) else [slice(0, 0)]


class JoinSides(NamedTuple):
    """The rows that pairs are made of: left rows have *width* columns; the bytes are those of each row's texts."""

    left: pa.Table
    right: pa.Table
    width: int
    left_bytes: Ticks
    right_bytes: Ticks


def meet_condition(condition: Expr, sides: JoinSides, pairs: Pairs, geometries: Geometries | None = None) -> Mask:
    """Return which pairs meet a condition; a pair on which it fails does not. *geometries*: those that are known already."""
    left, right, width, left_bytes, right_bytes = sides
    lying, others = lying_of(condition, width)
    if lying:
        places, shapes = np.arange(len(pairs[0])), geometries or Geometries(left, right, width)
        for one in lying:
            places = places[one.holds(shapes, keep(pairs, places))]
        if others is not None:
            places = places[meet_condition(others, sides, keep(pairs, places))]
        met: Mask = np.zeros(len(pairs[0]), dtype=np.bool_)
        met[places] = True
        return met
    verdicts = []
    for part in portions(pairs, left_bytes, right_bytes):
        left_rows, right_rows = pairs[0][part], pairs[1][part]
        # No condition reads the time of a pair, so any numbers take its place.
        table = join_rows(left, right, (left_rows, right_rows), width, left_rows)
        leaves: dict[Expr, Variant] = {leaf: from_columns(table, f"s{leaf.index}") for leaf in condition.leaves() if isinstance(leaf, Slot)}
        (verdict,), _ = evaluate([condition], leaves, table.num_rows)
        verdicts.append(pc.fill_null(verdict.of_kind(Kind.BIT), False).to_numpy(zero_copy_only=False))
    return np.concatenate(verdicts)


def _head(left: pa.Table, rows: Ticks, system_us: Ticks) -> dict[str, pa.ChunkedArray]:
    chosen = pa.array(rows)
    return {"sub": left["sub"].take(chosen), "system_us": pa.chunked_array([system_us]), "key": take_values(left["key"], chosen)}


def _columns(table: pa.Table, rows: Ticks, first_number: int = 0) -> dict[str, pa.ChunkedArray]:
    """Return the columns of rows (``s0_i``, ...), numbered from *first_number* on; those of row -1 are null."""
    missing = rows < 0
    chosen = pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
    names = [(name, match) for name in table.column_names if (match := _COLUMN.fullmatch(name))]
    return {f"s{int(match[1]) + first_number}_{match[2]}": take_values(table[name], chosen) for name, match in names}
