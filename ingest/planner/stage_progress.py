"""
What the stages have reached, left by the driver in the checkpoint's folder for the planner beside it.

Law: what stands there was so at the end of a batch, and each partition says at which position; it may be older than the
last batch, or missing, and then says nothing. So it may be believed where the position is the one that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ingest.offsets import Partition, parse_partition, partition_name
from ordering.ticks import TICK_MIN
from tidegate.checkpoint.binding import replace_text

_FILE = "reached.json"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """
    Where the walk of one input partition stood after a batch.

    Args:
        next_offset: Everything below was judged.
        arrival_us: A, the arrival frontier; below every tick before the first record that has an arrival.
        c_us: What its channels have promised.
        held: How many events wait.
    """

    next_offset: int
    arrival_us: int
    c_us: int
    held: int

    @property
    def has_arrived(self) -> bool:
        """Whether there was a record with an arrival."""
        return self.arrival_us >= TICK_MIN


class StageProgressWriter:
    """The driver's side: leaves the last report of each input partition in a checkpoint's *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._progress = folder, read_stage_progress(folder)

    def accept_reports(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Take the reports of one batch."""
        for report in reports:
            numbers = (int(report[name]) for name in ("next_offset", "arrival_us", "c", "held"))
            self._progress[report["topic"], int(report["partition"])] = StageProgress(*numbers)
        stored = {partition_name(partition): astuple(progress) for partition, progress in self._progress.items()}
        replace_text(self._folder / _FILE, json.dumps(stored))


def read_stage_progress(folder: Path) -> dict[Partition, StageProgress]:
    """Return what was left in a checkpoint's folder; nothing if it cannot be read."""
    try:
        stored = json.loads((folder / _FILE).read_text())
        return {parse_partition(name): StageProgress(*numbers) for name, numbers in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
