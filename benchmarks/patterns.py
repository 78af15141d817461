"""
Whole queries on a file, one core: a pattern of rows over 1,000 keys, a function in JavaScript, SpikeAndDip with 120 rows of history.

Usage: python benchmarks/patterns.py [--events 300000] [--write FILE]: with --write it makes the events alone, for peers/flink_patterns.py.

Events are read, put in order, computed and written, as by ``tidegate local``; a query that only passes events on is measured beside them.
Time of the processor counts, and the best of three rounds: a busy machine only adds to a round.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from query.local.files import parse_file_flags
from query.local.run_setup import PolicyFlags, RunSetup, open_run
from query.local.script import bind_script
from tidegate.records.files.files import BLOCK_BYTES

KEYS = 1_000
ROUNDS = 3
SCRIPTS = {
    "passed on": "SELECT k, v INTO out FROM a TIMESTAMP BY at",
    "A B+ C over 1,000 keys": "SELECT * INTO out FROM a TIMESTAMP BY at MATCH_RECOGNIZE (LIMIT DURATION(minute, 10) PARTITION BY k "
    "MEASURES FIRST(A.k) AS k, FIRST(A.v) AS first, LAST(C.v) AS last, COUNT(B.v) AS n AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+ C) "
    "DEFINE A AS A.v < 30, B AS B.v >= 30 AND B.v < 70, C AS C.v >= 70) AS m",
    "one line of JavaScript": "SELECT k, udf.miles(v) AS v INTO out FROM a TIMESTAMP BY at",
    "SpikeAndDip, 120 rows": "SELECT k, AnomalyDetection_SpikeAndDip(v, 95, 120, 'spikesanddips') OVER (LIMIT DURATION(hour, 1)) AS s "
    "INTO out FROM a TIMESTAMP BY at",
}


def main() -> None:
    """Print events a second of each query."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    count = options.events
    if options.write is not None:
        write_events(options.write, count)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "functions").mkdir()
        (folder / "functions" / "miles.js").write_text("function main(km) { return km / 1.609344; }")
        write_events(folder / "a.ndjson", count)
        for title, sql in SCRIPTS.items():
            (folder / "q.sql").write_text(sql)
            seconds, results = min(run(folder) for _ in range(ROUNDS))
            print(f"{title:<26}{count / seconds:>12,.0f} events a second, {results:,} results")


def write_events(path: Path, count: int) -> None:
    """Write events of random keys, 20 a second."""
    dice = random.Random(1)
    with path.open("w") as file:
        for number in range(count):
            at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(1_700_000_000 + number // 20))
            file.write(f'{{"at":"{at}Z","k":"key{dice.randrange(KEYS)}","v":{dice.random() * 100:.3f}}}\n')


def run(folder: Path) -> tuple[float, int]:
    """Run the script; return seconds of the processor, and how many results there were."""
    setup = RunSetup.of(parse_file_flags([f"a={folder}/a.ndjson"]), PolicyFlags())
    script = bind_script(folder / "q.sql", setup.settings)
    begin, results = time.process_time(), 0
    with open_run(script, setup, BLOCK_BYTES) as steps:
        for step in steps.steps():
            results += sum(map(len, step.results))
    return time.process_time() - begin, results


if __name__ == "__main__":
    main()
