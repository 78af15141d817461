"""Runs one query in a Spark session of its own, and shows it on the terminal, to Prometheus and to programs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ordering.ticks import INFINITY
from query import job
from query.config import QueryPlan
from query.listed import RequestedQuery
from query.running_query import RunningQuery
from query.script_plans import read_plans
from query.start.survey import query_folder
from sinks.copying.beside import check_beside, copy_rest
from tidegate.platform.checkpoint.claim import check_not_resetting, claim
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.checkpoint.output_start import parse_start
from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.observe.console import end_line, live_line, print_json
from tidegate.platform.observe.reports import BucketReport
from tidegate.platform.observe.stopping import stop_on_signal
from tidegate.platform.observe.terminal import standard_error
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.cluster import Cluster
from tidegate.platform.spark.driver import DrivenQuery, drive
from tidegate.platform.spark.early_session import EarlySession, WorkerLog
from tidegate.records.result_columns import Column


class QueryStart:
    """
    A query that is to be started, as *asked* for. Raises the errors of :func:`query.script_plans.read_plans`, and StoreError: a store does
    not fit the columns of the script.
    """

    def __init__(self, settings: Settings, asked: RequestedQuery) -> None:
        self._settings, self._asked = settings, asked
        self._plans = read_plans(settings, asked.script, asked.into)
        self.output = self._plans[0].output
        # The columns of each output.
        self.selected: Mapping[str, Sequence[Column]] = {each.output: each.columns for each in self._plans}
        check_beside(settings, self.selected)
        self.folder = query_folder(settings, self._plans)

    @property
    def inputs(self) -> set[str]:
        """The names of the inputs and outputs that the script reads."""
        return {name for plan in self._plans for name in plan.inputs}

    @property
    def outputs(self) -> set[str]:
        """The names of the outputs that the script writes."""
        return set(self.selected)

    def prepare(self, *, until_us: int = INFINITY, until_end: bool = False) -> QueryPlan:
        """Claim the checkpoint and return the plan of the job. Raises the errors of :func:`query.job.prepare`."""
        claim(self.folder)
        check_not_resetting(self.folder)
        start = parse_start(self._asked.start, time.time_ns() // 1_000)
        plan = job.prepare(self._settings, self._plans, start, until_us=until_us, until_end=until_end)
        # The folder may have been missing until now.
        claim(self.folder)
        job.record_query(self._settings, plan, self._asked.script, self._asked.into)
        return plan

    def copy_rest(self) -> int:
        """Copy the results that the stores of an ended query lack: it may have been killed after its last result. Return their number."""
        return copy_rest(self._settings, self.selected)


class QueryRun:
    """The run of one query in a process of its own; with *as_json* programs read what it prints."""

    def __init__(self, settings: Settings, start: QueryStart, plan: QueryPlan, spark: EarlySession, *, as_json: bool) -> None:
        self._settings, self._spark, self._as_json, self._folder = settings, spark, as_json, start.folder
        self._metrics = Metrics(settings.metrics.port, settings.metrics.host)
        self._cluster = Cluster(settings, start.folder, spark.get)
        self._running = RunningQuery(settings, plan, start.selected, self._metrics, self._cluster.waiting)
        self._worker_log = WorkerLog(start.folder)

    def run(self) -> None:
        """Return when the query has ended and its stores are filled, or a signal asks for it. TidegateError: it failed."""
        running, settings, name = self._running, self._settings, self._running.name
        with stop_on_signal() as stop, live_line(standard_error(), f"query {name}") as show, running:

            def on_reports(reports: list[BucketReport]) -> None:
                summary = running.accept_reports(reports)
                if self._as_json:
                    print_json({"event": "batch", **summary})
                if running.is_finished:
                    stop.ask()

            def on_tick() -> None:
                self._worker_log.follow()
                summary = running.accept_open_reports()
                if summary is not None and self._as_json:
                    print_json({"event": "progress", **summary})
                show(running.poll())
                own = running.state if self._cluster.is_ready() else ("starting", "")
                self._metrics.set_jobs({f"query {name}": own, **running.sinks.poll(self._metrics)})
                self._metrics.set_executors(self._cluster.executors_wanted, self._cluster.executors_held)

            self._spark.get()
            driven = DrivenQuery(
                name, lambda: job.start(self._spark.get(), settings, running.plan, on_reports), self._folder, end_batch=running.end_batch
            )
            drive([driven], stop, on_tick, is_ready=self._cluster.is_ready, is_watched=lambda: running.is_watched)
            if running.is_finished:
                running.finish_sinks(on_tick, lambda: stop.is_signalled)
        print_end(name, running.progress.line(), running.summary(), as_json=self._as_json)


def print_had_ended(start: QueryStart, ended: RunEnded, *, as_json: bool) -> None:
    """Copy what the stores of an ended query lack, and print its one line."""
    copied = start.copy_rest()
    line = ended.line("results of them go to a new output") + (f"; {copied:,} results copied that its stores lacked" if copied else "")
    fields = {"finished": True, "had_ended": True, "copied": copied, "records_since": ended.records_since}
    print_end(start.output, line, fields, as_json=as_json)


def print_end(name: str, line: str, fields: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the end of a query: *fields* for programs, else the *line*."""
    if as_json:
        print_json({"event": "end", **fields})
    else:
        end_line(standard_error(), f"query {name}", line)
