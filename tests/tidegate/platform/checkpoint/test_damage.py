"""A checkpoint of which a part is missing is refused, with what to do; a whole one is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ordering.errors import RefusedError
from tidegate.platform.checkpoint.binding import bind, read_binding
from tidegate.platform.checkpoint.damage import check_whole

OFFSET = 'v1\n{}\n{"positions": {}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with two finished batches, and one that is planned."""
    bind(tmp_path, {"late": "3h"})
    for name, text, batches in (("offsets", OFFSET, 3), ("commits", "v1\n{}", 2)):
        (tmp_path / "spark" / name).mkdir(parents=True)
        for batch in range(batches):
            (tmp_path / "spark" / name / str(batch)).write_text(text)
    (tmp_path / "spark" / "metadata").write_text('{"id": "x"}')
    return tmp_path


def refusal(folder: Path) -> RefusedError:
    """Return why a start is refused."""
    with pytest.raises(RefusedError) as refused:
        check_whole(folder, is_bound=read_binding(folder) is not None)
    assert refused.value.code == "TG-CHECKPOINT-DAMAGED"
    assert "--start last-stopped" in refused.value.fix
    return refused.value


@pytest.mark.parametrize(
    "left",
    [
        lambda spark: None,
        lambda spark: (spark / "commits" / "1").unlink(),
        lambda spark: (spark / "offsets" / "0").write_text(""),
        lambda spark: (spark / "metadata").unlink(),
    ],
)
def test_what_is_whole_goes_on(folder: Path, left: Callable[[Path], object]) -> None:
    """A batch without its commit is run again, and Spark makes new metadata; older batches are nobody's concern."""
    left(folder / "spark")
    check_whole(folder, is_bound=True)


def test_a_job_that_has_not_begun_is_whole(tmp_path: Path) -> None:
    """Nothing is there, or a start that died before it was bound."""
    check_whole(tmp_path / "none", is_bound=False)
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    check_whole(tmp_path, is_bound=False)


@pytest.mark.parametrize(
    ("file", "harm"),
    [
        ("spark/offsets/2", lambda file: file.write_text("")),
        ("spark/offsets/2", lambda file: file.write_text(OFFSET[:-4])),
        ("spark/commits/1", lambda file: file.write_text("")),
        ("spark/metadata", lambda file: file.write_text("")),
        ("spark/offsets/1", lambda file: [(file.parent / name).unlink() for name in "12"]),
        ("spark/offsets/1", lambda file: [log.unlink() for log in file.parent.iterdir()]),
    ],
)
def test_spark_s_logs_are_whole(folder: Path, file: str, harm: Callable[[Path], object]) -> None:
    """Cut off by a power cut, or gone though a later file is there: Spark would fail at each start, or plan a batch twice."""
    harm(folder / file)
    assert refusal(folder).what == f"the checkpoint is damaged: {file} is missing or cut off"


def test_spark_s_files_without_their_settings_are_no_checkpoint(folder: Path) -> None:
    """Without them a job would go on under whatever settings it has now."""
    (folder / "settings.json").unlink()
    assert "not the settings that they are bound to" in refusal(folder).what


@pytest.mark.parametrize("text", ["", '{"late": '])
def test_settings_that_are_cut_off_are_refused_by_name(folder: Path, text: str) -> None:
    """Not by a traceback."""
    (folder / "settings.json").write_text(text)
    error = refusal(folder)
    assert error.what == "the checkpoint is damaged: settings.json is cut off or overwritten"
    assert error.where == str(folder / "settings.json")
