"""
Running aggregates: an aggregate for each of many runs of rows, in which each row is a cell of its own.

A row's states are those that :mod:`query.operators.windows.aggregate_states` collects from a group of one row. As with windows, sums of
runs are differences of running sums of integers, and extremes come from tables, so a value is exact and depends only on the rows of its
run. A row may stand for many rows if every run holds all or none of them; it has their states instead of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from query.operators.windows.aggregate_states import HALF_BITS, AggregateState, finish_aggregate
from query.operators.windows.cell_runs import Runs
from query.operators.windows.exact_sum import split_floats
from query.operators.windows.merged_cells import merge_states
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate
from tidegate.language.expressions.variant import Variant, valid_mask

# The name of each state -> the states of rows.
RowStates = Mapping[str, pa.Array]


def row_states(total: Aggregate, values: Sequence[Variant], count: int) -> RowStates:
    """Return the states of single rows; *values* is the aggregated column, empty for COUNT(*)."""
    return dict(_single_row_states(total.function, values[0] if values else None, count))


def aggregate_runs(total: Aggregate, cells: RowStates, first: Ints, last: Ints) -> Variant:
    """Aggregate runs of rows, given by the numbers of their first and last rows (inclusive; last = first - 1 for a run without rows)."""
    merged = merge_states(pa.table(cells), _states(total, cells), Runs(first, last, first))
    return finish_aggregate(pa.table({"run": first, **merged}), Aggregate(total.function, None), 0 if total.parts else None)


def sum_groups(total: Aggregate, cells: RowStates, order: Ints, starts: Ints) -> RowStates:
    """Add up the states of groups of rows: *order* holds the rows group after group, *starts* where each group begins in it."""
    if not cells:
        return {}
    rows = pa.table(cells).take(pa.array(order))
    return merge_states(rows, _states(total, cells), Runs(starts, np.append(starts[1:], len(order)) - 1, starts))


def choose_states(chosen: Mask, cells: RowStates, others: RowStates) -> RowStates:
    """Return the states in *cells* of the rows *chosen*, those in *others* of the rest; a state that is missing in one is 0 or null."""
    mask = pa.array(chosen)
    states = {}
    for name in dict.fromkeys([*cells, *others]):
        kind = (cells[name] if name in cells else others[name]).type
        default = pa.scalar(None if name.startswith(("min", "max")) else 0, kind)
        states[name] = pc.if_else(mask, cells.get(name, default), others.get(name, default))
    return states


def _states(total: Aggregate, cells: RowStates) -> list[AggregateState]:
    merge = total.function if total.function in ("min", "max") else "add"
    return [AggregateState(name, "", merge) for name in cells]


def _single_row_states(function: str, values: Variant | None, count: int) -> Iterator[tuple[str, pa.Array]]:
    if values is None:
        yield "n", pa.array(np.ones(count, dtype=np.int64))
    elif function == "count":
        yield "c0", pa.array(values.valid_mask().astype(np.int64))
    elif function in ("sum", "avg"):
        yield from _sum_states(values)
    else:
        yield from ((f"{function}0_{kind.value}", part) for kind, part in values.parts.items())


def _sum_states(values: Variant) -> Iterator[tuple[str, pa.Array]]:
    if Kind.BIGINT in values.parts:
        part = values.parts[Kind.BIGINT]
        integers = part.fill_null(0).to_numpy()
        yield "n0_i", pa.array(valid_mask(part).astype(np.int64))
        yield "s0_high", pa.array(integers >> HALF_BITS)
        yield "s0_low", pa.array(integers & ((1 << HALF_BITS) - 1))
    if Kind.FLOAT in values.parts:
        part = values.parts[Kind.FLOAT]
        yield "n0_f", pa.array(valid_mask(part).astype(np.int64))
        pieces = split_floats(part.fill_null(0.0).to_numpy())
        for limb in sorted({int(used) for limbs, amounts in pieces for used in np.unique(limbs[amounts != 0])}):
            yield f"x0_{limb}", pa.array(sum(np.where(limbs == limb, amounts, 0) for limbs, amounts in pieces))
