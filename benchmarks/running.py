"""
One measured run: a command that says as JSON lines how far it is, its rate, its cost, and where it stands with its peers.

Rates and costs are of the steady part of a run, between 30 % and 97 % of its events: before it, JVM and workers are cold.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient
from filling import fill
from measuring import Meter
from rich.console import Console

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

HERE = Path(__file__).parent
STEADY = 0.30, 0.97
_GRACE_S = 20.0
_NAMED_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
COUNTS = "events_in", "events"
"""What ingest and query call the events they have taken."""
Figures = dict[str, Any]
console = Console(stderr=True)


def progress(line: str) -> None:
    """Show how far a run is, on a terminal only."""
    if console.is_terminal:
        console.print(f"{line:<100}", end="\r")


@dataclass
class Run:
    """One measured run: where the events were at which moment, and what it cost."""

    name: str
    events: int
    points: list[tuple[float, int]]
    meter: Meter
    last: Figures
    ended: bool = True
    """Whether it came to its end; else *events* are those that it had taken when its time was over."""

    def stretch(self, first: float, last: float) -> Figures:
        """Return rate and cost between two shares of the events."""
        start = next((point for point in self.points if point[1] >= first * self.events), self.points[0])
        end = next((point for point in self.points if point[1] >= last * self.events), self.points[-1])
        done, took = end[1] - start[1], end[0] - start[0]
        rate = round(done / took) if done > 0 and took > 0 else None
        cost = round(self.meter.cpu_between(start[0], end[0]) / done * 1e6, 2) if done > 0 else None
        memory = [
            sum(sample.memory_bytes.values()) for sample in self.meter.samples if start[0] <= sample.at_s <= end[0] and sample.memory_bytes
        ]
        return {"events_per_s": rate, "cpu_s_per_million": cost, "memory_mb": max(memory, default=0) >> 20}

    def figures(self) -> Figures:
        """Return what the run showed."""
        steady, seconds = self.stretch(*STEADY), self.last.get("seconds")
        return {
            "name": self.name,
            "steady_events_per_s": steady["events_per_s"],
            "steady_cpu_s_per_million": steady["cpu_s_per_million"],
            "whole_cpu_s_per_million": round(sum(self.meter.cpu_s.values()) / self.events * 1e6, 2),
            "memory_peak_mb": sum(self.meter.memory_peak.values()) >> 20,
            "cpu_s": {kind: round(spent, 1) for kind, spent in sorted(self.meter.cpu_s.items())},
            **({"worker_us_per_event": {step: round(spent / self.events * 1e6, 2) for step, spent in seconds.items()}} if seconds else {}),
        }


def measured(name: str, command: list[str], events: int, work: Path, environment: dict[str, str], limit_s: float | None = None) -> Run:
    """
    Run a command that prints how far it is as JSON lines, and measure it.

    Args:
        name: What the run is called.
        command: The command; whatever else it prints is passed over.
        events: So many it has before it.
        work: Its working directory; ``errors.log`` in it takes what it has to complain.
        environment: Its environment.
        limit_s: After so long it is ended, with all that it started, and what it did until then is its run.

    Raises:
        FailedRun: It ended with an error, or said nothing.
    """
    errors = work / "errors.log"
    with errors.open("wb") as complaints:
        process = subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=complaints)
        meter = Meter(process.pid)
        limit = threading.Timer(limit_s or threading.TIMEOUT_MAX, end, [process.pid])
        limit.daemon = True
        limit.start()
        points: list[tuple[float, int]] = []
        last: Figures = {}
        assert process.stdout is not None
        for line in process.stdout:
            told = _told(line)
            last = told or last
            done = next((told[count] for count in COUNTS if count in told), None)
            if done is not None:
                points.append((meter.elapsed_s, done))
                progress(f"{name}: {done:,} of {events:,}")
        code = process.wait()
        meter.stop()
        limit.cancel()
        limit.join()
    ended = limit_s is None or meter.elapsed_s < limit_s
    if not points or (code != 0 and ended):
        raise FailedRun(name, code, errors.read_text(errors="replace"))
    return Run(name, events if ended else max(points[-1][1], 1), points, meter, last, ended)


def _told(line: bytes) -> Figures:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def end(pid: int) -> None:
    """End a process and all that it started: asked first, then made to."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(family, timeout=_GRACE_S)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


