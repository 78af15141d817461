"""Stopping a server that outlives the program that started it."""

from __future__ import annotations

import sys
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
