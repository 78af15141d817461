"""
Tables of rows, which operators take and give, and the helpers that read and build them.

A table of rows has ``sub`` (dense number of the substream, 0 for all without OVER), ``system_us``, ``key`` (bytes) and the columns:
``s0_i`` holds the bigints of column 0, ``s0_s`` its texts, and so on; a kind that does not occur has no column. The rows of a substream are
in the order of the operator that gave them, which is by ``system_us`` first. A column ``reason`` says why an expression of a row failed;
failed rows go no further (:func:`split_failed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints, Mask
from query.columns.encode import encode_objects
from query.columns.large_tables import split_by_bytes
from tidegate.basics.budget import BUDGET, TooMuchAtOnce, compute_in_halves
from tidegate.language.expressions.functions.column_functions import FailedRows
from tidegate.language.expressions.variant import Variant, from_columns

Ticks = Ints
# The retained rows of each side, None for a side without rows. At least one side has rows.
Retained = Sequence[pa.Table | None]

# Rows that failed: position and reason, in the order of positions.
BAD_SCHEMA = pa.schema([("position", pa.int64()), ("reason", pa.string())])
# Results: substream id, System.Timestamp, key bytes, value bytes.
RESULT_SCHEMA = pa.schema([("sub", pa.int64()), ("system_us", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
_HEAD = ("sub", "system_us", "key")


def only_side(retained: Retained) -> pa.Table:
    """Return the retained rows of an operator with one side."""
    (rows,) = retained
    assert rows is not None, "an operator is asked only while something is retained"
    return rows


def rows_table(sub: pa.Array, system_us: pa.Array, key: pa.Array, columns: Sequence[Variant]) -> pa.Table:
    """Build a table of rows."""
    table: dict[str, pa.Array] = {"sub": sub, "system_us": system_us, "key": key}
    for number, column in enumerate(columns):
        table |= column.columns(f"s{number}")
    return pa.table(table)


def append_values(rows: pa.Table, name: str, values: Variant) -> pa.Table:
    """Append a column of values of any kind: ``name_i`` holds the bigints, ``name_s`` the texts, and so on."""
    for part_name, part in values.columns(name).items():
        rows = rows.append_column(part_name, part)
    return rows


def with_reasons(rows: pa.Table, failures: Sequence[FailedRows]) -> pa.Table:
    """Append the first reason of each row in which an expression failed; no column if none failed."""
    if not failures:
        return rows
    reasons: list[str | None] = [None] * rows.num_rows
    for failure in failures:
        for row in failure.rows.tolist():
            reasons[row] = reasons[row] or failure.reason
    return rows.append_column("reason", pa.array(reasons, pa.string()))


def split_failed(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split rows into results and failed rows; only the failed ones keep ``reason``."""
    if "reason" not in rows.column_names:
        return rows, rows.slice(0, 0)
    return rows.filter(rows["reason"].is_null()).drop_columns(["reason"]), rows.filter(rows["reason"].is_valid())


def first_reasons(failed: Sequence[pa.Table]) -> pa.Table:
    """Merge bad rows (``BAD_SCHEMA``): in order of positions, each with its first reason."""
    if len(failed) == 1:
        return failed[0]
    reasons: dict[int, str] = {}
    for bad in failed:
        for position, reason in zip(bad["position"].to_pylist(), bad["reason"].to_pylist(), strict=True):
            reasons.setdefault(position, reason)
    return pa.table({"position": sorted(reasons), "reason": [reasons[position] for position in sorted(reasons)]}, schema=BAD_SCHEMA)


def no_rows() -> pa.Table:
    """Return a table without rows."""
    return RESULT_SCHEMA.empty_table().select(_HEAD)


def encode_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Encode rows as ``RESULT_SCHEMA``: each value is a JSON object with members *names*."""
    return pa.concat_tables([_encode(part, names) for part in split_by_bytes(rows, BUDGET.bytes)])


def _encode(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    columns = [from_columns(rows, f"s{number}") for number in range(len(names))]
    value = encode_objects(names, columns, rows.num_rows)
    return rows.select(_HEAD).append_column("value", value).cast(RESULT_SCHEMA)


def by_substream(subs: Ticks, table: pa.Table, column: str) -> Ticks:
    """Return *column* of *table* (one row per ``sub``) for each substream in *subs*, 0 if it has no row."""
    known = table["sub"].to_numpy()
    # Substreams are numbered densely, so an array by number is as large as it needs to be.
    size = max(int(subs.max(initial=0)), int(known.max(initial=0))) + 1
    values = np.zeros(size, dtype=np.int64)
    values[known] = table[column].to_numpy()
    return values[subs]


def in_slice(subs: Ticks, system_us: Ticks, closing: pa.Table) -> Mask:
    """Return which instants lie in the slice of their substream: ``from_us <= system_us < to_us``."""
    mask: Mask = system_us >= by_substream(subs, closing, "from_us")
    mask &= system_us < by_substream(subs, closing, "to_us")
    return mask


def between(closing: pa.Table, from_us: int, to_us: int) -> pa.Table:
    """Return the part of slices of time (``sub``, ``from_us``, ``to_us``) in [from_us, to_us)."""
    sub, low_us, high_us = (closing[name].to_numpy() for name in ("sub", "from_us", "to_us"))
    low_us, high_us = np.maximum(low_us, from_us), np.minimum(high_us, to_us)
    return pa.table({"sub": sub, "from_us": low_us, "to_us": high_us}).filter(pa.array(low_us < high_us))


def is_one_instant(closing: pa.Table) -> bool:
    """Return whether slices of time lie in one microsecond, so that they cannot be divided."""
    return int(ticks(closing, "to_us").max()) - int(ticks(closing, "from_us").min()) < 2


class TooMuchTimeAtOnce(TooMuchAtOnce):
    """The results of a slice of time are too large together; *instants_us* are some of their instants."""

    def __init__(self, instants_us: Ints) -> None:
        super().__init__()
        self.instants_us = instants_us


def in_steps(closing: pa.Table, compute: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
    """Yield what *compute* makes of slices of time, or of their halves if it says that all of it is too much."""
    yield from compute_in_halves(closing, compute, _halve_time)


def _halve_time(closing: pa.Table, error: Exception) -> Sequence[pa.Table]:
    """Return slices of time before and from the middle of the instants that were too many; nothing if something else was."""
    if not isinstance(error, TooMuchTimeAtOnce):
        return ()
    low_us, high_us = int(ticks(closing, "from_us").min()), int(ticks(closing, "to_us").max())
    instants_us = np.unique(error.instants_us)
    middle_us = max(int(instants_us[len(instants_us) // 2]), low_us + 1)
    return [half for half in (between(closing, low_us, middle_us), between(closing, middle_us, high_us)) if half.num_rows]


def ticks(table: pa.Table, column: str) -> Ticks:
    """Return an int64 column as a numpy array."""
    values: Ticks = table[column].to_numpy()
    return values


def concat_rows(tables: list[pa.Table]) -> pa.Table:
    """
    Concatenate retained tables in order.

    Tables can differ in columns, since a kind that does not occur in a batch has no column. The result has its columns in one fixed order,
    whatever the order in which kinds occurred.
    """
    joined = pa.concat_tables(tables, promote_options="default")
    fixed = [name for name in ("position", "sub", "system_us", "key", "value") if name in joined.column_names]
    return joined.select([*fixed, *sorted(name for name in joined.column_names if name not in fixed)])
