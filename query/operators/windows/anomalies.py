"""
Anomaly detection: the score of a row against the rows before it in its window.

AnomalyDetection_SpikeAndDip estimates the density of the history by Gaussian kernels (bandwidth: the deviation of the history) and gives
the probability of a value as far out as the row's. AnomalyDetection_ChangePoint tests whether the rows are exchangeable: it bets against
the p-values of the rows of the window, one after the other, half by a power bet and half by a mixture of all power bets (Fedorova,
Gammerman, Nouretdinov, Vovk: Plug-in martingales for testing exchangeability on-line, 2012), and gives the largest capital that a bettor
has who began at any of its rows.

Law: a score depends only on the values of its window and their order. Each is computed anew from its window. A p-value is the same on every
machine: probabilities are added as whole numbers of 2**-40, and the error function is computed by sums and products of floats, which IEEE
754 defines, from a table that is computed exactly. A capital takes logarithms of the C library, so it is rounded to nine digits.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from query.operators.rows.ranks import Floats, nearest_floats
from query.operators.windows.variance import variances
from tidegate.basics.budget import cut
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Aggregate
from tidegate.language.expressions.variant import Variant

# Most terms of a sum computed at once: what the cache of a core holds.
_TERMS_MAX = 40_000
_FRACTION_BITS = 40
_BANDWIDTH_MIN = 1e-6
P_MIN, P_MAX = 1e-8, 1 - 1e-8
# The exponent of the power bet.
EPSILON = 0.1
# The table of the error function: places per unit, and from where on it is 1.
_PLACES, _ONE_FROM = 64, 6


def compute_anomalies(aggregate: Aggregate, values: Variant, first: Ints, last: Ints) -> Variant:
    """
    Return the record ``{IsAnomaly, Score}`` of the last row of each window; NULL if there is none, or if its value is NULL.

    Rows whose value is NULL are no part of a history. See :func:`query.operators.windows.holistic.compute_holistic` for the arguments.
    """
    known = values.valid_mask()
    numbers = np.concatenate([[0], np.cumsum(known)])
    some = np.flatnonzero(last >= first)
    some = some[known[last[some]]]
    of_known = values.filter_rows(known)
    row = numbers[last[some]]
    assert aggregate.parameter is not None
    begin = np.maximum(numbers[first[some]], row - int(aggregate.options[0]))
    level = float(1 - aggregate.parameter / 100)
    if aggregate.function == "anomalydetection_spikeanddip":
        scores = _p_values(of_known, begin, row, aggregate.options[1])
        is_anomaly = scores <= level
    else:
        scores = _capitals(of_known, begin, row)
        is_anomaly = scores * level >= 1
    # From few rows nothing can be learnt.
    is_anomaly &= (row - begin) * 2 >= int(aggregate.options[0])
    records: list[str | None] = [None] * len(first)
    for place, is_one, score in zip(some.tolist(), is_anomaly.tolist(), scores.tolist(), strict=True):
        records[place] = f'{{"IsAnomaly":{int(is_one)},"Score":{score!r}}}'
    return Variant.of(len(first), {Kind.RECORD: pa.array(records, pa.string())})


def _p_values(values: Variant, begin: Ints, row: Ints, mode: str) -> Floats:
    """Return the p-value of each *row* among the rows from *begin* on; 0.5 if there are none."""
    floats = nearest_floats(values)
    width = _bandwidths(values, begin, row)
    p = np.full(len(row), 0.5)
    count = row - begin
    for windows in cut(count, _TERMS_MAX):
        history = np.flatnonzero(count[windows]) + windows.start
        repeated = np.repeat(history, count[history])
        starts = np.cumsum(count[history]) - count[history]
        earlier = np.arange(len(repeated)) - np.repeat(starts - begin[history], count[history])
        if len(repeated):
            terms = _tails(floats[row[repeated]], floats[earlier], width[repeated])
            p[history] = np.add.reduceat(terms, starts) / (count[history] * 2.0 ** (_FRACTION_BITS + 1))
    p = {"spikes": p, "dips": 1 - p}.get(mode, np.minimum(p, 1 - p))
    clipped: Floats = np.clip(p, P_MIN, P_MAX)
    return clipped


def _capitals(values: Variant, begin: Ints, row: Ints) -> Floats:
    """Return for each window the largest product of the bets on its rows from one of them to the last."""
    floats = nearest_floats(values)
    capitals = np.ones(len(row))
    for place, (start, end) in enumerate(zip(begin.tolist(), row.tolist(), strict=True)):
        window = floats[start : end + 1]
        if len(window) > 1:
            capitals[place] = _capital(window)
    return capitals


def _capital(window: Floats) -> float:
    count = np.arange(1, len(window))
    with np.errstate(over="ignore", invalid="ignore"):
        # The first row is 0, so at most as many digits are lost as the rows have; rows beyond 1e150 have no finite deviation.
        distance = window[:-1] - window[0]
        spread = np.sqrt(np.maximum(count * np.cumsum(distance * distance) - np.cumsum(distance) ** 2, 0)) / count
    spread[0] = 1.0
    width = np.maximum(math.sqrt(2) * np.nan_to_num(spread, nan=np.inf, posinf=np.inf), _BANDWIDTH_MIN)
    upper = np.empty(len(count))
    for rows in cut(count, _TERMS_MAX):
        # Each of these rows beside all rows before it.
        before = count[rows]
        later = np.repeat(before, before)
        starts = np.cumsum(before) - before
        terms = _tails(window[later], window[np.arange(len(later)) - np.repeat(starts, before)], width[later - 1])
        upper[rows] = np.add.reduceat(terms, starts) / (before * 2.0 ** (_FRACTION_BITS + 1))
    # Among n + 1 exchangeable rows no p-value is below 1 / (n + 1): one row alone never is a change.
    p = np.clip(2 * np.minimum(upper, 1 - upper), 1 / (count + 1), P_MAX)
    largest = capital = 0.0
    for bet in map(_log_bet, p.tolist()[::-1]):
        capital += bet
        largest = max(largest, capital)
    # Logarithms of two machines may differ in their last digit.
    return float(f"{math.exp(min(largest, 700.0)):.9g}")


def _log_bet(p: float) -> float:
    """Return the logarithm of the factor by which a bettor's capital grows with a p-value."""
    log = math.log(p)
    # Near 1 the mixture is a difference of almost equal numbers; its limit is 1/2.
    mixture = (p * log + 1 - p) / (p * log * log) if p < 1 - 1e-5 else 0.5
    return math.log((EPSILON * math.exp((EPSILON - 1) * log) + mixture) / 2)


