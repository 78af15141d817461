"""
What a command spends: CPU seconds and the most memory of its process and of those it waited for.

The kernel counts as a process's peak what its parent had when it was forked, so a small process in between, this file run as a
program, starts the command and asks for its figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Spent:
    """What a command has spent; with *code* it ended."""

    cpu_s: float
    memory_mb: int
    code: int

    def per_million(self, start: Spent, events: int) -> float:
        """Return CPU seconds per million events without those of a start."""
        return round(max(self.cpu_s - start.cpu_s, 0) / events * 1e6, 2)


def spent(command: list[str], log: Path) -> Spent:
    """Run a command to its end; return what it has spent. What it says goes to *log*."""
    between = [sys.executable, "-S", "-E", __file__, str(log), *command]
    return Spent(**json.loads(subprocess.run(between, stdout=subprocess.PIPE, check=True).stdout))


def main() -> None:
    """Be the process in between."""
    with Path(sys.argv[1]).open("wb") as log:
        process = subprocess.Popen(sys.argv[2:], stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    figures = {"cpu_s": usage.ru_utime + usage.ru_stime, "memory_mb": usage.ru_maxrss >> 10, "code": process.returncode}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
