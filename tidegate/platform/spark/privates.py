"""
Every use of undocumented parts of PySpark and Spark, with its purpose.

A new Spark version may change any of them without notice. tests/tidegate/platform/spark/test_privates.py looks for each in the installed
Spark, and fails if Spark's version is not the checked one.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.platform.spark.launch.silent_collection import SilentCollection

# Python workers import this module for its constants only, so functions import their modules themselves.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tidegate.platform.spark.launch.jvm import StartingJvm

CHECKED_VERSION = "4.3.0"

# ----- the driver's side of py4j

# PySpark starts spark-submit with these arguments.
SUBMIT_VARIABLE = "PYSPARK_SUBMIT_ARGS"
# Where PySpark finds a JVM that is there already: its port and its password.
GATEWAY_VARIABLES = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
# What spark-submit adds to Java's options.
JVM_MODULE_OPTIONS = """\
-XX:+IgnoreUnrecognizedVMOptions
--add-modules=jdk.incubator.vector
--add-opens=java.base/java.lang=ALL-UNNAMED
--add-opens=java.base/java.lang.invoke=ALL-UNNAMED
--add-opens=java.base/java.lang.reflect=ALL-UNNAMED
--add-opens=java.base/java.io=ALL-UNNAMED
--add-opens=java.base/java.net=ALL-UNNAMED
--add-opens=java.base/java.nio=ALL-UNNAMED
--add-opens=java.base/java.util=ALL-UNNAMED
--add-opens=java.base/java.util.concurrent=ALL-UNNAMED
--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED
--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED
--add-opens=java.base/sun.nio.ch=ALL-UNNAMED
--add-opens=java.base/sun.nio.cs=ALL-UNNAMED
--add-opens=java.base/sun.security.action=ALL-UNNAMED
--add-opens=java.base/sun.util.calendar=ALL-UNNAMED
--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED
-Dio.netty.tryReflectionSetAccessible=true
-Dio.netty.allocator.type=pooled
-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE
--sun-misc-unsafe-memory-access=allow
--enable-native-access=ALL-UNNAMED
-Dderby.connection.requireAuthentication=false
"""
# How long the thread of a hand-over waits for a batch before it looks whether its query has ended, seconds. The thread of the last query
# that has had a batch is the one that finds a silence of all. Batches with records that stay open for 30 s, as by default, are no silence.
_BATCH_WAIT_S = 35
_COLLECTION = SilentCollection(after_s=33.0)


def start_jvm(properties: Path) -> None:
    """Start the JVM with the settings in the file *properties*: on a command line every user of the machine could read them."""
    from pyspark import SparkContext

    given = os.environ.get(SUBMIT_VARIABLE)
    # Without --load-spark-defaults, spark-submit would ignore the user's spark-defaults.conf.
    os.environ[SUBMIT_VARIABLE] = f"--properties-file {shlex.quote(str(properties))} --load-spark-defaults {given or 'pyspark-shell'}"
    try:
        SparkContext._ensure_initialized()
    finally:
        os.environ.pop(SUBMIT_VARIABLE)
        if given is not None:
            os.environ[SUBMIT_VARIABLE] = given


def adopt_jvm(jvm: StartingJvm) -> None:
    """Use a JVM that PySpark has not started itself. Raises JvmEnded: it has ended."""
    from pyspark import SparkContext

    port, secret = jvm.wait()
    names = dict(zip(GATEWAY_VARIABLES, (str(port), secret), strict=True))
    os.environ.update(names)
    try:
        SparkContext._ensure_initialized()
    finally:
        for name in names:
            del os.environ[name]
    gateway: Any = SparkContext._gateway
    gateway.proc = jvm.process


def stop_jvm(timeout_s: float) -> None:
    """
    End the JVM and wait for it, if there is one of this process: ``stop`` of a session leaves it running, with the tasks that have not
    heard of it yet. One that has not ended after *timeout_s* is killed.
    """
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if jvm is None or jvm.stdin is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):  # a JVM that was killed has no sockets to close
        gateway.shutdown()
    with suppress(OSError):
        jvm.stdin.close()
    try:
        jvm.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def kill_jvm() -> None:
    """End the JVM of this process at once, if there is one."""
    from pyspark import SparkContext

    jvm: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if jvm is not None:
        jvm.kill()


def load_state_library(session: SparkSession) -> None:
    """Load the state store's library in the JVM, which takes a quarter of a second, before the first batch needs it."""
    jvm: Any = session._jvm
    with suppress(Exception):  # the first batch meets and reports the same error
        jvm.org.rocksdb.RocksDB.loadLibrary()


