"""``tidegate verify`` on results that several runs wrote, each with a query of its own: every shape of query, files and tables too."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from confluent_kafka import Producer
from deltalake import DeltaTable
from support.stack.drawn_logs import draw
from support.stack.jobs import Job, Workspace, settings_of, workspace
from support.stack.topics import create, fresh, produce, records
from support.stack.verifying import run_verify, stage

from ordering.ticks import SECOND_US, format_tick
from tidegate.platform.kafka.admin import Admin

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration
EVENTS, PARTITIONS, RUNS = 1_500, 2, 3
EVERY = bool(os.environ.get("TIDEGATE_TEST_ALL_CASES"))
KEYS = ("a", "bb", "Zürich", None, *(f"key{number}" for number in range(8)))
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "k"
early = "1m"
late = "20s"
reorder = "2s"

[outputs.counts]
topic = "{topic}.counts"
"""
OUTPUT = """
[outputs.{shape}]
topic = "{topic}.{shape}"
files = "files/{shape}"
file_span = "20s"
plain_topic = "{topic}.{shape}.plain"
sink_in_job = true

[outputs.{shape}.delta]
path = "lake/{shape}"
"""
COUNTS = "SELECT k, COUNT(*) AS n INTO counts FROM events TIMESTAMP BY at OVER k GROUP BY k, TumblingWindow(second, 5)"
# Without OVER, with it over one input, over results, over two inputs: each advances and orders its results in another way.
_SELECT = "SELECT CAST(k AS nvarchar(max)) AS k, "
SHAPES = {
    "merged": _SELECT + "COUNT(*) + {change} AS n, SUM(v) AS total INTO merged FROM events TIMESTAMP BY at "
    "GROUP BY k, TumblingWindow(second, 5)",
    "over": _SELECT + "COUNT(*) + {change} AS n, SUM(v) AS total INTO over FROM events TIMESTAMP BY at OVER k "
    "GROUP BY k, TumblingWindow(second, 5)",
    "over_results": _SELECT + "CAST(SUM(n) AS bigint) + {change} AS n INTO over_results FROM counts TIMESTAMP BY System.Timestamp() OVER k "
    "GROUP BY k, TumblingWindow(second, 15)",
    "over_two_inputs": "SELECT CAST(e.k AS nvarchar(max)) AS k, e.v + {change} AS v, CAST(c.n AS bigint) AS n "
    "INTO over_two_inputs FROM events TIMESTAMP BY at OVER k e JOIN counts TIMESTAMP BY System.Timestamp() OVER k c "
    "ON e.k = c.k AND DATEDIFF(second, e, c) BETWEEN 0 AND 5",
}
# test_verify.py verifies one run of each of the others.
ALWAYS = {"merged"}
PLAYED = {shape: script for shape, script in SHAPES.items() if EVERY or shape in ALWAYS}


def make_runs(space: Workspace, topic: str) -> None:
    """Three runs of each shape, gone on with as docs/operate/starting.md says; each run adds another number to a column."""
    space.script("counts.sql", COUNTS)
    raws, each = draw(12, EVENTS, PARTITIONS, keys=KEYS, gaps_ms=(0, 20, 100, 200, 580)), EVENTS // RUNS
    for number in range(RUNS):
        is_last = number == RUNS - 1
        produce(space.stack.bootstrap, topic, raws[number * each : (number + 1) * each])
        # Small batches, for several CTIs: with OVER over several inputs results follow them.
        small = settings_of(inputs__events__max_events_per_batch=200, spark__trigger="50ms")
        ingest = space.start("ingest", "events", *small, *(["--until-end"] if is_last else [])).once_started()
        if not is_last:
            ingest.until(lambda: ingest.last.get("events_in") == each * (number + 1), "all events")  # noqa: B023
            ingest.stop()
        else:
            ingest.finish()
        flags = settings_of(query__max_events_per_batch=200)
        if any(" FROM counts " in script or " JOIN counts " in script for script in PLAYED.values()):
            _end(space.start("query", "counts.sql", *flags), 2, is_last=is_last)
        jobs = []
        for shape, script in PLAYED.items():
            shutil.rmtree(_checkpoint(space, topic, shape), ignore_errors=True)
            space.script(f"{shape}.sql", script.format(change=1_000 * number))
            jobs.append(space.start("query", f"{shape}.sql", *flags, *(["--start", "last-stopped"] if number else [])))
        for job in jobs:
            _end(job, 1, is_last=is_last)


