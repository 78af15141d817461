"""
The host from which all Python processes of a job on this machine are forked, with their modules already imported.

Spark starts half a dozen of them one after another: for the data source, the planner, the tasks. Each would import for up to a second. The
host imports once, while the JVM starts. What it has imported is also in memory only once.

Law: a forked process has the arguments, environment, working folder and standard streams that Spark gave it. It ends if the program that
stands for it (:mod:`.ask_host`) is killed, and with the job's own process. If the host is killed, its processes go on, and Spark's next
ones start by themselves.

::

    job --starts--> host --forks--> planner, daemon --forks--> workers
     |                ^
     +--> JVM --> ask_host
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tidegate.platform.spark.launch.ask_host import HOST_VARIABLE

_SOCKET = "python.host"
_MESSAGE_BYTES_MAX, _FILES_MAX = 2**20, 2**12
# How long a host may take to end, seconds; one that is held still ends by no request.
_HOST_END_S = 10.0
# A last argument of blanks, over which a forked process writes its own command line.
_ROOM = " " * 240
# What Spark's own processes import.
IMPORTED = (
    "confluent_kafka",
    "duckdb",
    "fastavro",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    "structlog",
)

# Those of this process: each ends when its standard input does.
_hosts: list[subprocess.Popen[bytes]] = []


def start_host(folder: Path, modules: Sequence[str], environment: Mapping[str, str], log: int) -> dict[str, str]:
    """
    Start a host that imports *modules* too, and ends with this process; return the variables by which the JVM's processes find it.

    Its socket is in the private *folder*, its *environment* is that of workers, its errors go to the descriptor *log*.
    """
    # Bound here: who asks before the host has imported waits for it.
    path = folder / _SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(64)
        number = listening.fileno()
        host = subprocess.Popen(
            [sys.executable, "-m", __name__, str(number), ",".join(modules), _ROOM],
            stdin=subprocess.PIPE,  # its end is this process's end
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=[number],
            # A Ctrl-C of the terminal is for the job alone.
            process_group=0,
        )
    _hosts.append(host)
    return {HOST_VARIABLE: str(path)}


def end_hosts() -> None:
    """End the hosts that this process has started, and all that they have forked."""
    while _hosts:
        host = _hosts.pop()
        assert host.stdin is not None
        host.stdin.close()
        try:
            host.wait(_HOST_END_S)
        except subprocess.TimeoutExpired:
            host.kill()
            host.wait()


class _Host:
    """Forks what it is asked for. It has one thread, because only the thread that forks lives on in a child."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        # By process: the connection of the program that stands for it.
        self._children: dict[int, socket.socket] = {}
        self._child_ended, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._watched = selectors.DefaultSelector()
        for source, react in ((listening, self._accept), (self._child_ended, self._reap), (0, self._end)):
            self._watched.register(source, selectors.EVENT_READ, react)

    def serve(self) -> NoReturn:
        while True:
            for key, _ in self._watched.select():
                key.data()

    def _accept(self) -> None:
        asking, _ = self._listening.accept()
        try:
            message, streams, _, _ = socket.recv_fds(asking, _MESSAGE_BYTES_MAX, 3)
            working_folder, count, *fields = os.fsdecode(message).split("\0")[:-1]
        except (OSError, ValueError):  # whoever asks was killed
            asking.close()
            return
        arguments, variables = fields[: int(count)], (field.partition("=") for field in fields[int(count) :])
        pid = os.fork()
        if pid == 0:
            _become(arguments, {name: value for name, _, value in variables}, working_folder, streams)
        for stream in streams:
            os.close(stream)
        self._children[pid] = asking
        self._watched.register(asking, selectors.EVENT_READ, lambda: self._abandon(pid))
        with contextlib.suppress(OSError):
            asking.send(b"%d" % pid)

    def _abandon(self, pid: int) -> None:
        """Kill a process whose program was killed."""
        if pid in self._children:
            self._watched.unregister(self._children[pid])
            _kill_group(pid)

    def _reap(self) -> None:
        os.read(self._child_ended, 4096)
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            asking = self._children.pop(pid)
            with contextlib.suppress(KeyError):
                self._watched.unregister(asking)
            with contextlib.suppress(OSError):
                asking.send(b"%d" % os.waitstatus_to_exitcode(status))
            asking.close()

    def _end(self) -> NoReturn:
        for pid in self._children:
            _kill_group(pid)
        os._exit(0)


def _become(arguments: Sequence[str], environment: Mapping[str, str], working_folder: str, streams: Sequence[int]) -> NoReturn:
    """Run ``python -m MODULE ARGUMENT...`` in this process, which has just been forked, and end it."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, _FILES_MAX)
        os.environ.clear()
        os.environ.update(environment)
        paths = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in paths if path and path not in sys.path]
        os.chdir(working_folder)
        _show_command_line([sys.executable, *arguments])
        flag, module, *_ = arguments
        assert flag == "-m", arguments
        sys.argv = list(arguments[1:])
        sys.modules.pop(module, None)  # as in a new process it runs as the main module only
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _show_command_line(arguments: Sequence[str]) -> None:
    """Have ``ps`` show *arguments*, as far as this process's own command line has room for them; elsewhere than on Linux nothing."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
        start, end = int(fields[45]), int(fields[46])
        text = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)[: end - start - 1]
        # The kernel gave this region to the arguments that this program was started with.
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _kill_group(pid: int) -> None:
    """Kill a process, and those of its group if it leads one."""
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)


def main() -> None:
    """Import, then serve."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    for name in (*IMPORTED, *filter(None, sys.argv[2].split(","))):
        importlib.import_module(name)
    # Else every process that is forked would walk through all of that once more, and copy it.
    gc.collect()
    gc.freeze()
    _Host(listening).serve()


if __name__ == "__main__":
    main()
