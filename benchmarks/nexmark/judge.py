"""
The judge: DuckDB computes each query over all events at once, and compares row by row.

Law: two results are equal if they hold the same rows equally often, every value of every row included. Their order is not compared:
Tidegate's is that of time, a set of rows has none. Nothing of Tidegate takes part, but for the file of its results.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
from nexmark.generator import KINDS
from nexmark.queries import FIELDS, judged

_TYPES = {"bigint": "BIGINT", "nvarchar(max)": "VARCHAR", "datetime": "TIMESTAMP"}
NEAR = "CREATE MACRO is_near(one, other) AS abs(datediff('day', one, other)) <= 1"
_TIE = "(row_number() OVER () - 1)"
_PARTITION = 2**40


class Judge:
    """DuckDB with the events of some files in it."""

    def __init__(self, files: dict[str, Path], side: Path, partitions: int = 1, threads: int = 2, database: Path | None = None) -> None:
        """
        Take in events as the benchmark's tables.

        Args:
            files: NDJSON by input: nexmark, or bid, auction and person.
            side: The side input.
            partitions: Into so many the lines go, in turns; of events of one time those of a partition come before those of the next.
            threads: DuckDB's.
            database: A file for what does not fit into memory.
        """
        config: dict[str, Any] = {"threads": threads, "preserve_insertion_order": True}
        self.connection = duckdb.connect(str(database or ":memory:"), config=config)
        self.connection.execute(f"SET TimeZone = 'UTC'; SET enable_progress_bar = false; {NEAR}")
        tie = f"{_TIE} % {partitions} * {_PARTITION} + {_TIE}" if partitions > 1 else _TIE
        self.connection.execute(side_table(side))
        for statement in tables(files, tie):
            self.connection.execute(statement)

    def answer(self, name: str) -> None:
        """Compute a query and keep its rows."""
        self.connection.execute(f"CREATE OR REPLACE TABLE due AS {judged(name)}")

    def compare(self, found: Iterable[Path], *, changes: bool = False, same: str | None = None) -> dict[str, int]:
        """
        Compare results with those of the last :meth:`answer`: how many are due, found, equal, missing, and only there.

        Args:
            found: NDJSON files.
            changes: They hold changes, ``{"before": ..., "after": ...}``: compared is what is left in the end.
            same: How columns are compared, on both sides, as for ``SELECT * REPLACE``.
        """
        types = {str(name): str(kind) for name, kind, *_ in self.connection.execute("DESCRIBE due").fetchall()}
        files = [file for file in found if file.exists() and file.stat().st_size]
        source = "(FROM due LIMIT 0)" if not files else _left(files, types) if changes else _json(files, types)
        self.connection.execute(f"CREATE OR REPLACE TABLE found AS FROM {source}")
        columns = ", ".join(f'"{name}"' for name in types)
        of = f"SELECT {columns} FROM (SELECT * {f'REPLACE ({same})' if same else ''} FROM"
        sides = ("due", "found"), ("found", "due")
        missing, more = (self._count(f"({of} {one}) EXCEPT ALL {of} {other}))") for one, other in sides)
        due, rows = self._count("due"), self._count("found")
        return {"due": due, "rows": rows, "equal": rows - more, "missing": missing, "only_here": more}

    def _count(self, source: str) -> int:
        return int(self.connection.execute(f"SELECT count(*) FROM {source}").fetchall()[0][0])


def side_table(file: Path) -> str:
    """Return the statement that makes the side input a table."""
    return f"CREATE TABLE side_input AS FROM {_json(file, {'key': 'BIGINT', 'value': 'VARCHAR'})}"


def tables(files: dict[str, Path], tie: str = _TIE) -> list[str]:
    """Return the statements that make the benchmark's tables of files."""
    if "nexmark" not in files:
        return [statement.replace("CREATE VIEW", "CREATE TABLE") for statement in views(files, tie)]
    raw = f"CREATE TEMP TABLE raw AS SELECT *, {tie} AS tie FROM {_events('nexmark', files['nexmark'])}"
    return [
        raw,
        *(f"CREATE TABLE {kind} AS {_members(kind)} FROM raw WHERE event_type = {KINDS.index(kind)}" for kind in KINDS),
        "DROP TABLE raw",
    ]


def views(files: dict[str, Path], tie: str = _TIE) -> list[str]:
    """Return the statements that make the benchmark's tables views of files: a query reads them when it runs."""
    if "nexmark" not in files:
        return [
            f"CREATE VIEW {kind} AS SELECT * RENAME EventEnqueuedUtcTime AS arrived, {tie} AS tie FROM {_events(kind, file)}"
            for kind, file in files.items()
        ]
    read = f"(SELECT *, {tie} AS tie FROM {_events('nexmark', files['nexmark'])})"
    return [f"CREATE VIEW {kind} AS {_members(kind)} FROM {read} WHERE event_type = {number}" for number, kind in enumerate(KINDS)]


def _members(kind: str) -> str:
    return f"SELECT {kind}.*, EventEnqueuedUtcTime AS arrived, tie"


def _events(table: str, file: Path) -> str:
    """Return a file as a table of the columns that its lines have."""
    typed = {kind: {name: _TYPES[one] for name, one in FIELDS[kind].items()} for kind in KINDS}
    records = {kind: f"STRUCT({', '.join(f'{name} {one}' for name, one in columns.items())})" for kind, columns in typed.items()}
    columns = {"event_type": "INTEGER", **records} if table == "nexmark" else typed[table]
    return _json(file, columns | {"EventEnqueuedUtcTime": "TIMESTAMP"})


def _left(files: list[Path], types: dict[str, str]) -> str:
    """Return what changes leave: the rows that came, without those that were taken back."""
    row = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    changes = _json(files, {"before": f"STRUCT({row})", "after": f"STRUCT({row})"})
    return f"(SELECT after.* FROM {changes} WHERE after IS NOT NULL EXCEPT ALL SELECT before.* FROM {changes} WHERE before IS NOT NULL)"


def _json(files: Path | list[Path], columns: dict[str, str]) -> str:
    names = [f"'{file}'" for file in (files if isinstance(files, list) else [files])]
    typed = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    return f"read_json([{', '.join(names)}], format = 'newline_delimited', columns = {{{typed}}})"
