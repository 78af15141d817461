"""A JVM that starts without Spark's scripts gets what they would have given it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tidegate.platform.spark.launch.jvm import JvmEnded, StartingJvm, command_line, is_plain, java_program
from tidegate.platform.spark.options import spark_home
from tidegate.platform.spark.privates import JVM_MODULE_OPTIONS

LISTENS = """\
import os, signal, struct, sys
ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
secret = " ".join((os.environ["SPARK_HOME"], os.environ["GREETING"], str(ignored))).encode()
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(path + ".new", "wb") as file:
    file.write(struct.pack(">ii", 4711, len(secret)) + secret)
os.rename(path + ".new", path)
sys.stdin.read()
"""


@pytest.mark.heavy
@pytest.mark.parametrize("given", ["", "-Djava.io.tmpdir=/elsewhere -Dx='of two words'"])
def test_the_command_line_is_what_spark_s_scripts_compose(given: str, tmp_path: Path) -> None:
    """Word by word: a class archive that was made by one way of starting fits the other."""
    home, arguments, properties = spark_home(), tmp_path / "java.options", tmp_path / "spark.properties"
    arguments.touch()
    properties.write_text(f"spark.driver.memory=700m\nspark.master=local[2]\nspark.driver.extraJavaOptions=@{arguments}\n")
    java = java_program(os.environ)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_SUBMIT_OPTS": given}
    launcher = [java, "-Xmx128m", "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
    words = ["--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell"]
    composed = subprocess.run([*launcher, *words], env=environment, capture_output=True, text=True, check=True).stdout
    theirs = composed.split("\0\n", 1)[-1].strip("\0\n").split("\0")
    ours = command_line(java, home, "700m", JVM_MODULE_OPTIONS, arguments, properties, {"SPARK_SUBMIT_OPTS": given})
    assert ours[1:] == theirs[1:]
    assert Path(ours[0]).resolve() == Path(theirs[0]).resolve()


@pytest.mark.parametrize(
    ("environment", "files", "conf", "plain"),
    [
        ({}, (), {}, True),
        ({"PATH": "/bin", "PYSPARK_PYTHON": "ours"}, (), {"spark.driver.memory": "1g"}, True),
        ({"SPARK_SUBMIT_OPTS": "-Dx=1"}, (), {}, True),
        ({"PYSPARK_PYTHON": "theirs"}, (), {}, False),
        ({"SPARK_HOME": "/opt/spark"}, (), {}, False),
        ({"PYSPARK_SUBMIT_ARGS": "--jars a.jar pyspark-shell"}, (), {}, False),
        ({"HADOOP_CONF_DIR": "/etc/hadoop"}, (), {}, False),
        ({}, ("conf",), {}, False),
        ({}, ("spark-distribution",), {}, False),
        ({}, (), {"spark.driver.extraClassPath": "/opt/jars/*"}, False),
    ],
)
def test_who_has_set_up_spark_gets_spark_s_scripts(
    environment: dict[str, str], files: tuple[str, ...], conf: dict[str, str], plain: bool, tmp_path: Path
) -> None:
    """Variables, files and paths of Spark's own may say anything."""
    for name in files:
        (tmp_path / name).mkdir()
    assert is_plain(tmp_path, environment, {"PYSPARK_PYTHON": "ours"}, conf) is plain


def test_java_is_found_as_the_scripts_find_it(tmp_path: Path) -> None:
    """In JAVA_HOME alone where that is set; a machine without any is told so."""
    with pytest.raises(JvmEnded, match="no program java in JAVA_HOME, /nowhere"):
        java_program({"JAVA_HOME": "/nowhere"})
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    assert Path(java_program({"JAVA_HOME": str(tmp_path)})) == java


def start(folder: Path, program: str) -> StartingJvm:
    """Start a program in place of a JVM."""
    with (folder / "log").open("wb") as log:
        command = ["python3", "-c", program]
        return StartingJvm(command, Path("/spark"), folder, {**os.environ, "GREETING": "hello"}, log.fileno())


def test_a_jvm_is_reached_by_what_it_writes_and_ends_with_this_process(tmp_path: Path) -> None:
    """Port and password; the file of them goes. A Ctrl-C at the terminal does not end it, the end of its standard input does."""
    jvm = start(tmp_path, LISTENS)
    assert jvm.wait() == (4711, "/spark hello True")
    assert not (tmp_path / "connection").exists()
    jvm.process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    assert jvm.process.poll() is None
    assert jvm.process.stdin is not None
    jvm.process.stdin.close()
    assert jvm.process.wait(10) == 0


def test_a_jvm_that_ends_or_is_ended_is_not_waited_for(tmp_path: Path) -> None:
    """What it has said is in the log."""
    failing = start(tmp_path, "import sys; sys.exit('no heap')")
    with pytest.raises(JvmEnded, match="exit code 1"):
        failing.wait()
    assert (tmp_path / "log").read_text() == "no heap\n"
    waiting = start(tmp_path, "import sys; sys.stdin.read()")
    waiting.kill()
    assert not psutil.pid_exists(waiting.process.pid)
    with pytest.raises(JvmEnded, match=f"exit code -{signal.SIGKILL.value}"):
        waiting.wait()
