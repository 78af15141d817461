"""``tidegate status``: what jobs have said about themselves, also those that say nothing any more."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.stack.commands import run_command
from support.valkey_server import Server

from ordering.errors import RefusedError
from tidegate.platform.observe.progress_store import JobProgress, ProgressPublisher
from tidegate.platform.observe.recovery_report import CatchUpReport, Recovery, RecoveryKind
from tidegate.platform.observe.reports import BucketReport, IngestReport
from tidegate.platform.observe.result_delays import RecentDelays
from tidegate.tools.commands.status import JobStatus

RECOVERY = CatchUpReport(Recovery(RecoveryKind.CHECKPOINT, {("a", 0): 10}, {("a", 0): 5_010}, batch=7, repeats_batch=True))
TABLES = """
[inputs.lives]
[inputs.stopped]
[inputs.failed]
[inputs.gone]
[inputs.never]
[inputs.waits]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Redis to which four jobs have told how they are."""
    made = Server(tmp_path_factory.mktemp("valkey"))
    long_ago_ms = time.time_ns() // 1_000_000 - 60_000
    report = IngestReport("a", 0, complete_us=10**15, next_offset=10)
    for name in ("stopped", "failed"):
        try:
            with ProgressPublisher(made.settings(), f"{name}.ordered", input=name) as published:
                published.publish([report])
                if name == "failed":
                    raise RefusedError("the raw topic is gone", code="TG-TOPIC-MISSING")
        except RefusedError:
            pass
    gone = ProgressPublisher(made.settings(), "gone.ordered", input="gone", wall_ms=lambda: long_ago_ms)
    lives = ProgressPublisher(made.settings(), "lives.ordered", input="lives", recovery=RECOVERY.as_dict(), lag=5_000)
    both = ProgressPublisher(made.settings(), "t.first", query="first", outputs=["first", "second"], lag=7)
    waits = ProgressPublisher(made.settings(), "waits.ordered", input="waits")
    with gone, lives, both, waits:
        for each in (gone, lives):
            each.publish([report])
        lives.update_job(
            state="replaying", breaks={"in_words": "of the recent events 98 % are late", "fix": "raise late", "policy": "late"}
        )
        both.publish([BucketReport(number, totals={"results": 9, "results_too_large": 600, "bad_rows": number}) for number in range(2)])
        recent = RecentDelays()
        recent.add([("first", {120: 99, 4_000: 9}), ("second", {7: 1})])
        both.update_job(state="live", delays=recent.as_dicts())
        waits.update_job(state="live", waits_for="waiting for Kafka: no broker answers")
        time.sleep(1.5)
        yield made
    made.kill()


def ingest_report(partition: int, **members: Any) -> IngestReport:
    """The report of a partition, by members of its JSON."""
    return IngestReport.of_dict({"topic": "a", "partition": partition, **members})


def status(server: Server, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder with the tables."""
    return command(server, folder, "status", *arguments)


