"""A stop that was asked for is no failure, at whatever moment of a start it comes, and though the JVM is told to stop too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support.stack.drawn_logs import draw
from support.stack.jobs import Job, workspace
from support.stack.topics import create, fresh, produce

from tidegate.basics.early_stop import STOPPED

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
late = "1d"

[outputs.all]
topic = "{topic}.all"
"""
# A store that a sink may have; it is never reached.
STORE = """
[outputs.all.postgres]
url = "postgresql://127.0.0.1:9/none"
"""
# Seconds after the program java is there: it loads, answers the driver, starts Spark, runs the first batch.
MOMENTS_S = (0.0, 0.7, 1.5, 3.0, 5.0)


def once_java_runs(job: Job) -> None:
    """Wait for the job's JVM."""
    job.until(lambda: "java" in _names_below(job.pid), "its JVM")


def _names_below(pid: int) -> set[str]:
    """Return the names of a process's children and theirs; one that ends meanwhile has none."""
    names = set()
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                names.add(child.name())
    return names


# Twelve jobs are started alone, each with a JVM of its own.
@pytest.mark.deep
@pytest.mark.parametrize("kind", ["ingest", "query"])
def test_a_signal_to_all_processes_of_a_starting_job_is_a_stop(kind: str, stack: Stack, tmp_path: Path) -> None:
    """As service managers send it: exit code 0, and no word of a Java that would be missing."""
    topic = create(stack.bootstrap, fresh("stopping"), 1)
    produce(stack.bootstrap, topic, draw(37, 100, 1))
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        command = (
            ["ingest", "events"]
            if kind == "ingest"
            else ["query", space.script("all.sql", "SELECT k INTO all FROM events TIMESTAMP BY at")]
        )
        if kind == "query":
            ingest = space.start("ingest", "events").once_started()
        for number in (signal.SIGTERM, signal.SIGINT):
            for after_s in MOMENTS_S if number == signal.SIGTERM else MOMENTS_S[1:2]:
                job = space.start_alone(*command)
                once_java_runs(job)
                time.sleep(after_s)
                os.killpg(job.pid, number)
                assert job.wait() == 0, (after_s, job.errors[-3000:])
                assert "TG-SPARK" not in job.errors, after_s
                assert "Traceback" not in job.errors, after_s
        if kind == "query":
            ingest.stop()


def test_a_signal_to_all_processes_while_the_jvm_loads_is_a_stop(stack: Stack, tmp_path: Path) -> None:
    """The moment at which java, which is told to stop too, is not yet heard of by the driver."""
    topic = create(stack.bootstrap, fresh("stopping"), 1)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        job = space.start_alone("ingest", "events")
        once_java_runs(job)
        os.killpg(job.pid, signal.SIGTERM)
        assert job.wait() == 0, job.errors[-3000:]
        assert "TG-SPARK" not in job.errors
        assert "Traceback" not in job.errors


# Both signals have one handler: each kind of job is sent one of them.
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        pytest.param(kind, number, marks=() if place % 2 == turn else pytest.mark.deep)
        for place, kind in enumerate(("ingest", "query", "sink"))
        for turn, number in enumerate((signal.SIGTERM, signal.SIGINT))
    ],
)
def test_a_signal_before_the_jvm_is_there_is_a_stop_too(kind: str, number: int, stack: Stack, tmp_path: Path) -> None:
    """While the command waits for a broker that takes connections and never answers. A sink has no JVM: this is all of its start."""
    with workspace(tmp_path, stack, TABLES.format(topic="t") + STORE) as space:
        script = space.script("all.sql", "SELECT k INTO all FROM events TIMESTAMP BY at")
        command = {"ingest": ["ingest", "events"], "query": ["query", script], "sink": ["sink", "all", "--query", script]}[kind]
        with socket.create_server(("127.0.0.1", 0)) as silent:
            broker = f"kafka.bootstrap=127.0.0.1:{silent.getsockname()[1]}"
            job = space.start_alone(*command, "--set", broker, "--set", "kafka.connect_timeout=60s")
            # Its first connection: from here on it waits.
            silent.settimeout(60)
            silent.accept()[0].close()
            time.sleep(0.3)
            os.killpg(job.pid, number)
            assert job.wait() == 0, job.errors
            assert "Traceback" not in job.errors


PROGRAMS = {
    **{kind: ["tidegate", kind, *(["x"] if kind != "run" else [])] for kind in ("ingest", "query", "sink", "run")},
    **{f"python -m {kind}": [kind, "x"] for kind in ("ingest", "query")},
}


# All programs have one door; that each of them goes through it shows the next test.
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind == "query" else pytest.mark.deep) for kind in PROGRAMS])
def test_a_signal_while_modules_are_imported_is_a_stop_too(kind: str, tmp_path: Path) -> None:
    """
    From the moment on at which a line of ours runs: before, a signal ends Python itself. A command that is quicker than the signal ends
    without a configuration.
    """
    stops = 0
    for number in (signal.SIGTERM, signal.SIGINT):
        for after_s in (0.0, 0.05, 0.15, 0.3, 0.6, 1.0):
            job = subprocess.Popen([sys.executable, "-m", *PROGRAMS[kind]], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
            while job.poll() is None and not _catches(job.pid, signal.SIGTERM):
                time.sleep(0.002)
            time.sleep(after_s)
            job.send_signal(number)
            errors = job.communicate(timeout=60)[1]
            is_stop = (job.returncode, errors) == (0, STOPPED)
            assert is_stop or "TG-" in errors, (number, after_s, job.returncode, errors)
            assert "Traceback" not in errors
            stops += is_stop
    assert stops >= 4, "these are no early moments"


# Both signals have one handler: each program is sent one of them.
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        pytest.param(kind, number, marks=() if place % 2 == turn else pytest.mark.deep)
        for place, kind in enumerate([*PROGRAMS, "the installed program"])
        for turn, number in enumerate((signal.SIGTERM, signal.SIGINT))
    ],
)
def test_a_signal_at_the_first_import_of_a_library_is_a_stop_too(kind: str, number: int, tmp_path: Path) -> None:
    """Without luck: a library in the place of typer, which is the first to be imported, sends the signal."""
    (tmp_path / "typer.py").write_text(f"import os\nos.kill(os.getpid(), {number:d})\nraise ImportError('too late')\n")
    installed = [str(Path(sys.executable).with_name("tidegate")), "ingest", "x"]
    command = [sys.executable, "-m", *PROGRAMS[kind]] if kind in PROGRAMS else installed
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.stderr, ended.returncode) == (STOPPED, 0)


def _catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    with suppress(FileNotFoundError):
        caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    return False
