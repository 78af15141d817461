"""
Benchmarks: how fast, for how much CPU and memory. Each stands beside its yardsticks of the same run on the same machine.

Usage: make bench, or python benchmarks/run.py [--events 20000000] [--runs 3] [--only ingest,flights] [--format json]

- kernel: the time model alone, see kernel.py.
- retaining: windows of seven days with --retained-events events in them, see retaining.py.
- ingest: raw topic to ordered topic through Kafka and Spark, --runs times, each time beside two plain copies of the topic.
- growth: one long run, its cost told by the stretch: does an event cost the same at the end as at the beginning?
- partitions: the same events in 1, 4, 16 and 64 partitions.
- queries: tumbling and hopping windows, an interval join and LAG over the ordered topic, each --runs times.
- flights: real flights of a Parquet file (--flights FILE, or TIDEGATE_BENCH_FLIGHTS), raw to ordered to departures per hour.
- peers: the queries beside Flink SQL, Spark's own streaming and Quix Streams, which are installed at first: see peers/beside.py.

Without --only all of them run, flights where there is a file. Everything is pinned to --cores cores, the brokers too. The
steady part lies between 30 % and 97 % of the events: before it, JVM and workers are cold.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel
import retaining
from filling import fill_with_flights
from peers import beside
from rich.console import Console
from rich.table import Table
from running import Bench, Figures, console, middle, progress

from tidegate.platform.stack.embedded import EmbeddedStack

PARTS = ("kernel", "retaining", "ingest", "growth", "partitions", "queries", "flights", "peers")
GROWTH = 1 / 30, 4 / 30, 10 / 30, 20 / 30, 29 / 30
"""Ends of the stretches of the long run, as shares of its events: 1, 4, 10, 20 and 29 of 30 million; the rest is its end."""
QUERIES = {
    "tumbling 10 s count and sum by key": "SELECT device, COUNT(*) AS n, SUM(value) AS total INTO results "
    "FROM bench TIMESTAMP BY ts OVER device GROUP BY device, TumblingWindow(second, 10)",
    "hopping 60 s by 1 s count by key": "SELECT device, COUNT(*) AS n INTO results "
    "FROM bench TIMESTAMP BY ts OVER device GROUP BY device, HoppingWindow(second, 60, 1)",
    "LAG by key": "SELECT device, ts, value, LAG(value) OVER (LIMIT DURATION(minute, 1)) AS before INTO results "
    "FROM bench TIMESTAMP BY ts OVER device",
}
"""What peers are measured with: see docs/reference/performance.md."""
JOIN = """
SELECT l.device, l.ts AS at, r.ts AS followed, l.value, r.value AS following INTO results
FROM bench TIMESTAMP BY ts l JOIN right TIMESTAMP BY ts r ON l.device = r.device AND DATEDIFF(second, l, r) BETWEEN 0 AND 1
"""

SETTINGS = """
[inputs.bench]
topic = "bench"
timestamp_by = "ts"
over = "device"
early = "5m"
late = "5s"
reorder = "2s"

[inputs.bench.fields]
device = "nvarchar(max)"

[inputs.right]
topic = "right"
timestamp_by = "ts"
over = "device"
early = "5m"
late = "5s"
reorder = "2s"

[inputs.right.fields]
device = "nvarchar(max)"

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
    parser.add_argument("--retained-events", type=int, default=50_000_000)
    parser.add_argument("--flights", type=Path, default=os.environ.get("TIDEGATE_BENCH_FLIGHTS") or None, help="a Parquet file")
    beside.add_options(parser)
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
    if "retaining" in options.only:
        told("retaining", retaining.figures(options.retained_events, list(retaining.QUERIES)))
    asked = [part for part in MEASURE if part in options.only]
    if asked or "peers" in options.only:
        work = Path(".tidegate/bench").resolve()
        shutil.rmtree(work / "job", ignore_errors=True)
        (work / "job").mkdir(parents=True)
        (work / "job" / "tidegate.toml").write_text(SETTINGS)
        with EmbeddedStack(work / "stack") as stack:
            bench = Bench(stack, work / "job", options.cores)
            for part in asked:
                told(part, MEASURE[part](bench, options))
            if "peers" in options.only:
                for title, rows in beside.figures(bench, options, {**QUERIES, "interval join within 2 s": JOIN}):
                    told(f"peers: {title}", rows)
            stack.stop(wipe=True)
    if options.format == "json":
        print(json.dumps(found))


if __name__ == "__main__":
    main()
