"""
Holistic aggregates: those that need the rows of a window, since states of its parts do not add up to their value.

These are COUNT(DISTINCT x), COLLECT, CollectTop, TopOne, percentiles, anomaly detection and the aggregates of other packages, and also
STDEV and VAR, although exact sums make them (:mod:`query.operators.windows.variance`).

Rows are sorted by (substream, group, system_us, position), so the rows of a window are a run of row numbers; runs may overlap.

Law: a value depends only on the rows of its run and their order.

Runs are expanded row by row, a bounded number of rows at a time, so time and memory grow with the rows if windows do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from query.columns.encode import json_values
from query.columns.large_tables import repeat_rows, value_bytes, variant_bytes
from query.operators.rows.ranks import nearest_floats, order_places, previous_equals
from query.operators.windows.anomalies import compute_anomalies
from query.operators.windows.variance import variances
from tidegate.basics.budget import BUDGET, TooMuchAtOnce, cut
from tidegate.basics.dead_letter_reasons import QueryReason, with_place
from tidegate.language.expressions.functions import extension_aggregates
from tidegate.language.expressions.functions.catalog import ANOMALIES
from tidegate.language.expressions.functions.column_functions import FailedRows
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate
from tidegate.language.expressions.variant import Variant, finite, gather

# The longest array that COLLECT and CollectTop make, in bytes: as long as an event. A window that needs more fails.
ARRAY_BYTES_MAX = 2**26


def is_holistic(aggregate: Aggregate) -> bool:
    """Return whether an aggregate is computed from rows rather than from states of cells."""
    return aggregate.distinct or aggregate.function not in ("count", "sum", "avg", "min", "max")


def compute_aggregate(aggregate: Aggregate, values: Sequence[Variant], first: Ints, last: Ints) -> tuple[Variant, list[FailedRows]]:
    """Compute a holistic aggregate, Tidegate's own or a package's; return a value per window, and the windows for which it failed."""
    extension = extension_aggregates.REGISTERED.get(aggregate.function)
    if extension is None:
        column = compute_holistic(aggregate, values, first, last)
        if aggregate.function not in ("collect", "collecttop"):
            return column, []
        # Only an array that is too long is NULL: over no rows it is empty.
        too_long = np.flatnonzero(~column.valid_mask()).astype(np.int64)
        reason = with_place(QueryReason.VALUE_TOO_LARGE.text(f"more than {ARRAY_BYTES_MAX} bytes"), aggregate)
        return column, [FailedRows(too_long, reason)] if len(too_long) else []
    # A package's function is not called for windows without rows.
    some = np.flatnonzero(last >= first)
    results, failures = extension.compute(values, first[some], last[some])
    failed = [FailedRows(some[failure.rows], with_place(failure.reason, aggregate)) for failure in failures]
    return gather(len(first), [(some, results)]), failed


def compute_holistic(aggregate: Aggregate, values: Sequence[Variant], first: Ints, last: Ints) -> Variant:
    """
    Compute a holistic aggregate of Tidegate's own; return one value per window.

    *values* are the columns of its parts (its value, then its ORDER BY), of rows sorted by (sub, group, system_us, position); *first* and
    *last* are the numbers of each window's first and last row (inclusive), last = first - 1 for a window without rows.

    Raises:
        TooMuchAtOnce: The values of several windows are too large together.
    """
    if aggregate.function in ("stdev", "stdevp", "var", "varp"):
        return _deviation_or_variance(aggregate.function, values[0], first, last)
    if aggregate.function in ANOMALIES:
        return compute_anomalies(aggregate, values[0], first, last)
    compute = _FUNCTIONS[aggregate.function](aggregate, values)
    pieces, size = [], 0
    for windows in _chunks(first, last):
        pieces.append((np.arange(windows.start, windows.stop), compute(_Runs.of(first[windows], last[windows]))))
        size += sum(part.nbytes for part in pieces[-1][1].parts.values())
        if size > BUDGET.repeated_bytes and len(first) > 1:
            raise TooMuchAtOnce
    return gather(len(first), pieces)


def picked_rows(place: Ints, first: Ints, last: Ints) -> Ints:
    """Return the number of the row that TopOne() picks in each window, by the *place* of all rows in its order; -1 without rows."""
    picked = np.full(len(first), -1, dtype=np.int64)
    for windows in _chunks(first, last):
        top = _Runs.of(first[windows], last[windows]).sort_by(place).top(1)
        picked[windows.start + np.flatnonzero(np.diff(top.starts))] = top.rows
    return picked


@dataclass(frozen=True)
class _Runs:
    """The runs of some windows, expanded."""

    # The number of each window's first row.
    first: Ints
    # The place in *rows* at which each window begins, and the end of the last one.
    starts: Ints
    # The row numbers, window after window.
    rows: Ints

    @classmethod
    def of(cls, first: Ints, last: Ints) -> _Runs:
        starts = _starts(last - first + 1)
        return cls(first, starts, np.repeat(first - starts[:-1], np.diff(starts)) + np.arange(starts[-1]))

    @property
    def owners(self) -> Ints:
        """The number of each row's window."""
        return np.repeat(np.arange(len(self.first)), np.diff(self.starts))

    def filter(self, kept: Mask) -> _Runs:
        """Return the runs without the rows for which *kept*, a mask of all rows there are, is false."""
        chosen = kept[self.rows]
        counts = np.bincount(self.owners[chosen], minlength=len(self.first))
        return _Runs(self.first, _starts(counts), self.rows[chosen])

    def sums(self, amounts: Ints) -> Ints:
        """Return the sum over each window's rows of *amounts*, which has all rows there are."""
        return np.diff(_starts(amounts[self.rows])[self.starts])

    def without_rows_of(self, windows: Mask) -> _Runs:
        """Return the runs without the rows of some windows."""
        return _Runs(self.first, _starts(np.where(windows, 0, np.diff(self.starts))), self.rows[~windows[self.owners]])

    def sort_by(self, place: Ints) -> _Runs:
        """Return the runs with each window's rows in the order of *place*, which has all rows there are; equal rows keep their order."""
        order = np.argsort(self.owners * (int(place.max(initial=0)) + 1) + place[self.rows], kind="stable")
        return _Runs(self.first, self.starts, self.rows[order])

    def top(self, count: int) -> _Runs:
        kept = np.arange(len(self.rows)) - np.repeat(self.starts[:-1], np.diff(self.starts)) < count
        return _Runs(self.first, _starts(np.minimum(np.diff(self.starts), count)), self.rows[kept])


