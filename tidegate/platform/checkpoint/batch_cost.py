"""
The cost of a job's last batch. The driver writes it into the checkpoint folder; the planner, a process of its own, reads it to decide how
much the next batch reads. No result depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ordering.ticks import SECOND_US
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.observe.reports import Report

# Assumed size of a record before any was read.
RECORD_BYTES = 1024
_FILE = "batch_cost.json"


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The cost of a batch."""

    # Rises by one with each batch.
    number: int
    # Events and payload bytes that it read.
    events: int
    bytes: int
    # Time spent on its ranges, microseconds, without the fixed cost of a batch.
    work_us: int

    @property
    def record_bytes(self) -> float:
        return max(self.bytes / self.events, 1.0)


class BatchCostWriter:
    """The driver's side: writes the cost of the last batch that had records; *tasks* ranges are walked at a time."""

    def __init__(self, folder: Path, tasks: int) -> None:
        self._file, self._tasks = folder / _FILE, tasks
        before = read_batch_cost(folder)
        self._number = 0 if before is None else before.number

    def accept_reports(self, reports: Iterable[Report]) -> None:
        costs = [(report.read, report.bytes, sum(report.seconds.values())) for report in reports if report.read]
        if not costs:
            return
        self._number += 1
        events, read_bytes, walked_s = (sum(column) for column in zip(*costs, strict=True))
        work_us = round(walked_s / min(len(costs), self._tasks) * SECOND_US)
        replace_text(self._file, json.dumps([self._number, events, read_bytes, work_us]), is_synced=False)


def read_batch_cost(folder: Path) -> BatchCost | None:
    """Return the cost of the last batch that had records; None if it is not known."""
    try:
        return BatchCost(*(int(number) for number in json.loads((folder / _FILE).read_text())))
    except (OSError, ValueError, TypeError):
        return None
