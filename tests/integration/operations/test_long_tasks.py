"""What Spark does to tasks that go on for long, in real jobs whose batches stay open: none of it changes a byte."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support.stack.drawn_logs import draw, expected, logs_of
from support.stack.jobs import Job, Workspace, error_code, settings_of, workspace
from support.stack.keyed_input import POLICIES, TABLES
from support.stack.topics import create, exists, fresh, produce, read_ordered

from ordering.ticks import INFINITY
from tidegate.platform.checkpoint.offset_log import last_batches
from tidegate.platform.checkpoint.open_batches import END_FILE
from tidegate.platform.spark.bounded_stop import STOP_WITHIN_S
from tidegate.testing.stack.real_stack import session_of

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = [pytest.mark.integration, pytest.mark.heavy]

PARTITIONS, PART = 3, 150
KEYS = [f"key{number}" for number in range(6)]
# Kafka's clients give up a request after a second, so some seconds of silence are many timeouts.
OPEN = settings_of(inputs__events__batch_span="10m", kafka__client='{"socket.timeout.ms": 1000}')
# Without effect within one machine.
TWINS = settings_of(spark__conf__spark__speculation="true")
SILENT_S = 6.0
WITHIN_S = 60.0
# Tasks tell once a second that their batch is open.
TOLD_WITHIN_S = 5.0
# Spark kills a task that has not ended two seconds after the stop; ending Spark comes on top.
CUT_OFF_WITHIN_S = 12.0
_WORKER = "worker_daemon"


class Scene:
    """
    A raw topic that grows by parts, and the jobs that order it, each a process tree of its own.

    Args:
        parts: How many parts there are to append.

    Attributes:
        written_before: How many events stood in the ordered topic when the last part was appended.
    """

    def __init__(self, stack: Stack, space: Workspace, topic: str, seed: int, parts: int) -> None:
        self._bootstrap, self._space, self._topic = stack.bootstrap, space, topic
        self._raws = draw(seed, parts * PART, PARTITIONS, keys=KEYS)
        self._appended = self.written_before = 0

    def start(self) -> Job:
        """Start the job, with batches that stay open."""
        return self._space.start_alone("ingest", "events", *OPEN, *TWINS)

    def start_second(self) -> Job:
        """Start the job once more, beside the one that runs."""
        return self._space.start("ingest", "events", *OPEN)

    def append(self) -> None:
        """Append one part more."""
        self.written_before = self.written()
        produce(self._bootstrap, self._topic, self._raws[self._appended : self._appended + PART])
        self._appended += PART

    def written(self) -> int:
        """Return how many events stand in the ordered topic."""
        if not exists(self._bootstrap, f"{self._topic}.ordered"):
            return 0
        return len(read_ordered(self._bootstrap, f"{self._topic}.ordered", PARTITIONS).all_events())

    def until_written(self, job: Job) -> None:
        """Wait until what was appended is written, but for the events that are held."""
        job.until(lambda: self.written() > self.written_before, "what was appended", WITHIN_S)

    def strike(self, job: Job, find: Callable[[Job], list[psutil.Process]], number: int) -> None:
        """Send a signal to processes of a job while a batch is open that has written something."""
        checkpoint = self._space.folder / ".tidegate" / "checkpoints" / f"ingest-{self._topic}.ordered"
        while True:
            batch = self._open_batch(job, checkpoint)
            struck = find(job)
            send(struck, number)
            if open_batch(checkpoint) == batch:
                return
            # The batch has just ended; who was killed is replaced.
            send(struck, signal.SIGCONT)

    def _open_batch(self, job: Job, checkpoint: Path) -> int:
        """Return the number of a batch that is open. Between two batches the workers write too, but to Spark they are idle."""
        while True:
            self.append()
            self.until_written(job)
            # The first batches are short, and without records none follows.
            until_s = time.monotonic() + TOLD_WITHIN_S
            while time.monotonic() < until_s:
                if (batch := open_batch(checkpoint)) >= 0:
                    return batch
                time.sleep(0.05)

    def check(self) -> None:
        """Order all to the end, and hold the topic against the oracle."""
        while self._appended < len(self._raws):
            self.append()
        summary = self._space.start("ingest", "events", "--until-end").finish()
        assert summary["events_in"] == self._appended
        found = read_ordered(self._bootstrap, f"{self._topic}.ordered", PARTITIONS)
        assert found.events == expected(logs_of(self._raws, PARTITIONS), POLICIES, PARTITIONS, over=True)
        assert {found.c(channel) for channel in found.ctis} == {INFINITY}


@contextlib.contextmanager
def scene(stack: Stack, folder: Path, seed: int, parts: int) -> Iterator[Scene]:
    """Give a scene, and leave no job of it behind."""
    topic = create(stack.bootstrap, fresh("long"), PARTITIONS)
    with workspace(folder, stack, TABLES.format(topic=topic)) as space:
        yield Scene(stack, space, topic, seed, parts)


def open_batch(checkpoint: Path) -> int:
    """Return the number of the batch that is under way if a task has told that it has opened it, and none has ended it; else -1."""
    planned, done = last_batches(checkpoint)
    told_ns = [
        file.stat().st_mtime_ns for file in checkpoint.glob("open_report_*.json") if json.loads(file.read_text())["open_batch"] == planned
    ]
    # A task that ends requests the end of the others.
    is_open = planned > done and told_ns and (checkpoint / END_FILE).stat().st_mtime_ns < min(told_ns)
    return planned if is_open else -1


def processes_of(job: Job) -> list[psutil.Process]:
    """Return all processes of a job."""
    return [process for process in psutil.process_iter() if session_of(process.pid) == job.pid]


def workers_of(job: Job) -> list[psutil.Process]:
    """Return the Python processes that run a job's tasks."""
    found = [process for process in processes_of(job) if _WORKER in " ".join(process.cmdline())]
    # Their parent is the process from which Spark forks them.
    workers = [process for process in found if process.ppid() in {each.pid for each in found}]
    assert workers, "there are tasks"
    return workers


