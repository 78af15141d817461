"""What a run has taken up of reference data is bound to its checkpoint; new versions are seen, and changed ones told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs
from support.reference_job import ReferenceJob

from ordering.errors import RefusedError
from ordering.ticks import NEVER, parse_tick
from query.reference.objects import StoredObject
from query.reference.tables import ReferenceTable
from query.reference.watch import LOOK_S, ReferenceWatch, TakenVersions, check_unchanged, take_up_versions
from query.stage.offsets import QueryOffset
from sinks.file_places import ObjectStore
from tidegate.platform.settings.tables.references import ReferenceSettings

DAY = "2001-01-0{}"


class Job(ReferenceJob):
    """A job with one table, a file for each day."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write(1)

    def write(self, day: int, text: str = "k,n\n1,x\n") -> Path:
        """Write the version of a day."""
        file = self.files / f"r-{DAY.format(day)}.csv"
        file.write_text(text)
        return file

    def lookout(self) -> ReferenceWatch:
        """The planner's look-out, when the run has begun."""
        return ReferenceWatch(self.checkpoint, self.settings, lambda: self.now_s)

    def look(self, lookout: ReferenceWatch, after_s: float = LOOK_S) -> int:
        """Look again some time later."""
        self.now_s += after_s
        return lookout.look()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that has not run yet."""
    return Job(tmp_path)


def day(*days: int) -> list[int]:
    """The instants at which days begin."""
    return [parse_tick(DAY.format(each)) for each in days]


def test_a_run_begins_with_the_versions_that_are_there(job: Job) -> None:
    """Those that are found at a later start are added to the list."""
    assert TakenVersions.read(job.checkpoint) is None
    assert len(take_up_versions(job.checkpoint, job.settings).added) == 0
    job.write(3)
    assert len(take_up_versions(job.checkpoint, job.settings).added) == 1
    assert take_up_versions(job.checkpoint, job.settings) == TakenVersions.read(job.checkpoint)
    assert (job.begins(0), job.begins(1)) == (day(1), day(1, 3))


def test_a_new_version_is_taken_up_once_it_stays_the_same(job: Job) -> None:
    """Looks are a second apart; a file that grows between two of them is still being written."""
    take_up_versions(job.checkpoint, job.settings)
    lookout = job.lookout()
    assert job.look(lookout, 0) == 0
    file = job.write(2, "k,n\n1")
    assert job.look(lookout) == 0
    job.write(2)
    assert job.look(lookout) == 0
    assert job.look(lookout, LOOK_S / 2) == 0
    with capture_logs() as logs:
        assert job.look(lookout) == 1
    assert [(each["event"], each["file"], each["valid_from"]) for each in logs] == [
        ("new reference data is read", str(file), "2001-01-02T00:00:00Z")
    ]
    job.write(3)
    assert [job.look(lookout), job.look(lookout), job.look(lookout)] == [1, 2, 2]
    assert (job.begins(1), job.begins(2)) == (day(1, 2), day(1, 2, 3))
    assert job.look(job.lookout(), 0) == 2, "another planner goes on with the list"


def test_a_type_that_changes_with_a_version_is_told_once(job: Job) -> None:
    """At a start, and when a version comes while the job runs; by the file's own name."""
    first = job.write(1, "k,n\n1,5\n2,x\n")
    with capture_logs() as logs:
        take_up_versions(job.checkpoint, job.settings)
        take_up_versions(job.checkpoint, job.settings)
    assert [(each["code"], each["where"]) for each in logs] == [("TG-REFERENCE-TYPE", f"{first}:3")]
    second = job.write(2, "k,n\n1,5\n2,7\n")
    lookout = job.lookout()
    with capture_logs() as logs:
        assert [job.look(lookout), job.look(lookout), job.look(lookout)] == [0, 1, 1]
    assert [(each["where"], each["what"]) for each in logs if each["log_level"] == "warning"] == [
        (f"{second}:2", "column n of r is bigint in this version, nvarchar(max) in the one before"),
    ]


def test_a_version_that_the_query_cannot_use_is_told_and_not_taken_up(job: Job) -> None:
    """A bad pattern, say; the job goes on with the versions that it has."""

    def check(table: ReferenceTable) -> None:
        raise RefusedError("record 1 of r has no pattern", code="TG-REFERENCE-RECORD", fix="correct it")

    take_up_versions(job.checkpoint, job.settings)
    lookout = ReferenceWatch(job.checkpoint, job.settings, lambda: job.now_s, check)
    file = job.write(2)
    with capture_logs() as logs:
        assert [job.look(lookout), job.look(lookout), job.look(lookout)] == [0, 0, 0]
    assert [(each["code"], each["file"], each["fix"]) for each in logs] == [("TG-REFERENCE-RECORD", str(file), "correct it")]


def test_the_run_goes_on_with_its_copies(job: Job) -> None:
    """Whatever becomes of the files: what it has found it finds again."""
    take_up_versions(job.checkpoint, job.settings)
    job.write(2)
    (job.files / "r-2001-01-01.csv").unlink()
    take_up_versions(job.checkpoint, job.settings)
    check_unchanged(job.checkpoint, job.settings)
    assert job.begins(1) == day(1, 2)


