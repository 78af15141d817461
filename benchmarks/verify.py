"""
Verifying: what `tidegate verify` of a result costs, beside `tidegate local` computing the same from a file, in one run.

Usage: python benchmarks/verify.py [--events 10000000] [--format json]

A raw topic of two partitions is ordered and counted by device every ten seconds, by real jobs. Then their result topic is verified: the
raw topic ordered again, the query run again, every byte compared. `tidegate local` reads the same events from a file, orders them and
runs the query; it compares nothing. Told are seconds, CPU seconds and the most memory that each process occupied.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from filling import fill, made
from rich.console import Console
from rich.table import Table

from tidegate.platform.stack.embedded import EmbeddedStack

PARTITIONS, PIECE = 2, 100_000
TABLES = """
[inputs.bench]
topic = "bench"
timestamp_by = "ts"
timestamp_format = "ms"
over = "device"
early = "5m"
late = "10s"
reorder = "5s"

[outputs.counts]
topic = "counts"
"""
QUERY = """
SELECT device, System.Timestamp() AS w, COUNT(*) AS n, SUM(value) AS total
INTO counts
FROM bench TIMESTAMP BY ts OVER device
GROUP BY device, TumblingWindow(second, 10)
"""


def main() -> None:
    """Run the jobs, then both commands; print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-verify-") as name:
        folder = Path(name)
        (folder / "tidegate.toml").write_text(TABLES)
        (folder / "counts.sql").write_text(QUERY)
        with EmbeddedStack(folder / "stack") as stack:
            addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
            fill(stack.bootstrap, "bench", chosen.events, PARTITIONS, lambda _: None)
            run(folder, addresses, "ingest", "bench", "--until-end")
            run(folder, addresses, "query", "counts.sql")
            verified = run(folder, addresses, "verify", "counts", "--query", "counts.sql", "--format", "json")
        told = json.loads(verified["output"])
        assert told["equal"], told
        write_file(folder / "bench.ndjson", chosen.events)
        computed = run(
            folder, {}, "local", "counts.sql", "--input", "bench=bench.ndjson", "--config", "tidegate.toml", "--output-dir", "out"
        )
        rows = sum(1 for _ in (folder / "out/counts.ndjson").open("rb"))
    figures = [
        {"command": name, "events": chosen.events, **{key: each[key] for key in ("seconds", "cpu_s", "memory_mb")}}
        for name, each in (("verify", verified), ("local", computed))
    ]
    show(figures, told["stages"][-1]["published"][0]["rows"], rows, chosen.format)


def run(folder: Path, environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    """Run a command; return what it printed and what it cost."""
    began_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", *arguments], cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{arguments[0]} ended with {process.returncode}: {output[-4000:].decode()}"
    return {"output": output, "seconds": round(time.monotonic() - began_s, 2), **cost(usage)}


def cost(usage: resource.struct_rusage) -> dict[str, Any]:
    """Return CPU seconds and the most memory of a process that has ended."""
    return {"cpu_s": round(usage.ru_utime + usage.ru_stime, 2), "memory_mb": usage.ru_maxrss // 1024}


def write_file(path: Path, events: int) -> None:
    """Write the events of the topic into a file."""
    with path.open("wb") as file:
        for start in range(0, events, PIECE):
            file.write(b"\n".join(made(start, min(PIECE, events - start), PARTITIONS).value.to_pylist()) + b"\n")


def show(figures: list[dict[str, Any]], verified_rows: int, computed_rows: int, style: str) -> None:
    """Print both runs and their ratios."""
    verify, local = figures
    ratios = {name: round(verify[name] / local[name], 2) for name in ("seconds", "cpu_s")}
    if style == "json":
        print(json.dumps({"runs": figures, "ratios": ratios, "rows": verified_rows}))
        return
    table = Table("command", "events", "seconds", "CPU s", "CPU s per million", "memory MB")
    for each in figures:
        per_million = each["cpu_s"] / each["events"] * 1e6
        table.add_row(
            *(
                f"{value:,}" if isinstance(value, int) else str(value)
                for value in (each["command"], each["events"], each["seconds"], each["cpu_s"], round(per_million, 2), each["memory_mb"])
            )
        )
    Console().print(table, f"verify / local: {ratios}; {verified_rows:,} rows verified, {computed_rows:,} computed by local")


if __name__ == "__main__":
    main()