def command(server: Server, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run any command there."""
    (folder / "tidegate.toml").write_text(TABLES)
    environment = os.environ | {"TIDEGATE_REDIS__URL": f"redis://127.0.0.1:{server.port}/0", "COLUMNS": "200"}
    return run_command(folder, *arguments, environment=environment)


def test_each_job_is_shown_with_its_state_also_when_it_is_gone(server: Server, tmp_path: Path) -> None:
    """For programs: state, what it resumed from, how far behind; a failed job with its error; exit code 1, as not all is well."""
    shown = status(server, tmp_path, "--format", "json")
    jobs: dict[str, dict[str, Any]] = {job["job"].removeprefix("ingest "): job for job in json.loads(shown.stdout)["jobs"]}
    states = {name: job["state"] for name, job in jobs.items()}
    assert states == {
        "lives": "replaying",
        "stopped": "stopped",
        "failed": "failed",
        "gone": "gone",
        "never": "never started",
        "waits": "waiting",
    }
    assert jobs["failed"]["failure"]["code"] == "TG-TOPIC-MISSING"
    assert jobs["lives"]["lag"] == 5_000
    assert jobs["lives"]["recovery"]["in_words"] == "checkpoint of batch 7, batch 8 is run again"
    assert jobs["lives"]["watermark"] == "2001-09-09T01:46:40Z"
    assert jobs["never"] == {"job": "ingest never", "topic": "never.ordered", "state": "never started", "watermark": None}
    assert shown.returncode == 1


def test_every_output_of_a_script_is_shown_as_its_one_job_tells_it(server: Server, tmp_path: Path) -> None:
    """Which of them is asked for makes no difference."""
    tables = '[outputs.first]\ntopic = "t.first"\n[outputs.second]\nfiles = "out"\n[outputs.third]\ntopic = "t.third"\n'
    (tmp_path / "queries.toml").write_text(tables)
    shown = status(server, tmp_path, "--config", "queries.toml", "--format", "json")
    told = {job["job"]: tuple(map(job.get, ("topic", "state", "lag", "results_too_large"))) for job in json.loads(shown.stdout)["jobs"]}
    assert told == {
        "query first": ("t.first", "live", 7, 1_200),
        "query second": ("second", "live", 7, 1_200),
        "query third": ("t.third", "never started", None, None),
    }
    for_people = status(server, tmp_path, "first", "--config", "queries.toml").stdout
    assert "query first: 1,200 results are dead letters: too large for their topic" in for_people
    assert "query first: 1 events are dead letters: the query failed on them" in for_people
    delays = "half of the last 108 results came within 120 ms of their raw records' arrival, 99 % within 4.0 s"
    assert f"query first: {delays}\n" in for_people
    assert "second" not in for_people
    assert status(server, tmp_path, "second", "--config", "queries.toml").returncode == 0
    assert status(server, tmp_path, "third", "--config", "queries.toml").returncode == 1


def test_people_get_a_table(server: Server, tmp_path: Path) -> None:
    """One line a job; when a job was last seen is told where it does not run, and why it failed below."""
    shown = status(server, tmp_path).stdout
    lines = {line.split()[1]: line for line in shown.splitlines() if line.strip().startswith("ingest ")}
    assert "checkpoint of batch 7, batch 8 is run again" in lines["lives"]
    assert re.search(r"gone, seen \d+m", lines["gone"])
    assert "stopped, seen" in lines["stopped"]
    assert "TG-TOPIC-MISSING: the raw topic is gone" in shown
    assert "ingest waits: waiting for Kafka: no broker answers" in shown
    assert "ingest lives: of the recent events 98 % are late: raise late" in shown


@pytest.mark.parametrize(("name", "code"), [("lives", 0), ("stopped", 1), ("never", 1), ("gone", 1), ("waits", 1), ("nobody", 2)])
def test_the_exit_code_tells_whether_a_job_runs(server: Server, tmp_path: Path, name: str, code: int) -> None:
    """For health checks: 0 only if the job that was named runs; a name that is not configured is wrong use."""
    assert status(server, tmp_path, name).returncode == code


def test_a_redis_that_does_not_answer_is_told(tmp_path: Path) -> None:
    """Then nothing is known of the jobs."""
    server = Server(tmp_path)
    server.kill()
    (tmp_path / "here").mkdir()
    shown = status(server, tmp_path / "here", "lives", "--set", "redis.connect_timeout=1s")
    assert shown.returncode == 4
    assert "TG-REDIS-UNREACHABLE" in shown.stderr


def test_a_job_that_has_told_no_time_yet_has_no_watermark() -> None:
    """Nothing is made up."""
    told = JobProgress("t", {"state": "live", "at_ms": 5}, {("a", 0): ingest_report(0), ("a", 1): ingest_report(1, c=10**15)})
    assert JobStatus.of("ingest a", "t", told, 10).watermark is None
    assert JobStatus.of("ingest a", "t", JobProgress("t", {}, {}), 10).state == "never started"


def test_held_events_are_told_with_what_the_watermark_waits_for() -> None:
    """The slowest partition is named, of a job that runs."""
    reports = {
        ("a", 0): ingest_report(0, c=10**15, held=1_000, cause="event"),
        ("a", 1): ingest_report(1, c=10**15 + 1, held=331, cause="estimate"),
    }
    job = {"state": "live", "at_ms": 0}
    shown = JobStatus.of("ingest a", "a.ordered", JobProgress("a.ordered", job, reports), 1)
    assert (
        shown.waiting
        == "1,331 events held; the watermark of a-0 follows its events: a newer one moves it, or silence that is longer than `late`"
    )
    assert (shown.as_dict()["held"], shown.as_dict()["slowest"]) == (1_331, {"partition": "a-0", "cause": "event"})
    gone = JobStatus.of("ingest a", "a.ordered", JobProgress("a.ordered", job, reports), 10**6)
    assert (gone.state, gone.waiting) == ("gone", "")


def test_held_events_that_silence_does_not_release_are_told_with_the_reason() -> None:
    """A topic whose timestamps are its producers' stands still with them, while the job is live and behind by nothing."""
    reason = "silence moves no time here, since the topic's timestamps are the producers' (CreateTime)"
    reports = {("a", 0): ingest_report(0, c=10**15, held=1_331, cause="event")}
    job = {"state": "live", "at_ms": 0, "stands_still": reason}
    shown = JobStatus.of("ingest a", "a.ordered", JobProgress("a.ordered", job, reports), 1)
    assert shown.waiting == f"1,331 events held; {reason}"
    assert shown.as_dict()["stands_still"] == reason


def test_a_job_that_waits_for_what_does_not_come_is_waiting() -> None:
    """What it waits for is shown; one that is gone waits for nothing."""
    job = {"state": "live", "at_ms": 0, "waits_for": "waiting for a Spark worker: 0 cores free, 2 wanted"}
    shown = JobStatus.of("ingest a", "a.ordered", JobProgress("a.ordered", job, {}), 1)
    assert (shown.state, shown.as_dict()["waits_for"]) == ("waiting", job["waits_for"])
    assert JobStatus.of("ingest a", "a.ordered", JobProgress("a.ordered", job | {"waits_for": ""}, {}), 1).state == "live"
    assert JobStatus.of("ingest a", "a.ordered", JobProgress("a.ordered", job, {}), 10**6).state == "gone"


GARBAGE = {
    "job of no JSON": ("job", b"\x00{["),
    "job of another kind": ("job", b"[1, 2]"),
    "job with a time that is none": ("job", b'{"at_ms": "tomorrow", "state": "live"}'),
    "job with a time beyond all times": ("job", b'{"at_ms": 99999999999999999999, "state": "live"}'),
    "job with half a failure": ("job", b'{"at_ms": 1, "state": "stopped", "failure": {"code": "X"}}'),
    "job nested without end": ("job", b"[" * 100_000),
    "job of NaN": ("job", b'{"at_ms": NaN}'),
    "job that is no text": ("job", b"\xff\xfe\xfa"),
    "a watermark that is none": ("a/0", b'{"at_ms": 1, "c": "soon"}'),
    "totals that are none": ("a/0", b'{"at_ms": 1, "c": 5, "totals": {"held": "many"}}'),
    "substreams that are none": ("a/0", b'{"at_ms": 1, "c": 5, "substreams": "many"}'),
    "seconds that are none": ("a/0", b'{"at_ms": 1, "c": 5, "seconds": {"read": -1}}'),
    "half a jump": ("a/0", b'{"at_ms": 1, "c": 5, "jump": {"by_us": 3}}'),
    "a bucket's gap that is none": ("bucket/0", b'{"at_ms": 1, "bucket": 0, "waiting": [["a", 0]]}'),
    "shares of NULL that are none": ("bucket/0", b'{"at_ms": 1, "bucket": 0, "nulls": {"a": [1, {"b": [1]}]}}'),
    "a report that is a list": ("bucket/0", b"[]"),
    "a partition that is none": ("a/zero", b"{}"),
    "a replay of nothing": ("replay", b'{"records": -1}'),
    "a field of megabytes": ("a/1", b'"' + b"x" * 2**21 + b'"'),
    "a key of another kind": ("", b"no hash"),
}


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Redis in which somebody has written over what jobs publish."""
    made = Server(tmp_path_factory.mktemp("strange"))
    yield made
    made.kill()


@pytest.mark.parametrize("why", GARBAGE)
def test_garbage_in_one_field_hides_no_job_and_is_named(why: str, strange: Server, tmp_path: Path) -> None:
    """Status and watermarks show the other jobs; the command that they print for the field makes all well."""
    field, text = GARBAGE[why]
    key = "tidegate:{stopped.ordered}:progress"
    raw = redis.Redis(port=strange.port)
    raw.flushall()
    for name in ("stopped", "lives"):
        with ProgressPublisher(strange.settings(), f"{name}.ordered", input=name) as published:
            published.publish([IngestReport("a", 7, complete_us=10**15, next_offset=10)])
    if field:
        raw.hset(key, field, text)
    else:
        raw.set(key, text)
    tables = "[inputs.lives]\n[inputs.stopped]\n"
    (tmp_path / "both.toml").write_text(tables)
    shown = status(strange, tmp_path, "--config", "both.toml")
    assert "Traceback" not in shown.stderr
    assert shown.returncode == 1
    assert "ingest lives" in shown.stdout
    (line,) = [line for line in shown.stdout.splitlines() if "is not as jobs write it" in line]
    assert key in line
    told = json.loads(status(strange, tmp_path, "--config", "both.toml", "--format", "json").stdout)["jobs"]
    assert [job["job"] for job in told if "unreadable_fields" in job] == ["ingest stopped"]
    watched = command(strange, tmp_path, "watermarks", "--once", "--config", "both.toml")
    assert watched.returncode == 0, watched.stderr
    assert key in watched.stdout
    typed = shlex.split(line.rpartition("redis-cli ")[2])
    raw.execute_command(*typed)
    assert status(strange, tmp_path, "--config", "both.toml").returncode == 0


def test_a_question_that_is_none_does_not_end_the_publishing(strange: Server, tmp_path: Path) -> None:
    """The driver reads questions from Redis too: it passes over what is no question."""
    raw = redis.Redis(port=strange.port)
    with ProgressPublisher(strange.settings(), "asked.ordered", folder=tmp_path, every_s=0.01, input="asked") as published:
        for number, question in enumerate((b"[", b"5", b'{"substreams": "all"}', b'{"substreams": 99999999}', b"\xff")):
            raw.set("tidegate:{asked.ordered}:asked", question)
            published.update_job(lag=number)
            for _ in range(200):
                if f'"lag": {number}'.encode() in (raw.hget("tidegate:{asked.ordered}:progress", "job") or b"").replace(b":", b": "):
                    break
                time.sleep(0.02)
            else:
                raise AssertionError(f"nothing was published after the question {question!r}")
    assert not (tmp_path / "asked.json").exists()
