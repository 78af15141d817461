"""Payload columns: what goes in comes out, whichever kind of column holds it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ordering.columns import payload_columns

FIRST, SECOND = [b"a", None, b"c"], [b"", b"e"]
ROWS = np.array([4, 1, 0, 3])
CHOSEN = [b"e", None, b"a", b""]


@pytest.mark.parametrize("first", [pa.binary(), pa.large_binary(), None])
@pytest.mark.parametrize("second", [pa.binary(), pa.large_binary(), None])
def test_entries_are_taken_from_two_columns_of_any_kind(first: pa.DataType | None, second: pa.DataType | None) -> None:
    """The result is of the second one's kind."""
    sides = [
        payload_columns.to_objects(values) if kind is None else pa.array(values, kind)
        for kind, values in ((first, FIRST), (second, SECOND))
    ]
    taken = payload_columns.take_rows_of_two(*sides, ROWS)
    assert taken.tolist() == CHOSEN
    assert isinstance(taken, np.ndarray) if second is None else taken.type == second


def test_more_bytes_than_small_offsets_reach_make_a_large_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was held may leave at once, gigabytes of it, beside a small batch."""
    monkeypatch.setattr(payload_columns, "BYTES_MAX", 3)
    taken = payload_columns.take_rows_of_two(pa.array(FIRST, pa.large_binary()), pa.array(SECOND, pa.binary()), ROWS)
    assert taken.type == pa.large_binary()
    assert taken.tolist() == CHOSEN


@pytest.mark.parametrize("second", [pa.binary(), pa.large_binary(), None])
@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [0, 1, 2, 3, 4], [1, 2, 3, 4], [0, 1, 3, 2], [0, 0, 1, 2], [0, 1], []])
def test_the_first_entries_are_taken_like_any_others(second: pa.DataType | None, rows: list[int]) -> None:
    """All but a few at the end, as when events come in order; what is taken has no other entries around it."""
    values = payload_columns.to_objects(SECOND) if second is None else pa.array(SECOND, second)
    taken = payload_columns.take_rows_of_two(payload_columns.to_objects(FIRST), values, np.array(rows, dtype=np.int64))
    assert taken.tolist() == [[*FIRST, *SECOND][row] for row in rows]
