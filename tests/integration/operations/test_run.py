"""
``tidegate run``: all stages of a configuration in one process write what each writes in a process of its own.

Levels 1 and 3: the same raw topics ordered and queried both ways. What topics hold is equal by the reader's rule - undisturbed, by the
command too - and files byte by byte. No query has OVER: its results would be equal key by key, in an order of keys that follows from the
batches. What the stages write in processes of their own is played once for all tests. ``make test`` kills once; ``make test-deep`` kills
each kind of process.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from support.stack.drawn_logs import draw
from support.stack.jobs import Job, Workspace, workspace
from support.stack.servers import Stack
from support.stack.topics import create, fresh, produce, read_ordered

from tidegate.platform.kafka.admin import Admin
from tidegate.testing.stack.real_stack import session_of

pytestmark = [pytest.mark.integration, pytest.mark.heavy]

TABLES = """
[inputs.one]
topic = "{one}"
ordered_topic = "{tag}.one"
timestamp_by = "at"
late = "20s"
reorder = "2s"

[inputs.two]
topic = "{two}"
ordered_topic = "{tag}.two"
timestamp_by = "at"
late = "20s"

[outputs.counts]
topic = "{tag}.counts"
files = "counts"

[outputs.sums]
topic = "{tag}.sums"

[outputs.pairs]
topic = "{tag}.pairs"

[queries.sums]
script = "sums.sql"
into = "sums"

[queries.pairs]
script = "pairs.sql"

[queries.counts]
script = "counts.sql"
"""
SCRIPTS = {
    "counts.sql": "SELECT k, COUNT(*) AS n, SUM(v) AS v INTO counts FROM one TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 5)",
    "sums.sql": "SELECT SUM(n) AS n, SUM(v) AS v FROM counts GROUP BY TumblingWindow(second, 20)",
    "pairs.sql": (
        "SELECT s.n AS n, two.v AS v INTO pairs FROM sums AS s JOIN two TIMESTAMP BY at ON DATEDIFF(second, s, two) BETWEEN 0 AND 2"
    ),
}
TOPICS = ("one", "two", "counts", "sums", "pairs")


@pytest.fixture(scope="module")
def raw(stack: Stack) -> dict[str, str]:
    """Two raw topics with seeded disorder."""
    topics = {name: create(stack.bootstrap, fresh(name), 2) for name in ("one", "two")}
    for seed, topic in enumerate(topics.values()):
        produce(stack.bootstrap, topic, draw(seed, 3_000, 2, keys=("a", "bb", "ccc", "d")))
    return topics


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, stack: Stack, raw: dict[str, str]) -> Iterator[tuple[Workspace, str]]:
    """What stages write in processes of their own: played once, compared with every test's."""
    with ExitStack() as opened:
        space, tag = project(opened, stack, tmp_path_factory.mktemp("apart") / "apart", raw)
        run_apart(space)
        yield space, tag


@pytest.fixture
def open_() -> Iterator[ExitStack]:
    """Workspaces are closed at the end of the test."""
    with ExitStack() as opened:
        yield opened


def project(opened: ExitStack, stack: Stack, folder: Path, raw: dict[str, str], more: str = "") -> tuple[Workspace, str]:
    """Return a project of its own over the raw topics, and how its topics begin."""
    folder.mkdir()
    tag = fresh(folder.name)
    space = opened.enter_context(workspace(folder, stack, TABLES.format(tag=tag, **raw) + more))
    for name, text in SCRIPTS.items():
        space.script(name, text)
    return space, tag


def run_apart(space: Workspace) -> None:
    """Run each stage in a process of its own, to the end."""
    space.start("ingest", "one", "two", "--until-end").finish()
    for name in ("counts", "sums", "pairs"):
        space.start("query", name).finish()


def check_equal(space: Workspace, tag: str, apart: tuple[Workspace, str]) -> None:
    """Compare what all topics hold by the reader's rule, and the files."""
    other, other_tag = apart
    for topic in TOPICS:
        assert rows_of(space, f"{tag}.{topic}") == rows_of(other, f"{other_tag}.{topic}") != {}, topic
    files, others = ({file.name: file.read_bytes() for file in (each.folder / "counts").iterdir()} for each in (space, other))
    assert files == others != {}


def rows_of(space: Workspace, topic: str) -> dict[tuple[int, int], list[tuple[int, int, bytes | None, bytes | None]]]:
    """Return number, time, key and value of what each channel of a topic holds."""
    bootstrap = space.stack.bootstrap
    found = read_ordered(bootstrap, topic, Admin({"bootstrap.servers": bootstrap}).require(topic).partitions)
    return {channel: [(each.seq, each.system_us, each.key, each.value) for each in events] for channel, events in found.events.items()}


