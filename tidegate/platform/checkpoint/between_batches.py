"""
Work that goes on between two batches that stay open. Spark needs a fifth of a second and more to commit one and begin the next; records
need not wait for that.

A task that ends leaves its work to a thread of its process. The first task that begins there ends the thread; if it is the next one of the
same job, it takes the work over as it stands in memory, else it begins at what was saved.

Law: the thread writes what any repetition of the work would write, with the same numbers, and saves nothing. So for every reader and for
the checkpoint it is a batch that was killed while it was open, whatever becomes of it. A planner that must be alone waits for its end: the
thread holds a lock from before its task ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from pathlib import Path
from typing import Generic, TypeVar

from confluent_kafka import KafkaException

from ordering.errors import TidegateError
from tidegate.platform.observe.logs import get_logger

# The longest time that work goes on, seconds: by then another process has it, or nobody.
_LAST_S = 3.0
# How much longer a planner waits for its end, seconds, and how often it looks.
_ROUND_S, _LOOK_EVERY_S = 1.0, 0.01
_LOCK_FILE = "between_batches"

IsOver = Callable[[], bool]
Part = TypeVar("Part")


class BetweenBatches:
    """The thread of one process; a process has one: :data:`BETWEEN_BATCHES`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._is_ended = threading.Event()

    def go_on(self, folder: Path, work: Callable[[IsOver], None], forget: Callable[[], None]) -> None:
        """
        Go on after a task of the job with this checkpoint *folder*, unless its planner must be alone. Called before the task ends.

        Args:
            work: Runs in a thread, and returns soon after what it is given says that it is over.
            forget: Called if the work fails: what is in memory is no longer what a repetition would have.
        """
        self.end()
        self._is_ended.clear()
        until_s = time.monotonic() + _LAST_S
        lock = _lock(folder, fcntl.LOCK_SH)
        if lock is None:
            return

        def is_over() -> bool:
            return self._is_ended.is_set() or time.monotonic() >= until_s

        def run() -> None:
            try:
                run_or_forget(lambda: work(is_over), forget)
            finally:
                os.close(lock)

        self._thread = threading.Thread(target=copy_context().run, args=(run,), name="between batches", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the work, and wait for its last round."""
        if self._thread is not None:
            self._is_ended.set()
            self._thread.join()
            self._thread = None


BETWEEN_BATCHES = BetweenBatches()


class LeftWork(Generic[Part]):
    """What the tasks of one job leave in this process: parts by number, with which the work goes on until the next task takes them over."""

    def __init__(self) -> None:
        self._parts: dict[int, Part] = {}

    def end(self) -> None:
        """End the work of this process, and wait for its last round."""
        BETWEEN_BATCHES.end()

    def pop(self, number: int) -> Part | None:
        """Return a part as the work has left it, once; None if there is none."""
        return self._parts.pop(number, None)

    def go_on(self, folder: Path, parts: Mapping[int, Part], work: Callable[[IsOver], None], forget_state: Callable[[int], None]) -> None:
        """Go on with *parts* (:meth:`BetweenBatches.go_on`). If the work fails they are forgotten, each with its state in memory."""
        self._parts = dict(parts)

        def forget() -> None:
            self._parts.clear()
            for number in parts:
                forget_state(number)

        BETWEEN_BATCHES.go_on(folder, work, forget)


def run_or_forget(work: Callable[[], None], forget: Callable[[], None]) -> None:
    """Run *work*; if it fails, call *forget*. The batch that follows meets the failure too if it is still there, and reports it."""
    is_whole = False
    try:
        work()
        is_whole = True
    except (KafkaException, TidegateError, OSError) as error:
        get_logger("worker").info("records wait for the next batch", reason=str(error))
    finally:
        if not is_whole:
            forget()


def all_have_ended(folder: Path) -> bool:
    """Wait until nothing goes on of the job with this checkpoint *folder*; return False if something still does after a while."""
    deadline_s = time.monotonic() + _LAST_S + _ROUND_S
    while (lock := _lock(folder, fcntl.LOCK_EX)) is None:
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_LOOK_EVERY_S)
    os.close(lock)
    return True


def _lock(folder: Path, kind: int) -> int | None:
    """Return a descriptor that holds a lock; None if others hold one that excludes it."""
    descriptor = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