def _checkpoint(space: Workspace, topic: str, shape: str) -> Path:
    return space.folder / ".tidegate/checkpoints" / f"query-{topic}.{shape}"


def _end(query: Job, batches: int, *, is_last: bool) -> None:
    if is_last:
        query.finish()
    else:
        query.until(lambda: query.batches >= batches and query.last["results"] > 0, "results")
        query.stop()


@dataclass(frozen=True, slots=True)
class Changed:
    """What three queries of one shape have written one after the other."""

    space: Workspace
    shape: str
    topic: str
    folder: Path

    @property
    def history(self) -> Path:
        """The history in the checkpoint's folder."""
        return self.folder / "queries.json"

    def verify(self, *flags: str, exit_code: int = 0) -> dict[str, Any]:
        """Verify the output; return what is told of its query, as told of the whole under ``told``."""
        needed = ("--query", f"{self.shape}={self.shape}.sql", "--query", "counts=counts.sql")
        told = run_verify(self.space, self.shape, *needed, *flags, exit_code=exit_code)
        return {**stage(told, self.shape), "told": told}

    def rows(self) -> list[Any]:
        """Return the messages of the result topic that are rows."""
        return [message for message in records(self.space.stack.bootstrap, self.topic) if (message.value() or b"")[:1] == b"{"]


@pytest.fixture(scope="module")
def all_runs(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workspace, str]]:
    """The runs of all shapes over one ordered topic."""
    topic = create(stack.bootstrap, fresh("changing"), PARTITIONS)
    tables = "".join([TABLES.format(topic=topic), *(OUTPUT.format(topic=topic, shape=shape) for shape in PLAYED)])
    with workspace(tmp_path_factory.mktemp("runs"), stack, tables) as space:
        make_runs(space, topic)
        yield space, topic


@pytest.fixture(params=[pytest.param(shape, marks=() if shape in ALWAYS else pytest.mark.deep) for shape in SHAPES])
def changed(request: pytest.FixtureRequest, all_runs: tuple[Workspace, str]) -> Changed:
    """The runs of each shape that is played."""
    space, topic = all_runs
    return Changed(space, request.param, f"{topic}.{request.param}", _checkpoint(space, topic, request.param))


def test_each_run_is_verified_by_its_own_query(changed: Changed) -> None:
    """Level 2: every row, file, transaction and table row of each run, by number, though no two of the queries give the same row."""
    told = changed.verify()
    assert told["told"]["equal"]
    assert len(told["runs"]) == RUNS
    rows = [run["rows"][changed.topic] for run in told["runs"]]
    assert min(rows) > 0
    published = {each["kind"]: each for each in told["published"]}
    assert set(published) == {"topic", "files", "table", "plain topic"}
    assert published["topic"]["rows"] == published["table"]["rows"] == sum(rows)
    assert published["files"]["files"] > RUNS
    assert published["plain topic"]["rows"] > 0
    assert not any("not checked" in note or "cannot be compared" in note for note in told["notes"])


