"""
A Spark session started in the background: its JVM takes seconds, in which a resuming job can look at its topics.

Law: the job's own output still goes to the terminal, and the driver logs again what planner and workers log, which have no terminal. A
refused job does not wait for Spark: it ends the JVM, and leaves no folder behind that was not there before.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.platform.observe.logs import get_logger
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.starting import WORKER_LOG, StartingSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A longer log of the workers is emptied once it has been read.
WORKER_LOG_BYTES_MAX = 16 * 2**20


def separate_stderr() -> None:
    """Give this program's stderr a file descriptor of its own: descriptor 2 is redirected to a file while Spark's children start."""
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")


class EarlySession:
    """
    A starting Spark session, as a context manager that stops it at the end; Spark's log goes to *folder*, made when missing. The job's
    Python processes import *modules*. The JVM starts at once, the session once :meth:`begin` is called. Raises as StartingSpark.
    """

    def __init__(self, settings: Settings, job: str, folder: Path, modules: Sequence[str] = ()) -> None:
        self._is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self._starting = StartingSpark(settings, job, folder, modules)
        self._executor = ThreadPoolExecutor(1, "spark")
        self._started: Future[SparkSession] | None = None

    def begin(self) -> Future[SparkSession]:
        """
        Start the session in the background, once this process's own modules are imported: of modules that import each other in a circle, as
        PySpark's do, two threads that import at the same time may see half.
        """
        if self._started is None:
            from tidegate.platform.spark.session import start_session

            self._started = self._executor.submit(start_session, self._starting)
        return self._started

    def get(self) -> SparkSession:
        """Wait for the session and return it. Raises TidegateError: Java is missing or Spark does not start."""
        return self.begin().result()

    def __enter__(self) -> EarlySession:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._started is not None and self._started.done() and self._started.exception() is None:
            from tidegate.platform.spark.session import end_session

            end_session(self._started.result())
        else:
            self._starting.give_up()
            if self._is_new:
                with suppress(OSError):  # the job has left more than a log
                    self._starting.log.unlink()
                    self._starting.log.parent.rmdir()
        self._executor.shutdown(wait=False)


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
