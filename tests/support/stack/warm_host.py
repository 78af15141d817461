"""
A warm host for jobs: ``python -m support.stack.warm_host FOLDER``.

A job's start costs seven CPU seconds of imports and of a JVM that starts. The host has paid them once. It forks the driver and
the Python workers of each job from a process that has imported everything, and lends all jobs of a test run one JVM, which
starts with the first job that takes it. The executable ``tidegate`` in FOLDER has the host fork what is typed in a shell.

Law: all that belongs to a job is its own and new, as if a user had started it: processes, session, environment, working
directory, standard streams, logs, exit code. Only the JVM, its session aside, is shared. Of a job that is killed, driver and workers
die at once, nothing is forked for it any more, and what it has begun in the JVM is stopped before anybody goes on. A test that looks
at a job's processes, gives Spark another master, or proves that the death of the JVM itself harms nothing starts a process tree of its
own instead (:meth:`support.stack.jobs.Workspace.start_alone`).

::

    test processes --job--> host --forks--> driver --gateway--> JVM (of the first child, the keeper)
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
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tidegate.basics import fault_points

SOCKET, KEEPER_SOCKET, SHIM, PROGRAM, READY = "host", "keeper", "python", "tidegate", "ready"
MASTER = "local[2]"
# What a job with open batches makes of that. The JVM that jobs share has as many slots: a job that a test holds up keeps some.
OPEN_MASTER = "local[64]"
"""What a job that takes the shared JVM must have asked for."""
JOB, FOLDER, LOG = "WARM_JOB", "WARM_FOLDER", "WARM_LOG"
"""What a job's workers have in their environment: its driver's process id and folder, and the file for their standard error."""
STARTS, HAS_DIED = "starts", "has died"
"""What the keeper is told of a job, with its process id: by the job itself, and by who has killed it."""
_SESSION = "warm.session"
_MESSAGE_BYTES_MAX, _FILES_MAX = 2**17, 2**12
# Longer than a task takes that was told to end.
_STOP_WAIT = "5s"
# The method in which Spark has the driver work on a batch.
_ASKS_DRIVER = "callBatchWriter"
IMPORTED = (
    "pyspark.daemon",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.streaming",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.testing.utils",
    "pyspark.worker",
    "tidegate.tools.commands.main",
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
    "sinks.copying.beside",
    "sinks.copying.job",
    "sinks.plain_topic",
    "sinks.stores.delta.store",
    "sinks.stores.http.store",
    "sinks.stores.iceberg.store",
    "sinks.stores.postgres.store",
    "sinks.stores.redis.store",
    "tidegate.platform.metrics.job_metrics",
    "tidegate.platform.spark.driver",
    "tidegate.platform.spark.early_session",
    "tidegate.platform.spark.worker_daemon",
)
# A script that asks the host as Request.encode does.
_ASK = """\
#!{python} -IS
import os, signal, socket, sys
host = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
host.connect({path!r})
fields = {kind!r}, os.getcwd(), str(len(sys.argv) - 1), *sys.argv[1:], *map("=".join, os.environ.items())
socket.send_fds(host, [b"".join(os.fsencode(field) + b"\\0" for field in fields)], [0, 1, 2])
"""
_PASS_SIGNALS = """\
pid = int(host.recv(64))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
"""
_EXIT = "os._exit(int(host.recv(64) or 1) % 256)\n"


@dataclass(frozen=True)
class Request:
    """What the host is asked to fork: a job or a Python of Spark's, with its command line, working directory and environment."""

    is_job: bool
    folder: str
    arguments: list[str]
    environment: dict[str, str]

    def encode(self) -> bytes:
        """Return it as the socket carries it: fields that each end with a zero byte."""
        kind, variables = "job" if self.is_job else "python", map("=".join, self.environment.items())
        fields = kind, self.folder, str(len(self.arguments)), *self.arguments, *variables
        return b"".join(os.fsencode(field) + b"\0" for field in fields)

    @classmethod
    def decode(cls, message: bytes) -> Request:
        """Return what was encoded."""
        kind, folder, count, *fields = os.fsdecode(message).split("\0")[:-1]
        variables = (field.partition("=") for field in fields[int(count) :])
        return cls(kind == "job", folder, fields[: int(count)], {name: value for name, _, value in variables})


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
        self._wanting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wanting.bind(str(folder / KEEPER_SOCKET))
        self._wanting.listen(64)
        places = (self._listening, self._accept), (self._child_ended, self._reap), (self._wanting, self._fork_keeper), (0, self._end)
        for source, react in places:
            self._watched.register(source, selectors.EVENT_READ, react)

    def _fork_keeper(self) -> None:
        """Fork the process that has the JVM; without it the host ends from then on."""
        self._watched.unregister(self._wanting)
        self._keeper = self._fork(lambda: _keep_jvm(self._folder, self._wanting))
        self._wanting.close()

    def serve(self) -> NoReturn:
        """Serve until standard input ends."""
        while True:
            for key, _ in self._watched.select():
                key.data()

    def _accept(self) -> None:
        asking, _ = self._listening.accept()
        try:
            message, streams, _, _ = socket.recv_fds(asking, _MESSAGE_BYTES_MAX, 3)
            asked = Request.decode(message)
        except (OSError, ValueError):  # whoever asks was killed
            asking.close()
            return
        environment, is_job = asked.environment, asked.is_job
        job = int(environment.get(JOB, 0))
        if job and job not in self._children:
            # The JVM has not yet noticed that the driver is dead: a worker would write after the end of its job.
            for stream in (*streams, asking.detach()):
                os.close(stream)
            return
        if LOG in environment:
            # Through the JVM the workers of all jobs would write into one log.
            os.close(streams[2])
            streams[2] = os.open(environment[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        own = {name: value for name, value in environment.items() if os.environ.get(name) != value}

        def run() -> None:
            if is_job:
                # A signal to the session reaches the driver alone; Spark's workers lead groups by themselves.
                os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            _take_streams()
            os.environ.clear()
            os.environ.update(environment)
            # Python has read it when the host started; Spark's own archives would only be slower.
            paths = environment.get("PYTHONPATH", "").split(os.pathsep)
            sys.path[1:1] = [path for path in paths if Path(path).is_dir() and path not in sys.path]
            os.chdir(environment.get(FOLDER, asked.folder))
            os.closerange(3, _FILES_MAX)
            if is_job:
                _run_job(asked.arguments, self._folder, own)
            else:
                _run_python(asked.arguments)

        pid = self._fork(run)
        for stream in streams:
            os.close(stream)
        self._children[pid] = Child(asking, job, is_job)
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
        # Without a JVM there is no keeper: signals to process 0 go to the whole group, pytest and whoever has started it among them.
        for pid in [*self._children, *([self._keeper] if self._keeper else [])]:
            _kill_group(pid)
        os._exit(0)


def _take_streams() -> None:
    """Have Python's own streams treat files, pipes and terminals as they do in a process that was started with them."""
    old = sys.__stdin__, sys.__stdout__, sys.__stderr__
    for name, number, mode, like in zip(("stdin", "stdout", "stderr"), range(3), "rww", old, strict=True):
        made = os.fdopen(number, mode, encoding=like.encoding, errors=like.errors, closefd=False)
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)
    sys.stderr.reconfigure(line_buffering=True)


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


def _run_job(arguments: list[str], folder: Path, own: dict[str, str]) -> None:
    """Run one ``tidegate`` command, with the keeper's JVM in place of one of its own; its workers have its *own* variables too."""
    os.environ["PYSPARK_PYTHON"] = str(folder / SHIM)
    sys.argv = ["tidegate", *arguments]
    _borrow_jvm(folder / KEEPER_SOCKET, own)
    # It has read the environment of the host; functions of it that others imported see what it reads now.
    importlib.reload(fault_points)
    importlib.import_module("tidegate.tools.commands.main").main()


def _run_python(arguments: list[str]) -> None:
    """Run ``python -m MODULE ARGUMENT...``, as Spark starts its workers."""
    assert arguments[0] == "-m", arguments
    sys.argv = arguments[1:]
    importlib.reload(fault_points)
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


def _borrow_jvm(keeper: Path, own: dict[str, str]) -> None:
    """Have PySpark take a gateway of the keeper's JVM where it would start one, and a new session of its Spark."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    begin, make = SparkContext._ensure_initialized.__func__, SparkSession.__init__
    borrowed = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worn = dict(own)

    def ensure(cls: Any, instance: Any = None, gateway: Any = None, conf: Any = None) -> None:
        if cls._gateway is None:
            borrowed.connect(str(keeper))
            borrowed.send(json.dumps([STARTS, os.getpid()]).encode())
            given = json.loads(borrowed.recv(4096))
            os.environ.update(given)
            # Spark starts with its standard error in the job's own log: there the workers write too.
            log = Path("/proc/self/fd/2").readlink()
            worn.update({JOB: str(os.getpid()), FOLDER: str(Path.cwd()), LOG: str(log)})
        begin(cls, instance, gateway, conf)

    def initialize(self: Any, jconf: Any) -> Any:
        assert self.master in (MASTER, OPEN_MASTER), f"{self.master}: a job with another master needs a JVM of its own: start_alone"
        self.environment.update(worn)
        return self._jvm.JavaSparkContext.fromSparkContext(self._jvm.org.apache.spark.SparkContext.getOrCreate())

    def start_session(self: Any, context: Any, jsparkSession: Any = None, options: Any = {}) -> None:  # noqa: B006
        first = SparkSession._get_j_spark_session_class(context._jvm).getDefaultSession().get()
        make(self, context, jsparkSession or first.newSession(), options)
        if jsparkSession is None:
            context._jvm.System.getProperties().put(f"{_SESSION}.{os.getpid()}", self._jsparkSession)

    SparkContext._ensure_initialized = classmethod(ensure)
    SparkContext._initialize_context = initialize
    SparkSession.__init__ = start_session
    SparkSession.stop = lambda self: None


def _keep_jvm(folder: Path, asked: socket.socket) -> None:
    """Start Spark; give each job that connects a gateway of its own, until it has gone; then stop the queries that it has left."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    listening = asked.dup()
    os.closerange(3, listening.fileno())
    os.closerange(listening.fileno() + 1, _FILES_MAX)
    from py4j.protocol import Py4JJavaError

    from tidegate.platform.settings.load import load
    from tidegate.platform.spark.session import start_session
    from tidegate.platform.spark.starting import StartingSpark

    os.environ["PYSPARK_PYTHON"] = str(folder / SHIM)
    spark = start_session(StartingSpark(load(folder / "tidegate.toml"), "tests", folder))
    conf = spark.sparkContext._jsc.sc().conf()
    looking = selectors.DefaultSelector()
    looking.register(listening, selectors.EVENT_READ)
    lent: dict[int, tuple[socket.socket, Any]] = {}

    stopping: dict[int, threading.Thread] = {}

    def take_back(pid: int) -> threading.Thread | None:
        """Stop what a job has left, in a thread that is returned: that may take seconds, and other jobs are not to wait for it."""
        if pid in lent:
            line, server = lent.pop(pid)
            looking.unregister(line)
            line.close()
            stopping[pid] = threading.Thread(target=stop, args=(pid, server))
            stopping[pid].start()
        return stopping.get(pid)

    def stop(pid: int, server: Any) -> None:
        server.shutdown()
        session = spark._jvm.System.getProperties().remove(f"{_SESSION}.{pid}")
        if session is None:
            return
        session.conf().set("spark.sql.streaming.stopTimeout", _STOP_WAIT)
        for query in session.streams().active():
            while query.isActive():
                try:
                    query.stop()
                except Py4JJavaError:
                    end_waiting(query.runId().toString())

    def end_waiting(run_id: str) -> None:
        """End the thread of a query that waits without end for a word of its driver, which was killed with a batch in its hands."""
        for thread in spark._jvm.java.lang.Thread.getAllStackTraces().keySet():
            # Any other thread is only slow, and may hold what the queries of other jobs need.
            if run_id in thread.getName() and any(frame.getMethodName() == _ASKS_DRIVER for frame in thread.getStackTrace()):
                thread.stop()

    while True:
        for key, _ in looking.select():
            if key.fileobj is not listening:
                take_back(key.data)
                continue
            line, _ = listening.accept()
            what, pid = json.loads(line.recv(64) or b'["", 0]')
            if what == STARTS:
                stopping.pop(pid, None)
                server = spark._jvm.org.apache.spark.api.python.Py4JServer(conf)
                server.start()
                lent[pid] = line, server
                looking.register(line, selectors.EVENT_READ, pid)
                given = {"PYSPARK_GATEWAY_PORT": str(server.getListeningPort()), "PYSPARK_GATEWAY_SECRET": server.secret()}
                with contextlib.suppress(OSError):
                    line.send(json.dumps(given).encode())
            else:
                threading.Thread(target=_close_after, args=(line, take_back(pid))).start()


def _close_after(line: socket.socket, stopping: threading.Thread | None) -> None:
    if stopping is not None:
        stopping.join()
    line.close()


def compile_shim(folder: Path) -> bool:
    """Compile ``shim.c`` for the host of *folder*; return whether there is a compiler."""
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is not None:
        host, source = f'-DHOST="{folder / SOCKET}"', Path(__file__).with_name("shim.c")
        subprocess.run([compiler, "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", host, source, "-o", folder / SHIM], check=True)
    return compiler is not None


def _write_script(file: Path, kind: str, text: str) -> None:
    file.write_text(_ASK.format(python=sys.executable, path=str(file.with_name(SOCKET)), kind=kind) + text)
    file.chmod(0o755)


def main(folder: Path) -> None:
    """Import all that jobs import, then serve."""
    for name in IMPORTED:
        importlib.import_module(name)
    if not compile_shim(folder):
        _write_script(folder / SHIM, "python", _EXIT)
    _write_script(folder / PROGRAM, "job", _PASS_SIGNALS + _EXIT)
    # Else every child would walk through all of that once more, and copy it.
    gc.collect()
    gc.freeze()
    host = Host(folder)
    (folder / READY).write_text(str(os.getpid()))
    host.serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
