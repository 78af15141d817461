"""Stopping a server that outlives the program that started it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tidegate.platform.stack.process import launch


def test_a_server_that_ends_right_before_it_is_killed_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end between the last look at it and the kill is no error."""
    marker, kill = tmp_path / "server.conf", psutil.Process.kill
    server = launch([sys.executable, "-c", "import time; time.sleep(60)", marker], marker, tmp_path / "server.out")

    def kill_late(process: psutil.Process) -> None:
        kill(process)
        process.wait()
        kill(process)

    monkeypatch.setattr(psutil.Process, "kill", kill_late)
    server.stop(grace_s=0)
    assert server.process() is None


def test_a_server_whose_starter_never_asks_for_its_exit_code_is_not_waited_for(tmp_path: Path) -> None:
    """Another program stops it, in the time that it takes; the program that has started it does something else."""
    marker = tmp_path / "server.conf"
    server = launch([sys.executable, "-c", "import time; time.sleep(60)", marker], marker, tmp_path / "server.out")
    stop = f"from tidegate.platform.stack.process import ServerProcess; ServerProcess({server.pid}, {server.started_s}, {str(marker)!r})"
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", f"{stop}.stop(60)"], check=True)
    assert time.monotonic() - began_s < 30
    assert server.process() is None
    psutil.Process(server.pid).wait()
