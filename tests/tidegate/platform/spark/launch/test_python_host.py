"""The host forks what Spark starts: each process is what it would be by itself, and ends with the program that stands for it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tidegate.platform.spark.launch import python_host
from tidegate.platform.spark.launch.ask_host import HOST_VARIABLE
from tidegate.platform.spark.launch.lean_python import lean_python

TELL = """\
import os, sys
print(os.getppid(), os.getcwd(), os.environ.get("GREETING"), "decimal" in sys.modules, sys.argv[1:], flush=True)
print("an error", file=sys.stderr, flush=True)
text = sys.stdin.read()
sys.exit(len(text))
"""


class Hosted:
    """A host with a small start, and the environment in which Spark's program finds it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        (folder / "tell.py").write_text(TELL)
        with (folder / "log").open("wb") as log:
            found = python_host.start_host(folder, ["decimal"], environment, log.fileno())
        self.environment = {**environment, **found}
        self.process = psutil.Process(python_host._hosts[-1].pid)

    def ask(self, *arguments: str, **changed: str) -> subprocess.Popen[str]:
        """Start Spark's program as the JVM does."""
        pipe = subprocess.PIPE
        command = [lean_python(), "-m", *arguments]
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=self.folder, env={**self.environment, **changed}
        )

    def forked(self, program: subprocess.Popen[str]) -> tuple[psutil.Process, list[str]]:
        """Return the process that a program stands for, and the words that it has said."""
        assert program.stdout is not None
        words = program.stdout.readline().split()
        return next(iter(self.process.children())), words


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    """A host that imports little."""
    monkeypatch.setattr(python_host, "IMPORTED", ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    host = Hosted(tmp_path, {**os.environ, "PYTHONPATH": str(tmp_path)})
    yield host
    with suppress(psutil.NoSuchProcess):
        host.process.kill()


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, if nobody has asked for its exit code too."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_forked_process_is_what_python_would_be(hosted: Hosted) -> None:
    """Arguments, folder, environment, streams and exit code are its own; what the host has imported is there; ps shows its command."""
    program = hosted.ask("tell", "an argument", GREETING="hello")
    process, words = hosted.forked(program)
    assert words == [str(hosted.process.pid), str(hosted.folder), "hello", "True", "['an", "argument']"]
    assert process.cmdline()[1:4] == ["-m", "tell", "an argument"]
    _, errors = program.communicate("seven..")
    assert (program.returncode, errors) == (7, "an error\n")


def test_a_process_ends_with_the_program_that_stands_for_it(hosted: Hosted) -> None:
    """Spark ends a process by SIGTERM or by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        program = hosted.ask("tell")
        process, _ = hosted.forked(program)
        program.send_signal(number)
        until(lambda process=process: has_ended(process))  # type: ignore[misc]
        program.communicate()


def test_without_its_host_a_process_goes_on_and_others_start_by_themselves(hosted: Hosted) -> None:
    """Whoever kills the host kills no work."""
    program = hosted.ask("tell")
    process, _ = hosted.forked(program)
    hosted.process.kill()
    time.sleep(0.1)
    assert not has_ended(process)
    assert program.poll() is None
    program.communicate("x")
    until(lambda: has_ended(process))
    alone = hosted.ask("tell")
    told, _ = alone.communicate("four")
    assert (told.split()[0], told.split()[3]) == (str(os.getpid()), "False")
    assert alone.returncode == 4


def test_all_end_with_the_job(hosted: Hosted) -> None:
    """The host sees the end of the job's process at its standard input."""
    program = hosted.ask("tell")
    process, _ = hosted.forked(program)
    assert HOST_VARIABLE in hosted.environment
    python_host.end_hosts()
    until(lambda: has_ended(process) and has_ended(hosted.process))
    program.communicate()
