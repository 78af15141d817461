"""Logs that end below what was read."""

from __future__ import annotations

import pytest

from ingest.offsets import PlannedPosition
from ingest.planner.truncated_logs import TruncatedLogs
from ordering.errors import RefusedError
from ordering.ticks import MINUTE_US

HERE = {("raw", 0): PlannedPosition(100), ("raw", 1): PlannedPosition(7)}


def test_a_log_that_stays_shorter_than_what_was_read_is_refused_by_name() -> None:
    """It says which partition, where it ends and how far it was read."""
    logs = TruncatedLogs()
    logs.check(HERE, {("raw", 0): 90, ("raw", 1): 7}, 0)
    logs.check(HERE, {("raw", 0): 95, ("raw", 1): 9}, MINUTE_US)
    with pytest.raises(RefusedError) as refused:
        logs.check(HERE, {("raw", 0): 95, ("raw", 1): 9}, MINUTE_US + 1)
    assert (refused.value.code, refused.value.where) == ("TG-LOG-CUT", "raw-0@95")


def test_an_older_end_told_for_a_moment_is_waited_out() -> None:
    """A broker that takes over may not know the newest end yet; each time counts by itself."""
    logs = TruncatedLogs()
    for minute in range(5):
        logs.check(HERE, {("raw", 0): 90, ("raw", 1): 7}, minute * MINUTE_US)
        logs.check(HERE, {("raw", 0): 100, ("raw", 1): 7}, minute * MINUTE_US + 1)
