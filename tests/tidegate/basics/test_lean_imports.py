"""What commands at the prompt import: a library that takes long to load is imported only where it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.basics import lean_imports

_SLOW = {"numpy", "pyarrow", "pandas", "duckdb", "sqlglot", "pydantic", "redis", "pyspark", "confluent_kafka", "structlog", "rich"}
_COMMAND = """
import atexit, sys
from tidegate.tools.commands.main import main
atexit.register(lambda: print("imported", *sorted(name for name in sys.modules if "." not in name)))
main()
"""


def _run(program: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "TERM": "dumb"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("command", "used"),
    [
        ("--help", set[str]()),
        ("lint q.sql", {"numpy", "pyarrow", "sqlglot", "pydantic"}),
        ("local q.sql --input a=a.ndjson", {"numpy", "pyarrow", "sqlglot", "pydantic", "structlog", "duckdb"}),
    ],
)
def test_a_command_imports_only_the_slow_libraries_that_it_uses(command: str, used: set[str], tmp_path: Path) -> None:
    """pandas, rich, Spark and the clients of Kafka and Redis are none of them."""
    (tmp_path / "q.sql").write_text("SELECT id, at INTO results FROM a TIMESTAMP BY at\n")
    (tmp_path / "a.ndjson").write_text('{"id": 1, "at": "2026-01-01T00:00:00Z"}\n')
    imported = _run(_COMMAND, tmp_path, *command.split()).rpartition("imported ")[2].split()
    assert _SLOW & set(imported) <= used


def test_pandas_that_is_imported_later_is_known_to_arrow(tmp_path: Path) -> None:
    """An extension may compute with it: NaN of a series is null in Arrow, as in a process that imported pandas at once."""
    program = (
        f"from {lean_imports.__name__} import import_leanly"
        + """
import_leanly()
import sys, pyarrow as pa
pa.array([1.0])
assert "pandas" not in sys.modules
import pandas as pd
print(pa.array(pd.Series([1.0, float("nan")])).null_count, pa.table({"a": [1]}).to_pandas().shape)
"""
    )
    assert _run(program, tmp_path) == "1 (1, 1)\n"
