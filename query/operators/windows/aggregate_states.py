"""
The states of aggregates: how they are collected from rows, in SQL or from a few rows without it, and the values computed from them.

Every state is either an integer that adds up (counts; the two halves of 128-bit integer sums; the limbs of exact float sums) or an extreme.
So states of cells make states of windows, exactly. A row may stand for many rows; it has states in place of values
(:mod:`query.operators.windows.compacting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from query.operators.windows.exact_sum import PIECES, round_means, round_sums, split_floats
from query.plan.row_tables import ticks
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate
from tidegate.language.expressions.variant import Variant, valid_mask

_EXTREME_KINDS = (Kind.BIT, Kind.BIGINT, Kind.FLOAT, Kind.DATETIME, Kind.NVARCHAR)
# The bits of the lower half of an integer sum.
HALF_BITS = 32
# Every whole number up to this one is a float.
_EXACT_MAX = 2**53


@dataclass(frozen=True, slots=True)
class AggregateState:
    """
    One column of states: its name, the SQL that collects it from rows, ``add``, ``min`` or ``max`` to merge it, and what each row adds
    (for an extreme the values of each row, to be compared). States that are only merged have neither SQL nor amounts.
    """

    name: str
    collect: str
    merge: str
    amounts: Callable[[pa.Table], Ints | pa.Array] | None = None


@dataclass(frozen=True)
class AggregateStates:
    """The states that the aggregates of one query need, given the columns of rows."""

    aggregates: Sequence[Aggregate]
    # The number of the value of each aggregate, None for COUNT(*).
    values: Sequence[int | None]
    # The columns of the rows; a kind without a column does not occur. Rows that stand for many have states.
    columns: Sequence[str]
    # The limbs that the floats of each value need.
    limbs: Mapping[int, Sequence[int]]

    def states(self) -> tuple[AggregateState, ...]:
        return tuple({state.name: state for state in self._states()}.values())

    def _states(self) -> Iterator[AggregateState]:
        if "n" in self.columns:
            yield AggregateState("n", "CAST(sum(coalesce(n, 1)) AS BIGINT)", "add", lambda rows: _integers(rows, "n", 1))
        else:
            yield AggregateState("n", "count(*)", "add", lambda rows: np.ones(rows.num_rows, dtype=np.int64))
        for aggregate, value in zip(self.aggregates, self.values, strict=True):
            if value is None:
                continue
            if aggregate.function == "count":
                column = f"v{value}_b"
                yield from self._state(f"c{value}", column, f"count(*) FILTER (WHERE {column})", partial(_count_true, column=column))
            elif aggregate.function in ("sum", "avg"):
                yield from self._sum_states(value)
            elif aggregate.function in ("min", "max"):
                for kind in _EXTREME_KINDS:
                    column = f"v{value}_{kind.value}"
                    name = f"{aggregate.function}{column[1:]}"
                    values = partial(_values, column=column)
                    yield from self._state(name, column, f"{aggregate.function}({column})", values, aggregate.function)

    def _sum_states(self, value: int) -> Iterator[AggregateState]:
        bigints, floats, half = f"v{value}_i", f"v{value}_f", 1 << HALF_BITS
        high, low = (partial(_half, column=bigints, is_high=is_high) for is_high in (True, False))
        yield from self._state(f"n{value}_i", bigints, f"count({bigints})", partial(_count_valid, column=bigints))
        yield from self._state(f"s{value}_high", bigints, f"coalesce(CAST(sum({bigints}) // {half} AS BIGINT), 0)", high)
        yield from self._state(f"s{value}_low", bigints, f"coalesce(CAST(sum({bigints}) % {half} AS BIGINT), 0)", low)
        yield from self._state(f"n{value}_f", floats, f"count({floats})", partial(_count_valid, column=floats))
        prefix = f"x{value}_"
        known = {int(name[len(prefix) :]) for name in self.columns if name.startswith(prefix)}
        for limb in sorted(known.union(self.limbs.get(value, ()))):
            parts = " + ".join(f"CASE WHEN l{value}_{piece} = {limb} THEN p{value}_{piece} ELSE 0 END" for piece in range(PIECES))
            pieces = partial(_pieces, value=value, limb=limb)
            yield from self._state(f"{prefix}{limb}", floats, f"CAST(sum({parts}) AS BIGINT)", pieces)

    def _state(
        self, name: str, column: str, collect: str, amounts: Callable[[pa.Table], Ints | pa.Array], merge: str = "add"
    ) -> Iterator[AggregateState]:
        """Yield a state of the rows with the column and of those with the state already; nothing if there are neither."""
        if name not in self.columns:
            yield from [AggregateState(name, collect, merge, amounts)] if column in self.columns else []
        elif column not in self.columns:
            known = f"CAST(coalesce(sum({name}), 0) AS BIGINT)" if merge == "add" else f"{merge}({name})"
            yield AggregateState(name, known, merge, partial(_integers if merge == "add" else _values, column=name))
        elif merge == "add":
            both = f"CAST(({collect}) + coalesce(sum({name}), 0) AS BIGINT)"
            yield AggregateState(name, both, merge, lambda rows: amounts(rows) + _integers(rows, name))
        else:
            least = f"{'least' if merge == 'min' else 'greatest'}({collect}, {merge}({name}))"
            # A row has values or states.
            yield AggregateState(name, least, merge, lambda rows: pc.coalesce(_values(rows, column), _values(rows, name)))


def collect_few(rows: pa.Table, states: Sequence[AggregateState], order: Sequence[str]) -> pa.Table:
    """Add a few rows up by ``group`` and ``cell``, and return the cells in the *order* of these two: what SQL does, without its cost."""
    first, second = (ticks(rows, name) for name in order)
    places = np.lexsort((second, first))
    first, second = first[places], second[places]
    begins = np.append(True, (first[1:] != first[:-1]) | (second[1:] != second[:-1]))
    starts = np.flatnonzero(begins)
    cells: dict[str, Ints | pa.Array] = {order[0]: first[starts], order[1]: second[starts]}
    for state in states:
        assert state.amounts is not None, "states are collected from rows"
        amounts = state.amounts(rows)
        if isinstance(amounts, pa.Array):
            cells[state.name] = _extremes(amounts, places, starts, largest=state.merge == "max")
        else:
            cells[state.name] = np.add.reduceat(amounts[places], starts)
    return pa.table(cells)


def _extremes(values: pa.Array, places: Ints, starts: Ints, *, largest: bool) -> pa.Array:
    """Return the least or greatest value of each run of places, null if it has none."""
    # Ranks work for values of any type: only their order matters. NULL must win neither way.
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    row_of_rank = np.zeros(len(ranks) + 1, dtype=np.int64)
    row_of_rank[ranks] = np.arange(len(ranks))
    ranks[~valid_mask(values)] = 0 if largest else len(ranks) + 1
    best = (np.maximum if largest else np.minimum).reduceat(ranks[places], starts)
    has_none = best == (0 if largest else len(ranks) + 1)
    return values.take(pa.array(row_of_rank[np.where(has_none, 0, best)], mask=has_none))


def _values(rows: pa.Table, column: str) -> pa.Array:
    return rows[column].combine_chunks()


def _integers(rows: pa.Table, column: str, null: int = 0) -> Ints:
    integers: Ints = _values(rows, column).fill_null(null).to_numpy()
    return integers


def _count_valid(rows: pa.Table, column: str) -> Ints:
    return valid_mask(_values(rows, column)).astype(np.int64)


def _count_true(rows: pa.Table, column: str) -> Ints:
    counts: Ints = _values(rows, column).fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def _half(rows: pa.Table, column: str, *, is_high: bool) -> Ints:
    integers = _integers(rows, column)
    return integers >> HALF_BITS if is_high else integers & ((1 << HALF_BITS) - 1)


def _pieces(rows: pa.Table, value: int, limb: int) -> Ints:
    total = np.zeros(rows.num_rows, dtype=np.int64)
    for piece in range(PIECES):
        total += np.where(ticks(rows, f"l{value}_{piece}") == limb, ticks(rows, f"p{value}_{piece}"), 0)
    return total


def add_float_pieces(rows: pa.Table, values: Sequence[int]) -> tuple[pa.Table, dict[int, Sequence[int]]]:
    """Add the pieces of the floats of *values* to rows (``l0_0``, ``p0_0``, ...); return also which limbs occur."""
    limbs: dict[int, Sequence[int]] = {}
    for value in values:
        floats = rows[f"v{value}_f"].combine_chunks()
        used: set[int] = set()
        for number, (limb, piece) in enumerate(split_floats(floats.fill_null(0.0).to_numpy())):
            used |= set(np.unique(limb[piece != 0]).tolist())
            rows = rows.append_column(f"l{value}_{number}", pa.array(limb)).append_column(f"p{value}_{number}", pa.array(piece))
        limbs[value] = sorted(used)
    return rows, limbs


def finish_aggregate(windows: pa.Table, aggregate: Aggregate, value: int | None) -> Variant:
    """Return the values of one aggregate, from the states of the windows."""
    if aggregate.function == "count":
        name = "n" if value is None else f"c{value}"
        return Variant.of(windows.num_rows, {Kind.BIGINT: pa.array(_column(windows, name))})
    assert value is not None
    if aggregate.function == "sum":
        return _sum(windows, value)
    if aggregate.function == "avg":
        return _mean(windows, value)
    return _extreme(windows, value, largest=aggregate.function == "max")


def _sum(windows: pa.Table, value: int) -> Variant:
    """Return the sums: bigint in groups of bigints, float if a float occurs, NULL over no values."""
    high, low, fits = _integer_sums(windows, value)
    real = _column(windows, f"n{value}_f") > 0
    whole = (_column(windows, f"n{value}_i") > 0) & ~real & fits
    parts = {Kind.BIGINT: pa.array(np.where(whole, (high << HALF_BITS) | low, 0), mask=~whole)}
    if real.any():
        parts[Kind.FLOAT] = _float_sums(windows, value, real)
    return Variant.of(windows.num_rows, parts)


def _mean(windows: pa.Table, value: int) -> Variant:
    """Return the float nearest to the exact mean: the sum is not rounded before it is divided."""
    counts = _column(windows, f"n{value}_i") + _column(windows, f"n{value}_f")
    known = counts > 0
    high, low, fits = _integer_sums(windows, value)
    sums = (high << HALF_BITS) | low
    means = sums / np.maximum(counts, 1)
    # A sum that a float holds can be divided as one: the quotient is rounded once.
    slow = np.flatnonzero(known & ((_column(windows, f"n{value}_f") > 0) | ~fits | (np.abs(sums) > _EXACT_MAX)))
    if len(slow):
        means[slow] = round_means(_limbs(windows, value, slow), high[slow], low[slow], counts[slow])
    return Variant.of(windows.num_rows, {Kind.FLOAT: pa.array(means + 0.0, mask=~known)})


class _HalvedSums(NamedTuple):
    """The halves of integer sums, the lower one positive, and which sums are bigints."""

    high: Ints
    low: Ints
    fits: Mask


def _integer_sums(windows: pa.Table, value: int) -> _HalvedSums:
    high, low = _column(windows, f"s{value}_high"), _column(windows, f"s{value}_low")
    # Added lower halves can exceed 32 bits, and are negative for negative sums (DuckDB divides towards zero): carry into the upper half.
    high, low = high + (low >> HALF_BITS), low & ((1 << HALF_BITS) - 1)
    edge = 1 << (HALF_BITS - 1)
    return _HalvedSums(high, low, (high >= -edge) & (high < edge))


def _float_sums(windows: pa.Table, value: int, rows: Mask) -> pa.Array:
    """Return the exact sums of bigints and floats, rounded once, in the given rows; null elsewhere."""
    high, low, fits = _integer_sums(windows, value)
    # int64 to float64 rounds to nearest, as an exact sum must.
    sums = ((high << HALF_BITS) | low).astype(np.float64)
    known = rows.copy()
    slow = np.flatnonzero(rows & ((_column(windows, f"n{value}_f") > 0) | ~fits))
    if len(slow):
        sums[slow], known[slow] = round_sums(_limbs(windows, value, slow), high[slow], low[slow])
    return pa.array(sums + 0.0, mask=~known)


def _limbs(windows: pa.Table, value: int, rows: Ints) -> dict[int, Ints]:
    """Return the sums of the pieces of floats in the given rows, by their limbs."""
    prefix = f"x{value}_"
    return {int(name[len(prefix) :]): _column(windows, name)[rows] for name in windows.column_names if name.startswith(prefix)}


def _extreme(windows: pa.Table, value: int, *, largest: bool) -> Variant:
    """Return the least or greatest value; it has one kind even if the group's values have several."""
    name = f"{'max' if largest else 'min'}{value}_"
    parts = {kind: windows[name + kind.value].combine_chunks() for kind in _EXTREME_KINDS if name + kind.value in windows.column_names}
    if len(parts) < 2:
        return Variant.of(windows.num_rows, parts)
    valid = {kind: valid_mask(part).copy() for kind, part in parts.items()}
    if Kind.BIGINT in parts and Kind.FLOAT in parts:
        for row in np.flatnonzero(valid[Kind.BIGINT] & valid[Kind.FLOAT]).tolist():
            # Python compares integers and floats exactly.
            whole, real = parts[Kind.BIGINT][row].as_py(), parts[Kind.FLOAT][row].as_py()
            float_wins = real > whole if largest else real < whole
            valid[Kind.BIGINT if float_wins else Kind.FLOAT][row] = False
    has_value = np.zeros(windows.num_rows, dtype=np.bool_)
    for kind in reversed(parts) if largest else parts:
        valid[kind] &= ~has_value
        has_value |= valid[kind]
    return Variant.of(windows.num_rows, {kind: pc.if_else(pa.array(valid[kind]), part, None) for kind, part in parts.items()})


def _column(windows: pa.Table, name: str) -> Ints:
    """Return a state column, zeros if it does not occur."""
    # Not column_names: a list of all of them would be made for each.
    return ticks(windows, name) if windows.schema.get_field_index(name) >= 0 else np.zeros(windows.num_rows, dtype=np.int64)
