"""One running query, in the driver: collects its reports, measures how far behind it is, publishes both, and fills stores beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any, Self

from query import job
from query.config import Partition, QueryPlan
from query.progress import QueryProgress
from query.reference.arrivals import VersionArrivals
from query.reference.forgetting import LookupFloor
from query.stage.open_positions import keep_positions, least_offsets
from query.start.read_positions import finished_positions
from query.start.survey import FINISHED_FILE
from sinks.copying.beside import SinksBeside
from tidegate.platform.checkpoint.batch_cost import BatchCostWriter
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.checkpoint.open_batches import OpenReports, stop_and_wait
from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.observe import logs
from tidegate.platform.observe.progress_store import ProgressPublisher
from tidegate.platform.observe.recovery_report import CatchUpReport
from tidegate.platform.observe.recovery_watch import RecoveryWatch
from tidegate.platform.observe.reports import BucketReport
from tidegate.platform.observe.traces import trace_batch
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.shown_table import show_table
from tidegate.records.result_columns import Column


class RunningQuery:
    """
    One query of a process, as a context manager.

    Args:
        selected: The columns that the script selects, by output.
        wait_for_spark: Returns a text while the process waits for Spark's workers, else an empty one.
    """

    def __init__(
        self,
        settings: Settings,
        plan: QueryPlan,
        selected: Mapping[str, Sequence[Column]],
        metrics: Metrics,
        wait_for_spark: Callable[[], str],
    ) -> None:
        self.plan, self.name, self.folder = plan, plan.name, Path(plan.checkpoint)
        self.progress = QueryProgress(plan.buckets)
        self._settings, self._metrics = settings, metrics
        self._batch_costs = BatchCostWriter(self.folder, plan.buckets)
        self._can_open = bool(settings.query.batch_span_us) and not plan.until_end
        self._open_reports = OpenReports(self.folder, BucketReport.of_json)
        # Reports of an open batch and those at its end come from two threads: none must undo what newer ones have brought.
        self._accepting = Lock()
        self._arrivals = VersionArrivals(self.folder, plan.reference_settings) if plan.references and self._can_open else None
        # Up to where open batches have read, by their newest reports.
        self._open_positions: dict[Partition, int] = {}
        self._lookup_floor = LookupFloor(self.folder, plan.buckets) if plan.references else None
        self._log = logs.get_logger("query", output=self.name)
        self._topics = ", ".join(feed.topic for feed in plan.feeds)
        self._publisher = ProgressPublisher(
            settings.redis,
            plan.outputs[0].topic or self.name,
            settings_shown={
                f"{output.name}.{name}": text
                for output in plan.outputs
                if output.name in settings.outputs
                for name, text in show_table(settings.outputs[output.name]).items()
            },
            folder=self.folder,
            query=self.name,
            reads=self._topics,
            outputs=[output.name for output in plan.outputs],
        )
        self._watch = RecoveryWatch(job.recovery(plan), job.make_end_lookup(plan), self._publisher, self._log, {"Spark": wait_for_spark})
        self.sinks = SinksBeside(settings, selected)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        job.log_start(self.plan, self._log, self._topics)
        job.warn_of_absent_columns(self.plan)
        for part in (self._publisher, self._watch, self.sinks):
            self._open.enter_context(part)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    @property
    def catching_up(self) -> CatchUpReport:
        return self._watch.catch_up

    @property
    def is_watched(self) -> bool:
        """Whether a client watches this query."""
        return self._publisher.is_watched

    @property
    def is_finished(self) -> bool:
        """Whether the query has written all that it will ever write."""
        return self.progress.is_finished

    @property
    def state(self) -> tuple[str, str]:
        """The state, and a text that says what the query waits for."""
        return self._watch.state, self._watch.waits_for

    def accept_reports(self, reports: list[BucketReport]) -> dict[str, Any]:
        """Take the reports of a batch, before Spark commits it; return the summary so far."""
        keep_positions(self.folder, reports)
        with self._accepting:
            self._open_reports.end(reports)
            self._advance_open(reports)
            reports = self.progress.accept_reports(reports)
            self.progress.pop_news()
            self._publisher.publish(reports)
            self._metrics.accept_query_reports(self.name, reports)
        if self.is_finished:
            # If the process is killed before the commit, the next start runs the batch again, and ends again.
            replace_text(self.folder / FINISHED_FILE, "")
        self._batch_costs.accept_reports(reports)
        job.warn_of_absent_in_first_records(self.progress.pop_absent_columns())
        nulls = self.progress.null_columns(self._settings.query.null_share_warn)
        job.warn_of_null_columns(self.progress.pop_null_columns(nulls))
        self._publisher.update_job(nulls=[each.as_dict() for each in nulls])
        self._metrics.set_null_columns(self.name, nulls)
        if self._lookup_floor is not None:
            self._lookup_floor.accept_reports(reports)
        outputs = ", ".join(output.name for output in self.plan.outputs)
        trace_batch(f"query {self.name}", {"reads": self._topics, "outputs": outputs}, reports)
        return self.summary()

    def poll(self) -> str:
        """
        Publish how far the query is and return that in a line; called about once a second. Raises GapError: records that a CTI promises
        stay missing; RefusedError: a topic was replaced.
        """
        if self.progress.has_begun:
            # Reports come before their batch has ended, so the positions are read from Spark's log.
            finished = finished_positions(self.plan)
            self._watch.advance({**finished, **{place: max(at, finished.get(place, 0)) for place, at in self._open_positions.items()}})
        # Also in a silence, in which older results leave the window.
        self._publisher.update_job(delays=self.progress.recent_delays())
        behind = self._watch.poll()
        self._metrics.set_query_lags(self.name, self._watch.catch_up.lags)
        self.progress.check_gaps(self._watch.answered_s, self._watch.catch_up.ends, self._watch.catch_up.positions)
        return f"{self.progress.line()}  {behind}".rstrip() if self.progress.has_begun else behind

    def accept_open_reports(self) -> dict[str, Any] | None:
        """
        Take what the tasks of an open batch have reported since the last call; return the summary if it has changed. Called about once a
        second, and more often while a client watches.
        """
        if not self._can_open:
            return None
        if self._arrivals is not None:
            self._arrivals.end_batch_if_new()
        with self._accepting:
            reports = self._open_reports.read_new()
            if not reports:
                return None
            self._advance_open(reports)
            reports = self.progress.accept_open(reports)
            self._publisher.publish(reports)
            self._metrics.accept_query_reports(self.name, reports)
            return self.summary() if self.progress.pop_news() else None

    def _advance_open(self, reports: Sequence[BucketReport]) -> None:
        partitions = self.plan.partitions
        self._open_positions |= {partitions[log]: offset for log, offset in least_offsets(reports).items()}

    def end_batch(self) -> None:
        """Let the open batch end, and wait until Spark has committed it; another one ends by itself, or is cut off."""
        if self._can_open:
            stop_and_wait(self.folder)

    def finish_sinks(self, each_turn: Callable[[], object], is_asked_to_stop: Callable[[], bool]) -> None:
        """Return once the stores beside an ended query have all results, or when asked to stop."""
        self.sinks.finish(each_turn, is_asked_to_stop)
        if not self.sinks.are_done:
            self._log.warning("stopped before its stores had all results: the next start copies the rest")

    def summary(self) -> dict[str, Any]:
        return {**self.progress.summary(), "recovery": self._watch.catch_up.as_dict()}
