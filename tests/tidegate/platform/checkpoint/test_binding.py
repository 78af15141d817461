"""A checkpoint is bound to the settings it was made under, and to the very topics."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from ordering.errors import RefusedError
from tidegate.platform.checkpoint.binding import bind, check_same_topics, read_binding, replace_text, with_bound_tasks
from tidegate.platform.settings.load import Settings

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


def test_of_long_values_only_what_differs_is_shown(tmp_path: Path) -> None:
    """A plan has many lines, and two of them side by side show nothing."""
    plan = "\n".join(["Project k, n", "  Window 1 m", *(f"    column {number}" for number in range(40)), "      Scan a"])
    before = {"plan": plan, "topic_ids": '{"a": "A", "b": "B"}', "late": "3h"}
    bind(tmp_path, before)
    changed = plan.replace("Window 1 m", "Window 5 m").replace("column 7", "column 77")
    with pytest.raises(RefusedError) as raised:
        bind(tmp_path, {**before, "plan": changed, "topic_ids": '{"a": "A", "b": "C", "d": "D"}'})
    assert raised.value.what.split("other settings: ")[1] == (
        'plan: \n  - Window 1 m\n  + Window 5 m\n  - column 7\n  + column 77; topic_ids: b "B" -> "C", d (unset) -> "D"'
    )
    with pytest.raises(RefusedError) as raised:
        bind(tmp_path, {**before, "plan": "other"})
    assert raised.value.what.endswith("\n  and 32 more lines")


def test_a_start_that_died_while_binding_binds_anew(tmp_path: Path) -> None:
    """A half-written draft is no binding."""
    (tmp_path / "settings.new").write_text('{"late": ')
    bind(tmp_path, SETTINGS)
    assert json.loads((tmp_path / "settings.json").read_text()) == SETTINGS


GROWN = {"input_partitions": "4", "topic_ids": '{"a": "A", "b": "B"}', "late": "3h"}


def test_what_may_grow_is_bound_to_what_it_was_at_least(tmp_path: Path) -> None:
    """Partitions and topics may be added to an input; afterwards none of them may be missing."""
    grows = ("input_partitions", "topic_ids")
    bind(tmp_path, {"input_partitions": "2", "topic_ids": '{"a": "A"}', "late": "3h"}, grows)
    bind(tmp_path, GROWN, grows)
    assert read_binding(tmp_path) == GROWN
    for shrunk in ({"input_partitions": "3"}, {"topic_ids": '{"a": "A"}'}, {"topic_ids": '{"a": "Z", "b": "B"}'}, {"late": "4h"}):
        with pytest.raises(RefusedError) as refusal:
            bind(tmp_path, {**GROWN, **shrunk}, grows)
        assert refusal.value.code == "TG-CHECKPOINT-SETTINGS"
        assert next(iter(shrunk)) in refusal.value.what
    assert read_binding(tmp_path) == GROWN


def test_a_setting_that_appears_or_goes_is_a_difference(tmp_path: Path) -> None:
    """Also one that may grow: nobody knows what it was."""
    bind(tmp_path, {"late": "3h"})
    for now in ({"late": "3h", "size": "5"}, {}):
        with pytest.raises(RefusedError, match=r"size|late"):
            bind(tmp_path, now, ("size",))


@pytest.mark.parametrize(("now", "words"), [("B", "made again"), ("", "deleted (")])
def test_a_topic_is_its_id(now: str, words: str) -> None:
    """A topic deleted, or made again under its name, is told from the one that a checkpoint knows; new topics do not matter."""
    check_same_topics({"a": "A"}, {"a": "A", "b": "B"}, "folder", "fix")
    with pytest.raises(RefusedError) as refusal:
        check_same_topics({"a": "A"}, {"a": now}, "folder", "fix")
    assert refusal.value.code == "TG-TOPIC-RECREATED"
    assert words in refusal.value.what


def test_what_a_checkpoint_records_wins_over_a_default_but_not_over_the_user() -> None:
    """The default is the machine's cores: a job that moves to another machine has changed none of its settings."""
    default, chosen = Settings(), Settings(spark={"shuffle_partitions": 3})
    recorded = {"spark.shuffle_partitions": "7"}
    assert with_bound_tasks(default, recorded).spark.shuffle_partitions == 7
    assert with_bound_tasks(default, None) is default
    assert with_bound_tasks(default, {}) is default
    assert with_bound_tasks(chosen, recorded).spark.shuffle_partitions == 3


def _replace_often(file: Path) -> None:
    for number in range(500):
        replace_text(file, f"{number}", is_synced=False)


def test_several_processes_may_replace_one_file(tmp_path: Path) -> None:
    """The tasks of an open batch ask for its end in one file, at the same time."""
    processes = [multiprocessing.get_context("spawn").Process(target=_replace_often, args=(tmp_path / "end",)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert [file.name for file in tmp_path.iterdir()] == ["end"]
