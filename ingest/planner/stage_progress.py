"""
The progress of the stages, which the driver writes into the checkpoint's folder for the planner.
Law: an entry was true at the end of a batch and names its position. It may be outdated or missing, so it counts only if its position is the
expected one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from ingest.journal.known_facts import StageFacts
from ingest.offsets import Partition, PlannedPosition, Positions, parse_partition, partition_name
from ordering.ticks import TICK_MIN
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.observe.reports import IngestReport

_FILE = "stage_progress.json"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The progress of one input partition after a batch."""

    # All records below this offset were judged.
    next_offset: int
    # The arrival frontier; below TICK_MIN before the first record.
    arrival_us: int
    # Below this instant all its events have been written, microseconds: the *c* of its CTIs.
    complete_us: int
    # Number of held events.
    held: int
    # As in the report: the number of a batch that stayed open, the clock when that arrival frontier was known there to be reached, whether
    # the journal may have an estimate that it did not use, and the boot since which the clock runs.
    open_batch: int = -1
    seen_us: int = 0
    estimated_us: int = 0
    lost_answer: bool = False
    boot_id: str = ""

    @classmethod
    def of_report(cls, report: IngestReport) -> StageProgress:
        open_batch = report.open_batch, report.seen_us, report.estimated_us, report.lost_answer, report.boot_id
        return cls(report.next_offset, report.arrival_us, report.complete_us, report.held, *open_batch)

    @property
    def has_arrived(self) -> bool:
        return self.arrival_us >= TICK_MIN


class StageProgressWriter:
    """The driver's side: writes the last report of each input partition into a checkpoint's *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._progress = folder, read_stage_progress(folder)

    def accept_reports(self, reports: Iterable[IngestReport]) -> None:
        for report in reports:
            self._progress[report.place] = StageProgress.of_report(report)
        stored = {partition_name(partition): astuple(progress) for partition, progress in self._progress.items()}
        replace_text(self._folder / _FILE, json.dumps(stored), is_synced=False)


Progress = Mapping[Partition, StageProgress]


def judged_positions(positions: Positions, progress: Progress, last_batch: float = math.inf) -> dict[Partition, PlannedPosition]:
    """
    Return *positions*, which Spark has logged, each raised to where the stage has come: an open batch goes on beyond its planned range.
    Reports of open batches after *last_batch*, the last one that Spark has finished, do not count: such a batch runs again.
    """
    return {partition: _raise(position, progress.get(partition), last_batch) for partition, position in positions.items()}


def _raise(position: PlannedPosition, progress: StageProgress | None, last_batch: float) -> PlannedPosition:
    if progress is None or progress.next_offset <= position.next_offset or not 0 <= progress.open_batch <= last_batch:
        return position
    return PlannedPosition(progress.next_offset, planned_ms=position.planned_ms)


def told_at(positions: Positions, progress: Progress) -> dict[Partition, StageFacts]:
    """Return what open batches have told of the partitions that they have judged up to *positions*."""
    return {
        partition: StageFacts(stage.arrival_us, stage.lost_answer)
        for partition, stage in progress.items()
        if stage.open_batch >= 0 and partition in positions and stage.next_offset == positions[partition].next_offset
    }


def read_stage_progress(folder: Path) -> dict[Partition, StageProgress]:
    """Return the progress that the driver has written; nothing if it cannot be read."""
    try:
        stored = json.loads((folder / _FILE).read_text())
        return {parse_partition(name): StageProgress(*numbers) for name, numbers in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
