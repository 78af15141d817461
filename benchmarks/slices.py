"""
What one slice of a query costs: the same events given to a bucket in slices of 10 to 10,000, in process, without Kafka or Spark.

Usage: make bench-slices, or python benchmarks/slices.py [--only NAME ...] [--sizes 10 200] [--profile NAME SIZE] [--format json]

Each slice is what an open batch does at the head: accept the events and their CTI, settle, encode the results as records, make the CTIs,
forget what is no longer needed. CPU milliseconds of a slice, the median; beside them a slice's mean cost as a multiple of the yardstick, a
loop of Python of the same run, which a busy machine slows down alike.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.reader import Log
from ordering.protocol.wire import encode_event_header_column
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from query.buckets.substreams import SubstreamBucket
from query.columns.decoded_range import DecodedRange
from query.columns.events import DECODED_SCHEMA
from query.engine.program import Program
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

SIZES = (10, 40, 200, 1_000, 10_000)
START_US = 1_700_000_000_000_000
# 20,000 events/s.
STEP_US = 50
KEYS = 100
# Slices between two saves: an open batch saves its state at its end.
SAVE_EVERY = 100
# Each query is asked of about so many events, in at least and at most so many slices.
EVENTS, SLICES_MIN, SLICES_MAX = 20_000, 12, 200
_SUM = "SELECT System.Timestamp() AS t, k, COUNT(*) AS n, SUM(v) AS total INTO o"
# Name -> (script, whether it has OVER).
QUERIES = {
    "filter and projection": ("SELECT id, v * 2 AS w INTO o FROM a TIMESTAMP BY at WHERE v > 50", False),
    "tumbling aggregate": (
        f"{_SUM} FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(ms, 20)",
        False,
    ),
    "tumbling aggregate, few windows": (
        f"{_SUM} FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 1)",
        False,
    ),
    "hopping": (
        "SELECT System.Timestamp() AS t, k, COUNT(*) AS n, AVG(v) AS mean INTO o FROM a TIMESTAMP BY at "
        "GROUP BY k, HoppingWindow(ms, 100, 20)",
        False,
    ),
    "LAG": (
        "SELECT id, k, v - LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 10)) AS change INTO o FROM a TIMESTAMP BY at",
        False,
    ),
    "join by key": (
        "SELECT x.id AS id, y.id AS other INTO o FROM a x TIMESTAMP BY at JOIN a y TIMESTAMP BY at "
        "ON x.k = y.k AND DATEDIFF(ms, x, y) BETWEEN 1 AND 20 WHERE x.v < 5",
        False,
    ),
    "tumbling aggregate, OVER": (
        f"{_SUM} FROM a TIMESTAMP BY at OVER k GROUP BY k, TumblingWindow(ms, 20)",
        True,
    ),
}


def bucket_of(sql: str, *, over: bool) -> Bucket:
    """Return the bucket of a query over one partition."""
    schema = InputSchema("a", "at", "k") if over else InputSchema("a", "at")
    program = Program(bind_outputs(parse_script(sql, "q.sql"), (schema,), into="o"))
    config = BucketConfig([SourceTopic("a", 1, {0: 0})], 0, Roster(1, 1, Spread.ONE, over))
    return (SubstreamBucket if over else MergedBucket)(program, config)


def slices(size: int, count: int, *, over: bool) -> Iterator[DecodedRange]:
    """Yield slices of an ordered partition; each ends with a CTI behind its last event. The events do not depend on how they are cut."""
    total = size * count
    events = _events(total, over=over)
    roster = Roster(1, 1, Spread.ONE, over)
    for number, first in enumerate(range(0, total, size)):
        end = first + size
        seq = np.arange(first, end)
        # The CTIs of earlier slices have offsets of the log too.
        log_offset = seq + number
        c = START_US + end * STEP_US
        cti = Cti(0, 0, c, end, 0, end, arrival_us=c, largest_us=c - STEP_US, roster=roster, cause=Cause.EVENT)
        log = Log(log_offset, np.zeros(size, dtype=np.int64), seq, START_US + seq * STEP_US, [(int(log_offset[-1]) + 1, cti)])
        yield DecodedRange(log, events.slice(first, size), int(log_offset[-1]) + 2)


def _events(count: int, *, over: bool) -> pa.Table:
    rng = np.random.default_rng(1)
    offset = np.arange(count)
    key, number, real = rng.integers(0, KEYS, count).tolist(), rng.integers(0, 100, count).tolist(), rng.random(count).tolist()
    values = zip(offset.tolist(), key, number, real, strict=True)
    columns = {
        "partition_id": np.zeros(count, dtype=np.int32),
        "offset": offset,
        "system_us": START_US + offset * STEP_US,
        "key": [b"dev-%d" % k for k in key] if over else [None] * count,
        "value": [b'{"id":%d,"k":"dev-%d","v":%d,"f":%r,"note":"some text of the event"}' % row for row in values],
        "flags": np.zeros(count, dtype=np.uint16),
        "arrival_us": START_US + offset * STEP_US,
    }
    return pa.table(columns, DECODED_SCHEMA)


def take(bucket: Bucket, piece: DecodedRange, spent: dict[str, float]) -> int:
    """Do with one slice what a driver does at the head; return the number of results."""
    results = 0
    marks = [time.process_time()]
    released = list(bucket.accept_in_parts(0, piece))
    marks.append(time.process_time())
    released.append(bucket.settle())
    while not bucket.is_settled:
        released.append(bucket.settle())
    marks.append(time.process_time())
    for part in (part for parts in released for part in parts if len(part)):
        encode_event_header_column(part.seq, part.system_us, part.event_time_us, part.arrival_us, part.offset, part.flags, 0)
        bucket.count_by_arrival(0, part)
        results += len(part)
    marks.append(time.process_time())
    bucket.next_ctis()
    bucket.pop_bad_rows()
    marks.append(time.process_time())
    for name, low, high in zip(("accept", "settle", "encode", "ctis"), marks, marks[1:], strict=False):
        spent[name] = high - low
    return results


def yardstick() -> float:
    """Return the CPU seconds of a loop of Python."""
    before = time.process_time()
    sum(number * number % 7 for number in range(20_000))
    return time.process_time() - before


def measure(sql: str, size: int, *, over: bool) -> dict[str, Any]:
    """Return what the slices of one query cost, milliseconds."""
    bucket = bucket_of(sql, over=over)
    count = min(max(EVENTS // size, SLICES_MIN), SLICES_MAX)
    parts: dict[str, list[float]] = {}
    yards, results = [], 0
    for number, piece in enumerate(list(slices(size, count, over=over))):
        spent: dict[str, float] = {}
        results += take(bucket, piece, spent)
        if (number + 1) % SAVE_EVERY == 0:
            bucket.save()
        if number % 10 == 0:
            yards.append(yardstick())
        # The first slices translate expressions and fill caches.
        if number >= min(20, count // 3):
            for name, seconds in {**spent, "slice": sum(spent.values())}.items():
                parts.setdefault(name, []).append(seconds)
    yard_ms = statistics.median(yards) * 1000
    told = {name: statistics.median(seconds) * 1000 for name, seconds in parts.items()}
    mean_ms = statistics.fmean(parts["slice"]) * 1000
    return {
        "size": size,
        "results": results,
        **{name: round(ms, 3) for name, ms in told.items()},
        "mean": round(mean_ms, 3),
        "yards": round(mean_ms / yard_ms, 3),
        "us_per_event": round(mean_ms / size * 1000, 2),
    }


def profile(sql: str, size: int, *, over: bool) -> None:
    """Print where the time of slices of one size goes."""
    bucket, pieces = bucket_of(sql, over=over), list(slices(size, 400, over=over))
    for piece in pieces[:50]:
        take(bucket, piece, {})
    profiler = cProfile.Profile()
    profiler.enable()
    for piece in pieces[50:]:
        take(bucket, piece, {})
    profiler.disable()
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(70)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(QUERIES), default=list(QUERIES))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--profile", nargs=2, metavar=("NAME", "SIZE"))
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    if arguments.profile:
        name, size = arguments.profile
        sql, over = QUERIES[name]
        profile(sql, int(size), over=over)
        return
    rows = [
        {"query": name, **measure(QUERIES[name][0], size, over=QUERIES[name][1])} for name in arguments.only for size in arguments.sizes
    ]
    if arguments.format == "json":
        print(json.dumps(rows))
        return
    table = Table("query", *[name.replace("_", " ") for name in rows[0] if name != "query"], title="one slice: CPU milliseconds, medians")
    for row in rows:
        table.add_row(*[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row.values()])
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
