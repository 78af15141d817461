"""
CPU seconds of commands at the prompt, beside those of Python itself and of the libraries that a query needs: no command can take less.

The least of several runs, in turns, so that a busy machine changes all alike.

Usage: python benchmarks/prompt.py [--runs 9]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_LIBRARIES = "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import numpy, pyarrow"
_TIDEGATE = ["-P", "-m", "tidegate"]
COMMANDS = {
    "Python alone": ["-c", "pass"],
    "Python with numpy and pyarrow": ["-c", _LIBRARIES],
    "the same, with duckdb": ["-c", f"{_LIBRARIES}, duckdb"],
    "tidegate --help": [*_TIDEGATE, "--help"],
    "tidegate lint --help": [*_TIDEGATE, "lint", "--help"],
    "an error: tidegate lnit": [*_TIDEGATE, "lnit"],
    "tidegate status, no servers": [*_TIDEGATE, "status"],
    "tidegate lint": [*_TIDEGATE, "lint", "q.sql"],
    "tidegate plan": [*_TIDEGATE, "plan", "q.sql"],
    "tidegate local": [*_TIDEGATE, "local", "q.sql", "--input", "a=a.ndjson"],
    "tidegate test": [*_TIDEGATE, "test", "."],
}
_SCRIPT = "SELECT id, count(*) AS n INTO results\nFROM a TIMESTAMP BY at\nWHERE id > 0\nGROUP BY id, TumblingWindow(second, 10)\n"
_FILES = {
    "q.sql": _SCRIPT,
    "a.ndjson": '{"id": 1, "at": "2026-01-01T00:00:00Z"}\n',
    "tidegate.toml": 'kafka.bootstrap = "127.0.0.1:1"\nredis.url = "redis://127.0.0.1:1"\n[inputs.a]\ntimestamp_by = "at"\n'
    '[outputs.results]\ntopic = "results"\n',
    "case/case.toml": 'script = "../q.sql"\n',
    "case/input.a.ndjson": '{"id": 1, "at": "2026-01-01T00:00:00Z"}\n',
    "case/expected.results.ndjson": '{"id":1,"n":1}\n',
}


def measure(arguments: list[str], folder: Path) -> float:
    """Return the CPU seconds of one run."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment, stdout=quiet, stderr=quiet)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in _FILES.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        rounds = [[measure(arguments, folder) for arguments in COMMANDS.values()] for _ in range(runs + 1)]
    # The first round compiles and reads what the others find.
    print("| | CPU s |\n|---|---|")
    for command, *seconds in zip(COMMANDS, *rounds[1:], strict=True):
        print(f"| {command} | {min(seconds):.2f} |")


if __name__ == "__main__":
    main()
