"""
Spark started beside everything else: its JVM takes seconds, in which a job that comes back can look at its topics.

Law: the job's own output still goes to the terminal. If the job is refused meanwhile, nothing waits for Spark: its JVM ends with
the process.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.settings.load import Settings
from tidegate.spark.session import end_session, start_session


def separate_stderr() -> None:
    """
    Give this program's words a file descriptor of their own.

    What children write to standard error is sent to a file while Spark starts (:mod:`tidegate.spark.session`), and that of
    this process is theirs.
    """
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")


class EarlySession:
    """
    A Spark session in the making; a context manager that stops it at the end.

    Args:
        settings: All settings.
        job: Name of the job, for Spark's own tools.
        folder: Where Spark's log goes, made when missing.
    """

    def __init__(self, settings: Settings, job: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._executor = ThreadPoolExecutor(1, "spark")
        self._started: Future[SparkSession] = self._executor.submit(start_session, settings, job, folder)

    def get(self) -> SparkSession:
        """
        Return the session once it has started.

        Raises:
            TidegateError: Java is missing or Spark does not start.
        """
        return self._started.result()

    def __enter__(self) -> EarlySession:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._started.done() and self._started.exception() is None:
            end_session(self._started.result())
        self._executor.shutdown(wait=False)
