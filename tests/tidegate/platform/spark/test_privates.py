"""
Everything that Tidegate uses of PySpark without a promise is still there, in the version it was checked with.

If this fails after an upgrade of Spark, read each entry of tidegate/platform/spark/privates.py against the new version, mend it, run the
integration tests, and only then set ``CHECKED_VERSION``.
"""

from __future__ import annotations

import inspect
import json
import signal
import socket
import socketserver
import subprocess
import sys
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from pyspark import SparkContext, TaskContext, daemon
from pyspark.messages import ZeroCopyByteStream
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.util import PythonEvalType
from pyspark.worker_message import WorkerInitInfo
from support.repository import ROOT
from support.spark_tasks import init_message

from tidegate.platform.spark import privates
from tidegate.platform.spark.privates import batch_of_task, silence_accumulator_server

JARS = Path(pyspark.__file__).parent / "jars"


@cache
def jar(name: str) -> zipfile.ZipFile:
    """Return one of Spark's own jars."""
    return zipfile.ZipFile(JARS / f"spark-{name}_2.13-{privates.CHECKED_VERSION}.jar")


def source_of(name: str) -> str:
    """Return the source of a module of PySpark."""
    spec = find_spec(name)
    assert spec is not None, name
    assert spec.origin is not None, name
    return Path(spec.origin).read_text("utf-8")


def test_the_version_is_the_one_that_was_checked() -> None:
    """Another version may have changed anything of this."""
    assert pyspark.__version__ == privates.CHECKED_VERSION


def test_what_the_driver_calls_is_there() -> None:
    """Methods and attributes of PySpark's own that begin with an underscore."""
    assert "conf" in inspect.signature(SparkContext._ensure_initialized).parameters
    assert hasattr(SparkContext, "_gateway")
    assert "self._jvm = " in inspect.getsource(SparkSession)
    assert "self._accumulatorServer = " in inspect.getsource(SparkContext)
    assert "proc" in source_of("pyspark.java_gateway")
    assert hasattr(TaskContext, "getLocalProperty")


def test_the_key_of_a_stage_can_be_chosen_again() -> None:
    """An open batch saves the state of several keys at its end."""
    assert "key" in inspect.signature(StatefulProcessorApiClient.set_implicit_key).parameters
    assert "self._statefulProcessorApiClient = " in source_of("pyspark.sql.streaming.stateful_processor")


def test_what_pyspark_imports_late_is_that_module() -> None:
    """It is imported beside the start of the JVM, for PySpark imports it in any case."""
    assert privates.LATE_IMPORT in source_of("pyspark.sql.group")


def test_the_daemon_is_asked_for_workers_as_expected() -> None:
    """Its module and its manager are what our own daemon wraps."""
    assert "def manager()" in source_of("pyspark.daemon")
    assert find_spec(privates.STATEFUL_WORKER) is not None


@pytest.mark.parametrize("name", [privates.STATE_STORE, privates.FILE_MANAGER])
def test_the_classes_that_settings_name_are_there(name: str) -> None:
    """Spark takes them as text and fails at the first batch if there is none."""
    assert f"{name.replace('.', '/')}.class" in jar("sql").namelist()


@pytest.mark.parametrize(
    ("where", "name", "text"),
    [
        ("core", "org/apache/spark/api/python/PythonWorkerFactory.class", privates.SLOW_START),
        ("core", "org/apache/spark/api/python/BasePythonRunner$ReaderIterator$$anonfun$1.class", privates.WORKER_GONE),
        ("core", "org/apache/spark/api/python/PythonUtils$.class", privates.LOOKUP_PROGRAM_VARIABLE),
        ("sql", "org/apache/spark/sql/execution/streaming/runtime/MicroBatchExecution$.class", privates.BATCH_PROPERTY),
        ("sql", "org/apache/spark/sql/execution/streaming/runtime/StreamExecution$.class", privates.QUERY_PROPERTY),
        ("sql", "org/apache/spark/sql/execution/streaming/runtime/StreamingCheckpointConstants$.class", privates.OFFSETS_FOLDER),
        ("sql", "org/apache/spark/sql/execution/streaming/runtime/StreamingCheckpointConstants$.class", privates.COMMITS_FOLDER),
        ("sql", "org/apache/spark/sql/execution/streaming/runtime/StreamingCheckpointConstants$.class", privates.METADATA_FILE),
    ],
)
def test_the_texts_that_are_looked_for_are_spark_s(where: str, name: str, text: str) -> None:
    """Failures come out of the JVM as text; names of properties and folders are in no interface either."""
    assert text.encode() in jar(where).read(name)


