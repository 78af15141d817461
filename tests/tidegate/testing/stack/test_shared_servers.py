"""Servers that several processes share: started once, stopped after the last one, whatever became of the others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tidegate.testing.stack.real_stack import RealStack
from tidegate.testing.stack.shared_servers import shared_servers


def use_servers(folder: Path) -> None:
    """Use servers, whose starts and stops are written down, until a line comes."""

    @contextlib.contextmanager
    def start(place: Path) -> Iterator[RealStack]:
        with (folder / "history").open("a") as history:
            print("started", file=history)
        yield RealStack("kafka:1", "redis://1", place.name)
        with (folder / "history").open("a") as history:
            print("stopped", file=history)

    with shared_servers(folder, start) as stack:
        print(stack.bootstrap, stack.kind, flush=True)
        sys.stdin.readline()


def user_of(folder: Path) -> subprocess.Popen[str]:
    """Start a process that uses the servers until it reads a line; return it once it has them."""
    command = [sys.executable, __file__, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "kafka:1 servers\n"
    return process


def test_one_process_starts_what_all_use(tmp_path: Path) -> None:
    """It stops them after the others, one of which is killed; whoever comes later starts them again."""
    first, second, third = (user_of(tmp_path) for _ in range(3))
    assert (tmp_path / "history").read_text().split() == ["started"]
    os.kill(second.pid, signal.SIGKILL)
    second.wait()
    assert first.stdin is not None
    first.stdin.write("\n")
    first.stdin.flush()
    assert third.poll() is None
    assert (tmp_path / "history").read_text().split() == ["started"]
    third.communicate("\n", timeout=30)
    first.wait(30)
    assert (tmp_path / "history").read_text().split() == ["started", "stopped"]
    user_of(tmp_path).communicate("\n", timeout=30)
    assert (tmp_path / "history").read_text().split() == ["started", "stopped"] * 2


if __name__ == "__main__":
    use_servers(Path(sys.argv[1]))
