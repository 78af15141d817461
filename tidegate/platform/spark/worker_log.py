"""Log events of the planner and workers: these processes have no terminal, so the driver logs their events again."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tidegate.platform.observe.logs import get_logger
from tidegate.platform.spark.starting import WORKER_LOG

WORKER_LOG_BYTES_MAX = 16 * 2**20


class WorkerLog:
    """Follows ``spark.log`` in a folder and logs the events of planner and workers again."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / WORKER_LOG
        self._position = self._file.stat().st_size if self._file.exists() else 0

    def follow(self) -> None:
        """Log the events since the last call."""
        if not self._file.exists():
            return
        with self._file.open("rb") as log:
            log.seek(self._position)
            lines = log.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self._position += len(line)
            if line.startswith(b'{"'):
                self._log_event(line)
        # The file would grow for ever by a few lines a batch. All writers append, so it may be truncated under them; but not while it has
        # lines that are not read yet.
        if self._position > WORKER_LOG_BYTES_MAX and self._file.stat().st_size == self._position:
            os.truncate(self._file, 0)
            self._position = 0

    def _log_event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            log = get_logger(event.pop("logger", "worker"))
            level = getattr(log, event.pop("level"))
        except (ValueError, KeyError, AttributeError):
            return
        event.pop("time", None)
        level(event.pop("event", ""), **event)