def test_the_beginning_of_a_task_says_which_one_it_is() -> None:
    """Read as PySpark reads it, from as much as has come."""
    message = init_message("a query", 5, rest=bytes(4))
    read = WorkerInitInfo.from_stream(ZeroCopyByteStream(memoryview(message[8:])))
    place = privates.place_of_task(message)
    assert place == (read.task_context.local_properties[privates.QUERY_PROPERTY], read.split_index) == ("a query", 5)
    assert read.udf_info == [], "nothing is left"
    for length in range(len(message) - 12):
        with pytest.raises(privates.UnfinishedMessageError):
            privates.place_of_task(message[:length])
    assert privates.place_of_task(init_message(None, 5)) is None
    assert privates.place_of_task(init_message("a query", 5, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)) is None
    assert privates.place_of_task((-4).to_bytes(4, signed=True)) is None


def test_spark_s_daemon_calls_what_is_put_in_place_of_its_worker() -> None:
    """By its name, with the connection, until it returns another code than 0."""
    assert list(inspect.signature(daemon.worker).parameters) == ["sock", "authenticated"]
    source = inspect.getsource(daemon.manager)
    assert "code = worker(sock, authenticated)" in source
    assert privates.SOCKETS_VARIABLE in source
    replaced = daemon.worker
    try:
        privates.route_tasks(lambda run: lambda connection, authenticated: 7 if run is replaced else 8)
        assert daemon.worker(socket.socket(), True) == 7
    finally:
        daemon.worker = replaced


def test_checkpoints_that_are_taken_or_unreadable_are_reported_in_these_words() -> None:
    """They are names of errors; one is the beginning of a message."""
    conditions = json.loads(jar("common-utils").read("error/error-conditions.json"))
    name, message = privates.CHECKPOINT_TAKEN
    assert {name, *privates.STATE_UNREADABLE} <= set(conditions)
    assert any(message in line for condition in conditions.values() for line in condition["message"])


IN_A_JVM = """
from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import SparkSession

from tidegate.platform.spark.options import java_options
from tidegate.platform.spark.privates import disable_code_generation

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
session = builder.config("spark.driver.defaultJavaOptions", java_options(Path({folder!r}))).getOrCreate()
disable_code_generation(session)
logger = session._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
print(session._jvm.org.apache.spark.sql.internal.SQLConf.CODEGEN_FACTORY_MODE().defaultValue().get().toString())
print(logger.isWarnEnabled(), logger.isInfoEnabled())
"""


@pytest.mark.heavy
def test_the_jvm_neither_compiles_code_for_rows_nor_composes_messages_that_nobody_reads(tmp_path: Path) -> None:
    """Both cost a sixth of a small batch, and nothing but its costs shows it if Spark does them again."""
    program = [sys.executable, "-c", IN_A_JVM.format(folder=str(tmp_path))]
    printed = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == [privates.NO_GENERATED_CODE, "True", "False"]
    assert "default log4j profile" not in printed.stderr


def test_nobody_else_uses_a_private_of_pyspark() -> None:
    """Whoever needs one adds it to privates.py, with its reason."""
    names = ("_jvm", "_gateway", "_accumulatorServer", "_ensure_initialized", "_jsc", "_jsparkSession", "_jdf", "pyspark.testing")
    users = [
        f"{path.relative_to(ROOT)}: {name}"
        for package in ("ordering", "ingest", "query", "sinks", "tidegate")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "privates.py"
        for name in names
        if f".{name}" in (text := path.read_text("utf-8")) or f'{name}"' in text
    ]
    assert not users, "\n".join(users)


def test_outside_of_a_spark_task_there_is_no_batch() -> None:
    """The driver works on none."""
    assert batch_of_task() == {}


def test_of_a_jvm_that_was_killed_no_server_of_sparks_prints_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """Its connection breaks in a thread of Spark's own."""

    class Broken(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            raise EOFError

    with socketserver.TCPServer(("127.0.0.1", 0), Broken) as server:
        silence_accumulator_server(server)
        with socket.create_connection(server.server_address):  # type: ignore[arg-type]
            server.handle_request()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("program", "code"), [("sys.stdin.read(); time.sleep(0.3)", 0), ("time.sleep(60)", -signal.SIGKILL)])
def test_the_jvm_has_ended_when_stop_jvm_returns(program: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, as it does when its standard input ends; one that does not is killed."""
    child = subprocess.Popen([sys.executable, "-c", f"import sys, time; {program}"], stdin=subprocess.PIPE)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=child, shutdown=lambda: None))
    privates.stop_jvm(2.0)
    assert child.returncode == code
    assert SparkContext._gateway is None