_Compute = Callable[[_Runs], Variant]


def _starts(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)])


def _chunks(first: Ints, last: Ints) -> Iterator[slice]:
    """Yield ranges of windows whose rows are expanded together."""
    return cut(last - first + 1, BUDGET.numbered_rows)


def _deviation_or_variance(function: str, values: Variant, first: Ints, last: Ints) -> Variant:
    is_root = function.startswith("stdev")
    return Variant.of(len(first), {Kind.FLOAT: variances(values, first, last, sample=not function.endswith("p"), is_root=is_root)})


def _distinct(aggregate: Aggregate, values: Sequence[Variant]) -> _Compute:
    """Count the rows without an earlier row of the same value in their window."""
    previous = previous_equals(values[0])

    def compute(runs: _Runs) -> Variant:
        is_first = previous[runs.rows] < np.repeat(runs.first, np.diff(runs.starts))
        counted = _starts(is_first.astype(np.int64))[runs.starts]
        return Variant.of(len(runs.first), {Kind.BIGINT: pa.array(counted[1:] - counted[:-1])})

    return compute


def _collect(aggregate: Aggregate, values: Sequence[Variant]) -> _Compute:
    write = _element_writer(values[0], extra_bytes=len(","))

    def compute(runs: _Runs) -> Variant:
        fitting, texts, is_too_long = write(runs)
        return _arrays(texts, fitting.starts, is_too_long)

    return compute


def _collect_top(aggregate: Aggregate, values: Sequence[Variant]) -> _Compute:
    place = _places(aggregate, values)
    assert aggregate.parameter is not None
    count = int(aggregate.parameter)
    # Beside its value an element has {"rank":N,"value":} and a comma.
    write = _element_writer(values[0], extra_bytes=len('{"rank":,"value":},') + len(str(count)))

    def compute(runs: _Runs) -> Variant:
        top, texts, is_too_long = write(runs.sort_by(place).top(count))
        ranks = np.arange(1, len(top.rows) + 1) - np.repeat(top.starts[:-1], np.diff(top.starts))
        numbers = pa.array(ranks).cast(pa.string())
        elements = pc.binary_join_element_wise(pa.scalar('{"rank":'), numbers, pa.scalar(',"value":'), texts, pa.scalar("}"), pa.scalar(""))
        return _arrays(elements, top.starts, is_too_long)

    return compute


class _Elements(NamedTuple):
    """The runs without the arrays that are too long, the JSON text of each of their rows, and which arrays are too long."""

    runs: _Runs
    texts: pa.Array
    is_too_long: Mask


