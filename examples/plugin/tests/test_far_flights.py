"""What the plugin offers, tested as its users would: its query on a file, its sink by what a reader sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from far_flights import Lines, far_flights, kilometres, spread

from tidegate.sinks.base import SheetRows


def test_miles_become_kilometres() -> None:
    """Whole columns at once; NULL stays NULL."""
    assert kilometres.compute(pa.array([1000, None])).to_pylist() == [1609.344, None]


def test_each_run_of_rows_has_its_spread() -> None:
    """Runs may overlap; NULL is left out."""
    found = spread.compute(pa.array([100, None, 700, 50]), np.array([0, 1, 1]), np.array([3, 2, 1]))
    assert found.to_pylist() == [650, 0, None]


def test_the_query_is_a_script_that_can_be_read() -> None:
    """What people see with ``tidegate plan far_flights``."""
    assert far_flights().sql.splitlines()[2:] == [
        "FROM [flights] TIMESTAMP BY scheduled OVER origin",
        "WHERE (([distance] >= 1000))",
        "GROUP BY origin, TumblingWindow(Duration(hour, 1))",
    ]


def test_a_span_that_is_published_again_replaces_itself(tmp_path: Path) -> None:
    """The contract of every sink."""
    sink = Lines(tmp_path)
    for _ in range(2):
        sink.publish(0, 3, SheetRows.of([(2, b"b", b"second"), (1, b"a", b"first")]))
    assert [file.read_text() for file in tmp_path.iterdir()] == ["first\nsecond\n"]
