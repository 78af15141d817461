"""
The operator protocol: retention plus a computation over a finished slice of time.

*prepare* turns the rows below (events, or another operator's results) into what is worth keeping, *rows* computes the results
a slice of time has become certain of, *expire* forgets what no later result can need. Law: results depend on the rows
below and on which instants were finished, never on how either was cut - preparing batches and concatenating gives what
preparing all at once gives, and finishing in many steps gives what finishing in one gives. Operators hold no state of
their own; the caller keeps the rows.

Tables of rows hold ``sub`` (dense number of the substream, 0 for all without OVER), ``system_us``, ``key`` (bytes) and the
columns: ``s0_i`` are the bigints of column 0, ``s0_s`` its texts, and so on; a kind that does not occur has no column.
Within a substream they stand in the operator's order, which is one of ``system_us`` first. Where an operator computes
expressions of its results, a column ``reason`` may say why one failed; such rows go no further (:func:`parted`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from query.columns.encode import encode_objects
from query.columns.large_tables import AT_ONCE_BYTES, split_by_bytes
from tidegate.expressions.functions.columns import Failure
from tidegate.expressions.variant import Variant, from_columns

Ticks = npt.NDArray[np.int64]
Retained = Sequence[pa.Table | None]
"""What is retained of each side; None where that is nothing, which is never so of all sides."""

BAD_SCHEMA = pa.schema([("position", pa.int64()), ("reason", pa.string())])
"""Rows that failed: the row's position and why, in the order of positions."""
RESULT_SCHEMA = pa.schema([("sub", pa.int64()), ("system_us", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
"""Results: substream id, System.Timestamp, key bytes, value bytes."""
_HEAD = ("sub", "system_us", "key")


class Operator(Protocol):
    """One operator of a compiled query."""

    @property
    def sides(self) -> int:
        """How many other operators' rows it takes; 1 too where it takes events."""
        ...

    @property
    def reach_us(self) -> int:
        """How long after a row of those below its last result can be, microseconds."""
        ...

    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """
        Take rows of one side, in order; return what to retain of them and the bad rows.

        Args:
            below: ``query.engine.compile.EVENTS_SCHEMA``, or rows as the module says, with ``position``.
            side: Which of the operators below gave them.
        """
        ...

    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """
        Return the results with ``from_us <= system_us < to_us`` of each substream in *closing*.

        Args:
            retained: For each side what was retained, in order, with ``position``: all that a result asked for can need, and
                perhaps more: rows that have expired, and rows of later times.
            closing: ``sub``, ``from_us``, ``to_us``.
        """
        ...

    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows of a piece of what is retained that a result at or after ``to_us`` of their substream can need."""
        ...


@runtime_checkable
class Spanning(Protocol):
    """
    An operator that knows from the time of a row alone which results it can have a part in.

    Rows of other times are then not handed to it, and not looked at. Without this every batch looks at all that is retained.
    """

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        """
        Return the first and the last System.Timestamp of results that a retained row can have a part in.

        Law: neither end falls as instants rise; of a row whose last instant has passed :meth:`Operator.expire` keeps nothing.

        Args:
            instant_us: The row's ``system_us``.
            side: Which side's row.
        """
        ...


@runtime_checkable
class Ahead(Protocol):
    """
    An operator whose rows are all later than those below that they are made of, so that they are known before their time.

    With the rows below an instant c it knows its own below c + ``ahead_us``, and is asked for them then (spec section 5: c + d).
    """

    @property
    def ahead_us(self) -> int:
        """By how much at least, microseconds."""
        ...


@runtime_checkable
class Periodic(Protocol):
    """An operator that gives results at some instants only, whatever rows there are."""

    def gives(self, from_us: int, to_us: int) -> bool:
        """Tell whether there may be results with ``from_us <= System.Timestamp < to_us``."""
        ...


@runtime_checkable
class Compacting(Protocol):
    """An operator that can put retained rows together so that no result can tell."""

    def compacted(self, retained: pa.Table, side: int = 0) -> pa.Table:
        """
        Return fewer rows that stand for those of a piece, or the piece as it is.

        Law: whichever pieces are compacted, and how often, results are the same bytes.
        """
        ...


@runtime_checkable
class Summing(Protocol):
    """An operator to which rows that all results asked for depend on alike may be handed as fewer rows that stand for them."""

    @property
    def is_summing(self) -> bool:
        """Whether there are ever such rows."""
        ...

    def holds_all(self, ends_us: tuple[int, int], from_us: int, to_us: int) -> bool:
        """
        Tell whether all results with ``from_us <= System.Timestamp < to_us`` depend on rows in the same way.

        Args:
            ends_us: The least and the greatest ``system_us`` of the rows.
            from_us: From where on results are asked for.
            to_us: Up to where, exclusive.
        """
        ...

    def summed(self, retained: pa.Table) -> pa.Table:
        """Return rows that stand for others there."""
        ...


@runtime_checkable
class Portioned(Protocol):
    """An operator of one side that can take its rows in portions, where they are many."""

    def portion_of(self, retained: pa.Table, count: int) -> npt.NDArray[np.uint8]:
        """Return the portion of each row, 0 to *count* - 1, 255 at most; rows of different portions never meet in a result."""
        ...

    def rows_of(self, portions: Iterable[pa.Table], closing: pa.Table) -> pa.Table:
        """Return what :meth:`Operator.rows` would of all rows together, given portion by portion."""
        ...


@runtime_checkable
class Selective(Protocol):
    """An operator to which old rows matter only where a row that asks for them has the same key."""

    def keys(self, retained: pa.Table, side: int) -> pa.Table:
        """Return what rows must agree in to meet: in columns of the same names, types and values. Rows may agree and still not meet."""
        ...

    def asking(self, retained: pa.Table, closing: pa.Table, side: int) -> npt.NDArray[np.bool_]:
        """Tell which rows ask for rows of the other side: those that are new in *closing*, or have their last chance in it."""
        ...

    def may_ask(self, instants_us: tuple[int, int], from_us: int, to_us: int, side: int) -> bool:
        """Tell whether a row between two instants, both included, can ask for others when a slice of time is finished."""
        ...


@runtime_checkable
class Condensing(Protocol):
    """
    An operator that can tell which rows are needed only when it sees all pieces of what is retained. It is asked now and then.

    Whatever it drops may come back when the caller is restored; it must then be as good as not there.
    """

    def condense(self, pieces: Sequence[pa.Table], horizon: pa.Table, side: int = 0) -> Sequence[npt.NDArray[np.bool_]]:
        """
        Tell of each row of each piece whether a result at or after ``to_us`` of its substream can need it.

        Args:
            pieces: All that is retained of a side and not expired, in order; at least one piece.
            horizon: ``sub``, ``to_us``; other substreams keep their rows.
            side: Which side.
        """
        ...


def alone(retained: Retained) -> pa.Table:
    """Return what is retained of the only side."""
    (rows,) = retained
    assert rows is not None, "an operator is asked only while something is retained"
    return rows


def rows_table(sub: pa.Array, system_us: pa.Array, key: pa.Array, columns: Sequence[Variant]) -> pa.Table:
    """Put rows together; see the module."""
    table: dict[str, pa.Array] = {"sub": sub, "system_us": system_us, "key": key}
    for at, column in enumerate(columns):
        table |= column.columns(f"s{at}")
    return pa.table(table)


def with_reasons(rows: pa.Table, failures: Sequence[Failure]) -> pa.Table:
    """Add to rows the first reason of each in which an expression failed; nothing where none did."""
    if not failures:
        return rows
    reasons: list[str | None] = [None] * rows.num_rows
    for failure in failures:
        for row in failure.rows.tolist():
            reasons[row] = reasons[row] or failure.reason
    return rows.append_column("reason", pa.array(reasons, pa.string()))


def parted(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that are results, and those that failed, with ``reason``."""
    if "reason" not in rows.column_names:
        return rows, rows.slice(0, 0)
    return rows.filter(rows["reason"].is_null()).drop_columns(["reason"]), rows.filter(rows["reason"].is_valid())


def each_once(failed: Sequence[pa.Table]) -> pa.Table:
    """Return bad rows (``BAD_SCHEMA``) in order of positions, each with its first reason."""
    if len(failed) == 1:
        return failed[0]
    reasons: dict[int, str] = {}
    for bad in failed:
        for position, reason in zip(bad["position"].to_pylist(), bad["reason"].to_pylist(), strict=True):
            reasons.setdefault(position, reason)
    return pa.table({"position": sorted(reasons), "reason": [reasons[position] for position in sorted(reasons)]}, schema=BAD_SCHEMA)


def no_rows() -> pa.Table:
    """Return no rows."""
    return RESULT_SCHEMA.empty_table().select(_HEAD)


def encoded(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows as ``RESULT_SCHEMA``, each value a JSON object with these members."""
    return pa.concat_tables([_encoded(part, names) for part in split_by_bytes(rows, AT_ONCE_BYTES)])


def _encoded(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    columns = [from_columns(rows, f"s{at}") for at in range(len(names))]
    value = encode_objects(names, columns, rows.num_rows)
    return rows.select(_HEAD).append_column("value", value).cast(RESULT_SCHEMA)


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
