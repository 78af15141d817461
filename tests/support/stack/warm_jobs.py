"""
The test processes' side of the warm host (:mod:`support.stack.warm_host`): the first that needs a job starts it, and it ends with the
process that began the test run.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
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
from support.stack.warm_host import HAS_DIED, KEEPER_SOCKET, MASTER, OPEN_MASTER, PROGRAM, READY, SOCKET, Request

# The environment variable with the folder of a test run's host, and the pipe in it that the host ends with.
_FOLDER_VARIABLE, _ALIVE = "WARM_HOST_FOLDER", "alive"
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
    """The host of a test run, as one of its processes sees it."""

    def __init__(self) -> None:
        self._alive: int | None = None

    @property
    def _folder(self) -> Path:
        return Path(os.environ[_FOLDER_VARIABLE])

    @property
    def was_ended(self) -> bool:
        """Whether the test run is over."""
        return not self._folder.exists()

    def begin_run(self) -> None:
        """Make the folder by which the processes of this test run find the host: it ends with this process, by whatever way."""
        # Paths of sockets are short.
        os.environ[_FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="warm-", dir="/tmp")
        os.mkfifo(self._folder / _ALIVE)
        self._alive = os.open(self._folder / _ALIVE, os.O_RDWR)
        atexit.register(self.end_run)

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
        if _FOLDER_VARIABLE not in os.environ:
            self.begin_run()
        with (self._folder / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._answers():
                self._start()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            return line.connect_ex(str(self._folder / SOCKET)) == 0

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
        for process in psutil.Process(int((self._folder / READY).read_text())).children(recursive=True):
            if process.name() == "java":
                process.send_signal(signal.SIGQUIT)
        time.sleep(_DUMP_S)
        written = (self._folder / "host.log").read_text(errors="replace")
        threads = written[written.rfind("Full thread dump") :].split("\n\n")
        return "\n\n".join(thread for thread in threads if any(name in thread for name in _THREADS))[:_DUMP_CHARACTERS]

    def _start(self) -> None:
        for left in (SOCKET, KEEPER_SOCKET, READY):  # by a host that has died
            (self._folder / left).unlink(missing_ok=True)
        # One JVM keeps what several jobs retain, and runs what they all do at once.
        (self._folder / "tidegate.toml").write_text(SPARK_TABLE.replace("512m", "2g").replace(MASTER, OPEN_MASTER) + _JVM_TABLE)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        # What a job sets for its children before it starts them; the host's are forked.
        environment |= {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}", "MALLOC_ARENA_MAX": "2"}
        alive = os.open(self._folder / _ALIVE, os.O_RDONLY)
        with (self._folder / "host.log").open("ab") as log:
            command = [sys.executable, "-m", "support.stack.warm_host", str(self._folder)]
            process = subprocess.Popen(command, env=environment, stdin=alive, stdout=log, stderr=log)
        os.close(alive)
        deadline_s = time.monotonic() + _START_S
        while not (self._folder / READY).exists():
            assert process.poll() is None, f"the host of the jobs has ended: {self.log()}"
            assert time.monotonic() < deadline_s, f"the host of the jobs does not start: {self.log()}"
            time.sleep(_NAP_S)

    def end_run(self) -> None:
        """End the host with all that it has forked."""
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None
            while self._answers():
                time.sleep(_NAP_S)
            shutil.rmtree(self._folder, ignore_errors=True)
            del os.environ[_FOLDER_VARIABLE]


# Jobs that wait for a trickle of records run a batch for each: fewer of them leave the processor to the other tests.
SPARK_TABLE = f"""
[spark]
master = "{MASTER}"
shuffle_partitions = 2
driver_memory = "512m"
trigger = "300ms"
"""

# Hadoop runs chmod for each file of a checkpoint, fifty times a job: a quarter cheaper without the JVM's helper process.
# The code of many jobs is to stay compiled.
_JVM_TABLE = """
[spark.conf]
"spark.default.parallelism" = 2
"spark.driver.extraJavaOptions" = "-Djdk.lang.Process.launchMechanism=VFORK -XX:ReservedCodeCacheSize=128m -XX:-UseCodeCacheFlushing"
"""

HOST = WarmHost()
