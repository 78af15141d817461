"""
Long windows: what a batch costs, and what a worker occupies, while a week of events is retained.

Usage: python benchmarks/retaining.py [--events 50000000] [--only tumbling,percentile] [--format json]

A whole bucket is fed with batches of 20,000 events of 1,000 devices, ordered, with a CTI at the end of each, that lie evenly in
one window of seven days; then the window closes. Batches are told in CPU seconds (the middle of 20, payloads made beside them),
once while a million events are retained and once at the end; memory is all of the process, Arrow, DuckDB and Python included.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.reader import Log
from ordering.ticks import DAY_US
from query.buckets.bucket import BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from query.columns.decoded_range import DecodedRange
from query.columns.events import DECODED_SCHEMA
from query.engine.program import Program
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

BATCH = 20_000
WEEK_US = 7 * DAY_US
START_US = 1_700_000_000_000_000 // WEEK_US * WEEK_US
SAMPLE = 20
EARLY = 1_000_000
"""Events after which the first batches are measured."""
QUERIES = {
    "tumbling": "SELECT device, COUNT(*) AS n, SUM(amount) AS total INTO out FROM bench GROUP BY device, TumblingWindow(day, 7)",
    "percentile": "SELECT device, PERCENTILE_CONT(0.5) OVER (ORDER BY amount) AS median INTO out FROM bench "
    "GROUP BY device, TumblingWindow(day, 7)",
    "sliding": "SELECT device, COUNT(*) AS n, SUM(amount) AS total INTO out FROM bench GROUP BY device, SlidingWindow(day, 7)",
    "sessions": "SELECT device, COUNT(*) AS n, SUM(amount) AS total INTO out FROM bench "
    "GROUP BY device, SessionWindow(day, 1, 3) OVER (PARTITION BY device)",
    "lag": "SELECT device, amount, LAG(amount) OVER (PARTITION BY device LIMIT DURATION(day, 7)) AS before INTO out FROM bench",
    "running": "SELECT device, amount, SUM(amount) OVER (PARTITION BY device LIMIT DURATION(day, 7)) AS total INTO out FROM bench",
    "join": "SELECT a.device, b.id, b.amount INTO out FROM bench a JOIN bench b "
    "ON a.id = b.earlier AND DATEDIFF(hour, a, b) BETWEEN 0 AND 166",
}
"""One whose rows add up long before the window ends, one that needs all rows then, one whose windows end by silence, and others whose every
row looks back a week."""
ROSTER = Roster(1, 1, Spread.ONE, False)


class Feed:
    """Makes batches of events: those numbered from *start* on, *events* of them spread over the week."""

    def __init__(self, events: int) -> None:
        self._step_us = (WEEK_US - 2) / events
        self._names = pa.array([f"device-{number:04}" for number in range(1_000)])
        self._random = np.random.default_rng(1)

    def batch(self, start: int, c: int | None = None) -> DecodedRange:
        """Return BATCH events and a CTI at *c*, at the last of them where none is told."""
        number = np.arange(start, start + BATCH)
        system_us = START_US + 1 + (number * self._step_us).astype(np.int64)
        texts = [
            pa.scalar('{"device":"'),
            self._names.take(pa.array(self._random.integers(0, len(self._names), BATCH))),
            pa.scalar('","amount":'),
            pa.array(np.round(self._random.exponential(50.0, BATCH), 2)).cast(pa.string()),
            pa.scalar(',"id":'),
            pa.array(number).cast(pa.string()),
            pa.scalar(',"earlier":'),
            pa.array((number * self._random.random(BATCH)).astype(np.int64)).cast(pa.string()),
            pa.scalar("}"),
        ]
        value = pc.binary_join_element_wise(*texts, pa.scalar("")).cast(pa.binary())
        at = number + start // BATCH
        c = int(system_us[-1]) if c is None else c
        cti = Cti(0, 0, c, start + BATCH, 0, start + BATCH, c, c, ROSTER, Cause.EVENT)
        zeros = np.zeros(BATCH, dtype=np.int64)
        columns = [zeros.astype(np.int32), number, system_us, pa.nulls(BATCH, pa.binary()), value, zeros.astype(np.uint16), system_us]
        events = pa.table(dict(zip(DECODED_SCHEMA.names, columns, strict=True)), schema=DECODED_SCHEMA)
        return DecodedRange(Log(at, zeros, number, system_us, [(int(at[-1]) + 1, cti)]), events, int(at[-1]) + 2)


class Measured:
    """A bucket, and what its batches cost."""

    def __init__(self, query: str) -> None:
        plans = bind_outputs(parse_script(QUERIES[query], "bench.sql"), [InputSchema("bench")], into=None)
        self._bucket = MergedBucket(Program(plans), BucketConfig([SourceTopic("bench", 1, {0: 0})], 0, ROSTER))
        self.cpu_s: list[float] = []
        self.saved: list[int] = []
        self.resident = 0

    def accept_batch(self, decoded: DecodedRange) -> int:
        """Take a batch, save; return how many results it gave."""
        before = time.process_time()
        released = [*self._bucket.accept_records(0, decoded), *self._bucket.settle()]
        self._bucket.next_ctis()
        changes = self._bucket.save()
        self.cpu_s.append(time.process_time() - before)
        self.saved.append(sum(map(len, changes.put.values())))
        self.resident = max(self.resident, psutil.Process().memory_info().rss)
        return sum(map(len, released))


def figures_of(query: str, events: int) -> dict[str, Any]:
    """Run one query; return what it showed."""
    feed, measured, results = Feed(events), Measured(query), 0
    batches = events // BATCH
    for number in range(batches):
        results += measured.accept_batch(feed.batch(number * BATCH))
    early = min(EARLY // BATCH, batches - SAMPLE)
    first, last = (statistics.median(measured.cpu_s[at : at + SAMPLE]) for at in (early, batches - SAMPLE))
    filled = measured.resident
    results += measured.accept_batch(feed.batch(batches * BATCH, START_US + WEEK_US + DAY_US))
    return {
        "name": query,
        "retained": events,
        "batch_ms_at_1_million": round(first * 1e3, 1),
        "batch_ms_at_the_end": round(last * 1e3, 1),
        "ratio": round(last / first, 2),
        "slowest_batch_ms": round(max(measured.cpu_s[early:batches]) * 1e3),
        "saved_kb_a_batch": round(statistics.median(measured.saved[early:batches]) / 1e3),
        "saved_kb_on_average": round(statistics.mean(measured.saved[early:batches]) / 1e3),
        "saved_mb_at_most": round(max(measured.saved[early:batches]) / 1e6, 1),
        "memory_mb": round(filled / 1e6),
        "closing_cpu_s": round(measured.cpu_s[-1], 1),
        "memory_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "results": results,
    }


def figures(events: int, queries: list[str]) -> list[dict[str, Any]]:
    """Return all rows; each is measured in a process of its own, so that none inherits another's memory."""
    rows = []
    for query in queries:
        command = [sys.executable, __file__, "--events", str(events), "--one", query]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the figures for people."""
    table = Table("a week retained", *[row["name"] for row in rows])
    for name in list(rows[0])[1:]:
        table.add_row(name.replace("_", " "), *[f"{row[name]:,}" for row in rows])
    Console(width=120).print(table)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000_000)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(QUERIES), help=f"of {', '.join(QUERIES)}")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(figures_of(arguments.one, arguments.events)))
    elif arguments.format == "json":
        print(json.dumps(figures(arguments.events, arguments.only)))
    else:
        show(figures(arguments.events, arguments.only))


if __name__ == "__main__":
    main()
