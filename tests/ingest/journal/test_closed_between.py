"""What stages close in the journal between two batches is noted before it has an effect, and the planner knows it where it must."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from ingest.journal.closed_between import ClosedBetween, read_closed_between
from ingest.offsets import PlannedPosition
from ordering.errors import TidegateError
from tidegate.platform.checkpoint import between_batches

A, B = ("raw", 0), ("raw", 1)


def test_what_was_noted_after_the_last_batch_is_read_with_its_facts(tmp_path: Path) -> None:
    """Each task has a file, which it begins anew after each batch."""
    assert read_closed_between(tmp_path) == []
    ends = [PlannedPosition(7, marks=((5, 1_000),), spans=((3, 900),)), PlannedPosition(9, spans=((3, 900),))]
    noted = ClosedBetween(tmp_path, 0)
    noted.add({A: PlannedPosition(3)})
    noted = ClosedBetween(tmp_path, 0)
    for end in ends:
        noted.add({A: end})
    ClosedBetween(tmp_path, 1).add({B: ends[0]})
    assert sorted(read_closed_between(tmp_path), key=lambda closed: (closed[0], closed[1].next_offset)) == [
        (A, ends[0]),
        (A, ends[1]),
        (B, ends[0]),
    ]


def test_a_line_that_is_torn_had_no_effect(tmp_path: Path) -> None:
    """The process died while it wrote, before it judged."""
    ClosedBetween(tmp_path, 0).add({A: PlannedPosition(3)})
    with (tmp_path / "closed_between_0.jsonl").open("a") as file:
        file.write('["raw", 0, {"next_o')
    assert read_closed_between(tmp_path) == [(A, PlannedPosition(3))]


def test_while_something_goes_on_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stands still holds the lock: whoever must know waits, and is told."""
    for name in ("_LAST_S", "_ROUND_S"):
        monkeypatch.setattr(between_batches, name, 0.01)
    lock = between_batches._lock(tmp_path, fcntl.LOCK_SH)
    assert lock is not None
    with pytest.raises(TidegateError, match="still goes on") as raised:
        read_closed_between(tmp_path)
    assert raised.value.code == "TG-JOURNAL-BUSY"
    os.close(lock)
    assert read_closed_between(tmp_path) == []