def test_one_process_and_many_write_the_same(
    open_: ExitStack, stack: Stack, tmp_path: Path, raw: dict[str, str], apart: tuple[Workspace, str]
) -> None:
    """Two inputs, and three queries that read each other's results; listed in another order than that of the data."""
    together, tag = project(open_, stack, tmp_path / "together", raw)
    job = together.start("run", "--until-end")
    assert job.wait() == 0, job.errors[-3000:]
    ends = {line["stage"]: line["phase"] for line in job.lines if line["event"] == "end"}
    assert ends == dict.fromkeys(("ingest:one", "ingest:two", "query:counts", "query:sums", "query:pairs"), "ended")
    check_equal(together, tag, apart)
    for topic in TOPICS:
        compared = together.start("compare", f"{tag}.{topic}", f"{apart[1]}.{topic}")
        assert compared.wait() == 0, json.dumps(compared.lines, default=str)


def test_kills_of_the_process_and_stages_that_move_change_nothing(
    open_: ExitStack, stack: Stack, tmp_path: Path, raw: dict[str, str], apart: tuple[Workspace, str]
) -> None:
    """
    kill -9 of driver, planner, JVM and workers at a drawn moment; then one query runs in a process of its own.

    Only what is killed has a JVM of its own.
    """
    together, tag = project(open_, stack, tmp_path / "together", raw)
    job = start_in_small_batches(together, 200)
    job.until(lambda: job.batches > 0, "it has begun")
    time.sleep(random.Random(7).uniform(0, 4))
    job.kill()
    moved = together.start("query", "counts")
    # The first batch may have been the other input's, so that there is nothing to read yet.
    moved.until(lambda: moved.batches > 0 or '"ahead": 0' in moved.errors, "it has read")
    moved.stop()
    job = together.start("run", "--until-end")
    assert job.wait() == 0, job.errors[-3000:]
    check_equal(together, tag, apart)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(4))
def test_whichever_process_is_killed_the_topics_are_equal(
    seed: int, open_: ExitStack, stack: Stack, tmp_path: Path, raw: dict[str, str], apart: tuple[Workspace, str]
) -> None:
    """kill -9 of one kind of process or of all, six times; who ends by it is started again, as a service manager would."""
    dice = random.Random(seed)
    together, tag = project(open_, stack, tmp_path / "together", raw)
    kinds = [*VICTIMS, dice.choice(VICTIMS)]
    dice.shuffle(kinds)
    job = start_in_small_batches(together, 60)
    for kind in kinds:
        if not job.running:
            job = start_in_small_batches(together, 60)
        job.until(lambda job=job: job.batches > 0, "it has begun")
        time.sleep(dice.uniform(0, 4))
        if kind == "all":
            job.kill()
        else:
            kill_one_kind(job, kind)
            time.sleep(dice.uniform(0, 4))
    job.end()
    job = together.start_alone("run", "--until-end")
    assert job.wait() == 0, job.errors[-3000:]
    check_equal(together, tag, apart)


VICTIMS = ("all", "driver", "java", "python_streaming_source_runner", "pyspark.worker")


def start_in_small_batches(space: Workspace, events_max: int) -> Job:
    """Start all stages, in a process session of their own."""
    small = [f"inputs.{name}.max_events_per_batch={events_max}" for name in ("one", "two")]
    return space.start_alone("run", *(word for setting in small for word in ("--set", setting)))


def kill_one_kind(job: Job, kind: str) -> None:
    """Kill the driver, or the processes of a job in whose command line *kind* stands; there is one at least."""
    victims = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            is_driver = process.pid == job.pid
            if session_of(process.pid) == job.pid and (
                is_driver if kind == "driver" else not is_driver and kind in " ".join(process.cmdline())
            ):
                process.kill()
                victims += 1
    assert victims or not job.running, f"no {kind} runs"


def test_a_stage_that_fails_for_good_stops_no_other(
    open_: ExitStack, stack: Stack, tmp_path: Path, raw: dict[str, str], apart: tuple[Workspace, str]
) -> None:
    """A script is wrong; its neighbours come to their end."""
    more = '[queries.wrong]\nscript = "wrong.sql"\ninto = "other"\n[outputs.other]\ntopic = "other"\n'
    together, tag = project(open_, stack, tmp_path / "together", raw, more)
    together.script("wrong.sql", "SELECT nothing FROM")
    job = together.start("run", "--until-end")
    assert job.wait() == 2
    assert "TG-QUERY" in job.errors
    check_equal(together, tag, apart)


def test_a_stage_waits_for_the_topic_that_another_process_makes(
    open_: ExitStack, stack: Stack, tmp_path: Path, raw: dict[str, str]
) -> None:
    """Picked stages start in any order; what they wait for is said."""
    space, _ = project(open_, stack, tmp_path / "picked", raw)
    queries = space.start("run", "query:counts", "query:sums")
    queries.until(lambda: "TG-TOPIC-MISSING" in queries.errors, "it waits")
    assert space.start("run", "ingest:one", "--until-end").wait() == 0
    assert queries.wait() == 0, queries.errors[-3000:]
    assert {line["stage"] for line in queries.lines if line["event"] == "end"} == {"query:counts", "query:sums"}
