"""
The Spark session both jobs run in, set up so that results do not depend on Spark.

Spark schedules, keeps state and checkpoints; it never sees a single event. Its own watermark is not used (it is a
maximum over all partitions and moves per batch), nor its timers: the source's offset is the only clock.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ordering.errors import TidegateError
from tidegate.native_parts import NATIVE_SWITCH
from tidegate.secret_masking import has_password, is_secret_key
from tidegate.settings.load import Settings
from tidegate.spark.allocator import allocator_environment
from tidegate.spark.lean_python import lean_python
from tidegate.spark.options import FIXED, JAVA_OPTIONS, LOCAL_CHECKPOINT, archive_option, local_conf
from tidegate.spark.privates import (
    LOOKUP_PROGRAM_VARIABLE,
    NO_LOOKUP_PROGRAM,
    accumulator_server,
    import_late_modules,
    load_state_library,
    silence_accumulator_server,
    start_jvm,
)
from tidegate.spark.state_store import REPORT_SCHEMA
from tidegate.spark.worker_log import WORKER_LOG

Report = dict[str, Any]
OnReports = Callable[[list[Report]], None]


def start_session(settings: Settings, job: str, folder: Path) -> SparkSession:
    """
    Start Spark for one job; ``[spark.conf]`` may override what is not fixed by the design.

    The JVM and the Python workers write what they have to say into ``spark.log`` in *folder*; :class:`WorkerLog` brings
    the jobs' own events from there to the terminal.

    Raises:
        TidegateError: Java is missing, or Spark does not start or has no room for its sockets.
    """
    # On a cluster workers run on other machines, which have no program of ours.
    python = lean_python() if settings.spark.master.startswith("local") else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ[LOOKUP_PROGRAM_VARIABLE] = NO_LOOKUP_PROGRAM
    # Each of librdkafka's threads would otherwise keep a heap of its own that never shrinks.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    allocator = allocator_environment(os.environ) if settings.spark.allocator == "auto" else {}
    # Workers know no settings but those of their stage: what holds for a whole process goes by its environment.
    os.environ[NATIVE_SWITCH] = settings.kafka.native
    spark = settings.spark
    conf = {
        "spark.app.name": f"{spark.app_name}-{job}",
        "spark.driver.memory": spark.driver_memory,
        f"spark.executorEnv.{NATIVE_SWITCH}": settings.kafka.native,
        **{f"spark.executorEnv.{name}": value for name, value in allocator.items()},
        "spark.sql.shuffle.partitions": str(spark.shuffle_partitions),
        # A small heap that gives memory back: the JVM carries no payload, and several jobs may share a machine.
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {archive_option()}".strip(),
        **FIXED,
        **(LOCAL_CHECKPOINT if "://" not in spark.checkpoint_dir else {}),
        # A standalone cluster gives the first application all its cores, and the next one waits for ever without a word.
        **(local_conf() if spark.master.startswith("local") else {"spark.cores.max": str(spark.shuffle_partitions)}),
        **spark.properties(),
    }
    builder: Any = SparkSession.builder
    builder = builder.master(spark.master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    import_late_modules()
    try:
        with _redirect_stderr(folder / WORKER_LOG):
            start_jvm(_public({"spark.master": spark.master, **conf}))
            started: SparkSession = builder.getOrCreate()
    except Exception as error:  # py4j raises its own kinds, and a missing Java a bare RuntimeError
        raise TidegateError(
            f"Spark does not start on {spark.master}: {error}",
            code="TG-SPARK-START",
            where="spark.master",
            fix="install Java 17 and check spark.master",
            example='master = "local[*]"',
        ) from error
    silence_accumulator_server(accumulator_server(started))
    if spark.master.startswith("local"):
        threading.Thread(target=_warm_worker, args=(started,), daemon=True).start()
        threading.Thread(target=load_state_library, args=(started,), daemon=True).start()
    return started


def _warm_worker(spark: SparkSession) -> None:
    """Have Spark start a Python worker: that imports for a second, in which the first batch is planned."""
    with suppress(Exception):  # the job itself reports what is wrong
        spark.sparkContext.parallelize([0], 1).count()


def end_session(spark: SparkSession) -> None:
    """Stop Spark; where its JVM has ended already there is nothing left to stop."""
    with suppress(Py4JError, ConnectionError):
        spark.stop()


def _public(conf: Mapping[str, str]) -> dict[str, str]:
    """Return what everybody may read on the JVM's command line; it gets the secrets once it runs."""
    return {key: value for key, value in conf.items() if not is_secret_key(key) and not has_password(value)}


@dataclass(frozen=True, slots=True)
class Stage:
    """A job's one stateful stage: its name in Spark, its checkpoint folder, and whether it ends at the present end."""

    name: str
    checkpoint: str
    until_end: bool


def start_stage(
    spark: SparkSession, source: type[DataSource], processor: StatefulProcessor, stage: Stage, on_reports: OnReports
) -> StreamingQuery:
    """
    Start planner -> shuffle by ``label`` -> *processor* -> driver.

    Args:
        spark: The session.
        source: Hands out ranges, with a column ``label``.
        processor: Takes the ranges of one label and returns reports.
        stage: Names and end.
        on_reports: Called in the driver with the reports of each batch.
    """
    spark.dataSource.register(source)
    ranges = spark.readStream.format(source.name()).load()
    reports = ranges.groupBy("label").transformWithStateInPandas(
        processor, outputStructType=REPORT_SCHEMA, outputMode="append", timeMode="none"
    )

    def collect(batch: DataFrame, batch_id: int) -> None:
        on_reports([json.loads(row["report"]) for row in batch.collect()])

    writer = reports.writeStream.queryName(stage.name).option("checkpointLocation", f"{stage.checkpoint}/spark").foreachBatch(collect)
    if stage.until_end:
        return writer.trigger(availableNow=True).start()
    # The planner keeps the time between batches.
    return writer.trigger(processingTime="0 seconds").start()


@contextmanager
def _redirect_stderr(file: Path) -> Iterator[None]:
    """Let child processes started meanwhile write their standard error to *file*."""
    kept = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