def _bandwidths(values: Variant, begin: Ints, end: Ints) -> Floats:
    """Return the kernels' width, times the root of 2, for the rows from *begin* until before *end*."""
    deviation = variances(values, begin, end - 1, sample=False, is_root=True)
    # A deviation beyond all floats is null.
    width = np.where(end - begin == 1, 1.0, deviation.fill_null(np.inf).to_numpy(zero_copy_only=False))
    widths: Floats = np.maximum(math.sqrt(2) * width, _BANDWIDTH_MIN)
    return widths


def _tails(value: Floats, earlier: Floats, width: Floats) -> Ints:
    """Return twice the probability that each kernel gives to what is above the value, in units of 2**-40."""
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.nan_to_num((value - earlier) / width, nan=0.0)
    terms: Ints = np.rint((1 - error_function(distance)) * 2.0**_FRACTION_BITS).astype(np.int64)
    return terms


def error_function(x: Floats) -> Floats:
    """Return erf(x), off by less than 1e-13, by the Taylor polynomial around the nearest place of the table."""
    size = np.minimum(np.abs(x), float(_ONE_FROM))
    values, slopes = _table()
    place = np.rint(size * _PLACES).astype(np.int64)
    at = place / float(_PLACES)
    h = size - at
    square = at * at
    # Derivatives of exp(-x * x), divided by the factorial, are Hermite polynomials times it.
    series = (2.0 / 15) * square * square - 0.4 * square + 0.1
    series = series * h + at * (0.5 - square / 3)
    series = series * h + (2 * square - 1) / 3
    series = (series * h - at) * h + 1
    return np.copysign(np.where(size >= _ONE_FROM, 1.0, values[place] + slopes[place] * h * series), x)


@cache
def _table() -> tuple[Floats, Floats]:
    """Return erf and its derivative at the places of the table, each the float nearest to the true value."""
    values, slopes = [], []
    with localcontext() as context:
        context.prec = 60
        factor = 2 / Decimal("3.14159265358979323846264338327950288419716939937510582097494").sqrt()
        for place in range(_ONE_FROM * _PLACES + 1):
            x = Decimal(place) / _PLACES
            term, total, n = x, x, 0
            while abs(term) > Decimal("1e-40"):
                n += 1
                term *= -x * x / n
                total += term / (2 * n + 1)
            values.append(float(factor * total))
            slopes.append(float(factor * (-x * x).exp()))
    return np.array(values), np.array(slopes)
