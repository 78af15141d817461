"""The law of cutting: parts follow one another and are the whole, each fits or is one thing, and work that fits is not cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.basics.budget import BUDGET, Budget, TooMuchAtOnce, compute_in_halves, cut, halve_rows, halve_until_it_fits

SIZES = st.lists(st.integers(0, 20), max_size=30)


@given(SIZES, st.integers(0, 40))
def test_parts_of_known_size_fit_and_are_as_few_as_can_be(sizes: list[int], most: int) -> None:
    """Each takes what fits: with the first thing of the next one it would be too much."""
    parts = [sizes[part] for part in cut(np.array(sizes, dtype=np.int64), most)]
    assert [size for part in parts for size in part] == sizes
    assert all(parts)
    assert all(sum(part) <= most or len(part) == 1 for part in parts)
    assert all(sum(part) + following[0] > most for part, following in pairwise(parts))


@given(SIZES, st.integers(0, 40))
def test_work_is_halved_until_it_fits(sizes: list[int], most: int) -> None:
    """One thing is never too much."""

    def halve(work: list[int]) -> Sequence[list[int]]:
        return [work[: len(work) // 2], work[len(work) // 2 :]]

    parts = list(halve_until_it_fits(sizes, lambda work: sum(work) > most and len(work) > 1, halve))
    assert [size for part in parts for size in part] == sizes
    assert all(sum(part) <= most or len(part) == 1 for part in parts)
    assert len(parts) == 1 or sum(sizes) > most


@given(st.integers(0, 30), st.integers(1, 8), st.sampled_from([TooMuchAtOnce, duckdb.OutOfMemoryException]))
def test_what_is_too_much_is_computed_in_halves(rows: int, most: int, error: type[Exception]) -> None:
    """Whoever says that it is too much: an expression, or DuckDB."""

    def compute(numbers: np.ndarray) -> list[int]:
        if len(numbers) > most:
            raise error
        return list(numbers.tolist())

    found = list(compute_in_halves(np.arange(rows), compute, halve_rows))
    assert [number for part in found for number in part] == list(range(rows))


def test_one_row_that_is_too_much_fails() -> None:
    """Nothing is left to cut; and another error is not taken for too much."""

    def refuse(_: np.ndarray) -> None:
        raise TooMuchAtOnce

    with pytest.raises(TooMuchAtOnce):
        list(compute_in_halves(np.arange(3), refuse, halve_rows))
    with pytest.raises(ZeroDivisionError):
        list(compute_in_halves(np.arange(3), lambda rows: 1 // 0, halve_rows))


def test_the_numbers_are_those_of_the_settings() -> None:
    """An ordinary batch is one step: the defaults of three settings, or nearly."""
    from tidegate.platform.settings.tables.query import QuerySettings

    settings = QuerySettings()
    assert (BUDGET.bytes, BUDGET.pairs) == (settings.max_bytes_per_batch, settings.join_pairs_max)
    assert 0.75 * settings.max_events_per_batch < BUDGET.rows <= settings.max_events_per_batch


@given(st.integers(0, 2_000), st.integers(0, 20_000))
def test_portions_fit(rows: int, size: int) -> None:
    """If rows and bytes are spread evenly over them."""
    budget = Budget(bytes=1_000, rows=100)
    portions = budget.portions(rows, size)
    assert rows <= portions * budget.gathered_rows
    assert size <= portions * budget.gathered_bytes
    assert portions == 1 or rows > (portions - 1) * budget.gathered_rows or size > (portions - 1) * budget.gathered_bytes
