"""What the driver leaves for the planner: the last report of each partition, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ingest.journal.known_facts import StageFacts
from ingest.offsets import PlannedPosition
from ingest.planner.stage_progress import StageProgress, StageProgressWriter, judged_positions, read_stage_progress, told_at
from ordering.ticks import NEVER, TICK_MIN
from tidegate.platform.observe.reports import IngestReport


def report(partition: int, next_offset: int, arrival_us: int) -> IngestReport:
    """A stage's report, as far as it counts here."""
    return IngestReport("raw", partition, next_offset=next_offset, arrival_us=arrival_us, complete_us=5, held=2)


def test_the_last_report_of_each_partition_is_found_by_the_next_driver_too(tmp_path: Path) -> None:
    """Those without a batch in this life are still what an earlier one left."""
    StageProgressWriter(tmp_path).accept_reports([report(0, 7, TICK_MIN), report(1, 3, NEVER)])
    StageProgressWriter(tmp_path).accept_reports([report(1, 9, 80_000)])
    assert read_stage_progress(tmp_path) == {("raw", 0): StageProgress(7, TICK_MIN, 5, 2), ("raw", 1): StageProgress(9, 80_000, 5, 2)}
    assert read_stage_progress(tmp_path)["raw", 0].has_arrived


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """A file that is missing, cut off or of another version: the stage is asked again."""
    assert read_stage_progress(tmp_path) == {}
    for text in ('{"raw/0": [7, 8', '{"raw/0": [7]}', "[]"):
        (tmp_path / "stage_progress.json").write_text(text)
        assert read_stage_progress(tmp_path) == {}


def test_nothing_has_arrived_below_the_first_time_there_is() -> None:
    """An estimate that only asks for a report leaves A below every tick."""
    assert not StageProgress(4, NEVER, NEVER, 0).has_arrived
    assert not StageProgress(4, 1, NEVER, 0).has_arrived


def test_an_open_batch_raises_positions_once_it_is_finished(tmp_path: Path) -> None:
    """Reports of other batches, and of batches that run again, raise none."""
    logged = {("raw", number): PlannedPosition(5, planned_ms=3) for number in range(4)}
    opened = [replace(report(0, 7, 1), open_batch=4), replace(report(1, 9, 1), open_batch=5), report(2, 8, 1)]
    StageProgressWriter(tmp_path).accept_reports(opened)
    raised = judged_positions(logged, read_stage_progress(tmp_path), 4)
    assert {partition[1]: position.next_offset for partition, position in raised.items()} == {0: 7, 1: 5, 2: 5, 3: 5}
    assert raised["raw", 0] == PlannedPosition(7, planned_ms=3)
    assert judged_positions(logged, read_stage_progress(tmp_path))["raw", 1].next_offset == 9


def test_what_an_open_batch_has_told_counts_only_at_its_position(tmp_path: Path) -> None:
    """Of one that has planned ranges alone the offset knows all."""
    opened = [replace(report(number, 7, 1), open_batch=4, lost_answer=number == 1) for number in range(3)]
    StageProgressWriter(tmp_path).accept_reports([*opened, report(3, 7, 1)])
    told = told_at({("raw", number): PlannedPosition(8 if number == 2 else 7) for number in range(4)}, read_stage_progress(tmp_path))
    assert told == {("raw", number): StageFacts(opened[number].arrival_us, number == 1) for number in range(2)}