def disable_code_generation(session: SparkSession) -> None:
    """
    Have the JVM interpret rows instead of compiling code for them, also in threads that know no session's settings, such as the one that
    serves a task's state. A batch has a handful of rows, and compiling took a tenth of a small batch.
    """
    jvm: Any = session._jvm
    with suppress(Exception):  # batches then cost more, and nothing else changes
        mode = jvm.org.apache.spark.sql.internal.SQLConf.CODEGEN_FACTORY_MODE()
        default = mode.getClass().getDeclaredField("_defaultValue")
        default.setAccessible(True)
        modes = jvm.org.apache.spark.sql.catalyst.expressions.CodegenObjectFactoryMode
        default.set(mode, modes.withName(NO_GENERATED_CODE))


def register_local_files(session: SparkSession, name: str, source: str) -> None:
    """
    Have Hadoop take the class *name* of a Java *source* for local files from now on, in this JVM. The compiler is the one that Spark brings
    for the code it generates.
    """
    jvm: Any = session._jvm
    compiler, files = jvm.org.codehaus.janino.SimpleCompiler(), jvm.org.apache.hadoop.fs.FileSystem
    compiler.cook(source)
    loader, root, conf = compiler.getClassLoader(), jvm.java.net.URI("file:///"), session.sparkContext._jsc.hadoopConfiguration()
    # Only a copy of the configuration names the class: Spark sends the original with its tasks, where no class loader knows the class.
    own = jvm.org.apache.hadoop.conf.Configuration(conf)
    own.setClassLoader(loader)
    own.setClass("fs.file.impl", loader.loadClass(name), jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem"))
    # Hadoop keeps one file system for each scheme and user: closing it makes room for the new one.
    files.get(root, conf).close()
    files.get(root, own)


def count_executors(session: SparkSession) -> int:
    """Return how many executors a session has on its cluster; 0 also if Spark has stopped."""
    from py4j.protocol import Py4JError

    context: Any = session.sparkContext
    try:
        # The driver counts as one.
        return max(int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1, 0)
    except (Py4JError, ConnectionError, AttributeError):
        return 0


class BatchHandOver:
    """
    Hands the texts of each batch of a one-column stream to a function of the driver, in place of PySpark's ``foreachBatch``.

    For ``foreachBatch`` the driver listens on a TCP port without a password, where everybody on the machine may call methods of its
    objects. Here Spark's thread collects a batch and waits within the JVM, and a thread of the driver fetches it, so no port is needed.
    """

    def __init__(self, stream: DataFrame) -> None:
        from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

        session: Any = stream.sparkSession
        frame: Any = stream
        # Resolved once: the JVM looks through all jars for each package of a name, which takes it a millisecond.
        java = session._jvm.java
        self._concurrent, self._invoke, self._lang = java.util.concurrent, java.lang.invoke, java.lang
        self._handles, self._types, self._class = self._invoke.MethodHandles, self._invoke.MethodType, self._lang.Class.forName
        # The batches, and for each a future that is done once it was worked on. A wait for a batch ends with nothing: an exception of the
        # JVM would be eighty calls.
        self._batches, self._futures = self._concurrent.LinkedBlockingQueue(), self._concurrent.ConcurrentLinkedQueue()
        self._done = self._add_future()
        texts = getattr(frame._jdf, "as")(session._jvm.org.apache.spark.sql.Encoders.STRING())
        self.writer: DataStreamWriter = ClassicFrame(texts, session).writeStream
        writer: Any = self.writer
        writer._jwrite.foreachBatch(self._batch_function())

    def _batch_function(self) -> Any:
        """Return the JVM's function of a batch and its number: collect the batch, hand it over, wait for its future."""
        collect = self._method("org.apache.spark.sql.Dataset", "collectAsList", "()Ljava/util/List;")
        add = self._method("java.util.concurrent.LinkedBlockingQueue", "add", "(Ljava/lang/Object;)Z")
        remove = self._method("java.util.concurrent.ConcurrentLinkedQueue", "remove", "()Ljava/lang/Object;")
        # Stopping the query does not interrupt this: it returns when no batch is worked on any more.
        wait = self._method("java.util.concurrent.CompletableFuture", "join", "()Ljava/lang/Object;")
        then = self._handles.filterReturnValue
        next_future = self._handles.dropArguments(remove.bindTo(self._futures), 0, [self._class("java.lang.Object")])
        of_batch = then(then(then(collect, add.bindTo(self._batches)), next_future), wait)
        of_batch_and_number = self._handles.dropArguments(of_batch, 1, [self._class("java.lang.Object")])
        function = self._class("org.apache.spark.api.java.function.VoidFunction2")
        return self._invoke.MethodHandleProxies.asInterfaceInstance(function, of_batch_and_number)

    def _method(self, owner: str, name: str, descriptor: str) -> Any:
        """Return a handle of a method that takes and returns plain objects."""
        lookup = self._handles.publicLookup()
        found = lookup.findVirtual(self._class(owner), name, self._types.fromMethodDescriptorString(descriptor, None))
        return found.asType(self._types.genericMethodType(found.type().parameterCount()))

    def follow(self, query: StreamingQuery, on_batch: Callable[[list[str]], None]) -> None:
        """Call *on_batch*, in a thread of its own, with the texts of each batch until *query* ends; its exception fails the query."""
        threading.Thread(target=self._follow, args=(query, on_batch), daemon=True).start()

    def _follow(self, query: StreamingQuery, on_batch: Callable[[list[str]], None]) -> None:
        from py4j.protocol import Py4JError

        with suppress(Py4JError, ConnectionError):  # the JVM has ended
            seconds, join = self._concurrent.TimeUnit.SECONDS, self._lang.String.join
            while True:
                batch = self._batches.poll(_BATCH_WAIT_S, seconds)
                if batch is None:
                    if not query.isActive:
                        return
                    if _COLLECTION.take_due(time.monotonic()):
                        self._lang.System.gc()
                    continue
                # Before Spark goes on: the next batch finds its future.
                done, self._done = self._done, self._add_future()
                try:
                    joined = join("\n", batch)
                    on_batch(joined.split("\n") if joined else [])
                    done.complete(None)
                except Exception:
                    done.completeExceptionally(self._lang.RuntimeException(traceback.format_exc()))
                _COLLECTION.note_batch(time.monotonic())

    def _add_future(self) -> Any:
        future = self._concurrent.CompletableFuture()
        self._futures.add(future)
        return future


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

# The JVM runs the program of this variable to find data sources in every installed package, which takes a second at each start. If the
# program does not exist, it skips the search.
LOOKUP_PROGRAM_VARIABLE = "PYSPARK_DRIVER_PYTHON"
NO_LOOKUP_PROGRAM = "no-lookup-of-data-sources"

# The daemon's first argument names the kind of worker that it forks; the stateful stage runs in this one.
STATEFUL_WORKER = "pyspark.worker"

# Spark sets the batch's number as a local property of the tasks of a micro-batch, and the query's id.
BATCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"
# The private folder in which Spark and its Python processes meet.
SOCKETS_VARIABLE = "PYTHON_WORKER_FACTORY_SOCK_DIR"


class TaskPlace(NamedTuple):
    """Which task of a stateful stage: the id of its streaming query, and its number in each batch."""

    query: str
    partition: int


class UnfinishedMessageError(Exception):
    """More of a message has to come."""


def route_tasks(run: Callable[[Callable[[Any, bool], int]], Callable[[Any, bool], int]]) -> None:
    """Have Spark's Python processes run their tasks by what *run* makes of Spark's own way."""
    from pyspark import daemon

    process: Any = daemon
    process.worker = run(process.worker)


def place_of_task(beginning: bytes) -> TaskPlace | None:
    """
    Return the place of a task from the *beginning* of what Spark sends for it; None if it is no task of a stateful stage. Raises
    UnfinishedMessageError.
    """
    from pyspark.serializers import SpecialLengths
    from pyspark.util import PythonEvalType

    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        if at > len(beginning):
            raise UnfinishedMessageError
        return beginning[at - size : at]

    def number() -> int:
        return int.from_bytes(take(4), signed=True)

    # What kind of message, its length, the partition, Python's version; the folder of files that users add, and their names; broadcasts.
    if number() != SpecialLengths.START_OF_INIT_MESSAGE:
        return None
    number(), number(), take(number())
    task = json.loads(take(number()))
    take(number())
    for _ in range(number()):
        take(number())
    is_encrypted, broadcasts = take(1) != b"\0", number()
    query = task["localProperties"].get(QUERY_PROPERTY)
    is_stateful = not is_encrypted and not broadcasts and number() == PythonEvalType.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF
    return TaskPlace(query, task["partitionId"]) if is_stateful and query else None


def batch_of_task() -> dict[str, int]:
    """Return ``batch``, the micro-batch number of this Spark task; empty outside of one."""
    from pyspark import TaskContext

    task = TaskContext.get()
    number = task.getLocalProperty(BATCH_PROPERTY) if task is not None else None
    return {} if number is None else {"batch": int(number)}


def select_state_key(handle: Any, key: tuple[Any, ...]) -> None:
    """Let the state that follows be that of *key*. Spark chooses the key whose rows it hands over; an open batch saves all at its end."""
    handle._statefulProcessorApiClient.set_implicit_key(key)


# ----- names of Spark's own classes, which settings take as text

NO_GENERATED_CODE = "NO_CODEGEN"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# ----- texts by which failures are recognized: the JVM returns them as text only

SLOW_START = "failed to connect back"
WORKER_GONE = "Python worker exited unexpectedly"
STATE_UNREADABLE = ("CANNOT_LOAD_STATE_STORE", "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY")
CHECKPOINT_TAKEN = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")

# ----- the layout of a query's checkpoint: a file for each batch, named by its number

OFFSETS_FOLDER = "offsets"
COMMITS_FOLDER = "commits"
METADATA_FILE = "metadata"
