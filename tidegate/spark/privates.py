"""
Every use of PySpark and Spark that is not documented by them, with its purpose.

A new Spark version may change any of these without notice: tests/tidegate/spark/test_privates.py looks for each one in the installed Spark,
and fails if its version is not the checked one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Python workers import this module for its constants only, so functions import their modules themselves.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKED_VERSION = "4.3.0"

# ----- the driver's side of py4j


def start_jvm(conf: Mapping[str, str]) -> None:
    """
    Start the JVM with *conf* on its command line. The public builder would add secrets there, which every user of the machine could read.
    """
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())))


def stop_jvm(timeout_s: float) -> None:
    """End the JVM and wait for it: it writes a class archive only at its end, and ``stop`` of a session leaves it running."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=timeout_s)


def load_state_library(session: SparkSession) -> None:
    """Load the state store's library in the JVM, which takes a quarter of a second, before the first batch needs it."""
    jvm: Any = session._jvm
    with suppress(Exception):  # the first batch meets and reports the same error
        jvm.org.rocksdb.RocksDB.loadLibrary()


def silence_accumulator_server(server: Any) -> None:
    """Suppress the traceback of Spark's accumulator server after its JVM was killed: the job reports that itself."""
    if server is not None:
        server.handle_error = lambda request, address: None


def accumulator_server(session: SparkSession) -> Any:
    """Return the driver's server for accumulators, None if there is none."""
    return getattr(session.sparkContext, "_accumulatorServer", None)


# PySpark imports this module, and pandas with it, when it creates a session.
LATE_IMPORT = "pyspark.testing.utils"


def import_late_modules() -> None:
    """Import the modules that PySpark imports after the start of the JVM, in parallel with that start."""

    def run() -> None:
        with suppress(Exception):  # PySpark's own import reports the error
            import_module(LATE_IMPORT)

    threading.Thread(target=run, daemon=True).start()


# ----- Python processes that the JVM starts

# The JVM runs this program to find data sources in every installed package, 1 s at each start; it skips the search if the program does not
# exist.
LOOKUP_PROGRAM_VARIABLE = "PYSPARK_DRIVER_PYTHON"
NO_LOOKUP_PROGRAM = "no-lookup-of-data-sources"

# The daemon's first argument names the kind of worker that it forks; the stateful stage runs in this one.
STATEFUL_WORKER = "pyspark.worker"

# Spark sets the batch's number as a local property of the tasks of a micro-batch.
BATCH_PROPERTY = "streaming.sql.batchId"


def batch_of_task() -> dict[str, int]:
    """Return ``batch``, the micro-batch number of this Spark task; empty outside of one."""
    from pyspark import TaskContext

    task = TaskContext.get()
    number = task.getLocalProperty(BATCH_PROPERTY) if task is not None else None
    return {} if number is None else {"batch": int(number)}


# ----- names of Spark's own classes, which settings take as text

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# ----- texts by which failures are known: they come back from the JVM as text only

SLOW_START = "failed to connect back"
WORKER_GONE = "Python worker exited unexpectedly"
CHECKPOINT_TAKEN = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")

# ----- the layout of a query's checkpoint: a file for each batch, named by its number

OFFSETS_FOLDER = "offsets"
COMMITS_FOLDER = "commits"