def test_a_part_and_what_is_left_of_the_history_are_enough(changed: Changed) -> None:
    """From an instant within each run on, up to one, and with the history in Redis alone."""
    stamps_ms = sorted(message.timestamp()[1] for message in changed.rows())
    for place in (1, 4, 7):
        instant = format_tick(stamps_ms[len(stamps_ms) * place // 8] // 1000 * SECOND_US)
        for flag in ("--since", "--until"):
            assert changed.verify(flag, instant)["told"]["equal"], (flag, instant)
    kept = changed.history.read_text()
    changed.history.unlink()
    try:
        assert len(changed.verify()["runs"]) == RUNS
    finally:
        changed.history.write_text(kept)


def test_a_change_in_what_an_earlier_run_has_written_is_found_and_explained_by_its_query(changed: Changed) -> None:
    """A file of the first run, a row of its table, and a row of it in a copy of the topic."""
    path = min(path for path in (changed.space.folder / "files" / changed.shape).iterdir() if path.is_file())
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b'"n":', b'"n":9', 1))
    table = DeltaTable(str(changed.space.folder / "lake" / changed.shape))
    version, first = table.version(), json.loads(next(message.value() for message in changed.rows() if b'"k":"' in message.value()))
    table.update(updates={"n": "n + 5000"}, predicate=f"k = '{first['k']}'")
    try:
        told = changed.verify(exit_code=1)
    finally:
        path.write_bytes(kept)
        table.restore(version)
    found = {difference["where"] for difference in told["differences"]}
    assert str(path) in found
    assert any(where.startswith("delta") for where in found)
    assert changed.topic not in found

    copy = create(changed.space.stack.bootstrap, fresh("tampered"), PARTITIONS)
    producer, is_changed = Producer({"bootstrap.servers": changed.space.stack.bootstrap, "enable.idempotence": True}), False
    for message in records(changed.space.stack.bootstrap, changed.topic):
        value = message.value()
        if not is_changed and value[:1] == b"{":
            value, is_changed = value.replace(b'"n":', b'"n":9', 1), True
        stamp = {"timestamp": message.timestamp()[1], "headers": message.headers()}
        producer.produce(copy, value, message.key(), message.partition(), **stamp)
    assert producer.flush(30) == 0
    admin = Admin({"bootstrap.servers": changed.space.stack.bootstrap})
    own, other = (admin.require(name).topic_id for name in (changed.topic, copy))
    with redis.Redis.from_url(changed.space.stack.redis_url) as client:
        history = client.hgetall(f"tidegate:{{{changed.topic}}}:queries:{own}")
        client.hset(
            f"tidegate:{{{copy}}}:queries:{other}",
            mapping={number: run.replace(changed.topic.encode(), copy.encode()) for number, run in history.items()},
        )
    told = changed.verify("--set", f"outputs.{changed.shape}.topic={copy}", exit_code=1)
    (difference,) = [each for each in told["differences"] if each["where"] == copy]
    assert (difference["kind"], difference["equal_before"]) == ("changed", 0)
    assert any(line.startswith("column n: found 9") for line in told["because"])


def test_a_query_that_means_another_one_by_now_leaves_out_its_span(changed: Changed) -> None:
    """A column that is declared otherwise today: only the runs after it are verified, and a note says so."""
    kept = changed.history.read_text()
    runs = json.loads(kept)
    runs[0]["plan"] += " of another version"
    changed.history.write_text(json.dumps(runs))
    try:
        told = changed.verify()
    finally:
        changed.history.write_text(kept)
    assert told["told"]["equal"]
    assert 0 < len(told["runs"]) < RUNS
    assert any("means another query" in note for note in told["notes"])
    assert any("cannot be compared" in note for note in told["notes"])


def test_a_history_that_others_wrote_is_no_premise(all_runs: tuple[Workspace, str]) -> None:
    """All results then count as written by the present query: they differ, without a traceback."""
    space, topic = all_runs
    changed = Changed(space, "merged", f"{topic}.merged", _checkpoint(space, topic, "merged"))
    kept = changed.history.read_text()
    changed.history.write_text(json.dumps([{**run, "promises": 5} for run in json.loads(kept)]))
    try:
        told = changed.verify(exit_code=1)
    finally:
        changed.history.write_text(kept)
    assert len(told["runs"]) == 1
