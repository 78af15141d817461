"""
Checks that a Spark cluster gives a job executors, and that these see the checkpoint folder.

Law: a job that gets no executor says so instead of waiting silently. A checkpoint folder that executors do not share is refused before the
first batch. With ``local[N]`` executors are threads of the job, so nothing is checked.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ordering.errors import RefusedError, TidegateError
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.privates import count_executors

# How long a job may be without executors before it says so, seconds: a few seconds are usual after a start or a lost worker.
SAID_AFTER_S = 5.0
# How long an executor looks for the driver's file, seconds: a network folder may show it late.
_SEEN_WITHIN_S = 5.0
_LOOK_EVERY_S = 1.0


class Cluster:
    """
    The executors of one session; *get_session* waits for it. :meth:`is_ready` and :meth:`waiting` are called about once a second.
    *folder* is the checkpoint folder of a job.
    """

    def __init__(
        self, settings: Settings, folder: Path, get_session: Callable[[], SparkSession], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._master, self._folder, self._get_session, self._clock_s = settings.spark.master, folder, get_session, clock_s
        self.is_local = self._master.startswith("local")
        self.executors_wanted, self.cores_wanted = (0, 0) if self.is_local else _wanted_executors(settings)
        self.executors_held = 0
        self._looked_s, self._held_s = -1e9, clock_s()
        self._probe: threading.Thread | None = None
        self._failure: TidegateError | None = None

    def is_ready(self) -> bool:
        """
        Return whether executors have seen the checkpoint folder, so that queries may start. Raises RefusedError: they do not see it
        (TG-CHECKPOINT-UNSEEN). TidegateError: Spark gave up, for example because its master does not answer.
        """
        if self.is_local:
            return True
        if self._probe is None:
            self._probe = threading.Thread(target=self._run_probe, args=(self._get_session(),), name="probe", daemon=True)
            self._probe.start()
        if self._failure is not None:
            raise self._failure
        return not self._probe.is_alive()

    def waiting(self) -> str:
        """Return the text that says that the job waits for an executor; empty if it has one, needs none, or has waited only shortly."""
        if self.is_local or self._probe is None:
            return ""
        if self._clock_s() - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = self._clock_s()
            self.note_executors(count_executors(self._get_session()))
        return self.waiting_text()

    def note_executors(self, held: int) -> None:
        """Note how many executors the session has now."""
        self.executors_held = held
        if held:
            self._held_s = self._clock_s()

    def waiting_text(self) -> str:
        if self._clock_s() - self._held_s < SAID_AFTER_S:
            return ""
        return f"waiting for a Spark worker: 0 cores free, {self.cores_wanted} wanted"

    def _run_probe(self, spark: SparkSession) -> None:
        try:
            probe(spark, self._folder, self.cores_wanted)
        except TidegateError as error:
            self._failure = error
        except (PySparkException, Py4JError, OSError) as error:
            self._failure = TidegateError(
                f"Spark ran no task on {self._master}: {str(error).partition(chr(10))[0]}",
                code="TG-SPARK-START",
                where="spark.master",
                fix="start the cluster's master and workers, and install the same Python environment on each; see spark.log",
            )


def _wanted_executors(settings: Settings) -> tuple[int, int]:
    """Return the executors and cores that a job asks its cluster for."""
    conf = settings.spark.properties()
    cores_each = int(conf.get("spark.executor.cores", 0))
    if settings.spark.master.startswith("spark://"):
        # Without spark.executor.cores one executor takes all cores of a worker.
        cores = int(conf.get("spark.cores.max", settings.spark.shuffle_partitions))
        return (max(cores // cores_each, 1) if cores_each else 1), cores
    executors = int(conf.get("spark.executor.instances", 2))
    return executors, executors * (cores_each or 1)


def probe(spark: SparkSession, folder: Path, tasks: int) -> None:
    """Run *tasks* tasks that read a file from *folder* and write one beside it. Raises RefusedError (TG-CHECKPOINT-UNSEEN)."""
    token = secrets.token_hex(8)
    mark = folder / f"probe-{token}"
    mark.write_text(token)
    try:
        look = partial(look_at, str(mark), token)
        failures = [text for text in spark.sparkContext.parallelize(range(tasks), tasks).map(look).collect() if text]
    finally:
        for file in folder.glob(f"{mark.name}*"):
            file.unlink(missing_ok=True)
    if failures:
        what = f"Spark's executors do not share the checkpoint folder with the driver: {failures[0]}"
        fix = "name a folder that all machines share and their user may write, at the same path on each"
        raise RefusedError(what, code="TG-CHECKPOINT-UNSEEN", where=str(folder), fix=fix, example='checkpoint_dir = "/shared/checkpoints"')


def look_at(mark: str, token: str, task: int, within_s: float = _SEEN_WITHIN_S) -> str:
    """Return why this process cannot use the folder of the file *mark*, which holds *token*; empty if it can."""
    *_, last = _looks(Path(mark), token, task, within_s)
    return f"on {socket.gethostname()}: {last}" if last else ""


def _looks(mark: Path, token: str, task: int, within_s: float) -> Iterator[str]:
    until_s = time.monotonic() + within_s
    while True:
        try:
            token_read = mark.read_text()
            answer = mark.with_name(f"{mark.name}.{task}")
            answer.write_text(token)
        except OSError as error:
            yield str(error)
        else:
            with suppress(OSError):
                answer.unlink()
            yield "" if token_read == token else "another file"
            return
        if time.monotonic() >= until_s:
            return
        time.sleep(0.2)
