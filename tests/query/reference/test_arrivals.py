"""New reference data ends the batch that stays open."""

from __future__ import annotations

from pathlib import Path

from support.reference_job import ReferenceJob

from query.reference.arrivals import VersionArrivals
from query.reference.watch import LOOK_S, ReferenceWatch, take_up_versions
from tidegate.platform.checkpoint.open_batches import read_request


def test_a_version_ends_open_batches_until_it_is_taken_up(tmp_path: Path) -> None:
    """The planner takes it up between two batches; one that it cannot use ends no batch for ever."""
    job = ReferenceJob(tmp_path)
    (job.files / "r-2001-01-01.csv").write_text("k,n\n1,x\n")
    take_up_versions(job.checkpoint, job.settings)
    arrivals = VersionArrivals(job.checkpoint, job.settings, lambda: job.now_s)
    planner = ReferenceWatch(job.checkpoint, job.settings, lambda: job.now_s)

    def ends(*, planned: bool = True) -> bool:
        job.now_s += LOOK_S
        before = read_request(job.checkpoint)
        asked = arrivals.end_batch_if_new()
        assert asked == (read_request(job.checkpoint) != before)
        if asked and planned:
            planner.look()
        return asked

    assert not ends()
    (job.files / "r-2001-01-02.csv").write_text("k,n\n1,y\n")
    assert [ends() for _ in range(4)] == [True, True, False, False], "the planner wants to see it twice"
    assert not arrivals.end_batch_if_new(), "it was asked just now"
    (job.files / "r-2001-01-03.csv").write_text("k,n\n1,z\n")
    assert [ends(planned=False) for _ in range(6)] == [True] * 4 + [False] * 2
