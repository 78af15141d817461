"""
The progress of the stages, which the driver writes into the checkpoint's folder for the planner.
Law: an entry was true at the end of a batch and names its position. It may be outdated or missing, so it counts only if its position is the
expected one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from ingest.offsets import Partition, parse_partition, partition_name
from ordering.ticks import TICK_MIN
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.observe.reports import IngestReport

_FILE = "stage_progress.json"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The progress of one input partition after a batch."""

    # All records below this offset were judged.
    next_offset: int
    # A, the arrival frontier; below TICK_MIN before the first record.
    arrival_us: int
    # Below this instant all its events have been written, microseconds: the *c* of its CTIs.
    complete_us: int
    # Number of held events.
    held: int

    @property
    def has_arrived(self) -> bool:
        return self.arrival_us >= TICK_MIN


class StageProgressWriter:
    """The driver's side: writes the last report of each input partition into a checkpoint's *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._progress = folder, read_stage_progress(folder)

    def accept_reports(self, reports: Iterable[IngestReport]) -> None:
        for report in reports:
            self._progress[report.place] = StageProgress(report.next_offset, report.arrival_us, report.complete_us, report.held)
        stored = {partition_name(partition): astuple(progress) for partition, progress in self._progress.items()}
        replace_text(self._folder / _FILE, json.dumps(stored), is_synced=False)


def read_stage_progress(folder: Path) -> dict[Partition, StageProgress]:
    """Return the progress that the driver has written; nothing if it cannot be read."""
    try:
        stored = json.loads((folder / _FILE).read_text())
        return {parse_partition(name): StageProgress(*numbers) for name, numbers in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
