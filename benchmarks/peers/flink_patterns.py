"""
The queries of ``benchmarks/patterns.py`` in Flink SQL: a pattern of rows, a function in Python, and events passed on, from file to file.

Usage: FLINK-PYTHON benchmarks/peers/flink_patterns.py passed|function|pattern EVENTS.ndjson

FLINK-PYTHON is that of ``installing.py flink``; ``patterns.py --write EVENTS.ndjson`` makes the file. One slot. The CPU seconds of all
processes count from when the query is handed over until its end; those of a file with few events are the start and the planning.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import udf

_PATTERN = """SELECT k, f, l, n FROM a MATCH_RECOGNIZE (
    PARTITION BY k ORDER BY `at` MEASURES FIRST(A.v) AS f, LAST(C.v) AS l, COUNT(B.v) AS n
    ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+ C) WITHIN INTERVAL '10' MINUTE
    DEFINE A AS A.v < 30, B AS B.v >= 30 AND B.v < 70, C AS C.v >= 70)"""
_QUERIES = {
    "passed": ("k STRING, v DOUBLE", "SELECT k, v FROM a"),
    "function": ("k STRING, v DOUBLE", "SELECT k, miles(v) FROM a"),
    "pattern": ("k STRING, f DOUBLE, l DOUBLE, n BIGINT", _PATTERN),
}


@udf(result_type=DataTypes.DOUBLE())  # type: ignore[untyped-decorator,unused-ignore]
def miles(km: float) -> float:
    """Return kilometres as miles."""
    return km / 1.609344


def cpu_s() -> float:
    """Return the CPU seconds that this process and its descendants, the JVM and Python's workers, have taken."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(entry.parent.name)
        children.setdefault(int(fields[1]), []).append(number)
        ticks[number] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        number = waiting.pop()
        total += ticks.get(number, 0)
        waiting += children.get(number, [])
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run one query to the end of its file; print CPU seconds and results."""
    query, path = sys.argv[1:3]
    columns, sql = _QUERIES[query]
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    chosen = {"parallelism.default": "1", "pipeline.object-reuse": "true", "table.local-time-zone": "UTC"}
    for name, value in {**chosen, "python.executable": sys.executable, "python.client.executable": sys.executable}.items():
        environment.get_config().set(name, value)
    with tempfile.TemporaryDirectory() as out:
        file = "'connector' = 'filesystem', 'format' = 'json', 'path' = 'file://{}'"
        # Events of one second are in any order, and none of them is late.
        environment.execute_sql(
            "CREATE TABLE a (`at` TIMESTAMP_LTZ(3), k STRING, v DOUBLE, WATERMARK FOR `at` AS `at` - INTERVAL '1' SECOND) "
            f"WITH ({file.format(Path(path).resolve())}, 'json.timestamp-format.standard' = 'ISO-8601')"
        )
        environment.execute_sql(f"CREATE TABLE o ({columns}) WITH ({file.format(out)})")
        environment.create_temporary_function("miles", miles)
        began_s = cpu_s()
        environment.execute_sql(f"INSERT INTO o {sql}").wait()
        taken_s = cpu_s() - began_s
        results = sum(len(part.read_bytes().splitlines()) for part in Path(out).rglob("*") if part.is_file())
    print(f"{query}: {taken_s:.2f} CPU s, {results:,} results")


if __name__ == "__main__":
    main()
