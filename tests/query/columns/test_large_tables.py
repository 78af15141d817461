"""The law of bulk: whatever is taken apart, the rows are the same and in their order; only how many come at once is bounded."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.budgets import budget_of

from query.columns import large_tables
from query.columns.large_tables import combine_column, split_by_bytes, take_rows, take_rows_in_parts, text_bytes
from query.engine.pending_events import find_pending_step_end, sort_by_time

ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.binary(max_size=12), st.none() | st.binary(max_size=30)), max_size=40)
CHUNKS = st.integers(1, 7)


def table_of(rows: list[tuple[int, int, bytes, bytes | None]], chunk: int) -> pa.Table:
    """Return events as a bucket keeps them, in chunks of so many rows; their offsets are the places in *rows*."""
    system_us, number, key, value = ([row[at] for row in rows] for at in range(4))
    types = (
        dict.fromkeys(("system_us", "partition_id", "offset"), pa.int64())
        | {"text": pa.string()}
        | dict.fromkeys(("key", "value"), pa.binary())
    )
    texts = [each.decode("latin-1") for each in key]
    every = pa.table([system_us, number, list(range(len(rows))), texts, key, value], schema=pa.schema(types))
    return pa.concat_tables([every.slice(at, chunk) for at in range(0, max(len(rows), 1), chunk)])


@given(ROWS, CHUNKS, st.integers(0, 2_000))
def test_parts_are_the_whole(rows: list[tuple[int, int, bytes, bytes | None]], chunk: int, bytes_max: int) -> None:
    """Parts are small, or one row; one after the other they are the table."""
    table = table_of(rows, chunk)
    parts = list(split_by_bytes(table, bytes_max))
    assert pa.concat_tables(parts).equals(table)
    assert all(part.nbytes <= bytes_max or part.num_rows == 1 for part in parts)


@given(ROWS, CHUNKS, st.randoms(use_true_random=False), st.sampled_from([0, 40, 10**9]), st.integers(1, 100))
def test_rows_are_taken_whatever_their_columns_need(
    rows: list[tuple[int, int, bytes, bytes | None]], chunk: int, dice: object, array_bytes: int, bytes_max: int
) -> None:
    """As if an array could have any number of bytes; types stay, and no part is larger than it may be by more than a row."""
    table = table_of(rows, chunk)
    chosen = np.array(dice.sample(range(len(rows)), len(rows)), dtype=np.int64)  # type: ignore[attr-defined]
    with patch.object(large_tables, "BYTES_MAX", array_bytes), budget_of(bytes=bytes_max):
        found = take_rows(table, chosen)
        assert found.equals(table.take(pa.array(chosen)))
        assert combine_column(found["value"]).to_pylist() == found["value"].to_pylist()
        parts = list(take_rows_in_parts(table, chosen, bytes_max))
    assert pa.concat_tables(parts).equals(found)
    largest = int(text_bytes(table).max(initial=0))
    assert all(int(text_bytes(part).sum()) < bytes_max + largest for part in parts if part.num_rows)


@given(ROWS, CHUNKS, st.integers(1, 500))
def test_steps_lead_to_the_end(rows: list[tuple[int, int, bytes, bytes | None]], chunk: int, bytes_max: int) -> None:
    """Each step is later than the one before, the last one is the end, and none but those of one instant has too many bytes."""
    table, until_us = table_of(rows, chunk), 15
    steps = [-1]
    with budget_of(bytes=bytes_max):
        while steps[-1] < until_us:
            left = table.filter(pa.array(table["system_us"].to_numpy() >= steps[-1]))
            steps.append(find_pending_step_end([left.slice(0, 3), left.slice(3)], until_us))
    for first, last in pairwise(steps):
        between = [(us, len(key) + len(value or b"")) for us, _, key, value in rows if first <= us < last]
        assert first < last <= until_us
        assert len({us for us, _ in between}) <= 1 or sum(size for _, size in between) <= bytes_max


@given(ROWS, CHUNKS, st.integers(1, 500))
def test_what_waits_is_worked_on_in_the_order_of_time(rows: list[tuple[int, int, bytes, bytes | None]], chunk: int, bytes_max: int) -> None:
    """(s, input partition, offset), in parts."""
    table = table_of(rows, chunk).drop_columns(["text"])
    with budget_of(evaluated_bytes=bytes_max, bytes=3 * bytes_max):
        found = [row for part in sort_by_time(table) for row in part.to_pylist()]
    assert found == sorted(table.to_pylist(), key=lambda row: (row["system_us"], row["partition_id"], row["offset"]))


@pytest.mark.deep
@pytest.mark.heavy
def test_more_bytes_than_an_array_can_have() -> None:
    """More than two gigabytes in one table, for real."""
    piece = pa.array([b"x" * 2**20] * 2**6, pa.binary())
    table = pa.table({"key": pa.chunked_array([piece] * 33), "at": np.arange(33 * 2**6)})
    rows = np.arange(table.num_rows)[::-301]
    found = take_rows(table, rows)
    assert found["at"].to_pylist() == rows.tolist()
    assert set(found["key"].to_pylist()) == {b"x" * 2**20}
