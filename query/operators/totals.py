"""
The states of aggregates - how they are collected, merged and exported in SQL - and the values they end as.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from query.expressions import Aggregate
from query.kinds import Kind
from query.operators.exact_sum import total
from query.variant import Variant

_EXTREME_KINDS = (Kind.BIT, Kind.BIGINT, Kind.FLOAT, Kind.DATETIME, Kind.NVARCHAR)


@dataclass(frozen=True)
class States:
    """
    The states kept for the aggregates of one query.

    Args:
        columns: The columns that rows have; a kind without a column does not occur.
        totals: The aggregates.
        values: For each aggregate the number of its value, None for COUNT(*).
    """

    columns: Sequence[str]
    totals: Sequence[Aggregate]
    values: Sequence[int | None]

    @property
    def collect(self) -> str:
        """SQL that computes the states from rows."""
        return ", ".join(f"{collect} AS {name}" for name, collect, _, _ in self._states())

    @property
    def merge(self) -> str:
        """SQL that merges states of panes."""
        return ", ".join(f"{merge}({name}) AS {name}" for name, _, merge, _ in self._states())

    @property
    def export(self) -> str:
        """SQL that turns states into columns Arrow can hold: an integer sum as bigint, and as text where that is needed."""
        return ", ".join(export for *_, export in self._states())

    @property
    def float_values(self) -> tuple[int, ...]:
        """The values of SUM and AVG among which floats occur."""
        return tuple(value for value in self._summed() if f"v{value}_f" in self.columns)

    def _summed(self) -> tuple[int, ...]:
        wanted = (value for total, value in zip(self.totals, self.values, strict=True) if total.function in ("sum", "avg"))
        return tuple(dict.fromkeys(value for value in wanted if value is not None))

    def _states(self) -> list[tuple[str, str, str, str]]:
        """Return name, SQL to collect, function to merge, SQL to export, of each state."""
        states = {"n": ("count(*)", "sum", "CAST(n AS BIGINT) AS n")}
        for aggregate, value in zip(self.totals, self.values, strict=True):
            if value is None:
                continue
            if aggregate.function == "count":
                states[f"c{value}"] = (f"count_if(v{value}_b)", "sum", f"CAST(c{value} AS BIGINT) AS c{value}")
            elif aggregate.function in ("sum", "avg"):
                states |= self._sum_states(value)
            else:
                states |= self._extreme_states(value, aggregate.function)
        return [(name, *state) for name, state in states.items() if self._occurs(name, state[0])]

    def _sum_states(self, value: int) -> dict[str, tuple[str, str, str]]:
        states = {}
        for kind in (Kind.BIGINT, Kind.FLOAT):
            column = f"v{value}_{kind.value}"
            if column in self.columns:
                states[f"n{value}_{kind.value}"] = (
                    f"count({column})",
                    "sum",
                    f"CAST(n{value}_{kind.value} AS BIGINT) AS n{value}_{kind.value}",
                )
        if f"v{value}_i" in self.columns:
            whole = f"s{value}"
            text = f"CASE WHEN TRY_CAST({whole} AS BIGINT) IS NULL THEN CAST({whole} AS VARCHAR) END AS {whole}_text"
            states[whole] = (f"sum(v{value}_i)", "sum", f"TRY_CAST({whole} AS BIGINT) AS {whole}, {text}")
        return states

    def _extreme_states(self, value: int, function: str) -> dict[str, tuple[str, str, str]]:
        found = {}
        for kind in _EXTREME_KINDS:
            name, column = f"{function}{value}_{kind.value}", f"v{value}_{kind.value}"
            if column in self.columns:
                found[name] = (f"{function}({column})", function, name)
        return found

    def _occurs(self, name: str, collect: str) -> bool:
        return not collect.startswith("count_if") or f"v{name[1:]}_b" in self.columns


def summed(windows: pa.Table, value: int) -> Variant:
    """Return the values of SUM: bigint in groups of bigints, float where a float occurs."""
    count = windows.num_rows
    whole = windows[f"s{value}"].combine_chunks() if f"s{value}" in windows.column_names else pa.nulls(count, pa.int64())
    with_floats = _count(windows, value, Kind.FLOAT) > 0
    if not with_floats.any():
        return Variant.of(count, {Kind.BIGINT: whole})
    floats = _float_sums(windows, value, with_floats)
    whole_mask = with_floats | whole.is_null().to_numpy(zero_copy_only=False)
    whole = pa.array(np.where(whole_mask, 0, whole.fill_null(0).to_numpy()), mask=whole_mask)
    return Variant.of(count, {Kind.BIGINT: whole, Kind.FLOAT: floats})


def mean(windows: pa.Table, value: int) -> Variant:
    """Return the values of AVG: the float nearest to the exact sum, divided by the number of values."""
    counts = _count(windows, value, Kind.BIGINT) + _count(windows, value, Kind.FLOAT)
    sums = _float_sums(windows, value, counts > 0)
    known = sums.is_valid().to_numpy(zero_copy_only=False)
    means = np.zeros(len(counts))
    means[known] = sums.drop_null().to_numpy() / counts[known]
    return Variant.of(len(counts), {Kind.FLOAT: pa.array(means + 0.0, mask=~known)})


def extreme(windows: pa.Table, value: int, *, largest: bool) -> Variant:
    """Return the values of MIN or MAX; each has one kind even where the group's values have several."""
    name = f"{'max' if largest else 'min'}{value}"
    parts = {
        kind: windows[f"{name}_{kind.value}"].combine_chunks() for kind in _EXTREME_KINDS if f"{name}_{kind.value}" in windows.column_names
    }
    if len(parts) < 2:
        return Variant.of(windows.num_rows, parts)
    valid = {kind: part.is_valid().to_numpy(zero_copy_only=False) for kind, part in parts.items()}
    if Kind.BIGINT in parts and Kind.FLOAT in parts:
        for row in np.flatnonzero(valid[Kind.BIGINT] & valid[Kind.FLOAT]).tolist():
            whole, real = parts[Kind.BIGINT][row].as_py(), parts[Kind.FLOAT][row].as_py()
            float_wins = real > whole if largest else real < whole
            valid[Kind.BIGINT if float_wins else Kind.FLOAT][row] = False
    taken = np.zeros(windows.num_rows, dtype=np.bool_)
    for kind in reversed(parts) if largest else parts:
        valid[kind] = valid[kind] & ~taken
        taken |= valid[kind]
    kept = {kind: part.filter(pa.array(valid[kind])).take(_places(valid[kind])) for kind, part in parts.items()}
    return Variant.of(windows.num_rows, kept)