class FailedRun(SystemExit):
    """A measured command that ended with an error; *reason* is the line of its complaint that names one."""

    def __init__(self, name: str, code: int, complaint: str) -> None:
        super().__init__(f"{name} failed ({code}):\n{complaint[-3000:]}")
        lines = complaint.strip().splitlines() or [f"exit code {code}"]
        self.reason = next((line for line in reversed(lines) if _NAMED_ERROR.match(line)), lines[-1])[:200]


class Bench:
    """What all parts need: the services, a folder for jobs, and names nobody used before."""

    def __init__(self, stack: EmbeddedStack, work: Path, cores: int) -> None:
        self.stack, self.work, self.cores = stack, work, cores
        self._number = 0
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        self.environment = {**os.environ, **addresses, "TIDEGATE_SPARK__MASTER": f"local[{cores}]"}

    def fresh(self, name: str, partitions: int = 0) -> str:
        """Return a topic's name; made, if *partitions* are told."""
        self._number += 1
        topic = f"{name}-{time.strftime('%H%M%S')}-{self._number}"
        if partitions:
            Admin({"bootstrap.servers": self.stack.bootstrap}).create(topic, partitions, {"retention.ms": "-1"})
        return topic

    def forget(self, *topics: str) -> None:
        """Give the disk back."""
        client = AdminClient({"bootstrap.servers": self.stack.bootstrap})
        for done in client.delete_topics(list(topics), operation_timeout=60).values():
            done.result(90)

    def filled(self, events: int, partitions: int, seed: int = 1) -> str:
        """Return a raw topic with so many events."""
        topic = f"bench-{events}-{partitions}" + (f"-{seed}" if seed > 1 else "")
        fill(self.stack.bootstrap, topic, events, partitions, lambda sent: progress(f"producing {sent:,} of {events:,}"), seed)
        return topic

    def query(self, name: str, script: str, events: int, reads: list[str]) -> Figures:
        """Run a script into a new result topic; return its figures."""
        (self.work / "query.sql").write_text(script)
        results = self.fresh("results")
        run = self.job(name, events, "query", "query.sql", *reads, "--set", f"outputs.results.topic={results}")
        self.forget(results)
        return {**run.figures(), "results": run.last["results"]}

    def job(self, name: str, events: int, *arguments: str) -> Run:
        """Run a tidegate command over *events* and measure it."""
        command = [sys.executable, "-m", "tidegate", *arguments, "--until-end", "--format", "json"]
        return measured(name, command, events, self.work, self.environment)

    def ingest(self, name: str, topic: str, events: int, declared: str = "bench") -> tuple[Run, str]:
        """Put a raw topic in order; return the run, and the ordered topic."""
        ordered = self.fresh("ordered")
        set_ = [f"inputs.{declared}.topic={topic}", f"inputs.{declared}.ordered_topic={ordered}"]
        return self.job(name, events, "ingest", declared, *[part for one in set_ for part in ("--set", one)]), ordered

    def copy(self, name: str, way: str, topic: str, events: int, partitions: int) -> Run:
        """Copy a raw topic."""
        sink = self.fresh("copy", partitions)
        command = [sys.executable, str(HERE / "copying.py"), way, self.stack.bootstrap, topic, sink, str(partitions), str(self.cores)]
        run = measured(name, command, events, self.work, self.environment)
        self.forget(sink)
        return run


def middle(rows: list[Figures]) -> Figures:
    """Return the run with the middle rate, and from where to where the others went."""
    rows = sorted(rows, key=lambda row: row["steady_events_per_s"] or 0)
    row = dict(rows[len(rows) // 2])
    row["name"] = row["name"].split(",")[0]
    for name in ("steady_events_per_s", "steady_cpu_s_per_million"):
        told = [one[name] for one in rows if one[name] is not None]
        row[f"{name}_spread"] = [min(told), max(told)] if told else None
    return row
