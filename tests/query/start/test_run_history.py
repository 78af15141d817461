"""What the history of a topic keeps of a run, and entries that others wrote there."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from ordering.ticks import NEVER
from query.config import LogStart, Promise, Substream
from query.start.run_history import first_us, is_readable, log_starts_of, own_from_us, promises_of
from tidegate.platform.checkpoint.query_history import RecordedRun

PROMISES = {0: Promise(20, 7, 2, 31, {Substream(1, b"\x00k"): [20, 31]}), 1: Promise(10, 3, 0, 9)}
LOG_STARTS = {0: LogStart(None, 0), 1: LogStart(5, 12)}
RUN = RecordedRun(
    "SELECT 1",
    None,
    "plan",
    None,
    {"out": {str(bucket): promise.save() for bucket, promise in PROMISES.items()}},
    {str(log): [*start] for log, start in LOG_STARTS.items()},
    [None, 1_000, 0],
    {"out": ["folder", "ndjson", 20, None, None]},
    {"out": {"0": 3}},
)


def test_a_run_is_kept_as_it_began() -> None:
    """Level 2: a computation that begins with what is kept begins as the run did."""
    kept = RecordedRun(**json.loads(json.dumps(asdict(RUN))))
    assert kept == RUN
    assert is_readable(kept)
    assert promises_of(kept, "out") == PROMISES
    assert log_starts_of(kept) == LOG_STARTS
    assert promises_of(kept, "an output that was added later") == {}


def test_a_run_begins_behind_what_earlier_ones_have_written_ahead() -> None:
    """From the last CTI of all channels on, and behind the largest time of results ahead of it; the first run begins at once."""
    assert own_from_us(RUN) == 32
    assert first_us(RUN) == 10
    first = replace(RUN, promises={})
    assert own_from_us(first) == first_us(first) == NEVER


@pytest.mark.parametrize(
    "garbage",
    [
        {"promises": None},
        {"promises": 5},
        {"promises": {"out": []}},
        {"promises": {"out": {"x": [1, 2, 3, 4]}}},
        {"promises": {"out": {"0": [1, 2]}}},
        {"promises": {"out": {"0": ["1", 2, 3, 4]}}},
        {"promises": {"out": {"0": [1, 2, 1, 4, {"0:not hexadecimal": [4]}]}}},
        {"log_starts": {"0": "ab"}},
        {"log_starts": {"0": [None]}},
        {"log_starts": [1]},
        {"published": {"out": {"0": "x"}}},
        {"published": 1},
    ],
)
def test_an_entry_that_others_wrote_is_no_premise(garbage: dict[str, Any]) -> None:
    """Redis may be written by others: such a history counts as unknown."""
    assert not is_readable(replace(RUN, **garbage))
