"""
Where in a batch a kill struck, and kills that strike where they are meant to.

A batch writes its offsets, then each task its state, then the commit log, all as files in the checkpoint: three points can be
met by watching these. The tasks of a batch that stays open also report once a second, with its number. What lies inside a task
cannot be seen in time from outside: there a worker holds itself still (:mod:`tidegate.basics.fault_points`). Either way the
checkpoint tells afterwards what was hit, and only that is counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

IDLE, LOGGED, STATE, UNCOMMITTED = "between batches", "offsets logged", "mid state commit", "before the commit log"
OPEN = "within an open batch"
_POLL_S = 0.0005


class Checkpoint:
    """What the files of a Spark checkpoint tell."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets, self._commits, self._state = folder / "spark/offsets", folder / "spark/commits", folder / "spark/state/0"

    @property
    def planned(self) -> int:
        """The last batch whose offsets are logged; -1: none."""
        return _last(self._offsets)

    @property
    def committed(self) -> int:
        """The last batch that was committed; -1: none."""
        return _last(self._commits)

    def where(self) -> str:
        """Say which of a batch's marks are there."""
        planned = self.planned
        if planned < 0 or self.committed >= planned:
            return IDLE
        saved_s, tasks = self._saved(planned + 1)
        if saved_s and len(saved_s) == tasks:
            return UNCOMMITTED
        # A task without ranges saves at once, while the others stay open.
        if self._reported_s(planned) > max(saved_s, default=0.0):
            return OPEN
        return STATE if saved_s else LOGGED

    def _reported_s(self, batch: int) -> float:
        """Return when a task has last reported from within a batch, as only those that stay open do; 0: never."""
        reported_s = 0.0
        for file in self._folder.glob("open_report_*.json"):
            with contextlib.suppress(OSError, ValueError):
                if json.loads(file.read_text()).get("open_batch") == batch:
                    reported_s = max(reported_s, file.stat().st_mtime)
        return reported_s

    def _saved(self, version: int) -> tuple[list[float], int]:
        """Return when tasks have saved a version of their state, one time for each that has, and how many tasks there are."""
        tasks = [name for name in _names(self._state) if name.isdigit()]
        ends = (f"{version}.changelog", f"{version}.zip", f"{version}.delta")
        saved_s = []
        for task in tasks:
            names = [name for name in _names(self._state / task) if name in ends or name.startswith(f"{version}_")]
            with contextlib.suppress(OSError):
                saved_s += [max((self._state / task / name).stat().st_mtime for name in names)] if names else []
        return saved_s, len(tasks)


def _names(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.iterdir()]
    except FileNotFoundError:
        return []


def _last(folder: Path) -> int:
    return max((int(name) for name in _names(folder) if name.isdigit()), default=-1)


def strike_at(checkpoint: Checkpoint, point: str, pids: list[int], timeout_s: float) -> bool:
    """Hold *pids* still the moment a batch gets to *point*; tell whether one did. The kill comes after a look at what was hit."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if checkpoint.where() == point:
            for pid in pids:
                send_signal(pid, signal.SIGSTOP)
            return True
        time.sleep(_POLL_S)
    return False


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
