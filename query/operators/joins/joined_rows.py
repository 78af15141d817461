"""
What joins share: the keys of rows, the conditions on pairs, and joined rows.

A joined row has the substream and the key of its left row, the left row's columns, and after them the right row's; in a left
row that stayed alone these are NULL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from query.operators.joins.matching import Pairs
from query.operators.rows.row_stage import RowStage
from query.plan.row_tables import Ticks
from tidegate.expressions.evaluation.evaluate import evaluate
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Expr, Slot
from tidegate.expressions.variant import Variant, from_columns

_COLUMN = re.compile(r"s([0-9]+)_([a-z])")


def add_keys(below: pa.Table, keys: Sequence[Expr]) -> tuple[pa.Table, pa.Table]:
    """Return rows with those of their keys that are no columns of theirs (``g0_s``, ...), and the bad rows."""
    computed = [(at, key) for at, key in enumerate(keys) if not isinstance(key, Slot)]
    kept, columns, bad = RowStage((), tuple(key for _, key in computed)).apply(below)
    for (at, _), column in zip(computed, columns, strict=True):
        for name, part in column.columns(f"g{at}").items():
            kept = kept.append_column(name, part)
    return kept, bad


def keys_of(table: pa.Table, keys: Sequence[Expr]) -> list[Variant]:
    """Return the keys of rows that :func:`add_keys` gave."""
    return [from_columns(table, f"s{key.index}" if isinstance(key, Slot) else f"g{at}") for at, key in enumerate(keys)]


def have_all_keys(table: pa.Table, keys: Sequence[Expr]) -> npt.NDArray[np.bool_]:
    """Return which rows have no key that is NULL, and so equals nothing."""
    found = np.ones(table.num_rows, dtype=np.bool_)
    for key in keys_of(table, keys):
        found &= key.valid_mask()
    return found


def join_rows(left: pa.Table, right: pa.Table, pairs: Pairs, width: int, system_us: Ticks) -> pa.Table:
    """Return the rows that pairs become, and left rows alone, whose right one is -1; the left ones have *width* columns."""
    mine, theirs = pairs
    return pa.table(_head(left, mine, system_us) | _columns(left, mine) | _columns(right, theirs, width))


def unmatched_rows(left: pa.Table, rows: Ticks, system_us: Ticks) -> pa.Table:
    """Return the rows that left rows without a match become."""
    return pa.table(_head(left, rows, system_us) | _columns(left, rows))


def filter_pairs(residual: Expr | None, left: pa.Table, right: pa.Table, pairs: Pairs, width: int) -> Pairs:
    """Return the pairs of which the condition is true; of a pair on which it fails it is not."""
    if residual is None:
        return pairs
    table = join_rows(left, right, pairs, width, pairs[0])
    leaves: dict[Expr, Variant] = {leaf: from_columns(table, f"s{leaf.index}") for leaf in residual.leaves() if isinstance(leaf, Slot)}
    (verdict,), _ = evaluate([residual], leaves, table.num_rows)
    met = pc.fill_null(verdict.of_kind(Kind.BIT), False).to_numpy(zero_copy_only=False)
    return pairs[0][met], pairs[1][met]


def _head(left: pa.Table, rows: Ticks, system_us: Ticks) -> dict[str, pa.ChunkedArray]:
    chosen = pa.array(rows)
    return {"sub": left["sub"].take(chosen), "system_us": pa.chunked_array([system_us]), "key": left["key"].take(chosen)}


def _columns(table: pa.Table, rows: Ticks, shift: int = 0) -> dict[str, pa.ChunkedArray]:
    """Return the columns of rows (``s0_i``, ...), numbered from *shift* on; of row -1 they are null."""
    missing = rows < 0
    chosen = pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
    named = [(name, found) for name in table.column_names if (found := _COLUMN.fullmatch(name))]
    return {f"s{int(found[1]) + shift}_{found[2]}": table[name].take(chosen) for name, found in named}
