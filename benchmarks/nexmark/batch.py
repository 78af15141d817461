"""
One query in DuckDB over the files of all events, from start to end: what a batch costs at the least.

Usage: python -m nexmark.batch QUERY OUTPUT THREADS SIDE INPUT=FILE... It reads the files once for each kind of event that the query uses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
from nexmark.judge import NEAR, side_table, views
from nexmark.queries import judged


def main() -> None:
    """Run it."""
    name, output, threads, side, *inputs = sys.argv[1:]
    connection = duckdb.connect(config={"threads": int(threads)})
    connection.execute(f"SET TimeZone = 'UTC'; SET enable_progress_bar = false; {NEAR}")
    query = judged(name)
    # Numbering the lines keeps them in one thread: only for queries that ask which came first.
    tie = "row_number() OVER ()" if "tie" in query else "NULL"
    files = {source: Path(file) for source, _, file in (one.partition("=") for one in inputs)}
    for statement in [side_table(Path(side)), *views(files, tie)]:
        connection.execute(statement)
    connection.execute(f"COPY ({query}) TO '{output}' (FORMAT json)")


if __name__ == "__main__":
    main()
