"""What belongs to a job, by the configuration and the checkpoints that are there; no server is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ordering.errors import SettingError
from tidegate.platform.checkpoint.binding import bind
from tidegate.platform.settings.load import Settings, load
from tidegate.tools.reset.belongings import find_belongings, find_readers, read_mark, write_mark

TABLES = """
[inputs.a]
[inputs.b]
dead_letter_topic = "dead"
[inputs.c]
dead_letter_topic = "dead"
[inputs.counts]
[outputs.counts]
topic = "counts"
plain_topic = "plain"
[outputs.others]
files = "out"
[outputs.alone]
topic = "alone"
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A configuration in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    Path("tidegate.toml").write_text(TABLES)
    return load(None)


def bind_query(settings: Settings, folder: str, outputs: list[list[object]], reads: str = "a.ordered") -> Path:
    """Make the checkpoint of a query."""
    place = Path(settings.spark.checkpoint_dir).absolute() / folder
    bind(place, {"output": json.dumps(outputs), "reads": reads})
    return place


def test_an_ingest_has_its_ordered_topic_and_its_own_dead_letters(settings: Settings) -> None:
    """A topic of dead letters that another input writes too stays; the raw topic always does."""
    assert find_belongings(settings, "a").topics == ("a.ordered", "a.ordered.dead")
    assert find_belongings(settings, "b").topics == ("b.ordered",)
    assert find_belongings(settings, "b").folder.name == "ingest-b.ordered"


def test_the_outputs_of_one_script_go_together(settings: Settings) -> None:
    """The checkpoint says which they are, whichever of them is named; without one an output stands alone."""
    assert [output.name for output in find_belongings(settings, "others").outputs] == ["others"]
    folder = bind_query(
        settings,
        "query-counts",
        [["counts", None, "ndjson", 1, "plain", None], [None, str(Path("out").absolute()), "ndjson", 1, None, None]],
    )
    for name in ("outputs.counts", "others"):
        job = find_belongings(settings, name)
        assert (job.job, job.folder, job.topics) == ("query counts", folder, ("counts", "plain", "counts.dead"))
        assert [output.name for output in job.outputs] == ["counts", "others"]
    assert [output.name for output in find_belongings(settings, "alone").outputs] == ["alone"]
    assert find_readers(settings, ["a.ordered"]) == [str(folder)]
    assert not find_readers(settings, ["b.ordered"])


def test_a_reset_that_was_cut_off_is_known_by_its_mark(settings: Settings) -> None:
    """Its outputs, and that their rows were to go, though the binding is gone."""
    folder = bind_query(
        settings,
        "query-counts",
        [["counts", None, "ndjson", 1, "plain", None], [None, str(Path("out").absolute()), "ndjson", 1, None, None]],
    )
    write_mark(find_belongings(settings, "others"), rows=True)
    (folder / "settings.json").unlink()
    job = find_belongings(settings, "others")
    assert ([output.name for output in job.outputs], job.owes_rows) == (["counts", "others"], True)
    assert read_mark(folder.with_name("query-none")) is None


def test_a_name_of_an_input_and_an_output_must_say_which(settings: Settings) -> None:
    """Nothing is guessed where something is deleted."""
    with pytest.raises(SettingError, match=r"say inputs\.counts or outputs\.counts"):
        find_belongings(settings, "counts")
    assert find_belongings(settings, "inputs.counts").job == "ingest counts"
    assert find_belongings(settings, "outputs.counts").job == "query counts"
    with pytest.raises(SettingError):
        find_belongings(settings, "none")
