"""
Nexmark, the public benchmark of stream processors: its 24 queries over its events, every row judged by DuckDB.

Usage: make nexmark, or PYTHONPATH=benchmarks python -m nexmark.run [--queries q0,q5] [--events 2000000] [--layout one|three]
[--order ordered|disordered|ties] [--over local|kafka] [--format json]. What each query computes stands in tidegate.sql. The exit code
is 1 if any row of any query is not DuckDB's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from nexmark.generator import LAYOUTS, ORDERS, Made
from nexmark.on_files import OnFiles
from nexmark.on_kafka import OnKafka, flink_of
from nexmark.queries import texts
from peers.installing import default_home
from run import show
from running import Bench, Figures, console

from tidegate.platform.stack.embedded import EmbeddedStack

TWELVE = "q0", "q1", "q2", "q3", "q5", "q7", "q8", "q11", "q15", "q17", "q18", "q20"
"""The queries that the mean is of: those whose results do not depend on how an engine takes a running result."""


MEANS = "cpu_s_per_million", "query_cpu_s_per_million", "flink_cpu_s_per_million", "duckdb_cpu_s_per_million"


def mean(rows: list[Figures], figure: str) -> float | None:
    """Return the geometric mean of a figure over the twelve queries; None unless all have it."""
    told = {row["name"]: row.get(figure) for row in rows}
    values = [told.get(name) for name in TWELVE]
    if not all(values):
        return None
    return round(math.exp(sum(math.log(value) for value in values if value) / len(values)), 2)


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = list(texts("tidegate.sql"))
    parser.add_argument("--queries", type=lambda text: text.split(","), default=every, help="q0,q5,... (default: all)")
    parser.add_argument("--events", type=int, default=2_000_000, help="default 2 million")
    parser.add_argument("--layout", choices=LAYOUTS, default="one", help="one topic with nested records, or one for each kind")
    parser.add_argument("--order", choices=ORDERS, default="ordered")
    parser.add_argument("--bound-ms", type=int, default=2_000, help="how far out of order disordered events come (default 2000)")
    parser.add_argument("--rate", type=int, default=10_000, help="events in a second of event time (default 10000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="DuckDB's (default 2)")
    parser.add_argument("--over", choices=["local", "kafka"], default="local", help="tidegate local, or both jobs over Kafka")
    parser.add_argument("--partitions", type=int, default=4, help="of each raw topic (default 4)")
    parser.add_argument("--cores", type=int, default=2, help="over Kafka everything is pinned to so many (default 2)")
    parser.add_argument("--no-flink", action="store_true", help="leave Flink SQL out, which is installed at first otherwise")
    parser.add_argument("--peers-home", type=Path, default=default_home(), help="where Flink is installed (default: the user's cache)")
    parser.add_argument("--flink-heap", default="4g", help="most memory of its heap (default 4g)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which a run of Flink is ended (default 900)")
    parser.add_argument("--no-batch", action="store_true", help="judge only, without measuring DuckDB's batch")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.queries if name not in every]:
        parser.error(f"there is no query {', '.join(unknown)}: choose of {', '.join(every)}")
    return options


def figures(options: argparse.Namespace, work: Path) -> Iterator[Figures]:
    """Yield the row of each query as it is known."""
    made = Made(options.events, options.order, options.bound_ms, options.rate, seed=options.seed)
    files = OnFiles(made, options.layout, work, options.threads, options.partitions if options.over == "kafka" else 1)
    if options.over == "local":
        yield from files.rows(options.queries, not options.no_batch)
        return
    flink = flink_of(options)
    if flink is None:
        console.print("Flink is left out")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    shutil.rmtree(work / "job", ignore_errors=True)
    (work / "job").mkdir(parents=True)
    # Whoever ends this run ends its servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with EmbeddedStack(work / "stack") as stack:
        bench = Bench(stack, work / "job", options.cores)
        yield from OnKafka(bench, made, options.layout, files, options, flink).rows(options.queries, not options.no_batch)
        stack.stop(wipe=True)


def main() -> int:
    """Run what was asked for; return the exit code."""
    options = options_of(sys.argv[1:])
    rows = []
    for row in figures(options, Path(".tidegate/nexmark").resolve()):
        rows.append(row)
        console.print(" ".join(f"{name} {value}" for name, value in row.items()), highlight=False, soft_wrap=True)
    is_right = all(row["rows"] == row["equal"] == row["due"] for row in rows)
    means = {name: mean(rows, name) for name in MEANS if any(name in row for row in rows)}
    if options.format == "json":
        print(json.dumps({"options": vars(options), "queries": rows, "means": means, "equal": is_right}, default=str))
    else:
        show(f"{options.events:,} events, {options.layout} topic, {options.order}, {options.over}", rows)
        print(f"geometric means over {' '.join(TWELVE)}: {means}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