def test_a_changed_file_is_told_while_the_job_runs_and_refused_at_the_next_start(job: Job) -> None:
    """Told once for each change; put back as it was, the job goes on."""
    take_up_versions(job.checkpoint, job.settings)
    lookout = job.lookout()
    job.look(lookout, 0)
    file = job.write(1, "k,n\n1,other\n")
    with capture_logs() as logs:
        assert [job.look(lookout), job.look(lookout), job.look(lookout)] == [0, 0, 0]
    assert [(each["code"], each["log_level"], each["file"]) for each in logs] == [("TG-REFERENCE-CHANGED", "warning", str(file))]
    with pytest.raises(
        RefusedError, match="changed since rows of r were looked up in it, for times from 2001-01-01T00:00:00Z on"
    ) as caught:
        check_unchanged(job.checkpoint, job.settings)
    assert caught.value.code == "TG-REFERENCE-CHANGED"
    job.write(1)
    check_unchanged(job.checkpoint, job.settings)


def test_a_changed_file_that_was_always_valid_has_three_ways_out(job: Job) -> None:
    """Put it back; go on without the checkpoint; or say from when on what is new is valid: the copy counts until then."""
    static = job.write(1)
    as_path = {"r": ReferenceSettings.model_validate({"__name__": "r", "path": str(static)})}
    take_up_versions(job.checkpoint, as_path)
    copy = static.read_text()
    static.write_text("k,n\n1,other\n")
    with pytest.raises(RefusedError, match=r"has been changed since") as caught:
        check_unchanged(job.checkpoint, as_path)
    assert (caught.value.code, caught.value.where) == ("TG-REFERENCE-CHANGED", str(static))
    (kept,) = (job.checkpoint / "references").glob("*.csv")
    assert kept.read_text() == copy
    for way_out in (
        str(kept),
        "effective in place of path of references.r",
        f"delete {job.checkpoint} and continue with --start last-stopped",
    ):
        assert way_out in caught.value.fix
    assert caught.value.example == 'effective = { "2001-01-02T00:00:00Z" = "r-2001-01-01-2.csv" }'
    effective = {"__name__": "r", "effective": {"2001-01-02T00:00:00Z": str(static)}}
    job.settings = {"r": ReferenceSettings.model_validate(effective)}
    check_unchanged(job.checkpoint, job.settings)
    take_up_versions(job.checkpoint, job.settings)
    assert (job.begins(0), job.begins(1)) == ([NEVER], [NEVER, *day(2)])
    kept.replace(static)
    check_unchanged(job.checkpoint, as_path)


def test_a_version_that_cannot_be_read_is_told_and_the_job_goes_on_without_it(job: Job) -> None:
    """Once; it is looked at again when it has been written again. At a start it is refused."""
    take_up_versions(job.checkpoint, job.settings)
    lookout = job.lookout()
    job.write(2, "k,n\nnone,x\n")
    with capture_logs() as logs:
        assert [job.look(lookout) for _ in range(4)] == [0, 0, 0, 0]
    assert [each["code"] for each in logs] == ["TG-REFERENCE-RECORD"]
    with pytest.raises(RefusedError, match="TG-REFERENCE-RECORD"):
        take_up_versions(job.checkpoint, job.settings)
    assert job.begins(0) == day(1)
    job.write(2, "k,n\n22,x\n")
    assert [job.look(lookout), job.look(lookout)] == [0, 1]


class Store:
    """An object store with one content for all names, of which every other read is not answered."""

    content = b"k,n\n22,x\n"

    def __init__(self) -> None:
        self.reads = 0

    def read(self, key: str) -> bytes:
        """Return the content."""
        self.reads += 1
        if self.reads % 2:
            raise OSError("the connection was reset")
        return self.content


def test_an_object_whose_store_does_not_answer_is_read_at_a_later_look(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported once. Whether an object was replaced is found out later too."""
    take_up_versions(job.checkpoint, job.settings)
    lookout = job.lookout()
    store = Store()
    found = StoredObject("s3://b/r-2001-01-02.csv", "r-2001-01-02.csv", cast(ObjectStore, store), (9, 1))
    present = [("r", *day(2), found)]
    monkeypatch.setattr("query.reference.watch.present_versions", lambda settings: present)
    with capture_logs() as logs:
        assert [job.look(lookout) for _ in range(3)] == [0, 1, 1]
    assert [each.get("code") for each in logs] == ["TG-REFERENCE-UNREACHABLE", None]
    assert job.begins(1) == day(1, 2)
    store.content = b"k,n\n23,x\n"
    present[0] = ("r", *day(2), replace(found, stamp=(9, 2)))
    with capture_logs() as logs:
        assert [job.look(lookout) for _ in range(3)] == [1, 1, 1]
    assert [each.get("code") for each in logs] == ["TG-REFERENCE-CHANGED"]


def test_a_start_without_a_run_has_nothing_to_compare(job: Job) -> None:
    """So has a query without reference data."""
    check_unchanged(job.checkpoint, job.settings)
    check_unchanged(job.checkpoint, {})


def test_a_batch_says_in_the_offset_how_much_of_the_list_it_knows() -> None:
    """So a batch that is run again looks rows up in the same versions."""
    offset = QueryOffset({0: 5}, references=2)
    assert QueryOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    assert offset.to_json() == {"final": 0, "positions": {"0": 5}, "references": 2}
