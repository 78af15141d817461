"""
What the demo must give, computed without any of the code under test: the naive oracle applies the time policies one
flight at a time, plain DuckDB makes the windows, and the lines are put together by hand.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
from produce import Flight, partitions_of

from tidegate.ordering import Policies, Record

# The oracle lives beside the tests that use it; in an installed wheel it came with the demo.
sys.path += [str(Path(__file__).resolve().parents[2] / "tests"), str(Path(__file__).resolve().parent)]
from support.oracle import compute_story

HOUR, MINUTE = 3_600_000_000, 60_000_000
POLICIES = Policies(early_us=30 * MINUTE, late_us=3 * HOUR, reorder_us=10 * MINUTE)
"""The policies of tidegate.toml, written out once more."""


def ordered_flights(flights: list[Flight], partitions: int) -> pa.Table:
    """Return system timestamp, origin and delay of every flight the policies keep."""
    partition_of = partitions_of(flights, partitions)
    columns: dict[str, list[object]] = {"system_us": [], "origin": [], "delay": []}
    for partition in range(partitions):
        log = [flight for flight in flights if partition_of[flight[2]] == partition]
        records = [Record(offset, flight[0], flight[1], flight[2].encode()) for offset, flight in enumerate(log)]
        story = compute_story(records, POLICIES, over=True, output_partitions=partitions, roster=partition, finish=True)
        for event in story.ordered:
            columns["system_us"].append(event.system_us)
            columns["origin"].append(log[event.offset][2])
            columns["delay"].append(log[event.offset][4])
    return pa.table(columns)


def expected_lines(flights: list[Flight], partitions: int) -> dict[str, list[bytes]]:
    """Return the result lines of each query of the demo, sorted by window end and key."""
    ordered = ordered_flights(flights, partitions)
    con = duckdb.connect(config={"threads": 1})
    con.register("ordered", ordered)
    # A window (start, end] holds its end, not its start.
    hourly = con.sql(f"SELECT {_end(HOUR)} AS w, origin, count(*) AS n FROM ordered GROUP BY ALL ORDER BY w, origin")
    hours = hourly.fetchall()
    hop = 15 * MINUTE
    spread = f"SELECT delay, unnest(range({_end(hop)}, system_us + {HOUR}, {hop})) AS w FROM ordered"
    delays = con.sql(f"SELECT w, sum(delay), count(*) FROM ({spread}) GROUP BY w ORDER BY w").fetchall()
    days = con.sql(f"SELECT {_end(24 * HOUR, 'w')} AS d, sum(n), count(*) FROM hourly GROUP BY d ORDER BY d").fetchall()
    return {
        "departures": [f'{{"origin":"{origin}","window_end":"{_iso(end)}","departures":{n}}}'.encode() for end, origin, n in hours],
        "mean_delay": [f'{{"window_end":"{_iso(end)}","mean_delay":{int(sum_) / n!r},"flights":{n}}}'.encode() for end, sum_, n in delays],
        "daily": [f'{{"day_end":"{_iso(end)}","departures":{total},"airport_hours":{n}}}'.encode() for end, total, n in days],
    }


def _end(size_us: int, column: str = "system_us") -> str:
    return f"(({column} + {size_us - 1}) // {size_us}) * {size_us}"


def _iso(tick: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(tick // 1_000_000))


def written_lines(folder: Path, name: str) -> list[bytes]:
    """Return the lines of a query's result files, sorted by window end and key as :func:`expected_lines` are."""
    lines = [line for file in sorted((folder / name).glob("*.ndjson")) for line in file.read_bytes().splitlines()]
    if name != "departures":
        return sorted(lines)
    return sorted(lines, key=lambda line: (line.split(b'"')[7], line.split(b'"')[3]))
