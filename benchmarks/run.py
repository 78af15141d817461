"""
Benchmarks: how fast, for how much CPU and memory. Each stands beside its yardsticks of the same run on the same machine.

Usage: make bench, or python benchmarks/run.py [--events 20000000] [--runs 3] [--only ingest,flights] [--format json]

- kernel: the time model alone, see kernel.py.
- ingest: raw topic to ordered topic through Kafka and Spark, --runs times, each time beside two plain copies of the topic.
- growth: one long run, its cost told by the stretch: does an event cost the same at the end as at the beginning?
- partitions: the same events in 1, 4, 16 and 64 partitions.
- queries: tumbling and hopping windows, an interval join and LAG over the ordered topic, each --runs times.
- flights: real flights of a Parquet file (--flights FILE, or TIDEGATE_BENCH_FLIGHTS), raw to ordered to departures per hour.

Without --only all of them run, flights where there is a file. Everything is pinned to --cores cores, the brokers too. The
steady part lies between 30 % and 97 % of the events: before it, JVM and workers are cold.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kernel
from confluent_kafka.admin import AdminClient
from filling import fill, fill_with_flights
from measuring import Meter
from rich.console import Console
from rich.table import Table

from tidegate.runtime.kafka.admin import Admin
from tidegate.runtime.stack import EmbeddedStack

HERE = Path(__file__).parent
PARTS = ("kernel", "ingest", "growth", "partitions", "queries", "flights")
STEADY = 0.30, 0.97
GROWTH = 1 / 30, 4 / 30, 10 / 30, 20 / 30, 29 / 30
"""Ends of the stretches of the long run, as shares of its events: 1, 4, 10, 20 and 29 of 30 million; the rest is its end."""
COUNTS = "events_in", "events"
"""What ingest and query call the events they have taken."""
Figures = dict[str, Any]
QUERIES = {
    "tumbling 10 s count and sum by key": "SELECT device, COUNT(*) AS n, SUM(value) AS total INTO results "
    "FROM bench TIMESTAMP BY ts OVER device GROUP BY device, TumblingWindow(second, 10)",
    "hopping 60 s by 1 s count by key": "SELECT device, COUNT(*) AS n INTO results "
    "FROM bench TIMESTAMP BY ts OVER device GROUP BY device, HoppingWindow(second, 60, 1)",
    "LAG by key": "SELECT device, ts, value, LAG(value) OVER (LIMIT DURATION(minute, 1)) AS before INTO results "
    "FROM bench TIMESTAMP BY ts OVER device",
}
"""What peers are measured with: see docs/performance.md."""
JOIN = """
SELECT l.device, l.ts AS at, r.ts AS followed, l.value, r.value AS following INTO results
FROM bench TIMESTAMP BY ts l JOIN right TIMESTAMP BY ts r ON l.device = r.device AND DATEDIFF(second, l, r) BETWEEN 0 AND 1
"""
console = Console(stderr=True)

SETTINGS = """
[inputs.bench]
topic = "bench"
timestamp_by = "ts"
over = "device"
early = "5m"
late = "5s"
reorder = "2s"

[inputs.right]
topic = "right"
timestamp_by = "ts"
over = "device"
early = "5m"
late = "5s"
reorder = "2s"

[outputs.results]
topic = "results"

[inputs.flights]
topic = "flights"
timestamp_by = "scheduled"
over = "origin"
early = "30m"
late = "3h"
reorder = "10m"

