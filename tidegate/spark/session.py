"""
The Spark session both jobs run in, and what Spark must be told so that results do not depend on it.

Spark schedules, keeps state and checkpoints; it never sees a single event. Its own watermark is not used (it is a
maximum over all partitions and moves per batch), nor its timers: the source's offset is the only clock.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ordering.errors import TidegateError
from tidegate.native_parts import NATIVE_SWITCH
from tidegate.observe.logs import get_logger
from tidegate.secret_masking import has_password, is_secret_key
from tidegate.settings.load import Settings
from tidegate.spark.allocator import allocator_environment
from tidegate.spark.class_archive import archive_option
from tidegate.spark.lean_python import lean_python
from tidegate.spark.state_store import REPORT_SCHEMA

Report = dict[str, Any]
OnReports = Callable[[list[Report]], None]
WORKER_LOG = "spark.log"
_NO_PROGRAM = "no-lookup-of-data-sources"
WORKER_LOG_BYTES_MAX = 16 * 2**20
_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SOCKETS = "/tmp"
"""Where Spark's sockets are. Not the JVM's own folder: Spark 4.3 takes all letters of their paths for small ones, and 108 is the most."""

_LOG4J = Path(__file__).with_name("log4j2.properties").as_uri()
JAVA_OPTIONS = " ".join(
    (
        # The JVM only schedules: the quick compiler alone halves what a start costs, and jars from the lock need no verifying.
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
        f"-Dlog4j2.configurationFile={_LOG4J}",
    )
)
_FIXED = {
    "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.compactOnCommit": "false",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "64",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    # A handful of rows a batch: compiling code for them costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    # On a port of loopback the JVM takes whoever connects for a worker of its own: the first four bytes of a scraper's
    # request for a length of a gigabyte, which ends the job; and the server of the state asks nobody who he is.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.unix.domain.socket.dir": SOCKETS,
    # Only some of Spark's workers are told of it, and those that are would need a daemon of their own.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.python.daemon.module": "tidegate.spark.worker_daemon",
    "spark.python.daemon.killWorkerOnFlushFailure": "true",
    "spark.python.worker.idleTimeoutSeconds": "0",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.cleaner.periodicGC.interval": "5min",
}
_LOCAL_CHECKPOINT = {
    # The other manager asks a program, readlink, about each file, and Hadoop's local files have checksums of their own.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Else every user of the machine could send objects to the driver's ports. Spark makes a secret of its own.
    "spark.authenticate": "true",
}


def _local_conf() -> dict[str, str]:
    """Return what a job on one machine adds: loopback only, and a folder for sockets that is this user's whatever the umask."""
    try:
        sockets = tempfile.mkdtemp(prefix="tidegate-", dir=SOCKETS)
    except OSError as error:
        raise TidegateError(
            f"no folder for the sockets between Spark and its workers can be made: {error}",
            code="TG-SPARK-START",
            where=SOCKETS,
            fix=f"let this user write to {SOCKETS}",
        ) from error
    atexit.register(shutil.rmtree, sockets, ignore_errors=True)
    return {**_LOCAL, "spark.python.unix.domain.socket.dir": sockets}


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
    # With this program Spark would look for data sources in every installed package, 1 s at each start: it skips that for want of it.
    os.environ["PYSPARK_DRIVER_PYTHON"] = _NO_PROGRAM
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
        **_FIXED,
        **(_LOCAL_CHECKPOINT if "://" not in spark.checkpoint_dir else {}),
        # A standalone cluster gives the first application all its cores, and the next one waits for ever without a word.
        **(_local_conf() if spark.master.startswith("local") else {"spark.cores.max": str(spark.shuffle_partitions)}),
        **spark.properties(),
    }
    builder: Any = SparkSession.builder
    builder = builder.master(spark.master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    # PySpark imports this, and pandas with it, once there is a session; until then this process has little to do.
    threading.Thread(target=_import_ahead, args=("pyspark.testing.utils",), daemon=True).start()
    try:
        with _redirect_stderr(folder / WORKER_LOG):
            _start_jvm({"spark.master": spark.master, **conf})
            started: SparkSession = builder.getOrCreate()
    except Exception as error:  # py4j raises its own kinds, and a missing Java a bare RuntimeError
        raise TidegateError(
            f"Spark does not start on {spark.master}: {error}",
            code="TG-SPARK-START",
            where="spark.master",
            fix="install Java 17 and check spark.master",
            example='master = "local[*]"',
        ) from error
    _silence_accumulator_server(getattr(started.sparkContext, "_accumulatorServer", None))
    if spark.master.startswith("local"):
        threading.Thread(target=_warm_worker, args=(started,), daemon=True).start()
        threading.Thread(target=_load_rocksdb, args=(started,), daemon=True).start()
    return started


def _import_ahead(name: str) -> None:
    """Import a module ahead of whoever needs it."""
    with suppress(Exception):  # who needs it is told what is wrong
        importlib.import_module(name)


def _warm_worker(spark: SparkSession) -> None:
    """Have Spark start a Python worker: that imports for a second, in which the first batch is planned."""
    with suppress(Exception):  # the job itself tells what is wrong
        spark.sparkContext.parallelize([0], 1).count()


def _load_rocksdb(spark: SparkSession) -> None:
    """Have the JVM unpack and load its state store's library, a quarter of a second, before the first batch asks for it."""
    jvm: Any = spark._jvm
    with suppress(Exception):
        jvm.org.rocksdb.RocksDB.loadLibrary()


def _silence_accumulator_server(server: Any) -> None:
    """Have Spark's server for counts not print the broken connection of a JVM that was killed: the job tells of that by itself."""
    if server is not None:
        server.handle_error = lambda request, address: None


def end_session(spark: SparkSession) -> None:
    """Stop Spark; where its JVM has ended already there is nothing left to stop."""
    with suppress(Py4JError, ConnectionError):
        spark.stop()


def _start_jvm(conf: Mapping[str, str]) -> None:
    """Start the JVM with what everybody may read on its command line; secrets it is told once it runs."""
    public = {key: value for key, value in conf.items() if not is_secret_key(key) and not has_password(value)}
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(public.items())))


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


class WorkerLog:
    """Follows ``spark.log`` and says again what planner and workers logged: they are processes without a terminal."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / WORKER_LOG
        self._position = self._file.stat().st_size if self._file.exists() else 0
        self._log = get_logger("worker")

    def follow(self) -> None:
        """Log the events that came since the last call."""
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
        if self._position > WORKER_LOG_BYTES_MAX:
            # Spark's workers write a few lines a batch, for ever; all of them append, so the file may be cut under them.
            os.truncate(self._file, 0)
            self._position = 0

    def _log_event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            level = getattr(self._log, event.pop("level"))
        except (ValueError, KeyError, AttributeError):
            return
        event.pop("time", None)
        event.pop("logger", None)
        level(event.pop("event", ""), **event)


def checkpoint_folder(settings: Settings, job: str) -> Path:
    """Return the folder that holds everything one job must find again: Spark's checkpoint and what it is bound to."""
    return Path(settings.spark.checkpoint_dir) / job
