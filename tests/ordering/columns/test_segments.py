"""Lookups and sorts over many timelines at once: what numpy gives one array at a time."""

from __future__ import annotations

import numpy as np
import pytest

from ordering.columns.segments import group_order, places_above, sort_places
from ordering.ticks import INFINITY, NEVER


@pytest.mark.parametrize("seed", range(40))
def test_places_are_those_of_a_binary_search(seed: int) -> None:
    """Crowded or spread, within one tick or over millennia: the place of each value is numpy's."""
    draw = np.random.default_rng(seed)
    span = int(10 ** draw.integers(0, 18))
    rising = np.sort(draw.integers(-span, span, draw.integers(2, 6_000)))
    if seed % 3 == 0:
        rising = np.sort(draw.choice(rising[: max(len(rising) // 50, 1)], len(rising)))
    values = draw.integers(-2 * span, 2 * span, draw.integers(1, 9_000))
    values[: min(len(values), len(rising)) // 2] = rising[: min(len(values), len(rising)) // 2]
    assert places_above(rising, values).tolist() == np.searchsorted(rising, values, side="right").tolist()


def test_places_are_found_from_never_to_infinity() -> None:
    """A floor that begins before all time and ends after it, as where late is off and the input ends."""
    rising = np.array([NEVER] * 3_000 + list(range(10**15, 10**15 + 3_000)) + [INFINITY])
    values = np.arange(10**15 - 500, 10**15 + 4_500)
    assert places_above(rising, values).tolist() == np.searchsorted(rising, values, side="right").tolist()


@pytest.mark.parametrize("span", [1, 50, 10**12, 2**62])
def test_sorting_by_two_columns_keeps_places_in_order(span: int) -> None:
    """Packed into one number or not: (primary, secondary, place)."""
    draw = np.random.default_rng(span % 97)
    primary, secondary = draw.integers(0, 20, 3_000), draw.integers(0, span, 3_000)
    place = draw.permutation(5_000)[:3_000]
    order = np.lexsort((place, secondary, primary))
    assert sort_places(primary, secondary, place, 5_000).tolist() == place[order].tolist()
    assert group_order(primary).tolist() == np.argsort(primary, kind="stable").tolist()
