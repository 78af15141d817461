"""Commands that need no Spark, on a machine without Java: nothing of theirs looks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import os, shutil, sys

assert shutil.which("java") is None and "JAVA_HOME" not in os.environ
from tidegate.tools.commands.main import main

for line, code in COMMANDS:
    sys.argv = ["tidegate", *line.split()]
    try:
        main()
        ended = 0
    except SystemExit as end:
        ended = end.code or 0
    assert ended == code, (line, ended)
"""


def test_commands_that_need_no_spark_run_where_no_java_is(tmp_path: Path) -> None:
    """Those on files succeed; those on topics miss nothing but the brokers."""
    (tmp_path / "q.sql").write_text("SELECT id, at INTO results FROM a TIMESTAMP BY at\n")
    (tmp_path / "a.ndjson").write_text('{"id": 1, "at": "2026-01-01T00:00:00Z"}\n')
    (tmp_path / "other.toml").write_text(
        'kafka.bootstrap = "127.0.0.1:1"\nredis.url = "redis://127.0.0.1:1"\n[inputs.a]\n[outputs.results]\ntopic = "results"\n'
    )
    commands = [
        ("new project", 0),
        ("test project/cases", 0),
        ("lint q.sql", 0),
        ("local q.sql --input a=a.ndjson", 0),
        ("order a.ndjson --timestamp-by at", 0),
        ("peek a --config other.toml", 4),
        ("compare a b --config other.toml", 4),
        ("verify results --config other.toml", 4),
    ]
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"COMMANDS = {commands!r}\n{_PROGRAM}"],
        cwd=tmp_path,
        env=environment | {"PATH": str(tmp_path), "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "no Java" not in done.stderr
