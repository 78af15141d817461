"""The table of keys against a dictionary, keys of any length together, and what long keys cost."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordering.columns import key_table
from ordering.columns.key_table import Keys, KeyTable

KEYS = st.lists(st.one_of(st.binary(max_size=20), st.binary(min_size=60, max_size=70)), unique=True, max_size=30)


@pytest.fixture(params=[1, 3, 1 << 17])
def block_words(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many words of keys are copied at a time."""
    monkeypatch.setattr(key_table, "_BLOCK_WORDS", request.param)
    return int(request.param)


@pytest.mark.usefixtures("block_words")
@given(st.lists(KEYS, max_size=4), st.randoms())
def test_each_key_has_one_row_and_comes_back_as_it_was(batches: list[list[bytes]], random: st.DrawFn) -> None:
    """As in a dictionary of rows, whatever lengths lie beside each other and however many words are copied at a time."""
    table, rows_by_key = KeyTable(), dict[bytes, int]()
    for keys in batches:
        rows, added = table.find_or_add(Keys.of(pa.array(keys, pa.binary())))
        assert [keys[row] for row in added.tolist()] == [key for key in keys if key not in rows_by_key]
        for key in keys:
            rows_by_key.setdefault(key, len(rows_by_key))
        assert rows.tolist() == [rows_by_key[key] for key in keys]
    everything = list(rows_by_key)
    assert table.keys(np.arange(len(table))).to_arrow().to_pylist() == everything
    kept = np.array([row for row in range(len(everything)) if random.random() < 0.5], dtype=np.int64)  # type: ignore[attr-defined]
    table.keep(kept)
    assert table.keys(np.arange(len(table))).to_arrow().to_pylist() == [everything[row] for row in kept.tolist()]


def test_long_keys_cost_a_few_times_their_bytes() -> None:
    """Keys of 64 kB: reading, adding and writing them takes no more than four times their bytes at any moment."""
    column = pa.array([bytes([at]) * 65_536 for at in range(250)], pa.binary())
    tracemalloc.start()
    try:
        table = KeyTable()
        table.find_or_add(Keys.of(column))
        table.keys(np.arange(len(table))).to_arrow()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * column.nbytes + 20_000_000
