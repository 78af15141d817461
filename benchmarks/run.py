"""
Benchmarks: how fast, for how much CPU and memory. Each compares with a yardstick in the same run, on the same machine.

Usage: make bench, or python benchmarks/run.py [--events 10000000] [--partitions 4] [--only kernel|ingest] [--format json]

- kernel: the time model alone, see kernel.py.
- ingest: raw topic to ordered topic through Kafka and Spark, beside a plain librdkafka copy of the same topic.

The steady part lies between 30 % and 97 % of the events: before it, JVM and workers are cold.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kernel
import numpy as np
from confluent_kafka import Producer
from measuring import Meter
from rich.console import Console
from rich.table import Table

from tidegate.runtime.kafka.admin import Admin
from tidegate.runtime.stack import EmbeddedStack

HERE = Path(__file__).parent
STEADY = 0.30, 0.97
FIRST_ARRIVAL_MS = 1_700_000_000_000
console = Console(stderr=True)

SETTINGS = """
[inputs.bench]
topic = "bench"
timestamp_by = "ts"
over = "device"
early = "5m"
late = "5s"
reorder = "2s"
"""


def progress(line: str) -> None:
    """Show how far a run is, on a terminal only."""
    if console.is_terminal:
        console.print(line, end="\r")


def fill(bootstrap: str, topic: str, events: int, partitions: int) -> None:
    """Produce JSON events of about 60 bytes: 1,000 devices, one event a millisecond, lateness exponential with mean 2 s."""
    admin = Admin({"bootstrap.servers": bootstrap})
    admin.create(topic, partitions, {"retention.ms": "-1"})
    ends = admin.ends([(topic, partition) for partition in range(partitions)])
    if sum(ends.values()) == events:
        return
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1000000,
            "queue.buffering.max.messages": 1000000,
            "compression.type": "lz4",
        }
    )
    gc.disable()
    rng = np.random.default_rng(1)
    for start in range(0, events, 100_000):
        count = min(100_000, events - start)
        arrival = (FIRST_ARRIVAL_MS + start + np.arange(count)).tolist()
        stamp = (FIRST_ARRIVAL_MS + start + np.arange(count) - rng.exponential(2000, count).astype(int)).tolist()
        device, value = rng.integers(0, 1000, count).tolist(), rng.random(count).tolist()
        for at, t, d, v in zip(arrival, stamp, device, value, strict=True):
            while True:
                try:
                    producer.produce(
                        topic, b'{"device":"dev-%d","ts":%d,"value":%.6f}' % (d, t, v), b"dev-%d" % d, d % partitions, timestamp=at
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
        progress(f"producing {start + count:,} of {events:,}")
    producer.flush()
    gc.enable()


@dataclass
class Run:
    """One measured run: where the events were at which moment, and what it cost."""

    name: str
    events: int
    points: list[tuple[float, int]]
    meter: Meter
    last: dict[str, Any]

    def row(self) -> dict[str, Any]:
        """Return the figures."""
        start = next((point for point in self.points if point[1] >= STEADY[0] * self.events), self.points[0])
        end = next((point for point in self.points if point[1] >= STEADY[1] * self.events), self.points[-1])
        done, took = end[1] - start[1], end[0] - start[0]
        steady = [sample for sample in self.meter.samples if start[0] <= sample.at_s <= end[0] and sample.memory_bytes]
        memory = [sum(sample.memory_bytes.values()) for sample in steady]
        half = len(memory) // 2 or 1
        return {
            "name": self.name,
            "steady_events_per_second": round(done / took) if took > 0 else None,
            "steady_cpu_s_per_million": round(self.meter.cpu_between(start[0], end[0]) / max(done, 1) * 1e6, 2),
            "whole_cpu_s_per_million": round(sum(self.meter.cpu_s.values()) / self.events * 1e6, 2),
            "cpu_s": {kind: round(spent, 1) for kind, spent in sorted(self.meter.cpu_s.items())},
            "memory_peak_mb": sum(self.meter.memory_peak.values()) >> 20,
            "memory_growth": round(max(memory[half:], default=0) / max(memory[:half], default=1), 2) if memory else None,
            "memory_mb": {kind: size >> 20 for kind, size in sorted(self.meter.memory_peak.items())},
            "seconds": self.last.get("seconds"),
        }


def measured(name: str, command: list[str], events: int, work: Path, environment: dict[str, str]) -> Run:
    """Run a command that prints how far it is as JSON lines, and measure it."""
    with (work / "errors.log").open("wb") as errors:
        process = subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=errors)
        meter = Meter(process.pid)
        points: list[tuple[float, int]] = []
        last: dict[str, Any] = {}
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            points.append((meter.elapsed_s, last["events_in"]))
            progress(f"{name}: {last['events_in']:,} of {events:,}")
        code = process.wait()
        meter.stop()
    if code != 0 or not points:
        raise SystemExit(f"{name} failed ({code}):\n{(work / 'errors.log').read_text()[-3000:]}")
    return Run(name, events, points, meter, last)


def ingest(events: int, partitions: int) -> list[dict[str, Any]]:
    """Measure ingest and the yardstick over one topic."""
    work = Path(".tidegate/bench").resolve()
    shutil.rmtree(work / "job", ignore_errors=True)
    (work / "job").mkdir(parents=True)
    (work / "job" / "tidegate.toml").write_text(SETTINGS)
    with EmbeddedStack(work / "stack") as stack:
        environment = {**os.environ, "TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        topic, run = f"bench-{events}-{partitions}", time.strftime("%H%M%S")
        fill(stack.bootstrap, topic, events, partitions)
        Admin({"bootstrap.servers": stack.bootstrap}).create(f"copy-{run}", partitions, {"retention.ms": "-1"})
        copying = [sys.executable, str(HERE / "copying.py"), stack.bootstrap, topic, f"copy-{run}", str(partitions), "2"]
        ordering = [sys.executable, "-m", "tidegate", "ingest", "bench", "--until-end", "--format", "json"]
        ordering += ["--set", f"inputs.bench.topic={topic}", "--set", f"inputs.bench.ordered_topic=ordered-{run}"]
        runs = [
            measured("librdkafka copy (orders nothing)", copying, events, work / "job", environment),
            measured("tidegate ingest", ordering, events, work / "job", environment),
        ]
        rows = [one.row() for one in runs]
        stack.stop(wipe=True)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the figures for people."""
    out = Console(width=150)
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("name", "cpu_s", "memory_mb", "seconds")))
    table = Table("", *[name.replace("_", " ") for name in names])
    for row in rows:
        cells = [row.get(name) for name in names]
        table.add_row(row["name"], *["" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells])
    out.print(table)
    for row in rows:
        if row.get("cpu_s"):
            memory, seconds = row["memory_mb"], row["seconds"]
            out.print(f"{row['name']}: CPU seconds {row['cpu_s']}, memory at its peak in MB {memory}, seconds in workers {seconds}")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--only", choices=["kernel", "ingest"])
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.only != "ingest":
        rows += kernel.figures(arguments.events)
    if arguments.only != "kernel":
        rows += ingest(arguments.events, arguments.partitions)
    if arguments.format == "json":
        print(json.dumps(rows))
    else:
        show(rows)


if __name__ == "__main__":
    main()
