"""
Measuring a job as a whole: CPU seconds and memory of every process below it, sampled while it runs.

CPU seconds per million events is the figure that a busy machine moves least; rates are given beside it.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

import psutil
from confluent_kafka import Consumer, Message

_PAUSE_S = 0.1
_MEMORY_EVERY = 10
_DAEMON = re.compile(r"\b(pyspark\.daemon|tidegate\.platform\.spark\.worker_daemon)\b")
"""Command line of what forks Spark's Python workers, which is theirs too."""


@dataclass
class Sample:
    """What one moment showed: seconds since the start, CPU seconds so far, and (now and then) memory by kind of process."""

    at_s: float
    cpu_s: float
    memory_bytes: dict[str, int]


@dataclass
class Meter:
    """
    Follows a process and all its descendants until :meth:`stop`.

    Descendants that end between two samples lose at most the CPU of that pause.
    """

    pid: int
    samples: list[Sample] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def __post_init__(self) -> None:
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}
        self._stop = threading.Event()
        self._turn = 0
        self._start_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            self._sample()

    def _sample(self) -> None:
        try:
            root = psutil.Process(self.pid)
            family = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        self._turn += 1
        look_at_memory = self._turn % _MEMORY_EVERY == 0
        memory: dict[str, int] = {}
        for process in family:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    seen = process.pid, process.create_time()
                    known = self._seen[seen][0] if seen in self._seen else None
                    kind = _kind(process, known)
                    self._seen[seen] = kind, times.user + times.system
                    if look_at_memory:
                        # Forked Python workers share pages: each page is counted once, in shares (PSS).
                        memory[kind] = memory.get(kind, 0) + process.memory_full_info().pss
            except psutil.Error:
                continue
        self.samples.append(Sample(time.monotonic() - self._start_s, sum(cpu for _, cpu in self._seen.values()), memory))

    def stop(self) -> None:
        """Take the last sample and end."""
        self._sample()
        self._stop.set()
        self._thread.join()
        for name, cpu in self._seen.values():
            self.cpu_s[name] += cpu

    def cpu_between(self, start_s: float, end_s: float) -> float:
        """Return CPU seconds spent between two moments (seconds since the start)."""
        return self._cpu_at(end_s) - self._cpu_at(start_s)

    def _cpu_at(self, moment_s: float) -> float:
        return next((sample.cpu_s for sample in reversed(self.samples) if sample.at_s <= moment_s), 0.0)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start_s

    @property
    def memory_peak(self) -> dict[str, int]:
        """Memory by kind of process, in bytes, when all of them together had most."""
        return max((sample.memory_bytes for sample in self.samples), key=lambda memory: sum(memory.values()), default={})


def take_now(consumer: Consumer) -> list[Message]:
    """Return what has come to a consumer; only for the first record it waits, 10 ms at most."""
    messages = consumer.consume(1, 0.01)
    messages += consumer.consume(10_000, 0) if messages else []
    return [message for message in messages if message.error() is None]


def _kind(process: psutil.Process, known: str | None) -> str:
    """Return what a process is; *known* is what it was taken for before."""
    # A launcher script, or a fork of a Python process, becomes the JVM only later.
    if process.name().startswith("java"):
        return "jvm"
    # A process that has just ended has no command line any more.
    if known is not None:
        return known
    command = " ".join(process.cmdline())
    if _DAEMON.search(command):
        return "python worker"
    return "python planner" if "pyspark" in command else "python driver"
