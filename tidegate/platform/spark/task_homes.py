"""
Which Python process runs a task of a stateful stage: the one that has its state in memory.

Spark gives a task to the Python process that has been idle for longest. If that is another one than before, the state has to be read from
its store, and what has gone on since the last batch is lost. Here the process that Spark has chosen does not run the task itself: it passes
its connection on to the task's *home*, a process that runs this task in every batch, and that Spark does not know. The first task of its
kind has a home made for it.

Law: not a byte on the connection changes. A home that is busy or does not answer is replaced by a new one. If a home ends within a task, so
does the chosen process, and Spark sees the end of the connection; if the chosen process is killed, which is how Spark ends a task, its home
ends itself.

::

    Spark --task--> chosen process --connection--> home --results--> Spark
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from tidegate.platform.spark.privates import SOCKETS_VARIABLE, TaskPlace, UnfinishedMessageError, place_of_task

# How long a home may take to begin a task, seconds: Spark hears of the end of one before its process is free.
_ANSWER_S = 2.0
# A home without tasks ends after this time, seconds, as Spark's own processes do.
_IDLE_S = 60.0
# A task's beginning: it comes at once, and its larger part is the function that it runs.
_BEGINNING_BYTES_MAX, _BEGINNING_S = 2**16, 1.0
_LOOK_EVERY_S = 0.001
_TAKE, _TOKEN = b".", b"t"
_CODE = struct.Struct("!i")
# From <linux/prctl.h>.
_SET_CHILD_SUBREAPER = 36

Run = Callable[[socket.socket, bool], int]


def adopt_homes() -> None:
    """Let the homes be children of this process, from which Spark's processes are forked, so that nobody else has to wait for them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class TaskHomes:
    """
    Sends the tasks of a process that Spark chooses home.

    Args:
        run: Runs one task on its connection to Spark, whose user is authenticated or not, and returns 0, or another code if it failed.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def run(self, connection: socket.socket, authenticated: bool) -> int:
        """Wait for the next task on Spark's *connection*, and have it run; return its code. One without a place is run here."""
        folder = _private_folder()
        if not authenticated or folder is None:
            return self._run(connection, authenticated)
        # Spark's daemon ignores these, and each task sets them.
        for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        place = _place_on(connection)
        if place is None:
            return self._run(connection, authenticated)
        home = folder / _name(place)
        answer = b""
        with _ask(home, connection) or self._make(home, connection) as asked, contextlib.suppress(ConnectionError):
            answer = asked.recv(_CODE.size)
        if not answer:  # the home has ended
            os._exit(1)
        return int(_CODE.unpack(answer)[0])

    def _make(self, path: Path, connection: socket.socket) -> socket.socket:
        """Make a home that begins with the task of a connection; return the conversation with it."""
        asked, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Forked twice, so that it is not a child of this process, which may end before it. Tasks look whether their parent is still there.
        if (between := os.fork()) == 0:
            asked.close()
            parent = os.getpid()
            if os.fork() == 0:
                while os.getppid() == parent:
                    time.sleep(_LOOK_EVERY_S)
                _live(self._run, path, asking, connection)
            os._exit(0)
        asking.close()
        os.waitpid(between, 0)
        return asked


def _ask(home: Path, connection: socket.socket) -> socket.socket | None:
    """Have a home run the task of a connection; return the conversation with it, None if there is none that takes the task."""
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Whoever reads the only byte of this pipe may decide who runs the task.
    token, written = os.pipe()
    try:
        os.write(written, _TOKEN)
        asked.settimeout(_ANSWER_S)
        with contextlib.suppress(OSError):
            asked.connect(str(home))
            socket.send_fds(asked, [_TAKE], [connection.fileno(), token])
            asked.recv(len(_TAKE))
        os.close(written)
        is_taken = os.read(token, 1) == b""
    finally:
        os.close(token)
    if is_taken:
        asked.settimeout(None)
        return asked
    asked.close()
    return None


def _live(run: Run, path: Path, asking: socket.socket, connection: socket.socket) -> NoReturn:
    """Be a home: run the task of a connection, then those that are sent, until none has come for a while or one has failed."""
    try:
        listening = _listen(path)
        sent: tuple[socket.socket, socket.socket] | None = asking, connection
        while sent is not None:
            asking, connection = sent
            with asking, connection:
                with _ending_with(asking):
                    code = run(connection, True)
                asking.send(_CODE.pack(code))
            # After a failed task what is in memory cannot be relied on.
            if code or listening is None:
                break
            gc.collect()
            sent = _next_sent(listening)
    except BaseException:
        # As Spark's daemon does for its own processes.
        traceback.print_exc()
    finally:
        os._exit(0)


def _next_sent(listening: socket.socket) -> tuple[socket.socket, socket.socket] | None:
    """Return the conversation and the connection of the next task that is sent here; None if none comes for a while."""
    while select.select([listening], [], [], _IDLE_S)[0]:
        asking, _ = listening.accept()
        with contextlib.suppress(OSError):
            asking.settimeout(_ANSWER_S)
            _, descriptors, _, _ = socket.recv_fds(asking, len(_TAKE), 2)
            asking.settimeout(None)
            if len(descriptors) == 2:  # otherwise whoever asked is gone
                connection, token = descriptors
                is_mine = os.read(token, 1) == _TOKEN
                os.close(token)
                if is_mine:
                    with contextlib.suppress(OSError):  # it was killed: this process notices when it runs the task
                        asking.send(_TAKE)
                    return asking, socket.socket(fileno=connection)
                os.close(connection)
        asking.close()
    return None


@contextlib.contextmanager
def _ending_with(asking: socket.socket) -> Iterator[None]:
    """Kill this process if the one that has sent a task here ends before the task does."""
    is_done = threading.Event()

    def watch() -> None:
        # Readable once the other has ended: it sends nothing.
        select.select([asking], [], [])
        if not is_done.is_set():
            os.kill(os.getpid(), signal.SIGKILL)

    thread = threading.Thread(target=watch, name="task homes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        # Wakes the thread: there is nothing more to read.
        asking.shutdown(socket.SHUT_RD)
        thread.join()


def _private_folder() -> Path | None:
    """Return the folder of this job's sockets if nobody else may look into it; a cluster's is shared, and nobody would tidy up there."""
    folder = Path(os.environ.get(SOCKETS_VARIABLE, ""))
    is_private = SOCKETS_VARIABLE in os.environ and folder.is_dir() and not folder.stat().st_mode & 0o077
    return folder if is_private else None


def _place_on(connection: socket.socket) -> TaskPlace | None:
    """Return the place of the task that begins on a *connection*, without reading it; None if it has none."""
    deadline_s = time.monotonic() + _BEGINNING_S
    while True:
        beginning = connection.recv(_BEGINNING_BYTES_MAX, socket.MSG_PEEK)
        try:
            return place_of_task(beginning)
        except UnfinishedMessageError:
            if not beginning or len(beginning) == _BEGINNING_BYTES_MAX or time.monotonic() > deadline_s:
                return None
        time.sleep(_LOOK_EVERY_S)


def _name(place: TaskPlace) -> str:
    """Return the name of a home's socket: short, since the path of a socket is."""
    # Only the workers of one daemon share a parent, and their environment.
    text = f"{os.getppid()} {place.query} {place.partition}"
    return f".home-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _listen(path: Path) -> socket.socket | None:
    """Return a socket at *path* in place of any that was there; None if there can be none."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        draft.unlink(missing_ok=True)
        listening.bind(str(draft))
        listening.listen(8)
        draft.replace(path)
    except OSError:
        listening.close()
        return None
    return listening
