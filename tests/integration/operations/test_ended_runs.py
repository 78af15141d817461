"""
Jobs whose runs are over and that are started again, as a supervisor does: the same command exits with 0, any other is refused.

The law of :mod:`tidegate.platform.checkpoint.ended_run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stack.drawn_logs import draw
from support.stack.jobs import Workspace, error_code, workspace
from support.stack.servers import Stack
from support.stack.topics import create, fresh, produce

pytestmark = pytest.mark.integration
TABLES = """
[inputs.one]
topic = "{one}"
timestamp_by = "at"

[inputs.two]
topic = "{two}"
timestamp_by = "at"

[outputs.counts]
files = "counts"
"""
COUNTS = "SELECT COUNT(*) AS n, System.Timestamp() AS at INTO counts FROM one TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)"


@pytest.fixture
def scene(stack: Stack, tmp_path: Path) -> Iterator[tuple[Workspace, str]]:
    """A folder with two inputs, and a query over the first whose results are files alone; the name of the second topic."""
    one, two = (create(stack.bootstrap, fresh(name), 1) for name in ("one", "two"))
    for topic in (one, two):
        produce(stack.bootstrap, topic, draw(5, 2_000, 1))
    with workspace(tmp_path, stack, TABLES.format(one=one, two=two)) as space:
        space.script("counts.sql", COUNTS)
        yield space, two


def test_ended_inputs_leave_the_others_of_their_process_alone(stack: Stack, scene: tuple[Workspace, str]) -> None:
    """
    One of two inputs had ended: the other one runs. Then both have: nothing runs, and what came later is counted, for no topic holds it.
    """
    space, two = scene
    space.start("ingest", "one", "--until-end").finish()
    both = space.start("ingest", "one", "two", "--until-end")
    both.finish()
    assert [line["input"] for line in both.lines if line.get("had_ended")] == ["one"]
    assert [line["input"] for line in both.lines if line["event"] == "batch"] == ["two"]
    produce(stack.bootstrap, two, draw(6, 100, 1))
    both = space.start("ingest", "one", "two", "--until-end")
    both.finish()
    assert {line["input"]: line["records_since"] for line in both.lines if line.get("had_ended")} == {"one": 0, "two": 100}
    assert error_code(space.start("ingest", "one", "two")) == "TG-TOPIC-ENDED"


@pytest.mark.parametrize("flags", [(), pytest.param(("--until", "2024-03-01T00:00:20Z"), marks=pytest.mark.deep)])
def test_a_query_that_is_killed_at_its_end_ends_when_it_is_started_again(scene: tuple[Workspace, str], flags: tuple[str, ...]) -> None:
    """Its results are files alone, so no final CTI says that they are whole; nothing would ever come that could end the job."""
    space, _ = scene
    space.start("ingest", "one", "--until-end").finish()
    job = space.start("query", "counts.sql", *flags)
    job.until(lambda: bool(job.last.get("finished")), "it has read all")
    job.kill()
    assert error_code(space.start("query", "counts.sql", "--until", "2024-03-01T00:00:30Z")) in ("TG-TOPIC-ENDED", "TG-CHECKPOINT-SETTINGS")
    written = {file.name: file.read_bytes() for file in (space.folder / "counts").glob("*.ndjson")}
    for _ in range(2):
        assert space.start("query", "counts.sql", *flags).finish()["finished"]
    assert written == {file.name: file.read_bytes() for file in (space.folder / "counts").glob("*.ndjson")} != {}
