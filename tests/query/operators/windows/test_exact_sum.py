"""Exact sums equal math.fsum, however the numbers are grouped."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from query.operators.windows.exact_sum import root_exactly, round_means, round_sums, split_floats

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LISTS = st.lists(FLOATS | st.sampled_from([1e308, -1e308, 5e-324, -5e-324, 0.1, 1e16, 1.0]), min_size=1, max_size=30)


def limbs(values: list[float]) -> dict[int, int]:
    """Sums of pieces by limb."""
    found: dict[int, int] = {}
    for limb, piece in split_floats(np.array(values, dtype=np.float64)):
        for at, amount in zip(limb.tolist(), piece.tolist(), strict=True):
            found[at] = found.get(at, 0) + amount
    return {limb: amount for limb, amount in found.items() if amount}


def halves(whole: int) -> tuple[np.ndarray, np.ndarray]:
    """An integer as upper and lower half."""
    return np.array([whole >> 32]), np.array([whole & 0xFFFFFFFF])


@given(LISTS)
def test_a_sum_is_the_float_nearest_to_the_true_sum(values: list[float]) -> None:
    """math.fsum is the judge; beyond the largest float there is none."""
    sums, finite = round_sums({limb: np.array([amount]) for limb, amount in limbs(values).items()}, *halves(0))
    try:
        expected = math.fsum(values)
    except OverflowError:
        # fsum gives up when a partial sum overflows; the exact one decides.
        return
    assert (sums[0], finite[0]) == (expected, True)


@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5), st.lists(FLOATS.filter(lambda value: abs(value) < 1e300), max_size=5)
)
def test_integers_join_the_sum_exactly(whole: list[int], real: list[float]) -> None:
    """Bigints and floats of one group are rounded together, once."""
    found = {limb: np.array([amount]) for limb, amount in limbs(real).items()} if real else {}
    sums, _ = round_sums(found, *halves(sum(whole)))
    parts = [float(value >> 40 << 40) for value in whole] + [float(value & (1 << 40) - 1) for value in whole]
    assert sums[0] == math.fsum(parts + real)


def test_a_sum_beyond_the_largest_float_is_none() -> None:
    """It is not infinite, it is absent."""
    _, finite = round_sums({limb: np.array([amount]) for limb, amount in limbs([1e308, 1e308]).items()}, *halves(0))
    assert finite.tolist() == [False]


TOTALS = st.lists(st.tuples(st.dictionaries(st.integers(8, 140), st.integers(-(2**60), 2**60), max_size=6), st.integers(-(2**90), 2**90)))


@given(TOTALS)
def test_totals_of_any_limbs_are_rounded_once(totals: list[tuple[dict[int, int], int]]) -> None:
    """Fractions are the judge; where floats are not normal only what floats can add up to is asked for, so limbs begin at 8."""
    high = np.array([whole >> 32 for _, whole in totals], dtype=np.int64)
    low = np.array([whole & 0xFFFFFFFF for _, whole in totals], dtype=np.int64)
    used = {limb: np.array([found.get(limb, 0) for found, _ in totals]) for limb in {limb for found, _ in totals for limb in found}}
    sums, finite = round_sums(used, high, low)
    for (found, whole), total, is_finite in zip(totals, sums.tolist(), finite.tolist(), strict=True):
        exact = whole + sum((Fraction(amount) * Fraction(2) ** (16 * limb - 1136) for limb, amount in found.items()), Fraction(0))
        try:
            assert (total, is_finite) == (exact.numerator / exact.denominator, True)
        except OverflowError:
            assert not is_finite


@given(TOTALS, st.lists(st.integers(1, 6) | st.integers(1, 2**46), min_size=1))
def test_a_mean_is_the_float_nearest_to_the_true_quotient(totals: list[tuple[dict[int, int], int]], counts: list[int]) -> None:
    """Fractions are the judge: the total is not rounded before it is divided."""
    high = np.array([whole >> 32 for _, whole in totals], dtype=np.int64)
    low = np.array([whole & 0xFFFFFFFF for _, whole in totals], dtype=np.int64)
    used = {limb: np.array([found.get(limb, 0) for found, _ in totals]) for limb in {limb for found, _ in totals for limb in found}}
    each = np.array([counts[at % len(counts)] for at in range(len(totals))], dtype=np.int64)
    exact = [
        (whole + sum((Fraction(amount) * Fraction(2) ** (16 * limb - 1136) for limb, amount in found.items()), Fraction(0))) / count
        for (found, whole), count in zip(totals, each.tolist(), strict=True)
    ]
    try:
        expected = [quotient.numerator / quotient.denominator for quotient in exact]
    except OverflowError:
        # No mean of floats is beyond all floats; these limbs are no floats.
        return
    assert round_means(used, high, low, each).tolist() == expected


@given(st.lists(FLOATS | st.sampled_from([5e-324, 2.2250738585072014e-308, 18014398509481984.0, 1.0, 1.7e308]), min_size=1, max_size=9))
def test_a_mean_of_floats_is_rounded_once(values: list[float]) -> None:
    """Also where their sum is beyond all floats, and where the mean has fewer than 53 bits."""
    found = {limb: np.array([amount]) for limb, amount in limbs(values).items()}
    mean = round_means(found, *halves(0), np.array([len(values)]))
    assert mean.tolist() == [float(sum(map(Fraction, values), Fraction(0)) / len(values))]


@given(st.integers(0, 2**200) | st.integers(0, 9), st.integers(1, 2**120) | st.integers(1, 9), st.integers(-1200, 1200))
def test_a_root_is_the_float_nearest_to_the_true_root(value: int, divisor: int, places: int) -> None:
    """It lies between the points half way to the next floats."""
    value, divisor = value << max(places, 0), divisor << max(-places, 0)
    root = root_exactly(value, divisor)
    assert root is not None
    half_ways = [(Fraction(root) + Fraction(next_float)) / 2 for next_float in (math.nextafter(root, 0), math.nextafter(root, math.inf))]
    assert half_ways[0] ** 2 <= Fraction(value, divisor) <= half_ways[1] ** 2
