"""
The Spark session of both jobs, configured so that results do not depend on Spark.

Spark schedules tasks, keeps state and writes checkpoints; it never sees a single event. Its watermark, a maximum over all partitions that
moves once a batch, is not used, nor are its timers: the source's offset is the only clock.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ordering.errors import TidegateError
from tidegate.platform.observe.stopping import raise_if_signalled
from tidegate.platform.spark.bounded_stop import BoundedStop
from tidegate.platform.spark.launch.python_host import end_hosts
from tidegate.platform.spark.privates import (
    BatchHandOver,
    accumulator_server,
    adopt_jvm,
    disable_code_generation,
    import_late_modules,
    load_state_library,
    register_local_files,
    silence_accumulator_server,
    start_jvm,
    stop_jvm,
)
from tidegate.platform.spark.starting import StartingSpark
from tidegate.platform.spark.state_store import REPORT_SCHEMA

# How long a JVM may take to end, seconds.
_JVM_END_S = 10.0

# A Java class: Hadoop's local files, except that permissions are set by a system call.
_LOCAL_FILES = "TidegateLocalFiles"
_LOCAL_FILES_SOURCE = f"""
public class {_LOCAL_FILES} extends org.apache.hadoop.fs.LocalFileSystem {{
  public {_LOCAL_FILES}() {{
    super(new Raw());
  }}

  public static class Raw extends org.apache.hadoop.fs.RawLocalFileSystem {{
    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission)
        throws java.io.IOException {{
      if (permission.getStickyBit()) {{
        super.setPermission(path, permission);
      }} else {{
        java.nio.file.Files.setPosixFilePermissions(
            pathToFile(path).toPath(), java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString()));
      }}
    }}
  }}
}}
"""

Report = TypeVar("Report")


def start_session(starting: StartingSpark) -> SparkSession:
    """
    Return the session of a job whose processes are starting; :class:`WorkerLog` logs again what they log.

    Raises TidegateError: Java is missing, or Spark does not start.
    """
    builder: Any = SparkSession.builder
    builder = builder.master(starting.master)
    for key, value in starting.conf.items():
        builder = builder.config(key, value)
    import_late_modules()
    try:
        with _redirect_stderr(starting.log):
            starting.reach_jvm(start_jvm, adopt_jvm)
            with _keep_interrupt_handler():
                started: SparkSession = builder.getOrCreate()
    except Exception as error:  # py4j raises its own kinds, and a missing Java a bare RuntimeError
        raise_if_signalled()
        what = f"Spark does not start on {starting.master}: {error}"
        fix = "install Java 17 and check spark.master"
        raise TidegateError(what, code="TG-SPARK-START", where="spark.master", fix=fix, example='master = "local[*]"') from error
    silence_accumulator_server(accumulator_server(started))
    if starting.master.startswith("local"):
        for prepare in (_set_permissions_in_process, _warm_worker, _prepare_state):
            threading.Thread(target=prepare, args=(started,), daemon=True).start()
    return started


def _set_permissions_in_process(session: SparkSession) -> None:
    """
    Have this JVM set the permissions of local files itself: Hadoop runs the program ``chmod`` for every file and folder that it makes, and
    twice for a file with a checksum, which is a dozen processes for each batch of a job.

    Only a local master gains from it, as other executors have JVMs of their own. A stream that has already begun keeps Hadoop's way, which
    is only slower.
    """
    with suppress(Exception):
        register_local_files(session, _LOCAL_FILES, _LOCAL_FILES_SOURCE)


def _warm_worker(spark: SparkSession) -> None:
    """Start a Python worker early: it imports for a second, while the first batch is planned."""
    with suppress(Exception):  # the job itself reports the error
        spark.sparkContext.parallelize([0], 1).count()


def _prepare_state(spark: SparkSession) -> None:
    """Prepare the JVM for the state of the first batch, which would have to wait otherwise."""
    disable_code_generation(spark)
    load_state_library(spark)


def end_session(spark: SparkSession) -> None:
    """
    Stop Spark and its JVM, ignoring one that has already ended. Once a job's process has ended, no task of it writes: whoever then deletes
    its checkpoint is not met by a file of it that comes later.
    """
    with BoundedStop(lambda: True), suppress(Py4JError, ConnectionError):
        spark.stop()
    stop_jvm(_JVM_END_S)
    end_hosts()


@dataclass(frozen=True, slots=True)
class StatefulStage:
    """A job's one stateful stage: its name in Spark, its checkpoint folder, its number of tasks, and whether it stops at the end."""

    name: str
    checkpoint: str
    tasks: int
    until_end: bool


def start_stage(
    spark: SparkSession,
    source: type[DataSource],
    processor: StatefulProcessor,
    stage: StatefulStage,
    parse_report: Callable[[str], Report],
    on_reports: Callable[[list[Report]], None],
) -> StreamingQuery:
    """
    Start planner -> shuffle by ``label`` -> *processor* -> driver, where *on_reports* gets the reports of each batch, each read from its
    JSON by *parse_report*.
    """
    # A session may run several queries; each keeps the value that it was started with.
    spark.conf.set("spark.sql.shuffle.partitions", str(stage.tasks))
    spark.dataSource.register(source)
    ranges = spark.readStream.format(source.name()).load()
    reports = ranges.groupBy("label").transformWithStateInPandas(
        processor, outputStructType=REPORT_SCHEMA, outputMode="append", timeMode="none"
    )

    hand_over = BatchHandOver(reports)
    writer = hand_over.writer.queryName(stage.name).option("checkpointLocation", f"{stage.checkpoint}/spark")
    # PacedPlanner waits between batches.
    query = (writer.trigger(availableNow=True) if stage.until_end else writer.trigger(processingTime="0 seconds")).start()
    hand_over.follow(query, lambda texts: on_reports([parse_report(text) for text in texts]))
    return query


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep this program's handler of Ctrl-C: PySpark installs its own, which cuts the batch off and raises within PySpark's calls."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # Only the main thread can set handlers; PySpark sets its own only there too.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _redirect_stderr(file: Path) -> Iterator[None]:
    """Send the stderr of child processes started within the ``with`` block to *file*."""
    kept = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
