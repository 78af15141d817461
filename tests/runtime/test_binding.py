"""A checkpoint is bound to the settings it was made under, and says how far Spark had come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ordering.errors import RefusedError
from tidegate.runtime.binding import bind, checkpoint_state

SETTINGS = {"late": "3h", "over": "origin", "output_partitions": ""}


def test_the_same_settings_resume(tmp_path: Path) -> None:
    """A first start makes the folder and binds it; later starts under the same settings, in any order, go on."""
    folder = tmp_path / "jobs" / "ingest-flights"
    bind(folder, SETTINGS)
    bind(folder, dict(reversed(SETTINGS.items())))
    assert json.loads((folder / "settings.json").read_text()) == SETTINGS
    assert [file.name for file in folder.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("now", "differences"),
    [
        ({**SETTINGS, "late": "4h"}, ["late: 3h -> 4h"]),
        ({"late": "3h", "output_partitions": ""}, ["over: origin -> (unset)"]),
        ({**SETTINGS, "early": "5m"}, ["early: (unset) -> 5m"]),
        (
            {"late": "5s", "over": "carrier", "output_partitions": "4"},
            ["late: 3h -> 5s", "output_partitions:  -> 4", "over: origin -> carrier"],
        ),
    ],
)
def test_other_settings_are_refused_with_each_difference(tmp_path: Path, now: dict[str, str], differences: list[str]) -> None:
    """Every setting that differs is named with what it was; the binding stays as it was, so setting it back works."""
    bind(tmp_path, SETTINGS)
    with pytest.raises(RefusedError) as raised:
        bind(tmp_path, now)
    assert raised.value.code == "TG-CHECKPOINT-SETTINGS"
    assert raised.value.where == str(tmp_path)
    assert raised.value.what.endswith(": " + "; ".join(differences))
    bind(tmp_path, SETTINGS)


def test_a_start_that_died_while_binding_binds_anew(tmp_path: Path) -> None:
    """A half-written draft is no binding."""
    (tmp_path / "settings.new").write_text('{"late": ')
    bind(tmp_path, SETTINGS)
    assert json.loads((tmp_path / "settings.json").read_text()) == SETTINGS


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
