"""
Recovering: kill -9 of a whole ingest job, twice, at moments nobody chose: the ordered topic stays what one run would have
written, and each start says what it goes on from. What nothing can be gone on with is refused: a topic made again.
"""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.chance import dice_of
from support.stack.drawn_logs import draw, expected, logs_of
from support.stack.jobs import Workspace, error_code, settings_of, workspace
from support.stack.keyed_input import POLICIES, TABLES
from support.stack.topics import check_promises, create, delete, fresh, produce, read_ordered

from ordering.ticks import INFINITY
from tidegate.platform.stack.embedded import free_port

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, BATCHES, PARTITIONS = 16_000, 16, 2


def test_killed_twice_ingest_writes_what_an_undisturbed_run_writes(stack: Stack, tmp_path: Path) -> None:
    """Law, level 1, over kill -9 (test_run.py kills the JVM too): no event lost, none twice, none in another place; promises hold."""
    dice = dice_of("kills of ingest")
    raws = draw(2, EVENTS, PARTITIONS, keys=[f"key{number}" for number in range(200)])
    topic = create(stack.bootstrap, fresh("killed"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        arguments = "ingest", "events", "--until-end"
        small = settings_of(inputs__events__max_events_per_batch=EVENTS // BATCHES)
        for batches in (2, 3):
            job = space.start(*arguments, *small)
            job.until(lambda job=job, batches=batches: job.batches >= batches, f"{batches} batches")  # type: ignore[misc]
            time.sleep(dice.uniform(0, 1.5))
            assert job.running, "it was to be killed in the middle"
            job.kill()
            half_way = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
            assert not half_way.ended
            check_promises(half_way)
        summary = space.start(*arguments).finish()
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
    assert found.events == expected(logs_of(raws, PARTITIONS), POLICIES, PARTITIONS, over=True)
    check_promises(found)
    assert {found.c(channel) for channel in found.ctis} == {INFINITY}
    assert summary["events_in"] == EVENTS, "counts survive the kills too"
    report = summary["recovery"]
    assert report["how"] == "checkpoint"
    assert report["batch"] >= 2
    assert report["ahead"] == EVENTS - sum(report["from"].values())
    assert report["behind"] == 0
    assert report["caught_up_after_s"] > 0


TWO_INPUTS = """
[inputs.one]
topic = "{one}"

[inputs.other]
topic = "{other}"
"""


def test_a_topic_made_again_under_its_name_fails_its_input_and_leaves_the_other_running(stack: Stack, tmp_path: Path) -> None:
    """
    Nothing of the new topic gets into the ordered topic of the old one, neither while the job runs nor at its next start.

    Two inputs share the process. The failure is seen in log, status and metrics; the other input orders what still comes, and the
    process ends with the failure's code.
    """
    raws, port = draw(4, 2_000, 1), free_port()
    one, other = (create(stack.bootstrap, fresh(name), 1) for name in ("remade", "kept"))
    for topic in (one, other):
        produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path, stack, TWO_INPUTS.format(one=one, other=other)) as space:
        job = space.start("ingest", "one", "other", *settings_of(metrics__port=port))
        job.until(lambda: {line["input"] for line in job.lines if line.get("events_in") == 2_000} == {"one", "other"}, "both inputs")
        job.until(lambda: space.start("status", "one", "other").wait() == 0, "both jobs are known to run")
        assert inputs_up(port) == {"one": 1, "other": 1}
        before = read_ordered(stack.bootstrap, f"{one}.ordered", 1)
        delete(stack.bootstrap, one)
        create(stack.bootstrap, one, 1)
        produce(stack.bootstrap, one, [*raws, *raws])
        job.until(lambda: any(line["event"] == "failed" for line in job.lines), "the failure is told")
        told = next(line for line in job.lines if line["event"] == "failed")
        assert (told["input"], told["failure"]["code"]) == ("one", "TG-TOPIC-RECREATED")
        beside = {name: space.start("ingest", name) for name in ("one", "other")}
        assert [error_code(second) for second in beside.values()] == ["TG-TOPIC-RECREATED", "TG-CHECKPOINT-TAKEN"]
        produce(stack.bootstrap, other, raws)
        job.until(lambda: any(line.get("events_in") == 4_000 for line in job.lines), "the other input goes on")
        assert inputs_up(port) == {"one": 0, "other": 1}
        assert states(space) == {"ingest one": "failed", "ingest other": "live"}
        os.kill(job.pid, signal.SIGTERM)
        assert error_code(job) == "TG-TOPIC-RECREATED"
        assert job.wait() == 3
        assert [line["input"] for line in job.lines if line["event"] == "end"] == ["other"]
        assert states(space) == {"ingest one": "failed", "ingest other": "stopped"}
        assert read_ordered(stack.bootstrap, f"{one}.ordered", 1).events == before.events
        assert error_code(space.start("ingest", "one")) == "TG-TOPIC-RECREATED"


def states(space: Workspace) -> dict[str, str]:
    """What ``tidegate status`` shows of each job; a failed one makes its exit code 1."""
    shown = space.start("status")
    assert shown.wait() == 1
    return {told["job"]: told["state"] for told in shown.last["jobs"]}


def inputs_up(port: int) -> dict[str, float]:
    """What Prometheus is told of each input: 1 if it runs."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {sample.labels["input"]: sample.value for family in families for sample in family.samples if sample.name == "tidegate_input_up"}


def test_on_failure_stop_ends_all_inputs_with_the_first_that_fails(stack: Stack, tmp_path: Path) -> None:
    """For a service manager that is to start the whole process anew: the other one is stopped, not failed."""
    raws = draw(4, 200, 1)
    one, other = (create(stack.bootstrap, fresh(name), 1) for name in ("remade", "kept"))
    for topic in (one, other):
        produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path, stack, TWO_INPUTS.format(one=one, other=other)) as space:
        job = space.start("ingest", "one", "other", "--on-failure", "stop")
        job.until(lambda: {line["input"] for line in job.lines if line.get("events_in") == 200} == {"one", "other"}, "both inputs")
        delete(stack.bootstrap, one)
        assert error_code(job) in ("TG-TOPIC-RECREATED", "TG-TOPIC-ENDED")
        assert job.wait() == 3
        assert states(space) == {"ingest one": "failed", "ingest other": "stopped"}
