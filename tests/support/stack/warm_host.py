"""
A warm host for jobs: ``python -m support.stack.warm_host FOLDER``.

A job's start costs seven CPU seconds of imports and of a JVM that starts. The host has paid them once. It forks the driver and
the Python workers of each job from a process that has imported everything, and lends all jobs of a test process one JVM.

Law: all that belongs to a job is its own and new, as if a user had started it: processes, session, environment, working
directory, standard streams, logs, exit code. Only the JVM, its session aside, is shared. A test that kills a job, looks at its
processes or gives Spark another master starts a process tree of its own instead (:meth:`support.stack.jobs.Workspace.start_alone`).

::

    test process --job--> host --forks--> driver --gateway--> JVM (of the first child, the keeper)
                           ^                                   |
                           +------ python shim <---starts------+   workers are forked by the host too
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tidegate import fault_points

SOCKET, KEEPER_SOCKET, SHIM = "host", "keeper", "python"
JOB, FOLDER, LOG = "WARM_JOB", "WARM_FOLDER", "WARM_LOG"
"""What a job's workers have in their environment: its driver's process id and folder, and the file for their standard error."""
_MESSAGE_BYTES_MAX, _FILES_MAX = 2**17, 2**12
IMPORTED = (
    "pyspark.daemon",
    "pyspark.sql.streaming",
    "pyspark.testing.utils",
    "pyspark.worker",
    "tidegate.cli.main",
    "ingest.__main__",
    "ingest.job",
    "ingest.planner.planner",
    "ingest.running_input",
    "ingest.stage.processor",
    "query.__main__",
    "query.job",
    "query.preview.display",
    "query.preview.forecast",
    "query.stage.planner",
    "query.stage.processor",
    "sinks.copying.job",
    "sinks.plain_topic",
    "sinks.stores.delta.store",
    "sinks.stores.http.store",
    "sinks.stores.iceberg.store",
    "sinks.stores.postgres.store",
    "sinks.stores.redis.store",
    "tidegate.spark.driver",
    "tidegate.spark.early_session",
    "tidegate.spark.worker_daemon",
)
_SHIM = """\
#!{python} -IS
import json, os, socket, sys
host = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
host.connect({path!r})
asked = dict(kind="python", arguments=sys.argv[1:], folder=os.getcwd(), environment=dict(os.environ))
socket.send_fds(host, [json.dumps(asked).encode()], [0, 1, 2])
os._exit(int(host.recv(64) or 1))
"""


@dataclass
class Child:
    """A process that the host has forked: who waits for its exit code, and which job it belongs to (0: none, or it is one)."""

    waiting: socket.socket
    job: int
    is_job: bool


class Host:
    """
    Forks what it is asked for, and hands out exit codes.

    It has one thread, because only the thread that forks lives on in a child.

    Args:
        folder: Where its sockets are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: dict[int, Child] = {}
        self._keeper = 0
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(folder / SOCKET))
        self._listening.listen(64)
        self._child_ended, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._watched = selectors.DefaultSelector()
        for source, react in ((self._listening, self._accept), (self._child_ended, self._reap), (0, self._end)):
            self._watched.register(source, selectors.EVENT_READ, react)

    def fork_keeper(self, keeper: Callable[[], None]) -> None:
        """Fork the process that has the JVM; without it the host ends."""
        self._keeper = self._fork(keeper)

    def serve(self) -> NoReturn:
        """Serve until standard input ends."""
        while True:
            for key, _ in self._watched.select():
                key.data()

    def _accept(self) -> None:
        asking, _ = self._listening.accept()
        try:
            message, streams, _, _ = socket.recv_fds(asking, _MESSAGE_BYTES_MAX, 3)
            asked = json.loads(message)
        except (OSError, ValueError):  # whoever asks was killed
            asking.close()
            return
        arguments, environment, is_job = asked["arguments"], asked["environment"], asked["kind"] == "job"
        if LOG in environment:
            # Through the JVM the workers of all jobs would write into one log.
            os.close(streams[2])
            streams[2] = os.open(environment[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def run() -> None:
            if is_job:
                # A signal to the session reaches the driver alone; Spark's workers lead groups by themselves.
                os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.environ.clear()
            os.environ.update(environment)
            # Python has read it when the host started; Spark's own archives would only be slower.
            paths = environment.get("PYTHONPATH", "").split(os.pathsep)
            sys.path[1:1] = [path for path in paths if Path(path).is_dir() and path not in sys.path]
            os.chdir(environment.get(FOLDER, asked["folder"]))
            os.closerange(3, _FILES_MAX)
            if is_job:
                _run_job(arguments, self._folder)
            else:
                _run_python(arguments)

        pid = self._fork(run)
        for stream in streams:
            os.close(stream)
        self._children[pid] = Child(asking, int(environment.get(JOB, 0)), is_job)
        self._watched.register(asking, selectors.EVENT_READ, lambda: self._abandon(pid))
        if is_job:
            with contextlib.suppress(OSError):
                asking.send(b"%d" % pid)

    def _fork(self, run: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            atexit._clear()
            random.seed()
            np.random.seed()
            run()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            _leave(code)

    def _reap(self) -> None:
        os.read(self._child_ended, 4096)
        while self._children or self._keeper:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid == self._keeper:
                print(f"the JVM's process has ended: {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)
                self._end()
            child = self._children.pop(pid)
            if child.is_job:
                # As in a process tree of its own, no worker outlives its driver.
                for other, worker in self._children.items():
                    if worker.job == pid:
                        _kill_group(other)
            with contextlib.suppress(KeyError):
                self._watched.unregister(child.waiting)
            with contextlib.suppress(OSError):
                child.waiting.send(b"%d" % os.waitstatus_to_exitcode(status))
            child.waiting.close()

    def _abandon(self, pid: int) -> None:
        """Nobody waits for it any longer: a worker whose shim the JVM has killed ends, a job goes on."""
        child = self._children.get(pid)
        if child is None:  # it has ended at the same moment
            return
        self._watched.unregister(child.waiting)
        if not child.is_job:
            _kill_group(pid)

    def _end(self) -> NoReturn:
        for pid in [*self._children, self._keeper]:
            _kill_group(pid)
        os._exit(0)


def _kill_group(pid: int) -> None:
    """Kill a process, and those of its group if it leads one."""
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)


def _leave(code: int) -> NoReturn:
    """End this process as Python ends one."""
    with contextlib.suppress(Exception):
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _run_job(arguments: list[str], folder: Path) -> None:
    """Run one ``tidegate`` command, with the keeper's JVM in place of one of its own."""
    os.environ["PYSPARK_PYTHON"] = str(folder / SHIM)
    sys.argv = ["tidegate", *arguments]
    sys.path.insert(0, str(Path.cwd()))
    _borrow_jvm(folder / KEEPER_SOCKET)
    # It has read the environment of the host; functions of it that others imported see what it reads now.
    importlib.reload(fault_points)
    importlib.import_module("tidegate.cli.main").main()


def _run_python(arguments: list[str]) -> None:
    """Run ``python -m MODULE ARGUMENT...``, as Spark starts its workers."""
    assert arguments[0] == "-m", arguments
    sys.argv = arguments[1:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


def _borrow_jvm(keeper: Path) -> None:
    """Have PySpark take a gateway of the keeper's JVM where it would start one, and a new session of its Spark."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    begin, make = SparkContext._ensure_initialized.__func__, SparkSession.__init__
    borrowed = socket.socket(socket.AF_UNIX)
    worn: dict[str, str] = {}

    def ensure(cls: Any, instance: Any = None, gateway: Any = None, conf: Any = None) -> None:
        if cls._gateway is None:
            borrowed.connect(str(keeper))
            given = json.loads(borrowed.recv(4096))
            os.environ.update(given)
            # Spark starts with its standard error in the job's own log: there the workers write too.
            log = Path("/proc/self/fd/2").readlink()
            worn.update({JOB: str(os.getpid()), FOLDER: str(Path.cwd()), LOG: str(log)})
            worn.update({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {})
        begin(cls, instance, gateway, conf)

    def initialize(self: Any, jconf: Any) -> Any:
        running = self._jvm.org.apache.spark.SparkContext.getOrCreate()
        assert self.master == running.master(), f"{self.master}: a job with another master needs a JVM of its own: start_alone"
        self.environment.update(worn)
        return self._jvm.JavaSparkContext.fromSparkContext(running)

    def start_session(self: Any, context: Any, jsparkSession: Any = None, options: Any = {}) -> None:  # noqa: B006
        first = SparkSession._get_j_spark_session_class(context._jvm).getDefaultSession().get()
        make(self, context, jsparkSession or first.newSession(), options)

    SparkContext._ensure_initialized = classmethod(ensure)
    SparkContext._initialize_context = initialize
    SparkSession.__init__ = start_session
    SparkSession.stop = lambda self: None


def _keep_jvm(folder: Path) -> None:
    """Start Spark; give each job that connects a gateway of its own, until it has gone."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, _FILES_MAX)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / KEEPER_SOCKET))
    listening.listen(64)
    from tidegate.settings.load import load
    from tidegate.spark.session import start_session

    os.environ["PYSPARK_PYTHON"] = str(folder / SHIM)
    spark = start_session(load(folder / "tidegate.toml"), "tests", folder)
    conf = spark.sparkContext._jsc.sc().conf()
    looking = selectors.DefaultSelector()
    looking.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in looking.select():
            if key.fileobj is listening:
                job, _ = listening.accept()
                server = spark._jvm.org.apache.spark.api.python.Py4JServer(conf)
                server.start()
                looking.register(job, selectors.EVENT_READ, server)
                given = {"PYSPARK_GATEWAY_PORT": str(server.getListeningPort()), "PYSPARK_GATEWAY_SECRET": server.secret()}
                job.send(json.dumps(given).encode())
            else:
                looking.unregister(key.fileobj)
                key.data.shutdown()


def main(folder: Path) -> None:
    """Import all that jobs import, then serve."""
    for name in IMPORTED:
        importlib.import_module(name)
    shim = folder / SHIM
    shim.write_text(_SHIM.format(python=sys.executable, path=str(folder / SOCKET)))
    shim.chmod(0o755)
    # Else every child would walk through all of that once more, and copy it.
    gc.collect()
    gc.freeze()
    host = Host(folder)
    host.fork_keeper(lambda: _keep_jvm(folder))
    (folder / "ready").touch()
    host.serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
