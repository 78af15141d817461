"""Copies of reference data that nothing can be looked up in any more are deleted at a start; all others stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.reference_job import ReferenceJob

from ordering.ticks import INFINITY, NEVER, parse_tick
from query.reference.forgetting import (
    FILE,
    WRITE_S,
    LookupFloor,
    drop_past_versions,
    forget_all_versions,
    forget_past_versions,
)
from query.reference.watch import FOLDER, LIST_FILE, ReferenceVersion, TakenVersions, check_unchanged, take_up_versions
from tidegate.platform.observe.reports import BucketReport, LooksUpFrom

START = NEVER + 1


class Job(ReferenceJob):
    """A job of two buckets over one table with a file for each day, or each named one."""

    def write(self, *days: int, text: str = "") -> None:
        """Write the versions of some days; each has its own text."""
        for day in days:
            (self.files / f"r-2001-01-{day:02}.csv").write_text(f"k,n\n1,{text or day}\n")

    def asked(self) -> LookupFloor:
        """What the driver hears with."""
        return LookupFloor(self.checkpoint, 2, lambda: self.now_s)

    def copies(self) -> set[str]:
        """What the copies say."""
        return {file.read_text().split(",")[-1].strip() for file in (self.checkpoint / FOLDER).glob("*.csv")}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose run was begun with three versions, to which a fourth one came."""
    job = Job(tmp_path)
    job.write(1, 2, 3)
    take_up_versions(job.checkpoint, job.settings)
    job.write(4)
    take_up_versions(job.checkpoint, job.settings)
    return job


def day(number: int, hours: int = 0) -> int:
    """An instant of January 2001."""
    return parse_tick(f"2001-01-{number:02}T{hours:02}:00:00Z")


def report(bucket: int, us: int, added: int) -> BucketReport:
    """What a bucket says with a batch."""
    return BucketReport(bucket, looks_up_from=LooksUpFrom(us, added))


def test_nothing_is_forgotten_before_all_buckets_have_told(job: Job) -> None:
    """Nor where a run has no reference data."""
    asked = job.asked()
    asked.accept_reports([report(0, INFINITY, 1)])
    asked.accept_reports([report(0, INFINITY, 1)])
    forget_past_versions(job.checkpoint)
    assert job.copies() == {"1", "2", "3", "4"}
    forget_past_versions(job.checkpoint / "other")


def test_copies_go_that_no_batch_can_ask_for_again(job: Job) -> None:
    """The batch that was told last may be run again: what holds is what was told before it, by the bucket that is behind."""
    asked = job.asked()
    asked.accept_reports([report(0, day(1), 0), report(1, day(4), 1)])
    asked.accept_reports([report(0, day(2, 12), 1)])
    asked.accept_reports([report(0, day(4), 1)])
    job.now_s += WRITE_S
    asked.accept_reports([report(0, day(4), 1)])
    forget_past_versions(job.checkpoint)
    assert job.copies() == {"4"}
    assert (job.begins(0), job.begins(1)) == ([], [day(4)])


def test_the_version_that_is_valid_there_is_kept(job: Job) -> None:
    """Files of forgotten versions may change, others not; the list stays as long as it was, as batches count by it."""
    asked = job.asked()
    asked.accept_reports([report(0, day(4), 1), report(1, day(2, 12), 0)])
    asked.accept_reports([report(0, day(4), 1), report(1, day(4), 1)])
    before = TakenVersions.read(job.checkpoint)
    forget_past_versions(job.checkpoint)
    assert job.copies() == {"2", "3", "4"}
    assert (job.begins(0), job.begins(1)) == ([day(2), day(3)], [day(2), day(3), day(4)])
    after = TakenVersions.read(job.checkpoint)
    assert before is not None
    assert after is not None
    assert (after.versions, after.initial_count) == (before.versions, before.initial_count)
    job.write(1, text="changed")
    check_unchanged(job.checkpoint, job.settings)
    assert take_up_versions(job.checkpoint, job.settings) == after
    forget_past_versions(job.checkpoint)
    assert job.copies() == {"2", "3", "4"}


def test_a_version_that_some_bucket_does_not_know_yet_pushes_none_out(job: Job) -> None:
    """It came too late for that bucket's batch, which may be run again, and looked rows up in the one before."""
    asked = job.asked()
    asked.accept_reports([report(0, day(9), 1), report(1, day(9), 0)])
    asked.accept_reports([report(0, day(9), 1)])
    forget_past_versions(job.checkpoint)
    assert job.copies() == {"3", "4"}


def test_versions_of_the_same_bytes_share_a_copy(job: Job) -> None:
    """It stays while one of them does; what a killed process has left goes."""
    job.write(5, text="1")
    take_up_versions(job.checkpoint, job.settings)
    asked = job.asked()
    asked.accept_reports([report(0, day(5), 2), report(1, day(5), 2)])
    asked.accept_reports([])
    (job.checkpoint / FOLDER / "123.draft").touch()
    forget_past_versions(job.checkpoint)
    assert job.copies() == {"1"}
    assert {file.name for file in (job.checkpoint / FOLDER).iterdir() if file.suffix != ".csv"} == {LIST_FILE, FILE}


def test_a_new_run_forgets_all_versions_and_lookups_of_an_earlier_one(job: Job) -> None:
    """It may look rows up in versions that the earlier one no longer needed."""
    asked = job.asked()
    asked.accept_reports([report(0, day(9), 1), report(1, day(9), 1)])
    asked.accept_reports([])
    for start in range(2):
        if start == 0:
            forget_all_versions(job.checkpoint)
        forget_past_versions(job.checkpoint)
        taken = take_up_versions(job.checkpoint, job.settings)
        assert (taken.initial_count, job.begins(0), len(job.copies())) == (4, [day(number) for number in range(1, 5)], 4)


def test_tables_are_forgotten_each_for_itself() -> None:
    """What was always valid stays until another version of that table is."""
    versions = tuple(ReferenceVersion(name, us, "f", 0, "") for name, us in (("a", NEVER), ("b", NEVER), ("b", 10), ("a", 20)))
    taken = TakenVersions(Path(), versions, 4)
    assert drop_past_versions(taken, START, 0).kept_from == {"a": NEVER, "b": NEVER}
    assert drop_past_versions(taken, 10, 0).kept_from == {"a": NEVER, "b": 10}
    assert drop_past_versions(drop_past_versions(taken, 25, 0), 10, 0).kept_from == {"a": 20, "b": 10}
