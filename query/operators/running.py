"""
Running aggregates: an aggregate for each of many runs of rows, where every row is a cell of its own.

States of single rows are what :mod:`query.operators.totals` would collect from groups of one row; from there on all is as with
windows: sums of runs are differences of running sums of integers, extremes come from tables. So a value depends on the rows
of its run alone, and is exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from query.operators.exact_sum import pieces
from query.operators.panes import merged_states
from query.operators.runs import Runs
from query.operators.totals import State, finish_total
from tidegate.runtime.scalars.expressions import Aggregate
from tidegate.runtime.scalars.kinds import Kind
from tidegate.runtime.scalars.variant import Variant, valid_mask

Whole = npt.NDArray[np.int64]

_HALF_BITS = 32


def running(function: str, values: Variant | None, count: int, first: Whole, last: Whole) -> Variant:
    """
    Aggregate runs of rows; which values there may be, and what they give, is as of windows.

    Args:
        function: ``count``, ``sum``, ``avg``, ``min`` or ``max``.
        values: What is aggregated; None for COUNT(*).
        count: How many rows there are.
        first: For each run the number of its first row.
        last: For each run the number of its last row, inclusive; one below *first* for a run without rows.

    Returns:
        One value per run.
    """
    number = None if values is None else 0
    cells: dict[str, pa.Array] = dict(_cells(function, values, count))
    states = [State(name, "", function if function in ("min", "max") else "add") for name in cells]
    merged = merged_states(pa.table(cells), states, Runs(first, last, first))
    return finish_total(pa.table({"run": first, **merged}), Aggregate(function, None), number)


def _cells(function: str, values: Variant | None, count: int) -> Iterator[tuple[str, pa.Array]]:
    """Yield the name of each state and its column."""
    if values is None:
        yield "n", pa.array(np.ones(count, dtype=np.int64))
    elif function == "count":
        yield "c0", pa.array(values.valid().astype(np.int64))
    elif function in ("sum", "avg"):
        yield from _sum_cells(values)
    else:
        yield from ((f"{function}0_{kind.value}", part) for kind, part in values.parts.items())


def _sum_cells(values: Variant) -> Iterator[tuple[str, pa.Array]]:
    if Kind.BIGINT in values.parts:
        part = values.parts[Kind.BIGINT]
        whole = part.fill_null(0).to_numpy()
        yield "n0_i", pa.array(valid_mask(part).astype(np.int64))
        yield "s0_high", pa.array(whole >> _HALF_BITS)
        yield "s0_low", pa.array(whole & ((1 << _HALF_BITS) - 1))
    if Kind.FLOAT in values.parts:
        part = values.parts[Kind.FLOAT]
        yield "n0_f", pa.array(valid_mask(part).astype(np.int64))
        cut = pieces(part.fill_null(0.0).to_numpy())
        for limb in sorted({int(used) for limbs, amounts in cut for used in np.unique(limbs[amounts != 0])}):
            yield f"x0_{limb}", pa.array(sum(np.where(limbs == limb, amounts, 0) for limbs, amounts in cut))