[outputs.departures]
topic = "departures"
"""
DEPARTURES = """
SELECT origin, System.Timestamp() AS window_end, COUNT(*) AS departures
INTO departures FROM flights TIMESTAMP BY scheduled OVER origin
GROUP BY origin, TumblingWindow(hour, 1)
"""


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

    def stretch(self, first: float, last: float) -> Figures:
        """Return rate and cost between two shares of the events."""
        start = next((point for point in self.points if point[1] >= first * self.events), self.points[0])
        end = next((point for point in self.points if point[1] >= last * self.events), self.points[-1])
        done, took = end[1] - start[1], end[0] - start[0]
        rate = round(done / took) if took > 0 else None
        cost = round(self.meter.cpu_between(start[0], end[0]) / max(done, 1) * 1e6, 2)
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


def measured(name: str, command: list[str], events: int, work: Path, environment: dict[str, str]) -> Run:
    """Run a command that prints how far it is as JSON lines, and measure it."""
    with (work / "errors.log").open("wb") as errors:
        process = subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=errors)
        meter = Meter(process.pid)
        points: list[tuple[float, int]] = []
        last: Figures = {}
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            done = next((last[count] for count in COUNTS if count in last), None)
            if done is not None:
                points.append((meter.elapsed_s, done))
                progress(f"{name}: {done:,} of {events:,}")
        code = process.wait()
        meter.stop()
    if code != 0 or not points:
        raise SystemExit(f"{name} failed ({code}):\n{(work / 'errors.log').read_text()[-3000:]}")
    return Run(name, events, points, meter, last)


class Bench:
    """What all parts need: the services, a folder for jobs, and names nobody used before."""

    def __init__(self, stack: EmbeddedStack, work: Path, cores: int) -> None:
        self.stack, self.work, self.cores = stack, work, cores
        self._number = 0
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        self._environment = {**os.environ, **addresses, "TIDEGATE_SPARK__MASTER": f"local[{cores}]"}

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
        return measured(name, command, events, self.work, self._environment)

    def ingest(self, name: str, topic: str, events: int, declared: str = "bench") -> tuple[Run, str]:
        """Put a raw topic in order; return the run, and the ordered topic."""
        ordered = self.fresh("ordered")
        set_ = [f"inputs.{declared}.topic={topic}", f"inputs.{declared}.ordered_topic={ordered}"]
        return self.job(name, events, "ingest", declared, *[part for one in set_ for part in ("--set", one)]), ordered

    def copy(self, name: str, way: str, topic: str, events: int, partitions: int) -> Run:
        """Copy a raw topic."""
        sink = self.fresh("copy", partitions)
        command = [sys.executable, str(HERE / "copying.py"), way, self.stack.bootstrap, topic, sink, str(partitions), str(self.cores)]
        run = measured(name, command, events, self.work, self._environment)
        self.forget(sink)
        return run


def ingest(bench: Bench, options: argparse.Namespace) -> list[Figures]:
    """Copies and ingest in turn, several times; the middle of the runs, with their spread."""
    topic, runs = bench.filled(options.events, options.partitions), []
    for number in range(1, options.runs + 1):
        of = f"run {number} of {options.runs}"
        runs.append(bench.copy(f"copy by messages, {of}", "python", topic, options.events, options.partitions))
        runs.append(bench.copy(f"copy by columns, {of}", "columns", topic, options.events, options.partitions))
        run, ordered = bench.ingest(f"tidegate ingest, {of}", topic, options.events)
        bench.forget(ordered)
        runs.append(run)
    return [middle([run.figures() for run in runs[place::3]]) for place in range(3)]


def middle(rows: list[Figures]) -> Figures:
    """Return the run with the middle rate, and from where to where the others went."""
    rows = sorted(rows, key=lambda row: row["steady_events_per_s"] or 0)
    row = dict(rows[len(rows) // 2])
    row["name"] = row["name"].split(",")[0]
    for name in ("steady_events_per_s", "steady_cpu_s_per_million"):
        told = [one[name] for one in rows if one[name] is not None]
        row[f"{name}_spread"] = [min(told), max(told)] if told else None
    return row


def growth(bench: Bench, options: argparse.Namespace) -> list[Figures]:
    """One long run, stretch by stretch."""
    events = options.growth_events
    run, ordered = bench.ingest(f"{events:,} events", bench.filled(events, options.partitions), events)
    bench.forget(ordered)
    pairs = itertools.pairwise(GROWTH)
    return [
        {"name": f"{first * events / 1e6:.3g} to {last * events / 1e6:.3g} million", **run.stretch(first, last)} for first, last in pairs
    ]


def partitions(bench: Bench, options: argparse.Namespace) -> list[Figures]:
    """The same events in more and more partitions."""
    rows = []
    for count in options.partition_counts:
        run, ordered = bench.ingest(f"{count} partitions", bench.filled(options.partition_events, count), options.partition_events)
        bench.forget(ordered)
        rows.append(run.figures())
    return rows


def queries(bench: Bench, options: argparse.Namespace) -> list[Figures]:
    """Queries over the ordered topic, the middle of several runs each; the join reads two topics of half as many events."""
    events, rows = options.query_events, []
    _, ordered = bench.ingest("ingest for queries", bench.filled(events, options.partitions), events)
    for name, script in QUERIES.items():
        reads = ["--set", f"inputs.bench.ordered_topic={ordered}"]
        rows.append(middle([bench.query(f"{name}, run {run}", script, events, reads) for run in range(1, options.runs + 1)]))
    bench.forget(ordered)
    half = events // 2
    sides = [
        bench.ingest(f"ingest for the join: {side}", bench.filled(half, options.partitions, seed), half, side)[1]
        for seed, side in enumerate(("bench", "right"), start=1)
    ]
    reads = [
        part for side, topic in zip(("bench", "right"), sides, strict=True) for part in ("--set", f"inputs.{side}.ordered_topic={topic}")
    ]
    rows.append(middle([bench.query(f"interval join within 2 s, run {run}", JOIN, events, reads) for run in range(1, options.runs + 1)]))
    bench.forget(*sides)
    return rows


def flights(bench: Bench, options: argparse.Namespace) -> list[Figures]:
    """Real flights, from raw to results."""
    topic = bench.fresh("flights")
    events = fill_with_flights(
        bench.stack.bootstrap, topic, options.flights, options.partitions, lambda sent: progress(f"producing {sent:,}")
    )
    ordering, ordered = bench.ingest("flights: ingest", topic, events, "flights")
    told = ordering.last
    dropped = {
        name: count for name, count in told.items() if name.endswith("_dropped") or name.startswith("dead_letter_") or name == "early"
    }
    lost = told["events_in"] - told["released"] - sum(count for count in dropped.values() if isinstance(count, int))
    (bench.work / "departures.sql").write_text(DEPARTURES)
    set_ = ["--set", f"inputs.flights.topic={topic}", "--set", f"inputs.flights.ordered_topic={ordered}"]
    into = ["--set", f"outputs.departures.topic={bench.fresh('departures')}"]
    querying = bench.job("flights: departures per hour", told["released"], "query", "departures.sql", "--into", "departures", *set_, *into)
    took = {"took_s": round(ordering.points[-1][0] + querying.points[-1][0], 1), "results": querying.last["results"], "unaccounted": lost}
    return [ordering.figures(), {**querying.figures(), **took}]


MEASURE: dict[str, Callable[[Bench, argparse.Namespace], list[Figures]]] = {
    "ingest": ingest,
    "growth": growth,
    "partitions": partitions,
    "queries": queries,
    "flights": flights,
}


def show(part: str, rows: list[Figures]) -> None:
    """Print one part's figures for people."""
    out = Console(width=170)
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if name != "name" and not isinstance(value, dict)))
    table = Table(part, *[name.replace("_", " ") for name in names])
    for row in rows:
        table.add_row(row["name"], *[_cell(row.get(name)) for name in names])
    out.print(table)
    for row in rows:
        for name, value in row.items():
            if isinstance(value, dict):
                out.print(f"{row['name']}: {name.replace('_', ' ')} {value}")


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(map(_cell, value))
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000_000, help="of ingest and its yardsticks (default 20 million)")
    parser.add_argument("--runs", type=int, default=3, help="of ingest and its yardsticks (default 3)")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--growth-events", type=int, default=30_000_000)
    parser.add_argument("--partition-events", type=int, default=20_000_000)
    parser.add_argument("--partition-counts", type=lambda text: [int(part) for part in text.split(",")], default=[1, 4, 16, 64])
    parser.add_argument("--query-events", type=int, default=10_000_000)
    parser.add_argument("--kernel-events", type=int, default=10_000_000)
    parser.add_argument("--flights", type=Path, default=os.environ.get("TIDEGATE_BENCH_FLIGHTS") or None, help="a Parquet file")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help=f"parts to run, of {', '.join(PARTS)}")
    parser.add_argument("--cores", type=int, default=2, help="everything is pinned to so many (default 2)")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose of {', '.join(PARTS)}")
    options.flights = None if options.flights is None else Path(options.flights).resolve()
    if options.flights is None and "flights" in options.only:
        options.only.remove("flights")
        console.print("no flights without --flights FILE or TIDEGATE_BENCH_FLIGHTS")
    return options


def main() -> None:
    """Run what was asked for."""
    options = options_of(sys.argv[1:])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    found: dict[str, list[Figures]] = {}

    def told(part: str, rows: list[Figures]) -> None:
        found[part] = rows
        if options.format == "text":
            show(part, rows)

    if "kernel" in options.only:
        told("kernel", kernel.figures(options.kernel_events))
    if asked := [part for part in MEASURE if part in options.only]:
        work = Path(".tidegate/bench").resolve()
        shutil.rmtree(work / "job", ignore_errors=True)
        (work / "job").mkdir(parents=True)
        (work / "job" / "tidegate.toml").write_text(SETTINGS)
        with EmbeddedStack(work / "stack") as stack:
            bench = Bench(stack, work / "job", options.cores)
            for part in asked:
                told(part, MEASURE[part](bench, options))
            stack.stop(wipe=True)
    if options.format == "json":
        print(json.dumps(found))


if __name__ == "__main__":
    main()