def jvm_of(job: Job) -> list[psutil.Process]:
    """Return a job's JVM."""
    return [process for process in processes_of(job) if process.name() == "java"]


def send(processes: list[psutil.Process], number: int) -> None:
    """Send a signal to processes, some of which may have ended."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def stop_of(job: Job) -> float:
    """Ask a job to end; return after how many seconds it has, with nothing of it left."""
    began_s = time.monotonic()
    job.stop()
    took_s = time.monotonic() - began_s
    assert not processes_of(job)
    return took_s


def test_workers_that_are_silent_or_killed_change_nothing(stack: Stack, tmp_path: Path) -> None:
    """Law, level 1, over what happens to the workers of an open batch: a second driver beside it, silence, kill -9."""
    with scene(stack, tmp_path, 12, 20) as played:
        job = played.start()
        played.strike(job, workers_of, signal.SIGSTOP)
        second = played.start_second()
        assert error_code(second) == "TG-CHECKPOINT-TAKEN"
        played.append()
        time.sleep(SILENT_S)
        assert played.written() == played.written_before, "the workers are silent"
        send(workers_of(job), signal.SIGCONT)
        played.until_written(job)
        played.strike(job, workers_of, signal.SIGKILL)
        assert error_code(job) == "TG-SPARK"
        assert job.wait() == 1
        assert "a Python worker of the job has ended by itself, or was killed" in job.errors
        played.check()


# A stop that is heard ends an open batch as soon: test_open_queries.py; one that hangs ends the JVM: test_bounded_stop.py.
@pytest.mark.deep
def test_a_stop_that_neither_workers_nor_jvm_hear_changes_nothing(stack: Stack, tmp_path: Path) -> None:
    """Law, level 1, and the time within which a job ends that was told to stop while a batch was open."""
    with scene(stack, tmp_path, 12, 30) as played:
        job = played.start()
        played.strike(job, workers_of, signal.SIGSTOP)
        assert stop_of(job) < CUT_OFF_WITHIN_S

        job = played.start()
        played.strike(job, jvm_of, signal.SIGSTOP)
        assert STOP_WITHIN_S < stop_of(job) < STOP_WITHIN_S + CUT_OFF_WITHIN_S
        assert "Spark does not stop" in job.errors
        played.check()


def test_a_driver_that_was_held_still_while_its_batch_was_open_changes_nothing(stack: Stack, tmp_path: Path) -> None:
    """
    Law, level 1: a second driver repeats the open batch of the first, which goes on afterwards, and ends its own at other records.

    What the first one saves then must be nobody's state.
    """
    with scene(stack, tmp_path, 11, 5) as played:
        played.append()
        job = played.start()
        played.until_written(job)
        for _ in range(2):
            played.append()
            played.until_written(job)
        for _ in range(3):  # also what is being forked
            send(processes_of(job), signal.SIGSTOP)
        played.append()
        second = played.start_second()
        played.until_written(second)
        second.until(lambda: second.batches > 0, "the end of a batch", WITHIN_S)
        send(processes_of(job), signal.SIGCONT)
        assert error_code(job) == "TG-CHECKPOINT-TAKEN"
        second.kill()
        played.append()
        played.check()
