"""
What Spark needs of a job, started before PySpark is imported: the JVM and the host of the Python processes.

Both take seconds, in which the job imports its modules and looks at its topics.

Law: importing this costs next to nothing, and so does making it. Whether the JVM starts is only known once a session is asked for
(:mod:`.session`). A job that is refused meanwhile ends the JVM and waits for nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.basics.safe_path import SAFE_PATH, protect_processes
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.launch.allocator import allocator_environment
from tidegate.platform.spark.launch.jvm import JvmEnded, StartingJvm, command_line, is_plain, java_program
from tidegate.platform.spark.launch.launch_files import launch_files
from tidegate.platform.spark.launch.lean_python import lean_python
from tidegate.platform.spark.launch.private_folder import make_private_folder
from tidegate.platform.spark.launch.python_host import end_hosts, start_host
from tidegate.platform.spark.launch.task_slots import master_of
from tidegate.platform.spark.options import FIXED, LOCAL_CHECKPOINT, SOCKETS, java_options, local_conf, spark_home
from tidegate.platform.spark.privates import JVM_MODULE_OPTIONS, LOOKUP_PROGRAM_VARIABLE, NO_LOOKUP_PROGRAM

# The file of a job's folder to which the JVM and the workers write; :class:`.early_session.WorkerLog` follows it.
WORKER_LOG = "spark.log"
# The environment variable with the folders in which Spark spills, separated by commas; it takes precedence over spark.local.dir.
LOCAL_DIRS_VARIABLE = "SPARK_LOCAL_DIRS"

# Spark passes what follows this in the name of a setting to workers, as an environment variable.
_EXECUTOR_ENV = "spark.executorEnv."
# What Spark sets for the processes that it starts itself.
_WORKER_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


class StartingSpark:
    """
    Spark, starting for one job, whose Python processes import *modules*; ``[spark.conf]`` may override settings that the design does not
    fix.

    The JVM and the workers write to ``spark.log`` in *folder*. Raises TidegateError: no folder can be made for Spark's sockets.
    """

    def __init__(self, settings: Settings, job: str, folder: Path, modules: Sequence[str] = ()) -> None:
        self.master, self.log = master_of(settings), folder / WORKER_LOG
        private_folder = make_private_folder(SOCKETS)
        self.conf = _spark_conf(settings, job, private_folder, _set_environment(settings, private_folder))
        self._files = ExitStack()
        is_local = self.master.startswith("local")
        with self.log.open("ab") as log:
            if sys.executable != os.environ["PYSPARK_PYTHON"] == lean_python():
                of_workers = {key.removeprefix(_EXECUTOR_ENV): value for key, value in self.conf.items() if key.startswith(_EXECUTOR_ENV)}
                os.environ.update(start_host(private_folder, modules, {**os.environ, **of_workers, **_WORKER_ENVIRONMENT}, log.fileno()))
            self._properties = self._files.enter_context(launch_files(private_folder, {"spark.master": self.master, **self.conf}))
            self._java, self._failure = None, None
            if is_local and is_plain(spark_home(), os.environ, _our_environment(), self.conf):
                try:
                    self._java = self._start_jvm(private_folder, log.fileno())
                except (OSError, JvmEnded) as error:
                    self._failure = error

    def _start_jvm(self, folder: Path, log: int) -> StartingJvm:
        home, memory = spark_home(), self.conf["spark.driver.memory"]
        arguments = self._properties.with_name("java.options")
        command = command_line(java_program(os.environ), home, memory, JVM_MODULE_OPTIONS, arguments, self._properties, os.environ)
        return StartingJvm(command, home, folder, os.environ, log)

    def reach_jvm(self, start: Callable[[Path], None], adopt: Callable[[StartingJvm], None]) -> None:
        """
        Have the JVM adopted, or started with a file of settings if it is up to Spark's scripts to start it. Raises JvmEnded, and what both
        functions raise.
        """
        with self._files:
            if self._failure is not None:
                raise self._failure
            if self._java is None:
                start(self._properties)
            else:
                adopt(self._java)

    def give_up(self) -> None:
        """End all that was started here."""
        self._files.close()
        if self._java is not None:
            self._java.kill()
        end_hosts()


def _our_environment() -> dict[str, str]:
    """Return what this module sets of Spark's own variables."""
    return {
        "PYSPARK_PYTHON": lean_python(),
        LOOKUP_PROGRAM_VARIABLE: NO_LOOKUP_PROGRAM,
        LOCAL_DIRS_VARIABLE: os.environ[LOCAL_DIRS_VARIABLE],
    }


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
