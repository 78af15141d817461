"""
The operator protocol: retention plus a computation over a finished slice of time.

*prepare* turns events into the rows worth keeping, *finish* computes the results a slice of time has become certain of,
*expire* forgets rows no later result can need. Law: results depend on the events and on which instants were finished,
never on how either was cut - preparing batches and concatenating gives what preparing all at once gives, and finishing
in many steps gives what finishing in one gives. Operators hold no state of their own; the caller keeps the rows.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ticks = npt.NDArray[np.int64]

BAD_SCHEMA = pa.schema([("position", pa.int64()), ("reason", pa.string())])
"""Rows that failed: the event's position and why, in the order of positions."""
RESULT_SCHEMA = pa.schema([("sub", pa.int64()), ("system_us", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
"""Results: substream id, System.Timestamp, key bytes, value bytes."""


class Operator(Protocol):
    """One operator of a compiled query."""

    def prepare(self, events: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows to retain and the bad rows of *events*."""
        ...

    def finish(self, retained: pa.Table, closing: pa.Table) -> pa.Table:
        """Return the results with ``from_us <= system_us < to_us`` of each substream in *closing*."""
        ...

    def expire(self, retained: pa.Table, horizon: pa.Table) -> pa.Table:
        """Return the rows a result at or after ``to_us`` of their substream can need."""
        ...

    def first_end(self, system_us: Ticks) -> Ticks:
        """Return the earliest result instant each event can count for."""
        ...

    def last_end(self, system_us: Ticks) -> Ticks:
        """Return the latest result instant each event can count for; below *first_end* when it counts for none."""
        ...


def by_substream(subs: Ticks, table: pa.Table, column: str, default: int) -> Ticks:
    """Look up *column* of *table* (one row per ``sub``) for each substream id in *subs*."""
    known = table["sub"].to_numpy()
    size = max(int(subs.max(initial=0)), int(known.max(initial=0))) + 1
    values = np.full(size, default, dtype=np.int64)
    values[known] = table[column].to_numpy()
    return values[subs]


def ticks(table: pa.Table, column: str) -> Ticks:
    """Return an int64 column as a numpy array."""
    found: Ticks = table[column].to_numpy()
    return found


def concat_rows(tables: list[pa.Table]) -> pa.Table:
    """
    Concatenate retained tables in order.

    They may differ in columns: a kind of value that no row of a batch has, has no column in it. The result has its
    columns in one fixed order, whatever the order in which kinds came up.
    """
    joined = pa.concat_tables(tables, promote_options="default")
    fixed = [name for name in ("position", "sub", "system_us", "key", "value") if name in joined.column_names]
    return joined.select([*fixed, *sorted(name for name in joined.column_names if name not in fixed)])
