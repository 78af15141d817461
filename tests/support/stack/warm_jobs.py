"""
The test process's side of the warm host (:mod:`support.stack.warm_host`): starts it with the first job, ends it at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from support.repository import ROOT
from support.stack.warm_host import HAS_DIED, KEEPER_SOCKET, PROGRAM, SOCKET, Request

_START_S = 120.0
_NAP_S = 0.05
# A thread dump: how long the JVM takes to write it, how much of it is shown, and by which words the threads of jobs are known.
_DUMP_S, _DUMP_CHARACTERS = 2.0, 30_000
_THREADS = "stream execution", "Executor task", "py4j.commands", "deadlock"


class WarmProcess:
    """A job that the host has forked, with what :class:`subprocess.Popen` has for one."""

    def __init__(self, host: WarmHost, connection: socket.socket) -> None:
        self._host, self._connection = host, connection
        self.pid = int(connection.recv(64))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """
        Return the exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: It has not ended in time.
        """
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                answer = self._connection.recv(64)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("tidegate", timeout or 0.0) from None
            except ConnectionError:
                answer = b""
            self._connection.close()
            self.returncode = int(answer or -signal.SIGKILL)
            # Else a job without a word of its own is all that a test would see of it.
            assert answer or self._host.was_ended, f"the host of the jobs has died: {self._host.log()}"
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End driver and workers at once (SIGKILL); return when the JVM has stopped what the driver has begun there."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.wait(_START_S)
        self._host.await_end(self.pid)


class WarmHost:
    """The host of a test process; started when it is first asked for a job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self.was_ended = False

    def log(self) -> str:
        """Return what the host, its JVM and its forks have written."""
        path = self._folder / "host.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def start_job(self, folder: Path, environment: dict[str, str], arguments: list[str], output: int, errors: int) -> WarmProcess:
        """Start ``tidegate`` with *arguments* in *folder*; it writes into the files *output* and *errors*."""
        self._ensure()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(self._folder / SOCKET))
        request = Request(True, str(folder), arguments, environment)
        with Path(os.devnull).open() as nothing:
            socket.send_fds(connection, [request.encode()], [nothing.fileno(), output, errors])
        return WarmProcess(self, connection)

    def program(self) -> str:
        """
        Return the path of an executable that is ``tidegate``, for a shell; what it runs is forked by the host.

        Its standard streams must be open.
        """
        self._ensure()
        return str(self._folder / PROGRAM)

    def _ensure(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()

    def await_end(self, pid: int) -> None:
        """Return when nothing of a killed job goes on in the JVM."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.settimeout(_START_S)
            line.connect(str(self._folder / KEEPER_SOCKET))
            line.send(json.dumps([HAS_DIED, pid]).encode())
            try:
                assert line.recv(64) == b"", "the keeper closes the line when it is done"
            except TimeoutError:
                raise AssertionError(f"the JVM does not stop what a killed job has begun: {self.threads()}") from None

    def threads(self) -> str:
        """Return what the JVM's threads do that run jobs: if a job hangs, nothing else can tell why."""
        assert self._process is not None
        for process in psutil.Process(self._process.pid).children(recursive=True):
            if process.name() == "java":
                process.send_signal(signal.SIGQUIT)
        time.sleep(_DUMP_S)
        written = (self._folder / "host.log").read_text(errors="replace")
        threads = written[written.rfind("Full thread dump") :].split("\n\n")
        return "\n\n".join(thread for thread in threads if any(name in thread for name in _THREADS))[:_DUMP_CHARACTERS]

    def _start(self) -> None:
        self.end()
        self.was_ended = False
        # Paths of sockets are short.
        self._folder = Path(tempfile.mkdtemp(prefix="warm-", dir="/tmp"))
        # One JVM keeps what several jobs retain.
        (self._folder / "tidegate.toml").write_text(SPARK_TABLE.replace("512m", "1g") + _JVM_TABLE)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        # What a job sets for its children before it starts them; the host's are forked.
        environment |= {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}", "MALLOC_ARENA_MAX": "2"}
        with (self._folder / "host.log").open("wb") as log:
            command = [sys.executable, "-m", "support.stack.warm_host", str(self._folder)]
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline_s = time.monotonic() + _START_S
        while not (self._folder / "ready").exists():
            assert self._process.poll() is None, f"the host of the jobs has ended: {self.log()}"
            assert time.monotonic() < deadline_s, f"the host of the jobs does not start: {self.log()}"
            time.sleep(_NAP_S)

    def end(self) -> None:
        """End the host with all that it has forked."""
        self.was_ended = True
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None
            shutil.rmtree(self._folder, ignore_errors=True)


# Jobs that wait for a trickle of records run a batch for each: fewer of them leave the processor to the other tests.
SPARK_TABLE = """
[spark]
master = "local[2]"
shuffle_partitions = 2
driver_memory = "512m"
trigger = "300ms"
"""

# Hadoop runs chmod for each file of a checkpoint, fifty times a job: a quarter cheaper without the JVM's helper process.
# The code of many jobs is to stay compiled.
_JVM_TABLE = """
[spark.conf]
"spark.driver.extraJavaOptions" = "-Djdk.lang.Process.launchMechanism=VFORK -XX:ReservedCodeCacheSize=128m -XX:-UseCodeCacheFlushing"
"""

HOST = WarmHost()
atexit.register(HOST.end)
