"""
Queries that fail in every row, and queries whose workers die, beside a query over the same ordered topic that is fine: but for a kill.

The fine one has what goes its own way below SQL: JavaScript, anomalies, geography, patterns of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.query_told import Told, check_results, input_table, told
from faults.query_topics import Writer
from support.bucket_oracle import parsed
from support.bucket_runs import dense
from support.bucket_topics import Topic
from support.composed_scripts import compose_scripts
from support.stack.jobs import Job, Workspace, settings_of, workspace
from support.stack.topics import fresh, header, read_ordered, records

from ordering.ticks import INFINITY

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

START_US, TICK_US = 1_709_251_200_000_000, 1_000
FINE = "tumbling", "joined", "scripted", "scripted_windows", "anomalies", "places", "near", "matched"
BESIDE = "session"
FUNCTIONS = """
import os, signal
from query.extensions import ScalarFunction

def raising(values):
    raise ValueError("every time")

def dying(values):
    os.kill(os.getpid(), signal.SIGKILL)

raises = ScalarFunction(raising, ("nvarchar(max)",), "bigint")
dies = ScalarFunction(dying, ("nvarchar(max)",), "bigint")
"""
SOUR = """
SELECT CAST(CONCAT('x', k) AS bigint) AS n INTO cast_fails FROM keyed TIMESTAMP BY t OVER k WHERE w = 1;
SELECT udf.raises(CAST(k AS nvarchar(max))) AS n INTO udf_fails FROM keyed TIMESTAMP BY t OVER k WHERE w <> 1;
"""
DYING = "SELECT udf.dies(CAST(k AS nvarchar(max))) AS n INTO died FROM keyed TIMESTAMP BY t OVER k"
DEATHS = 2
Log = list[tuple[int | None, int | None, bytes | None, bytes | None, bytes]]


@dataclass
class Side:
    """What became of jobs side by side, and what stood in the ordered topic before and after."""

    stack: Stack
    name: str
    topic: Topic
    fine: Told
    beside: Told
    codes: list[int]
    errors: list[str]
    before: Log
    after: Log

    def dead(self, output: str) -> list[tuple[bytes, str]]:
        """Payload and reason of each dead letter of a job."""
        topic = f"{self.name}.{output}.dead"
        return [(message.value() or b"", header(message, "reason").decode()) for message in records(self.stack.bootstrap, topic)]

    def compared(self, output: str, expected: Told) -> int:
        """Hold a result topic against what is told; return how many results that were."""
        found = read_ordered(self.stack.bootstrap, f"{self.name}.{output}", len(self.topic.partitions))
        return check_results(output, found, expected, whole=True)


def log_of(stack: Stack, topic: str) -> Log:
    """Return all that stands in a topic."""
    return [(each.partition(), each.offset(), each.key(), each.value(), header(each, "tg")) for each in records(stack.bootstrap, topic)]


def has_some(stack: Stack, topic: str) -> bool:
    """Tell whether a result topic has records."""
    return next(records(stack.bootstrap, topic), None) is not None


def offering(folder: Path) -> dict[str, str]:
    """Make a package that offers the functions; return the environment in which it is installed."""
    told_by = folder / "harmful-1.0.dist-info"
    told_by.mkdir(parents=True)
    (folder / "harmful.py").write_text(FUNCTIONS)
    (told_by / "METADATA").write_text("Metadata-Version: 2.1\nName: harmful\nVersion: 1.0\n")
    (told_by / "entry_points.txt").write_text("[tidegate.functions]\nraises = harmful:raises\ndies = harmful:dies\n")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def side(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """Three jobs read one topic while it is written: a fine one, killed once; one that fails in every row; one whose workers die."""
    folder, name = tmp_path_factory.mktemp("failing"), fresh("failing")
    raw = dense(11, 100, start_us=START_US, tick_us=TICK_US)
    topic = raw.topic(6, 2, over=True, vouched=True)
    writer = Writer(stack.bootstrap, name, topic, 3)
    outputs = [*FINE, "cast_fails", "udf_fails", BESIDE, "died"]
    tables = [input_table(name, over=True, typed=False), *(f'[outputs.{each}]\ntopic = "{name}.{each}"' for each in outputs)]
    scripts = {"fine": compose_scripts(FINE, over=True, unit="ms"), "beside": compose_scripts([BESIDE], over=True, unit="ms")}
    expected = {each: told(script, raw, topic, {}, over=True, typed=False, second_us=INFINITY, other=0) for each, script in scripts.items()}
    environment = offering(folder / "site")
    with workspace(folder / "jobs", stack, "\n\n".join(tables) + "\n") as space:
        space.script("fine.sql", scripts["fine"])
        space.script("sour.sql", SOUR + scripts["beside"])
        space.script("dying.sql", DYING)
        writer.write()
        before = log_of(stack, name)
        small = settings_of(query__max_events_per_batch=60, spark__trigger="0s")
        fine, sour = space.start("query", "fine.sql", *small), space.start("query", "sour.sql", *small, **environment)
        deaths = [_died(space, small, environment)]
        writer.write()
        fine.until(lambda: fine.last.get("results", 0) > 0, "results of the fine query")
        fine.kill()
        deaths += [_died(space, small, environment) for _ in range(DEATHS - 1)]
        assert all(has_some(stack, f"{name}.{output}") for output in FINE), "it had written into each output when it was killed"
        writer.write()
        fine = space.start("query", "fine.sql", *small)
        for job in (fine, sour):
            assert job.finish()["finished"]
        yield Side(
            stack,
            name,
            topic,
            expected["fine"],
            expected["beside"],
            [job.wait() for job in deaths],
            [job.errors for job in deaths],
            before,
            log_of(stack, name),
        )


def _died(space: Workspace, flags: list[str], environment: dict[str, str]) -> Job:
    """Start the query whose workers die; return it when it has ended."""
    job = space.start("query", "dying.sql", *flags, **environment)
    job.wait()
    return job


def test_a_fine_query_beside_failing_ones_gives_what_it_gives_alone(side: Side) -> None:
    """Law, level 2: the same bytes, whatever becomes of other jobs over the same topic, and though it was killed midway."""
    counts = {output: side.compared(output, side.fine) for output in FINE}
    assert min(counts.values()) > 20, counts


def test_a_query_that_fails_in_every_row_ends_well_and_harms_no_query_beside_it_in_the_job(side: Side) -> None:
    """Law, level 2: each row is a dead letter that says why, and the other output of the job is whole."""
    assert side.compared(BESIDE, side.beside) > 50
    reasons = dict(side.dead("cast_fails"))
    payloads = {event.value: parsed(event.value) for event in side.topic.truth}
    with_w = {value: row["w"] for value, row in payloads.items() if isinstance(row, dict) and row.get("w") in (0, 1)}
    assert all(("CAST" if w else "ValueError: every time") in reasons[value] for value, w in with_w.items())
    assert set(with_w.values()) == {0, 1}
    for output in ("cast_fails", "udf_fails"):
        found = read_ordered(side.stack.bootstrap, f"{side.name}.{output}", len(side.topic.partitions))
        assert not found.all_events()
        assert {found.c(channel) for channel in found.ctis} == {INFINITY}, "time goes on where nothing comes of it"


def test_a_query_whose_workers_die_says_so_and_writes_nothing(side: Side) -> None:
    """Each time it is started."""
    assert len(side.codes) == DEATHS
    assert all(code not in (0, -9) for code in side.codes), "a worker died, not the job's own process"
    assert all("a Python worker of the job has ended" in errors for errors in side.errors)
    found = read_ordered(side.stack.bootstrap, f"{side.name}.died", len(side.topic.partitions))
    assert not found.all_events()


def test_failing_queries_leave_the_ordered_topic_as_it_was(side: Side) -> None:
    """Level 1: whoever reads it, what stands in it stays, byte by byte, and nothing comes but from its writers."""
    before = set(side.before)
    assert before
    assert [entry for entry in side.after if entry in before] == side.before
    assert len(side.after) == sum(map(len, side.topic.partitions))
