"""
The lives of one job under a service manager's eye: it is started, may hold itself still at a named point, is killed, and
started again from the same folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path

import psutil
from faults.points import send_signal
from support.stack.jobs import Job, Workspace

from tidegate.basics.fault_points import VARIABLE
from tidegate.platform.stack.embedded import EmbeddedStack

STALL_S = 90.0
"""Nothing new for so long after a fault is a stall."""
POLL_S = 0.05
_DRIVER, _JVM, _WORKER, _PLANNER = "driver", "jvm", "worker", "planner"


class Lives(ABC):
    """
    One job and its lives.

    Args:
        stack: Kafka and Redis.
        space: Where it runs.

    Attributes:
        job: The life of the job now.
        environment: What every life finds in its environment.
        lives: How often it was started.
        kills: How often which victim was killed.
        ended: How lives ended that nobody killed: error codes.
        arm: (point, pass) at which a worker of the next life holds itself still.
        armed: Whether the life now is one of these.
        struck_s: When the last kill struck.
        stall_s: Nothing new for so long after a fault is a stall.
    """

    job: Job

    def __init__(self, stack: EmbeddedStack, space: Workspace) -> None:
        self.stack, self.space = stack, space
        self.environment: dict[str, str] = {}
        self.lives = 0
        self.kills: Counter[str] = Counter()
        self.ended: list[str] = []
        self.arm: tuple[str, int] | None = None
        self.armed = False
        self.struck_s, self.stall_s = 0.0, STALL_S
        self._sessions: set[int] = set()
        self._marker = space.folder / f"point-{id(self)}-0"

    @property
    @abstractmethod
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""

    @abstractmethod
    def _begin(self, environment: dict[str, str]) -> Job:
        """Start the job."""

    @property
    def patience_s(self) -> float:
        """How long to wait for a moment to strike."""
        return max(self.stall_s / 4, 45.0)

    def start(self) -> None:
        """Start a life; if :attr:`arm` says so, one of its workers holds itself still at a point."""
        environment = dict(self.environment)
        self.lives += 1
        # A file for each life: an old driver that goes on must not stop its successor.
        self._marker = self.space.folder / f"point-{id(self)}-{self.lives}"
        if self.arm is not None:
            point, nth = self.arm
            environment[VARIABLE] = f"{point}:{nth}:{self._marker}"
        self.armed = self.arm is not None
        self.job = self._begin(environment)
        self._sessions.add(self.job.pid)

    def revive(self) -> None:
        """Start the job again if it has ended."""
        if not self.job.running:
            if (told := _ending(self.job)) is not None:
                self.ended.append(told)
            self.start()

    def held(self) -> int | None:
        """Return the process that holds still at the point asked for, if one does."""
        text = self._marker.read_text() if self._marker.exists() else ""
        if not text.endswith("\n"):
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            return int(text) if psutil.Process(int(text)).status() == psutil.STATUS_STOPPED else None
        return None

    def release_or_held(self) -> bool:
        """Return whether a process holds itself still for the fault to come; one that no fault waits for goes on."""
        pid = self.held()
        if pid is not None and self.arm is None:
            send_signal(pid, signal.SIGCONT)
            return False
        return pid is not None

    def until_held(self, timeout_s: float) -> int | None:
        """Wait until a process holds still at the point asked for; None: none did, or the job has ended."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and self.job.running:
            if (pid := self.held()) is not None:
                return pid
            time.sleep(POLL_S)
        return None

    def processes(self, kind: str) -> list[psutil.Process]:
        """Return the job's processes of a kind: driver, jvm, worker, planner, or all."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "status"]):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                ours = os.getsid(process.pid) == self.job.pid and process.info["status"] != psutil.STATUS_ZOMBIE
                if ours and kind in ("all", _kind_of(process, self.job.pid)):
                    found.append(process)
        return found

    def signal(self, kind: str, number: int) -> int:
        """Send a signal to the job's processes of a kind; return to how many."""
        reached = 0
        for process in self.processes(kind):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
                reached += 1
        return reached

    def left_over(self) -> list[psutil.Process]:
        """Return what still runs of any life."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) in self._sessions and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def close(self) -> None:
        """Leave nothing running."""
        self.space.clear()
        for process in self.left_over():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _kind_of(process: psutil.Process, driver: int) -> str:
    command = " ".join(process.info["cmdline"] or ())
    if process.pid == driver:
        return _DRIVER
    if "java" in command.split(" ", 1)[0]:
        return _JVM
    if "python_streaming_source_runner" in command:
        return _PLANNER
    return _WORKER if "pyspark.worker" in command else ""


def _ending(job: Job) -> str | None:
    """Say how a life ended: its error's code, else its exit code; None where it was killed."""
    code = job.wait()
    if code == -signal.SIGKILL:
        return None
    told = re.findall(r"TG-[A-Z-]+", job.errors)
    return f"{told[-1] if told else 'no error told'} (exit code {code})"