def _element_writer(values: Variant, *, extra_bytes: int) -> Callable[[_Runs], _Elements]:
    """Return a function that writes the elements of runs. An element has *extra_bytes* beside its value."""
    sizes = variant_bytes(values) + extra_bytes

    def write(runs: _Runs) -> _Elements:
        # Gigabytes may wait in one window. JSON is never shorter than its value, so only arrays that may fit are written.
        may_fit = runs.sums(sizes) < ARRAY_BYTES_MAX
        runs = runs.without_rows_of(~may_fit)
        if len(runs.first) > 1 and sizes[runs.rows].sum() > BUDGET.repeated_bytes:
            raise TooMuchAtOnce
        is_written = np.zeros(values.length, dtype=np.bool_)
        is_written[runs.rows] = True
        texts = json_values(values.filter_rows(is_written))
        written = np.zeros(values.length, dtype=np.int64)
        written[is_written] = value_bytes(texts) + extra_bytes
        is_too_long = ~may_fit | (runs.sums(written) >= ARRAY_BYTES_MAX)
        runs = runs.without_rows_of(is_too_long)
        return _Elements(runs, texts.take(pa.array((np.cumsum(is_written) - 1)[runs.rows])), is_too_long)

    return write


def _top_one(aggregate: Aggregate, values: Sequence[Variant]) -> _Compute:
    place = _places(aggregate, values)

    def compute(runs: _Runs) -> Variant:
        top = runs.sort_by(place).top(1)
        return gather(len(runs.first), [(np.flatnonzero(np.diff(top.starts)), repeat_rows(values[0], top.rows))])

    return compute


def _places(aggregate: Aggregate, values: Sequence[Variant]) -> Ints:
    keys = values[len(values) - len(aggregate.order) :]
    descending = [descending for _, descending in aggregate.order]
    return order_places(list(zip(keys, descending, strict=True)))


def _percentile(pick: Callable[[Variant, _Runs, Decimal], Variant]) -> Callable[[Aggregate, Sequence[Variant]], _Compute]:
    def prepare(aggregate: Aggregate, values: Sequence[Variant]) -> _Compute:
        place, known = _places(aggregate, values), values[0].valid_mask()
        assert aggregate.parameter is not None
        parameter = aggregate.parameter
        return lambda runs: pick(values[0], runs.filter(known).sort_by(place), parameter)

    return prepare


def _percentile_cont(values: Variant, runs: _Runs, part: Decimal) -> Variant:
    """Return the value *part* of the way from the first to the last; between two values it is interpolated."""
    some, counts = _nonempty_windows(runs)
    # Integer arithmetic with the fraction as the script writes it: a tenth of ten steps is exactly one step.
    above, below = part.as_integer_ratio()
    distinct, which = np.unique(counts, return_inverse=True)
    steps = [divmod(above * (int(count) - 1), below) for count in distinct]
    place = runs.starts[:-1][some] + np.array([step for step, _ in steps], dtype=np.int64)[which]
    share = np.array([rest / below for _, rest in steps])[which]
    floats = nearest_floats(values)
    low = floats[runs.rows[place]]
    high = floats[runs.rows[place + (share > 0)]]
    with np.errstate(over="ignore", invalid="ignore"):
        distance = high - low
        # A distance can overflow only between values of opposite signs; then the weighted sum cannot.
        interpolated = np.where(np.isfinite(distance), low + share * distance, low * (1 - share) + high * share)
    return gather(len(runs.first), [(some, Variant.of(len(some), {Kind.FLOAT: finite(pa.array(interpolated))}))])


def _percentile_disc(values: Variant, runs: _Runs, part: Decimal) -> Variant:
    """Return the first value at which *part* of all values have been counted."""
    some, counts = _nonempty_windows(runs)
    above, below = part.as_integer_ratio()
    distinct, which = np.unique(counts, return_inverse=True)
    steps = [max(-(-above * int(count) // below) - 1, 0) for count in distinct]
    place = runs.starts[:-1][some] + np.array(steps, dtype=np.int64)[which]
    return gather(len(runs.first), [(some, repeat_rows(values, runs.rows[place]))])


def _nonempty_windows(runs: _Runs) -> tuple[Ints, Ints]:
    """Return the windows that have rows, and how many each has."""
    counts = np.diff(runs.starts)
    some = np.flatnonzero(counts)
    return some, counts[some]


def _arrays(texts: pa.Array, starts: Ints, is_too_long: Mask) -> Variant:
    lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), texts)
    joined = pc.binary_join_element_wise(pa.scalar("["), pc.binary_join(lists, ","), pa.scalar("]"), pa.scalar(""))
    return Variant.of(len(lists), {Kind.ARRAY: pc.if_else(pa.array(is_too_long), None, joined) if is_too_long.any() else joined})


_FUNCTIONS: dict[str, Callable[[Aggregate, Sequence[Variant]], _Compute]] = {
    "count": _distinct,
    "collect": _collect,
    "collecttop": _collect_top,
    "topone": _top_one,
    "percentile_cont": _percentile(_percentile_cont),
    "percentile_disc": _percentile(_percentile_disc),
}
