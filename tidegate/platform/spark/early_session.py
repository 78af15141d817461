"""
A Spark session started in the background: its JVM takes seconds, in which a resuming job can look at its topics.

Law: the job's own output still goes to the terminal. A refused job does not wait for Spark: the JVM ends with the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.session import end_session, start_session


def separate_stderr() -> None:
    """Give this program's stderr a file descriptor of its own: descriptor 2 is redirected to a file while Spark's children start."""
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")


class EarlySession:
    """
    A starting Spark session, as a context manager that stops it at the end; Spark's log goes to *folder*, made when missing. The job's
    Python processes import *modules*.
    """

    def __init__(self, settings: Settings, job: str, folder: Path, modules: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._executor = ThreadPoolExecutor(1, "spark")
        self._started: Future[SparkSession] = self._executor.submit(start_session, settings, job, folder, modules)

    def get(self) -> SparkSession:
        """Wait for the session and return it. Raises TidegateError: Java is missing or Spark does not start."""
        return self._started.result()

    def __enter__(self) -> EarlySession:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._started.done() and self._started.exception() is None:
            end_session(self._started.result())
        self._executor.shutdown(wait=False)
