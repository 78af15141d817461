"""
The stages of a pipeline, each as something that can be opened, looked at and closed again.

Law: a stage writes what its own command writes, byte for byte, so it may move from this process to one of its own and back. Nothing of one
stage is needed to open another but the topics it makes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from ingest import job as ingest_job
from ingest.running_input import RunningInput
from ordering.ticks import NEVER, format_duration
from query import job as query_job
from query.listed import RequestedQuery
from query.run import QueryStart
from query.running_query import RunningQuery
from sinks.copying.job import SinkJob
from sinks.copying.job import prepare as prepare_sink
from tidegate.platform.checkpoint.binding import checkpoint_folder
from tidegate.platform.checkpoint.claim import check_not_resetting, claim, release
from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.observe.reports import BucketReport, IngestReport
from tidegate.platform.observe.stopping import Stop
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.cluster import Cluster
from tidegate.platform.spark.driver import DrivenQuery, DrivenRun
from tidegate.platform.spark.launch.task_slots import TASK_SLOTS
from tidegate.records.result_columns import Column

_READY_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the stages of one process share."""

    settings: Settings
    # Waits for the session. Raises TidegateError: Spark does not start.
    get_session: Callable[[], SparkSession]
    cluster: Cluster
    metrics: Metrics
    stop: Stop
    # Takes the summary of each batch, with the stage's label.
    on_batch: Callable[[str, dict[str, Any]], None]
    # Takes the same while a batch is open, about once a second if it has changed.
    on_progress: Callable[[str, dict[str, Any]], None]
    # Whether inputs are read to their present end only.
    until_end: bool = False

    def await_cluster(self) -> None:
        """Wait until executors have seen the checkpoint folder, or the process is asked to stop. Raises as :meth:`Cluster.is_ready`."""
        while not self.stop.is_asked and not self.cluster.is_ready():
            time.sleep(_READY_PAUSE_S)


@dataclass(frozen=True, slots=True)
class Figures:
    """How far a stage is."""

    # Records a second; None: too few were read to say.
    rate: float | None = None
    # How many records of what it reads it has not read yet.
    lag: int = 0
    # The instant below which what it writes is complete, microseconds; NEVER and INFINITY as for CTIs.
    complete_us: int = NEVER
    # What it has written, in words.
    written: str = ""


class Stage(ABC):
    """One stage of a pipeline; *name* is that of its table in the configuration."""

    kind: ClassVar[str]

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name, self._around = name, around
        self._open = ExitStack()

    @property
    def label(self) -> str:
        """The name by which the command line picks the stage."""
        return f"{self.kind}:{self.name}"

    @property
    def job(self) -> str:
        """The name by which health checks and metrics call the stage, the same as in a process of its own."""
        return f"{self.kind} {self.name}"

    @property
    def is_watched(self) -> bool:
        """Whether a client watches the open stage."""
        return False

    @abstractmethod
    def open(self) -> None:
        """Prepare the stage and start it. Raises TidegateError, as the stage's own command does; RunEnded: its run is over."""

    @abstractmethod
    def poll(self) -> bool:
        """Publish the progress, about once a second; return whether the stage has ended by itself. Raises TidegateError: it has failed."""

    @abstractmethod
    def state(self) -> tuple[str, str]:
        """Return the state of the open stage, and a text that says what it waits for."""

    @abstractmethod
    def figures(self) -> Figures:
        """Return how far the open stage is."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return the progress of the open stage for programs."""

    def close(self) -> None:
        """Stop the stage; the next opening goes on where it has stopped."""
        self._open.close()


