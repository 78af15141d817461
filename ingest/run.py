"""Runs the inputs of one process in one Spark session, and shows them on the terminal, to Prometheus and to programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ingest import job
from ingest.config import IngestPlan
from ingest.running_input import RunningInput
from ordering.errors import TidegateError
from tidegate.basics.secret_masking import scrub_error
from tidegate.platform.checkpoint.claim import release
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.observe.console import end_line, live_line, print_json
from tidegate.platform.observe.recovery_report import Recovery
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.observe.stopping import stop_on_signal
from tidegate.platform.observe.terminal import standard_error
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.cluster import Cluster
from tidegate.platform.spark.driver import DrivenQuery, StreamingQuery, drive
from tidegate.platform.spark.early_session import EarlySession, WorkerLog


class IngestRun:
    """The run of *prepared* inputs; with *as_json* programs read what it prints."""

    def __init__(self, prepared: Sequence[tuple[IngestPlan, Recovery]], settings: Settings, spark: EarlySession, *, as_json: bool) -> None:
        self._settings, self._spark, self._as_json = settings, spark, as_json
        self._cluster = Cluster(settings, Path(prepared[0][0].checkpoint), spark.get)
        self._metrics = Metrics(settings.metrics.port, settings.metrics.host)
        shared = self._metrics, set[str](), self._cluster.waiting
        self._inputs = [RunningInput(plan, recovery, job.make_end_lookup(plan), *shared) for plan, recovery in prepared]

    def run(self, title: str, worker_log: WorkerLog, *, isolates: bool) -> None:
        """Return when all inputs have ended, or a signal asks for it. TidegateError: one failed; with *isolates* the others went on."""
        records = sum(running.progress.total or 0 for running in self._inputs)
        with stop_on_signal() as stop, live_line(standard_error(), title, records) as show, ExitStack() as open_:
            for running in self._inputs:
                open_.enter_context(running)

            def on_tick() -> None:
                worker_log.follow()
                for running in self._inputs:
                    summary = running.accept_open_reports()
                    if summary is not None and self._as_json:
                        print_json({"event": "progress", **summary})
                self._set_metrics()
                show(self._line(), sum(running.progress.totals()["events_in"] for running in self._inputs))

            try:
                queries = [self._query(running) for running in self._inputs]
                drive(queries, stop, on_tick, isolates=isolates, is_ready=self._cluster.is_ready, is_watched=self._is_watched)
            except TidegateError:
                self._print_ends(running for running in self._inputs if isolates and running.failure is None)
                raise
        self._print_ends(self._inputs)

    def _is_watched(self) -> bool:
        return any(running.is_watched for running in self._inputs)

    def _query(self, running: RunningInput) -> DrivenQuery:
        folder = Path(running.plan.checkpoint)

        def on_reports(reports: list[IngestReport]) -> None:
            summary = running.accept_reports(reports)
            if self._as_json:
                print_json({"event": "batch", **summary})

        def on_failure(failure: TidegateError) -> None:
            running.fail(failure)
            # Others go on in this process; this one may be mended and started alone meanwhile.
            release(folder)
            if self._as_json:
                print_json({"event": "failed", "input": running.name, "failure": scrub_error(failure.as_dict())})

        def start() -> StreamingQuery:
            return job.start(self._spark.get(), self._settings, running.plan, on_reports)

        return DrivenQuery(running.name, start, folder, on_failure, running.check, running.end_batch)

    def _set_metrics(self) -> None:
        has_begun = self._cluster.is_ready()
        self._metrics.set_jobs({f"ingest {running.name}": running.state if has_begun else ("starting", "") for running in self._inputs})
        self._metrics.set_executors(self._cluster.executors_wanted, self._cluster.executors_held)
        for running in self._inputs:
            self._metrics.set_ends(running.name, running.catching_up.ends)

    def _line(self) -> str:
        if len(self._inputs) == 1:
            return self._inputs[0].line()
        return "  |  ".join(f"{running.name}: {running.line()}" for running in self._inputs)

    def _print_ends(self, inputs: Iterable[RunningInput]) -> None:
        for running in inputs:
            summary = running.summary()
            if self._as_json:
                print_json({"event": "end", **summary})
                continue
            rate = f", {summary['events_per_second']:,} events/s" if summary["events_per_second"] else ""
            watermark = f"; watermark {'ended' if summary['finished'] else summary['watermark']}{rate}" if summary["watermark"] else ""
            breaks = f"; {running.policy_breaks}: see docs/operate/backfill.md" if running.policy_breaks else ""
            end_line(standard_error(), f"ingest {running.name}", f"{running.progress.end_line()}{watermark}{breaks}")


def print_had_ended(name: str, ended: RunEnded, *, as_json: bool) -> None:
    """Print the one line of an input whose run was over before this start."""
    if as_json:
        print_json({"event": "end", "input": name, "finished": True, "had_ended": True, "records_since": ended.records_since})
    else:
        end_line(standard_error(), f"ingest {name}", ended.line("a new ordered topic takes them"))
