"""
The Spark session of both jobs, configured so that results do not depend on Spark.

Spark schedules tasks, keeps state and writes checkpoints; it never sees a single event. Its watermark, a maximum over all partitions that
moves once a batch, is not used, nor are its timers: the source's offset is the only clock.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.basics.safe_path import SAFE_PATH, protect_processes
from tidegate.platform.observe.stopping import raise_if_signalled
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.launch.allocator import allocator_environment
from tidegate.platform.spark.launch.launch_files import launch_files
from tidegate.platform.spark.launch.lean_python import lean_python
from tidegate.platform.spark.launch.private_folder import make_private_folder
from tidegate.platform.spark.launch.python_host import end_hosts, start_host
from tidegate.platform.spark.local_files import set_permissions_in_process
from tidegate.platform.spark.options import FIXED, LOCAL_CHECKPOINT, SOCKETS, java_options, local_conf
from tidegate.platform.spark.privates import (
    LOOKUP_PROGRAM_VARIABLE,
    NO_LOOKUP_PROGRAM,
    BatchHandOver,
    accumulator_server,
    forgo_generated_code,
    import_late_modules,
    load_state_library,
    silence_accumulator_server,
    start_jvm,
    stop_jvm,
)
from tidegate.platform.spark.state_store import REPORT_SCHEMA
from tidegate.platform.spark.worker_log import WORKER_LOG

# The environment variable with the folders in which Spark spills, separated by commas; it takes precedence over spark.local.dir.
LOCAL_DIRS_VARIABLE = "SPARK_LOCAL_DIRS"
# How long a JVM may take to end, seconds.
_JVM_END_S = 10.0

# Spark passes what follows this in the name of a setting to workers, as an environment variable.
_EXECUTOR_ENV = "spark.executorEnv."
# What Spark sets for the processes that it starts itself.
_WORKER_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

Report = TypeVar("Report")


def start_session(settings: Settings, job: str, folder: Path, modules: Sequence[str] = ()) -> SparkSession:
    """
    Start Spark for one job, whose Python processes import *modules*; ``[spark.conf]`` may override settings that the design does not fix.

    The JVM and the workers write to ``spark.log`` in *folder*; :class:`WorkerLog` logs their events again. Raises TidegateError: Java is
    missing, Spark does not start, or no folder can be made for its sockets.
    """
    master = settings.spark.master
    private_folder = make_private_folder(SOCKETS)
    conf = _spark_conf(settings, job, private_folder, _set_environment(settings, private_folder))
    if sys.executable != os.environ["PYSPARK_PYTHON"] == lean_python():
        of_workers = {key.removeprefix(_EXECUTOR_ENV): value for key, value in conf.items() if key.startswith(_EXECUTOR_ENV)}
        with (folder / WORKER_LOG).open("ab") as log:
            os.environ.update(start_host(private_folder, modules, {**os.environ, **of_workers, **_WORKER_ENVIRONMENT}, log.fileno()))
    builder: Any = SparkSession.builder
    builder = builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    import_late_modules()
    try:
        with _redirect_stderr(folder / WORKER_LOG):
            with launch_files(private_folder, {"spark.master": master, **conf}) as properties:
                start_jvm(properties)
            with _keep_interrupt_handler():
                started: SparkSession = builder.getOrCreate()
    except Exception as error:  # py4j raises its own kinds, and a missing Java a bare RuntimeError
        raise_if_signalled()
        what = f"Spark does not start on {master}: {error}"
        fix = "install Java 17 and check spark.master"
        raise TidegateError(what, code="TG-SPARK-START", where="spark.master", fix=fix, example='master = "local[*]"') from error
    silence_accumulator_server(accumulator_server(started))
    if master.startswith("local"):
        for prepare in (set_permissions_in_process, _warm_worker, _prepare_state):
            threading.Thread(target=prepare, args=(started,), daemon=True).start()
    return started


def _set_environment(settings: Settings, private_folder: Path) -> dict[str, str]:
    """Set the environment of the JVM and of workers on this machine; return the variables that executors need elsewhere too."""
    # Only this machine has the lean program: workers of a cluster may run on others.
    python = lean_python() if settings.spark.master.startswith("local") else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    protect_processes()
    os.environ[LOOKUP_PROGRAM_VARIABLE] = NO_LOOKUP_PROGRAM
    # Each of librdkafka's threads would otherwise keep a heap of its own that never shrinks.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    allocator = allocator_environment(os.environ) if settings.spark.allocator == "auto" else {}
    # Workers know only the settings of their stage; settings of a whole process go through its environment.
    os.environ[NATIVE_SWITCH] = settings.kafka.native
    local_dirs = _local_dirs(settings.spark.properties().get("spark.local.dir", ""), private_folder)
    os.environ[LOCAL_DIRS_VARIABLE] = ",".join(map(str, local_dirs))
    return {NATIVE_SWITCH: settings.kafka.native, **allocator, **SAFE_PATH}


def _spark_conf(settings: Settings, job: str, private_folder: Path, executor_environment: Mapping[str, str]) -> dict[str, str]:
    spark = settings.spark
    return {
        "spark.app.name": f"{spark.app_name}-{job}",
        "spark.driver.memory": spark.driver_memory,
        **{f"{_EXECUTOR_ENV}{name}": value for name, value in executor_environment.items()},
        "spark.sql.shuffle.partitions": str(spark.shuffle_partitions),
        # Spark puts these before the user's spark.driver.extraJavaOptions, so that the user's win.
        "spark.driver.defaultJavaOptions": java_options(private_folder, spark.properties().get("spark.driver.extraJavaOptions", "")),
        **FIXED,
        **LOCAL_CHECKPOINT,
        # Without a limit a standalone cluster gives the first job all its cores, and the next job waits silently for ever.
        **(local_conf(private_folder) if spark.master.startswith("local") else {"spark.cores.max": str(spark.shuffle_partitions)}),
        **spark.properties(),
    }


def _local_dirs(configured: str, default: Path) -> list[Path]:
    """Return a private folder in each folder that the environment or else the setting names for spilled data; *default* if neither does."""
    named = os.environ.get(LOCAL_DIRS_VARIABLE) or configured
    parents = [Path(parent.strip()) for parent in named.split(",") if parent.strip()]
    for parent in parents:
        parent.mkdir(parents=True, exist_ok=True)
    return [make_private_folder(parent) for parent in parents] or [default]


def _warm_worker(spark: SparkSession) -> None:
    """Start a Python worker early: it imports for a second, while the first batch is planned."""
    with suppress(Exception):  # the job itself reports the error
        spark.sparkContext.parallelize([0], 1).count()


def _prepare_state(spark: SparkSession) -> None:
    """Prepare the JVM for the state of the first batch, which would have to wait otherwise."""
    forgo_generated_code(spark)
    load_state_library(spark)


def end_session(spark: SparkSession) -> None:
    """
    Stop Spark and its JVM, ignoring one that has already ended. Once a job's process has ended, no task of it writes: whoever then deletes
    its checkpoint is not met by a file of it that comes later.
    """
    with suppress(Py4JError, ConnectionError):
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
