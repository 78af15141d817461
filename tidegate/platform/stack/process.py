"""
A server that outlives the program that started it, and that later programs find again.

A pid alone proves nothing: the system may have given it to another process since. A recorded process is ours only if the pid
exists, started at the recorded time, and has our configuration file on its command line; no other process is ever signalled.
"""

from __future__ import annotations

import math
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tidegate.platform.stack.jars import StackError

# The kernel computes start times from the wall clock, which may have been adjusted since.
_START_TOLERANCE_S = 5.0
_POLL_S = 0.05
# Most time until the system shows the command line of a new process.
_SETTLE_S = 1.0
# A log of at most so many lines is shown whole.
_FEW_LINES = 5


@dataclass(frozen=True)
class ServerProcess:
    """One started server: its pid, its start (seconds since 1970), and the file that marks it as ours."""

    pid: int
    started_s: float
    marker: str

    def process(self) -> psutil.Process | None:
        """Return the running process, or None if it has ended or the pid belongs to another process."""
        try:
            process = psutil.Process(self.pid)
            is_ours = abs(process.create_time() - self.started_s) < _START_TOLERANCE_S and self.marker in process.cmdline()
            return process if is_ours and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None

    def stop(self, grace_s: float) -> None:
        """Ask the process to end, wait *grace_s* seconds, then kill it; return once it is gone."""
        process = self.process()
        if process is None:
            return
        # It may end by itself at any moment.
        with suppress(psutil.NoSuchProcess):
            if grace_s > 0:
                process.terminate()
                self._await_end(process, grace_s)
            if self.process() is not None:
                process.kill()
            self._await_end(process, math.inf)

    def _await_end(self, process: psutil.Process, timeout_s: float) -> None:
        """Wait for its end. It stays listed until the program that started it asks for its exit code, which that may never do."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            with suppress(psutil.TimeoutExpired):
                process.wait(_POLL_S)
                return
            if self.process() is None or time.monotonic() >= deadline_s:
                return


def launch(command: Sequence[str | Path], marker: Path, output: Path) -> ServerProcess:
    """
    Start *command* in a session of its own, so that neither the end of the caller nor its Ctrl-C stops it.

    Args:
        command: The program and its arguments, *marker* among them.
        marker: The configuration file by which this server is recognized.
    """
    with output.open("ab") as sink:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=output.parent,
            start_new_session=True,
        )
    started_s = psutil.Process(child.pid).create_time()
    # Popen takes the child for ended and does not wait for it: psutil does, if this program still runs when the child ends.
    child.returncode = 0
    server = ServerProcess(child.pid, started_s, str(marker))
    # The system lists the process a moment before it shows the new command line.
    deadline_s = time.monotonic() + _SETTLE_S
    while server.process() is None and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return server


def wait_healthy(name: str, server: ServerProcess, is_healthy: Callable[[], bool], logs: Sequence[Path], timeout_s: float) -> None:
    """
    Return once *is_healthy* returns True; *logs* are the server's log files, the likelier place of an error first.
    Raises StackError (``TG-STACK-START``), with the last lines, if *server* ends first or *timeout_s* seconds pass.
    """
    deadline_s = time.monotonic() + timeout_s
    while not is_healthy():
        has_ended = server.process() is None
        if has_ended or time.monotonic() > deadline_s:
            what = f"{name} {'ended while starting' if has_ended else f'did not answer within {timeout_s:g} s'}: {_log_excerpt(logs)}"
            fix = "read its logs; if a port is taken give another one, if memory is short give a smaller heap"
            raise StackError(what, code="TG-STACK-START", where=str(logs[0].parent), fix=fix, example="tidegate up --heap 512m")
        time.sleep(_POLL_S)


def is_listening(port: int) -> bool:
    """Return whether a server accepts connections on the loopback *port*."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Return whether a server can bind the loopback *port*."""
    with socket.socket() as probe:
        # As servers do: closing connections of a stopped server must not make its port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _log_excerpt(logs: Sequence[Path]) -> str:
    lines = [line for log in logs if log.exists() for line in log.read_text(errors="replace").strip().splitlines()]
    error_lines = [line for line in lines if any(sign in line for sign in ("ERROR", "FATAL", "Exception", "rror:", "atal"))]
    return " | ".join((error_lines[-3:] if len(lines) > _FEW_LINES else lines) or lines[-3:])[-600:] or "it printed nothing"