def _places(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Array:
    """Return, for each row, which of the rows where *mask* holds it is, null for the others."""
    return pa.array(np.cumsum(mask) - 1, mask=~mask)


def _count(windows: pa.Table, value: int, kind: Kind) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    name = f"n{value}_{kind.value}"
    if name not in windows.column_names:
        return np.zeros(windows.num_rows, dtype=np.int64)
    counts: np.ndarray[tuple[int], np.dtype[np.int64]] = windows[name].to_numpy()
    return counts


def _float_sums(windows: pa.Table, value: int, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Array:
    """Return the exact sum of bigints and floats, rounded to a float, in the given rows; null elsewhere."""
    count, names = windows.num_rows, windows.column_names
    whole = windows[f"s{value}"].combine_chunks() if f"s{value}" in names else pa.nulls(count, pa.int64())
    sums = whole.fill_null(0).to_numpy().astype(np.float64)
    known = rows.copy()
    slow = rows & (_count(windows, value, Kind.FLOAT) > 0)
    if f"s{value}_text" in names:
        slow |= rows & windows[f"s{value}_text"].is_valid().to_numpy()
    texts = windows[f"s{value}_text"] if f"s{value}_text" in names else None
    limbs = windows[f"limbs{value}"] if f"limbs{value}" in names else None
    for row in np.flatnonzero(slow).tolist():
        text = texts[row].as_py() if texts is not None else None
        exact = int(text) if text is not None else whole[row].as_py() or 0
        found = (limbs[row].as_py() or [], windows[f"amounts{value}"][row].as_py() or []) if limbs is not None else ([], [])
        rounded = total(*found, exact)
        known[row] = rounded is not None
        sums[row] = rounded or 0.0
    return pa.array(sums, mask=~known)
