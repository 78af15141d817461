"""
The options of Spark and its JVM on which results, speed and safety depend, with reasons.

``[spark.conf]`` may override them, except for a few that a job sets afterwards.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from pathlib import Path

from tidegate.basics.secret_masking import SPARK_REDACTION
from tidegate.platform.settings.tables.spark import FIXED_PROPERTIES
from tidegate.platform.spark.privates import CHECKED_VERSION, FILE_MANAGER, NO_GENERATED_CODE, STATE_STORE

# Not the JVM's own temporary folder: Spark 4.3 changes socket paths to lower case, and limits them to 108 characters.
SOCKETS = Path("/tmp")

_LOG4J = Path(__file__).with_name("log4j2.properties").as_uri()
# The JVM only schedules: the quick compiler alone halves the cost of a start, and locked jars need no verification.
# It keeps 60 MB alive. By default its heap begins with a 64th of the machine's memory, which a collection never goes below; so begin small,
# and give back at once what a collection has freed, all but two fifths.
_COLLECTOR = "-XX:+UseSerialGC -Xms128m -XX:NewSize=48m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -XX:-ShrinkHeapInSteps"
# The C library keeps what the state store has freed. Versions of Java before 17.0.9 do not know the option.
_NATIVE_MEMORY = "-XX:+IgnoreUnrecognizedVMOptions -XX:TrimNativeHeapInterval=30000"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
_JVM = f"{_COLLECTOR} {_NATIVE_MEMORY} {_QUICK}"
JAVA_OPTIONS = f"{_JVM} -Dlog4j2.configurationFile={_LOG4J}"
FIXED = {
    **{name: value for name, (value, _) in FIXED_PROPERTIES.items()},
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.compactOnCommit": "false",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "64",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    # A batch has a handful of rows: compiling code for them costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": NO_GENERATED_CODE,
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    # On a TCP port the JVM takes any connection for its own worker: it would read the first four bytes of an HTTP request as a length of a
    # gigabyte, which ends the job. The state server does not authenticate either.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.unix.domain.socket.dir": str(SOCKETS),
    # Spark passes this option to some kinds of worker only, and those would then need a daemon of their own.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.python.daemon.module": "tidegate.platform.spark.worker_daemon",
    "spark.python.daemon.killWorkerOnFlushFailure": "true",
    "spark.python.worker.idleTimeoutSeconds": "0",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.redaction.regex": SPARK_REDACTION,
}
LOCAL_CHECKPOINT = {
    # The default manager runs a program, readlink, for each file; Hadoop's local files have their own checksums.
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Otherwise every user of the machine could send objects to the driver's ports. Spark generates the secret.
    "spark.authenticate": "true",
}


def local_conf(folder: Path) -> dict[str, str]:
    """Return the extra options of a job on one machine: loopback only, and sockets in the private *folder*."""
    return {**_LOCAL, "spark.python.unix.domain.socket.dir": str(folder)}


def java_options(folder: Path, added: str = "") -> str:
    """Return the JVM's options, before those *added* by a user. Temporary files go to *folder* unless ``SPARK_SUBMIT_OPTS`` says where."""
    # A JVM does not start if options name two garbage collectors.
    options = JAVA_OPTIONS.replace(_COLLECTOR, "") if re.search(r"-XX:\+Use\w+GC", added) else JAVA_OPTIONS
    temporary = "" if "java.io.tmpdir" in os.environ.get("SPARK_SUBMIT_OPTS", "") else f"-Djava.io.tmpdir={folder}"
    return " ".join(filter(None, (options, temporary, archive_option())))


def spark_home() -> Path:
    """Return the folder of the installed Spark, which is that of PySpark. It is not imported, which takes a tenth of a second."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "pyspark is not installed"
    assert spec.origin is not None, spec
    return Path(spec.origin).parent


def archive_path() -> Path:
    """
    Return the path of the class archive for this installation of Spark and Java, whether it exists or not.

    Archives of one installation have the same name up to the last ``-``. The rest depends on when its jars were written, because the JVM
    ignores an archive of jars that were written at another time.
    """
    folder = spark_home()
    name = f"{folder}|{CHECKED_VERSION}|{os.environ.get('JAVA_HOME', '') or 'java'}"
    written_ns = sorted(jar.stat().st_mtime_ns for jar in (folder / "jars").glob("*.jar"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"
    return cache / f"spark-{_digest(name)}-{_digest(repr(written_ns))}.jsa"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def archive_option() -> str:
    """Return the JVM option for the class archive; empty if there is none."""
    archive = archive_path()
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto" if archive.exists() else ""
