"""
The JVM of a job on this machine, started as Spark's own scripts would start it, but without them.

``spark-submit`` is two shell scripts and a JVM of its own, which do nothing but compose the command line of the JVM that is wanted: half a
CPU second of each start. PySpark can only start it through them, and only once PySpark itself is imported.

Law: the JVM gets the command line, variables and files that ``spark-submit`` would have given it. Where the user has set up Spark by
variables or files of Spark's own, which may say anything, Spark's scripts start it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

# Variables that the scripts obey beside those that begin with SPARK_ or PYSPARK_.
_HADOOP_FOLDERS = "HADOOP_CONF_DIR", "YARN_CONF_DIR"
# Settings that the scripts read to compose class and library path.
_PATH_SETTINGS = "spark.driver.extraClassPath", "spark.driver.defaultExtraClassPath", "spark.driver.extraLibraryPath"
# What the scripts obey and this does too.
SUBMIT_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
# The JVM writes its port and password to the file of this variable.
_CONNECTION_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_LOOK_S = 0.01
_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"


class JvmEnded(RuntimeError):
    """A JVM has ended before it could be reached."""


def is_plain(spark_home: Path, environment: Mapping[str, str], ours: Mapping[str, str], conf: Mapping[str, str]) -> bool:
    """
    Return whether nobody has set up Spark in *spark_home* by files or by variables of *environment*, except with the values of *ours*, nor
    paths by *conf*.
    """
    set_up = {name for name in environment if name.startswith(("SPARK_", "PYSPARK_")) or name in _HADOOP_FOLDERS}
    by_others = {name for name in set_up if environment[name] != ours.get(name) and name != SUBMIT_OPTIONS_VARIABLE}
    files = any((spark_home / name).exists() for name in ("conf", "spark-distribution"))
    return os.name == "posix" and not (by_others or files or any(conf.get(name) for name in _PATH_SETTINGS))


def java_program(environment: Mapping[str, str]) -> str:
    """Return the program java. Raises JvmEnded: there is none."""
    home = environment.get("JAVA_HOME")
    program = shutil.which(Path(home, "bin", "java") if home else "java")
    if program is None:
        where = f"in JAVA_HOME, {home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise JvmEnded(f"there is no program java {where}")
    return program


def command_line(
    java: str, spark_home: Path, memory: str, module_options: str, arguments: Path, properties: Path, environment: Mapping[str, str]
) -> list[str]:
    """
    Return the command line that ``spark-submit`` composes: a heap of *memory*, Java's options in the file *arguments*, Spark's settings in
    *properties*.
    """
    # As the scripts write it: a class archive is only for this class path.
    jars = spark_home / "jars"
    first = sorted(jars.glob("slf4j-api-*.jar"))
    class_path = ":".join(map(str, (spark_home / "conf", *first, jars / "*")))
    given = shlex.split(environment.get(SUBMIT_OPTIONS_VARIABLE, ""))
    options = [*given, f"-Xmx{memory}", f"@{arguments}", *module_options.split()]
    return [java, "-cp", class_path, *options, _MAIN_CLASS, "--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell"]


class StartingJvm:
    """A JVM that is starting by *command*, which writes to the descriptor *log*; its files are in the private *folder*."""

    def __init__(self, command: list[str], spark_home: Path, folder: Path, environment: Mapping[str, str], log: int) -> None:
        self._connection = folder / "connection"
        own = {
            "PYTHONHASHSEED": "0",
            "SPARK_CONF_DIR": str(spark_home / "conf"),
            "SPARK_CONNECT_MODE": "0",
            "SPARK_ENV_LOADED": "1",
            "SPARK_HOME": str(spark_home),
            "SPARK_SCALA_VERSION": "2.13",
            _CONNECTION_VARIABLE: str(self._connection),
        }
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end is this process's end
            stdout=log,
            stderr=log,
            env={**environment, **own},
            # A Ctrl-C of the terminal is for the job alone.
            preexec_fn=_ignore_interrupts,
        )

    def wait(self) -> tuple[int, str]:
        """Wait until the JVM listens; return its port and password. Raises JvmEnded."""
        while not self._connection.exists():
            if (code := self.process.poll()) is not None:
                raise JvmEnded(f"the JVM has ended with exit code {code}")
            time.sleep(_LOOK_S)
        content = self._connection.read_bytes()
        self._connection.unlink()
        port, length = struct.unpack_from(">ii", content)
        return port, content[8 : 8 + length].decode()

    def kill(self) -> None:
        """End the JVM at once."""
        self.process.kill()
        self.process.wait()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
