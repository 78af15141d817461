"""Held events in files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from ordering.model.state import State
from ordering.model.step import Batch, Model
from ordering.policies import Policies
from tidegate.platform.checkpoint.spilling import spill

HOUR_US = 3_600_000_000
START_US = 1_700_000_000_000_000
MODEL = Model(Policies(late_us=2 * HOUR_US, reorder_us=HOUR_US), over=False, output_partitions=1, number=0)


def batch(first: int, count: int, payload: bytes) -> Batch:
    """Return events a millisecond apart, each with a payload of its own."""
    time_us = START_US + np.arange(first, first + count) * 1000
    value = pa.array([payload + b"%d" % number for number in range(first, first + count)], pa.binary())
    return Batch(
        offset=np.arange(first, first + count),
        arrival_us=time_us,
        event_time_us=time_us,
        readable=np.ones(count, dtype=bool),
        substream=None,
        key=pa.nulls(count, pa.binary()),
        value=value,
        end_offset=first + count,
    )


def filled() -> State:
    """Return a state that holds 40,000 events of a kilobyte, in several chunks."""
    state = MODEL.new_state()
    for first in range(0, 40_000, 10_000):
        MODEL.step(state, batch(first, 10_000, b"x" * 1000))
        state.save()
    return state


def released(state: State) -> pa.Table:
    """Return what leaves when time has passed everything held."""
    late = batch(40_000, 1, b"last")
    late.arrival_us += 4 * HOUR_US
    late.event_time_us = late.arrival_us
    left = MODEL.step(state, late).released
    return pa.table({"seq": left.seq, "offset": left.offset, "value": left.value, "key": left.key})


def test_events_leave_as_if_they_had_never_been_in_files() -> None:
    """Level 1: the same events with the same numbers, payload by payload."""
    kept, spilled = filled(), filled()
    assert spill(spilled, 1 << 20) > 30_000_000
    assert sum(chunk.held.rows.payload_bytes for chunk in spilled.all_chunks()) <= 1 << 20
    assert spilled.save().head == kept.save().head
    assert released(spilled).equals(released(kept))


def test_what_fits_stays_in_memory() -> None:
    """Nothing is moved below the bound."""
    assert spill(filled(), 1 << 30) == 0


def test_files_are_gone_from_their_folder_and_given_back_with_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is left behind, whatever becomes of the process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    state = filled()
    spill(state, 0)
    assert list(tmp_path.iterdir()) == []
    mapped = [area for area in psutil.Process().memory_maps(grouped=False) if "tidegate-held-" in area.path]
    assert mapped
    released(state)
    state.save()
    del mapped
    assert not [area for area in psutil.Process().memory_maps(grouped=False) if "tidegate-held-" in area.path]


def test_a_disk_that_cannot_take_them_leaves_them_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job goes on, with more memory than was allowed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    state = filled()
    assert spill(state, 0) == 0
    assert len(released(state)) == 40_000
