"""A checkpoint says which batches Spark has planned and finished, and where each ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.platform.checkpoint.offset_log import checkpoint_state, last_batches, read_offset


def spark_files(folder: Path, offsets: list[str], commits: list[str]) -> Path:
    """Lay out a checkpoint as Spark does."""
    for name, files in (("offsets", offsets), ("commits", commits)):
        (folder / "spark" / name).mkdir(parents=True)
        for file in files:
            (folder / "spark" / name / file).touch()
    return folder


def test_a_checkpoint_without_a_planned_batch_is_empty(tmp_path: Path) -> None:
    """Before Spark has run, and after a start that died before it planned anything."""
    assert checkpoint_state(tmp_path) == "empty"
    assert checkpoint_state(spark_files(tmp_path, [".0.crc", ".0.f00d.tmp"], [])) == "empty"


@pytest.mark.parametrize(
    ("offsets", "commits"), [(["0"], []), (["8", "9", "10"], ["8", "9"]), (["0", ".0.crc", "1"], ["0", ".0.crc", ".1.ab.tmp"])]
)
def test_a_batch_planned_but_not_done_is_pending(tmp_path: Path, offsets: list[str], commits: list[str]) -> None:
    """It will be run again first; batches are counted as numbers, and files in the making do not count."""
    assert checkpoint_state(spark_files(tmp_path, offsets, commits)) == "pending"


def test_a_checkpoint_whose_batches_are_done_is_settled(tmp_path: Path) -> None:
    """Old entries are deleted by Spark; only the last ones matter."""
    assert checkpoint_state(spark_files(tmp_path, ["9", "10"], ["9", "10"])) == "settled"


def test_the_offset_of_a_batch_is_read_as_spark_wrote_it(tmp_path: Path) -> None:
    """Version, properties, then the source's offset; what cannot be understood is not there."""
    spark_files(tmp_path, ["6", "7", "8"], ["6"])
    (tmp_path / "spark" / "offsets" / "6").write_text('v1\n{"batchWatermarkMs":0}\n{"final": 0, "partitions": {}}')
    assert last_batches(tmp_path) == (8, 6)
    assert read_offset(tmp_path, 6) == {"final": 0, "partitions": {}}
    assert read_offset(tmp_path, 7) is None
    assert read_offset(tmp_path, 99) is None