class PipelineIngest(Stage):
    """An input: its raw topic is put in order."""

    kind = "ingest"

    @property
    def is_watched(self) -> bool:
        return self._running.is_watched

    def open(self) -> None:
        around, settings = self._around, self._around.settings
        folder = checkpoint_folder(settings, f"ingest-{settings.input(self.name).ordered_topic}")
        self._open.callback(release, folder)
        claim(folder)
        check_not_resetting(folder)
        plan, recovery = ingest_job.prepare(settings, self.name, around.until_end)
        claim(folder)
        running = RunningInput(plan, recovery, ingest_job.make_end_lookup(plan), around.metrics, set(), around.cluster.waiting)
        self._open.enter_context(running)

        def on_reports(reports: list[IngestReport]) -> None:
            around.on_batch(self.label, running.accept_reports(reports))

        driven = DrivenQuery(
            self.name,
            lambda: ingest_job.start(around.get_session(), settings, plan, on_reports),
            folder,
            running.fail,
            running.check,
            running.end_batch,
        )
        self._running = running
        self._open.callback(TASK_SLOTS.release, self.job)
        around.await_cluster()
        self._run = DrivenRun(driven, around.stop)
        self._open.callback(self._run.stop)

    def poll(self) -> bool:
        has_ended = self._run.has_ended(wait=False)
        summary = self._running.accept_open_reports()
        if summary is not None:
            self._around.on_progress(self.label, summary)
        self._around.metrics.set_ends(self.name, self._running.catching_up.ends)
        return has_ended

    def state(self) -> tuple[str, str]:
        return self._running.state

    def figures(self) -> Figures:
        progress, catching_up = self._running.progress, self._running.catching_up
        return Figures(catching_up.rate, catching_up.behind, progress.frontier_us, progress.line() if progress.has_begun else "")

    def summary(self) -> dict[str, Any]:
        return self._running.summary()


class PipelineQuery(Stage):
    """A listed query. It reads its script when it is made: QueryError, as by its own command."""

    kind = "query"

    def __init__(self, name: str, asked: RequestedQuery, around: Surroundings) -> None:
        super().__init__(name, around)
        self._start = QueryStart(around.settings, asked)
        # The names of inputs and outputs that the script reads, and of the outputs that it writes.
        self.reads, self.writes = self._start.inputs, self._start.outputs

    @property
    def is_watched(self) -> bool:
        return self._running.is_watched

    def columns_of(self, output: str) -> Sequence[Column]:
        """Return the columns that the results of an output have."""
        return self._around.settings.output(output).columns_of(self._start.selected[output])

    def open(self) -> None:
        around = self._around
        self._open.callback(release, self._start.folder)
        plan = self._start.prepare()
        running = RunningQuery(around.settings, plan, self._start.selected, around.metrics, around.cluster.waiting)
        self._open.enter_context(running)

        def on_reports(reports: list[BucketReport]) -> None:
            around.on_batch(self.label, running.accept_reports(reports))

        driven = DrivenQuery(
            running.name,
            lambda: query_job.start(around.get_session(), around.settings, plan, on_reports),
            self._start.folder,
            end_batch=running.end_batch,
        )
        self._running = running
        self._open.callback(TASK_SLOTS.release, self.job)
        around.await_cluster()
        self._run: DrivenRun | None = DrivenRun(driven, around.stop)
        self._open.callback(self._stop_query)

    def _stop_query(self) -> None:
        if self._run is not None:
            self._run.stop()
            self._run = None

    def poll(self) -> bool:
        running = self._running
        summary = running.accept_open_reports()
        if summary is not None:
            self._around.on_progress(self.label, summary)
        running.poll()
        running.sinks.poll(self._around.metrics)
        if self._run is not None and self._run.has_ended(wait=False):
            self._run = None
        if running.is_finished and self._run is not None:
            self._stop_query()
            running.sinks.end_at_present()
        return self._run is None and running.sinks.are_done

    def state(self) -> tuple[str, str]:
        return self._running.state

    def figures(self) -> Figures:
        progress, catching_up = self._running.progress, self._running.catching_up
        return Figures(catching_up.rate, catching_up.behind, progress.frontier_us, progress.line() if progress.has_begun else "")

    def summary(self) -> dict[str, Any]:
        return self._running.summary()


class SinkStage(Stage):
    """An output whose results go into stores; *columns* of its results."""

    kind = "sink"

    def __init__(self, name: str, columns: Sequence[Column], around: Surroundings) -> None:
        super().__init__(name, around)
        self._columns = columns

    def open(self) -> None:
        self._job = self._open.enter_context(SinkJob(prepare_sink(self._around.settings, self.name, self._columns)))
        self._written = ""

    def poll(self) -> bool:
        self._written = self._job.poll()
        self._around.metrics.set_sink(self.name, self._job.stores())
        return self._job.is_done

    def state(self) -> tuple[str, str]:
        return self._job.state

    def figures(self) -> Figures:
        catching_up = self._job.catching_up
        return Figures(catching_up.rate, catching_up.behind, written=self._written)

    def summary(self) -> dict[str, Any]:
        return self._job.summary()


def describe_pause(until_s: float) -> str:
    """Return how long it is until a moment of the clock that never goes back."""
    return format_duration(max(round(until_s - time.monotonic()), 0) * 1_000_000)
