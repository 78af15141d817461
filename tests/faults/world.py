"""
The world of one episode: a stack, a raw topic with its producer, and an ingest job under a service manager's eye.

A job that has ended, whatever ended it, is started again at once, from the same folder. Time to the first new CTI is measured
from the fault to the moment a consumer meets a CTI above all it had met before.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from demanding import BrokenLawError, demand
from faults.checks import (
    Truth,
    check_accounts,
    check_bytes,
    check_dead_letters,
    check_promises,
    read_dead_letters,
    truth_of,
)
from faults.clock import SteppedClock
from faults.facts import KnownFacts
from faults.points import send_signal
from faults.variants import Variant
from faults.workload import Workload, log_of
from integration.running import Job, Workspace
from integration.topics import ANY_TIME, APPEND_TIME, Channel, CtiWatch, Ordered, create, exists, fresh, read_ordered

from tidegate.runtime.fault_points import VARIABLE
from tidegate.runtime.stack import EmbeddedStack

STALL_S = 90.0
"""No new CTI for so long after a fault is a stall."""
ORPHANS_S = 60.0
"""Python workers and JVM of a driver that was killed must have ended by then."""
_POLL_S = 0.05
_DRIVER, _JVM, _WORKER, _PLANNER = "driver", "jvm", "worker", "planner"


class World:
    """
    One episode.

    Args:
        stack: Kafka and Redis.
        folder: The episode's own.
        variant: What is ingested and how.
        seed: Of the data.
        clocks: Wall clocks that can be stepped: of the ``job``, of the ``broker``.

    Attributes:
        job: The life of the job now.
        lives: How often it was started.
        kills: How often which victim was killed.
        ended: How lives ended that nobody killed: error codes.
        arm: (point, pass) at which a worker of the next life holds itself still.
        armed: Whether the life now is one of these.
        old_drivers: Whether an old driver was let go on: its CTIs may come after newer ones.
        struck_s: When the last kill struck.
        stall_s: No new CTI for so long after a fault is a stall.
        counts_hold: Whether the job's counts go back to the beginning; not after its checkpoint was lost.
    """

    def __init__(
        self, stack: EmbeddedStack, folder: Path, variant: Variant, seed: int, clocks: Mapping[str, SteppedClock] | None = None
    ) -> None:
        self.stack, self.variant = stack, variant
        bootstrap, partitions = stack.bootstrap, variant.manner.partitions
        config = {**(APPEND_TIME if variant.log_append else ANY_TIME), "max.message.bytes": "2000000"}
        self.topic = create(bootstrap, fresh("faults"), partitions, config)
        self.ordered_topic = f"{self.topic}.ordered"
        self.space = Workspace(folder, stack, variant.tables(self.topic))
        self.workload = Workload(bootstrap, self.topic, variant.manner, seed)
        self.facts = KnownFacts(bootstrap, stack.redis_url, self.topic, partitions, variant.stamped)
        self.environment = clocks["job"].environment if clocks and "job" in clocks else {}
        self.arm: tuple[str, int] | None = None
        self.armed, self.old_drivers = False, False
        self.lives = 0
        self.kills: Counter[str] = Counter()
        self.ended: list[str] = []
        self._sessions: set[int] = set()
        self._watch: CtiWatch | None = None
        self._marker = folder / "point-0"
        self.struck_s, self.stall_s = 0.0, STALL_S
        self.counts_hold = True
        self._clocks = dict(clocks or {})
        self.job: Job
        self.workload.start()
        self.start()

    # ----- the job's lives

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""
        return self.space.folder / ".tidegate" / "checkpoints" / f"ingest-{self.ordered_topic}"

    @property
    def patience_s(self) -> float:
        """How long to wait for a moment to strike."""
        return max(self.stall_s / 4, 30.0)

    @property
    def watch(self) -> CtiWatch:
        """The follower of the ordered topic, once there is one."""
        if self._watch is None:
            deadline_s = time.monotonic() + 4 * STALL_S
            while not exists(self.stack.bootstrap, self.ordered_topic):
                assert time.monotonic() < deadline_s, f"no ordered topic: {self.job.errors[-3000:]}"
                self.revive()
                time.sleep(0.5)
            self._watch = CtiWatch(self.stack.bootstrap, self.ordered_topic, self.variant.output_partitions)
        return self._watch

    def start(self) -> None:
        """Start a life; if :attr:`arm` says so, one of its workers holds itself still at a point."""
        environment = dict(self.environment)
        self.lives += 1
        # A file for each life: an old driver that goes on must not stop its successor.
        self._marker = self.space.folder / f"point-{self.lives}"
        if self.arm is not None:
            point, nth = self.arm
            environment[VARIABLE] = f"{point}:{nth}:{self._marker}"
        self.armed = self.arm is not None
        self.job = self.space.start("ingest", "events", *self.variant.flags(), **environment)
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
            time.sleep(_POLL_S)
        return None

    # ----- processes

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

    def freeze(self) -> None:
        """Hold the whole job still."""
        for _ in range(3):  # also what is being forked
            self.signal("all", signal.SIGSTOP)

    def step_clock(self, whose: str, us: int) -> None:
        """Set a wall clock *us* microseconds off the machine's."""
        self._clocks[whose].step(us)

    # ----- after a fault

    def until_new_cti(self, since_s: float, bound_s: float | None = None, above: dict[Channel, int] | None = None) -> float | None:
        """
        Keep the job alive until it has written a CTI above *above* (default: all met by now); return seconds since *since_s*.

        None: a worker has held itself still before, so that a fault may strike in the recovery from this one.

        Raises:
            BrokenLawError: None came within *bound_s* (default: :attr:`stall_s`).
        """
        watch = self.watch
        above = dict(watch.highest) if above is None else above
        bound_s = self.stall_s if bound_s is None else bound_s
        deadline_s = time.monotonic() + bound_s
        while not watch.rises(above, _POLL_S):
            self.revive()
            if self.release_or_held():
                return None
            if time.monotonic() > deadline_s:
                raise BrokenLawError("no stall", f"no new CTI for {bound_s:g} s; lives ended: {self.ended}: {self.job.errors[-2500:]}")
        return time.monotonic() - since_s

    def check(self, whole: bool = False) -> tuple[Ordered, Truth]:
        """Hold what stands in the ordered topic against the oracle; with *whole* nothing may be missing."""
        # What is written first is read last: nothing may stand in a topic of which the raw topic read later knows nothing.
        found = read_ordered(self.stack.bootstrap, self.ordered_topic, self.variant.output_partitions)
        dead = read_dead_letters(self.stack.bootstrap, f"{self.ordered_topic}.dead")
        self.facts.look()
        truth = self.truth()
        check_bytes(found, truth, whole)
        check_promises(found, truth, rising=not self.old_drivers)
        check_dead_letters(dead, truth, whole)
        return found, truth

    def truth(self) -> Truth:
        """Let the oracle hear the raw topic as it is now."""
        variant = self.variant
        logs = log_of(self.stack.bootstrap, self.topic, variant.manner.partitions, self.workload.said)
        if variant.stamped:
            logs = [self.facts.stamped(number, log) for number, log in enumerate(logs)]
        estimates = self.facts.estimates
        return truth_of(self.topic, logs, variant.policies(), variant.output_partitions, over=variant.over, estimates=estimates)

    def finish(self) -> tuple[Ordered, Truth]:
        """Stop producer and job, order what is left to the end, and check everything."""
        self.workload.stop()
        if self.job.running:
            self.job.stop()
        self.space.clear()
        self._check_orphans()
        self.job = self.space.start("ingest", "events", "--until-end", *self.variant.flags(), **self.environment)
        code = self.job.wait(10 * self.stall_s)
        demand(code == 0, "nothing is lost", f"the run to the end failed with exit code {code}: {self.job.errors[-2500:]}")
        summary = self.job.last
        found, truth = self.check(whole=True)
        demand(summary["finished"], "nothing is lost", "the run to the end has not ended every channel")
        if self.counts_hold:
            check_accounts(summary, truth)
        return found, truth

    def _check_orphans(self) -> None:
        """Of lives whose driver was killed nothing may be left after a while."""
        deadline_s = time.monotonic() + ORPHANS_S
        while left := self._left_over():
            demand(time.monotonic() < deadline_s, "no orphans", f"still there: {[process.cmdline() for process in left]}")
            time.sleep(0.5)

    def _left_over(self) -> list[psutil.Process]:
        """Return what still runs of any life."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) in self._sessions and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def close(self) -> None:
        """Leave nothing running."""
        with contextlib.suppress(AssertionError):
            self.workload.stop()
        self.space.clear()
        for process in self._left_over():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._watch is not None:
            self._watch.close()


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


@contextlib.contextmanager
def world(
    stack: EmbeddedStack, folder: Path, variant: Variant, seed: int, clocks: Mapping[str, SteppedClock] | None = None
) -> Iterator[World]:
    """Give a world and leave nothing of it running."""
    made = World(stack, folder, variant, seed, clocks)
    try:
        yield made
    finally:
        made.close()
