"""The operator of the plugin by itself: rows in, rows out, and what it keeps."""

from __future__ import annotations

import pyarrow as pa
import pytest
from debounce import Debouncing, make

from tidegate.query.extending import ColumnArgument, Length, RowColumn


def rows(*given: tuple[int, str]) -> pa.Table:
    """Rows of one substream: time and key."""
    times, keys = zip(*given, strict=True)
    count = len(given)
    columns = {"sub": [0] * count, "system_us": list(times), "key": [b""] * count, "s0_s": list(keys), "position": range(count)}
    return pa.table(columns)


def slice_of(from_us: int, to_us: int) -> pa.Table:
    """A finished slice of time."""
    return pa.table({"sub": [0], "from_us": [from_us], "to_us": [to_us]})


def test_a_row_that_follows_too_soon_is_held_back() -> None:
    """Exactly as old still counts; another key does not; one that is held back holds back."""
    debouncing = Debouncing(0, 10)
    kept, bad = debouncing.prepare(rows((1, "a"), (5, "b"), (11, "a"), (21, "a"), (32, "a"), (32, "a")))
    assert bad.num_rows == 0
    assert debouncing.rows([kept], slice_of(0, 100))["system_us"].to_pylist() == [1, 5, 32]


def test_what_expires_changes_no_result() -> None:
    """A later slice is the same from the rows that were kept."""
    debouncing = Debouncing(0, 10)
    every, _ = debouncing.prepare(rows((1, "a"), (5, "b"), (11, "a"), (21, "a")))
    kept = debouncing.expire(every, pa.table({"sub": [0], "to_us": [20]}))
    assert kept["system_us"].to_pylist() == [11, 21]
    assert debouncing.rows([kept], slice_of(20, 100)).equals(debouncing.rows([every], slice_of(20, 100)))


def test_a_wrong_call_is_refused() -> None:
    """The message goes to whoever wrote the script."""
    with pytest.raises(ValueError, match="debounce takes a column and a length of time"):
        make([RowColumn("k")], [Length(5)])
    assert make([RowColumn("k")], [ColumnArgument(0), Length(5)]) == ([RowColumn("k")], Debouncing(0, 5))
