"""
Running the real commands: each job is a process in a folder of its own, as a user would start it.

A job is watched through what it prints (one JSON object a line), what it logs and what it writes to Kafka. By default its
driver and workers are forked by a warm host and share a JVM with the other jobs of the test process
(:mod:`support.stack.warm_host`). A job that is started alone is a process tree of its own: killing it takes its whole
session, the JVM too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.stack.servers import Addresses
from support.stack.warm_jobs import HOST, SPARK_TABLE

from tidegate.testing.stack.real_stack import kill_session

JOB_TIMEOUT_S = 240.0
"""How long a job, or a wait for one, may take on a busy machine."""
_POLL_S = 0.1
# What is asked may read whole topics, which takes time of the job that is waited for: that many times as long nothing is asked.
_REST = 2
# Tests wait for what is told at the end of a batch, of one that stays open too. By default such a batch ends after half a minute.
_BATCH_SPAN = 'batch_span = "4s"\n'
_CHECKPOINTS = ".tidegate/checkpoints"
_WITHOUT_JVM = {"sink", "verify"}
"""What leaves nothing in the JVM of the warm host."""


class Job:
    """
    One ``tidegate`` command with ``--format json``.

    Args:
        folder: Working directory, with its ``tidegate.toml``.
        environment: The process's environment.
        arguments: What follows ``tidegate``.
        alone: Whether it is a process tree of its own, with a JVM of its own.

    Attributes:
        lines: What it has printed so far.
        took_s: Seconds from its start to its end; 0 while it runs.
    """

    def __init__(self, folder: Path, environment: dict[str, str], arguments: tuple[str, ...], *, alone: bool) -> None:
        self.lines: list[dict[str, Any]] = []
        self.took_s = 0.0
        self._started_s = time.monotonic()
        self._log = folder / f"{arguments[0]}-{time.monotonic_ns()}.log"
        self._shares_jvm = not alone and arguments[0] not in _WITHOUT_JVM
        printed, written = os.pipe()
        command = [*arguments, "--format", "json"]
        with self._log.open("wb") as errors:
            self._process = (
                _start_alone(folder, environment, command, written, errors.fileno())
                if alone
                else HOST.start_job(folder, environment, command, written, errors.fileno())
            )
        os.close(written)
        self._follower = threading.Thread(target=self._follow, args=(printed,), daemon=True)
        self._follower.start()

    def _follow(self, printed: int) -> None:
        with os.fdopen(printed, "rb") as output:
            for line in output:
                if line.startswith(b"{"):
                    self.lines.append(json.loads(line))
        self.took_s = time.monotonic() - self._started_s

    @property
    def pid(self) -> int:
        """The driver's process id, which is its session's too."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the command has not ended."""
        return self._process.poll() is None

    @property
    def errors(self) -> str:
        """What it wrote to standard error so far."""
        return self._log.read_text(errors="replace")

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Return what it logged under this name so far."""
        lines = [json.loads(line) for line in self.errors.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def once_started(self, inputs: int = 1) -> Job:
        """Return itself when an ingest has made the topics of its *inputs*: a query that is started now finds them."""
        self.until(lambda: len(self.logged("ingest starts")) >= inputs, "its start")
        return self

    @property
    def last(self) -> dict[str, Any]:
        """The last object it printed."""
        return self.lines[-1] if self.lines else {}

    @property
    def batches(self) -> int:
        """How many batches it has reported."""
        return sum(line.get("event") == "batch" for line in self.lines)

    def wait(self, timeout_s: float = JOB_TIMEOUT_S) -> int:
        """Return the exit code once the command has ended by itself and all it printed was read."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s:g} s: {self._state()}") from None
        self._follower.join(10)
        return code

    def _state(self) -> str:
        """Return what is known of it if it hangs."""
        return f"{self.last} {self.errors[-3000:]} {HOST.threads() if self._shares_jvm else ''}"

    def finish(self) -> dict[str, Any]:
        """Wait for an end without complaint; return the summary."""
        code = self.wait()
        assert code == 0, f"exit code {code}: {self.errors[-3000:]}"
        return self.last

    def stop(self) -> dict[str, Any]:
        """Ask the command to end (SIGTERM), as a service manager does; return the summary."""
        self._process.terminate()
        return self.finish()

    def interrupt(self) -> dict[str, Any]:
        """Ask the command to end as Ctrl-C does (SIGINT); return the summary."""
        os.kill(self.pid, signal.SIGINT)
        return self.finish()

    def kill(self) -> None:
        """End driver, Python workers, and a JVM of its own at once (SIGKILL), as a power cut would; in a shared JVM its query stops."""
        if self._shares_jvm:
            self._process.kill()
        elif self.running:
            os.kill(self.pid, signal.SIGKILL)
        kill_session(self._process)
        self._follower.join(10)

    def end(self) -> None:
        """End it if it still runs."""
        if self.running:
            self.kill()

    def until(self, holds: Callable[[], bool], what: str, timeout_s: float = JOB_TIMEOUT_S) -> None:
        """Return once *holds* says yes; fail if the command ends before, or if it takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            asked_s = time.monotonic()
            if holds():
                return
            assert self.running, f"ended ({self.wait()}) before {what}: {self.errors[-3000:]}"
            assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}: {self._state()}"
            time.sleep(max(_POLL_S, _REST * (time.monotonic() - asked_s)))


def _start_alone(folder: Path, environment: dict[str, str], command: list[str], output: int, errors: int) -> subprocess.Popen[bytes]:
    # As the installed program does, it leaves the working folder out of the import path.
    program = [sys.executable, "-P", "-m", "tidegate", *command]
    return subprocess.Popen(program, cwd=folder, env=environment, stdout=output, stderr=errors, start_new_session=True)


class Workspace:
    """
    A folder with a ``tidegate.toml``, and the jobs started there. Batches of ingest stay open for seconds unless a table tells otherwise.

    Args:
        folder: The folder, made when missing.
        stack: Kafka and Redis.
        tables: The ``[inputs]`` and ``[outputs]`` tables.
    """

    def __init__(self, folder: Path, stack: Addresses, tables: str) -> None:
        self.folder, self.stack = folder, stack
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tidegate.toml").write_text(_with_short_batches(tables) + SPARK_TABLE)
        self._jobs: list[Job] = []

    def start(self, *arguments: str, **environment: str) -> Job:
        """Start ``tidegate`` with *arguments*; *environment* goes above the addresses of the stack."""
        return self._start(arguments, environment, alone=False)

    def start_alone(self, *arguments: str, **environment: str) -> Job:
        """Start it as a process tree of its own: to be killed with its JVM, looked at from outside, or given what concerns the JVM."""
        return self._start(arguments, environment, alone=True)

    def _start(self, arguments: tuple[str, ...], environment: dict[str, str], *, alone: bool) -> Job:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": self.stack.bootstrap, "TIDEGATE_REDIS__URL": self.stack.redis_url}
        # The JVM of the warm host works in another folder.
        place = {} if alone else {"TIDEGATE_SPARK__CHECKPOINT_DIR": str(self.folder / _CHECKPOINTS)}
        self._jobs.append(Job(self.folder, {**inherited, **addresses, **place, **environment}, arguments, alone=alone))
        return self._jobs[-1]

    def script(self, name: str, text: str) -> str:
        """Write a query script; return its name."""
        (self.folder / name).write_text(text)
        return name

    def clear(self) -> None:
        """End the jobs that still run."""
        for job in self._jobs:
            job.end()


def _with_short_batches(tables: str) -> str:
    """Add how long a batch stays open to each table of an input, unless some table says it."""
    return tables if "batch_span" in tables else re.sub(r"^(\[inputs\.[^].]+\] *\n)", rf"\1{_BATCH_SPAN}", tables, flags=re.M)


@contextlib.contextmanager
def workspace(folder: Path, stack: Addresses, tables: str) -> Iterator[Workspace]:
    """Give a workspace, and leave no job of it behind."""
    made = Workspace(folder, stack, tables)
    try:
        yield made
    finally:
        made.clear()


def settings_of(**values: Any) -> list[str]:
    """Return ``--set`` flags: two underscores in a name stand for a dot."""
    return [part for name, value in values.items() for part in ("--set", f"{name.replace('__', '.')}={value}")]


def error_code(job: Job) -> str:
    """Return the code of the one error a command ended with, told as JSON and without a traceback."""
    code = job.wait()
    assert "Traceback" not in job.errors, job.errors
    told = [json.loads(line)["error"] for line in job.errors.splitlines() if line.startswith('{"error": ')]
    assert len(told) == 1, f"exit code {code}: {job.errors}, {job.last}"
    return str(told[0]["code"])
