"""One input of a running ingest process, in the driver: collects its reports, measures how far behind it is, and publishes both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from threading import Lock
from typing import Any

from ingest.config import IngestPlan
from ingest.planner.stage_progress import StageProgressWriter
from ingest.progress import IngestProgress
from ingest.time_warnings import PolicyBreakWarning, stands_still_because
from ordering.errors import TidegateError
from tidegate.platform.checkpoint.batch_cost import BatchCostWriter
from tidegate.platform.checkpoint.open_batches import OpenReports, stop_and_wait
from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.progress_store import ProgressPublisher, ProgressStore
from tidegate.platform.observe.recovery_report import CatchUpReport, Recovery, RecoveryKind
from tidegate.platform.observe.recovery_watch import AskEnds, RecoveryWatch
from tidegate.platform.observe.reports import IngestReport, JumpReport, Watermark
from tidegate.platform.observe.traces import trace_batch
from tidegate.platform.settings.shown_table import show_table


class RunningInput:
    """
    One input of the process, as a context manager.

    Args:
        ask_ends: Asks the brokers for ends, and refuses replaced topics.
        metrics: Those of the process.
        at_fault: The names of the inputs that made the process fail; all inputs share this set.
        wait_for_spark: Returns a text while the process waits for Spark's workers, else an empty one.
    """

    def __init__(
        self,
        plan: IngestPlan,
        recovery: Recovery,
        ask_ends: AskEnds,
        metrics: Metrics,
        at_fault: set[str],
        wait_for_spark: Callable[[], str],
    ) -> None:
        self.plan, self.name, self._metrics, self._at_fault = plan, plan.settings.name, metrics, at_fault
        behind = sum(end - plan.starts[partition].next_offset for partition, end in recovery.ends.items())
        self.progress = IngestProgress(behind if plan.until_end else 0)
        folder, ordered = Path(plan.checkpoint), plan.settings.ordered_topic
        log = get_logger("ingest", input=self.name)
        self._stage_progress, self._batch_costs = StageProgressWriter(folder), BatchCostWriter(folder, plan.tasks)
        self._publisher = ProgressPublisher(
            plan.redis,
            ordered,
            settings_shown=show_table(plan.settings),
            folder=folder,
            input=self.name,
            stands_still=stands_still_because(plan),
        )
        self._watch = RecoveryWatch(recovery, ask_ends, self._publisher, log, {"Spark": wait_for_spark})
        self._log = log
        self._open_reports = OpenReports(folder, IngestReport.of_json)
        # Reports of an open batch and those at its end come from two threads: none must undo what newer ones have brought.
        self._accepting = Lock()
        self._jump: JumpReport | None = None
        self._breaks = PolicyBreakWarning(plan.settings)
        self.failure: TidegateError | None = None

    @property
    def catching_up(self) -> CatchUpReport:
        return self._watch.catch_up

    @property
    def is_watched(self) -> bool:
        """Whether a client watches this input."""
        return self._publisher.is_watched

    def __enter__(self) -> RunningInput:
        self._log.info(
            "ingest starts",
            topics=",".join(self.plan.settings.topics),
            partitions=len(self.plan.partitions),
            ordered_topic=self.plan.settings.ordered_topic,
            idle_estimates=bool(self.plan.estimates),
            journal=self.plan.redis.address,
        )
        policies = self.plan.settings.policies()
        self._metrics.add_input(self.name, policies.reorder_us, policies.late_us)
        self._metrics.accept_reports(self.name, self._read_last_reports())
        self._watch.__enter__()
        self._publisher.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.failure is not None:
            return
        self._watch.__exit__(*error)
        # An error that is no input's fault ends all of them; otherwise the others stop without an error.
        self._publisher.__exit__(*((None, None, None) if self._at_fault else error))

    def fail(self, failure: TidegateError) -> None:
        """End this input with *failure*, and publish that; other inputs of the process may go on."""
        self.failure = failure
        self._at_fault.add(self.name)
        self._metrics.fail_input(self.name)
        self._log.error("this input has failed", error=failure)
        self._watch.__exit__()
        self._publisher.__exit__(type(failure), failure, None)

    def _read_last_reports(self) -> list[IngestReport]:
        """
        Return the last reports before this start, if the job continues from its checkpoint. A partition that was never read has an empty
        report, so that it has metrics too and an alert can show its silence.
        """
        reports: dict[tuple[str, int], IngestReport] = {}
        if self.catching_up.recovery.kind is RecoveryKind.CHECKPOINT:
            stored = None
            with suppress(TidegateError), ProgressStore(self.plan.redis) as store:
                stored = store.read(self.plan.settings.ordered_topic)
            if stored is None:
                return []
            # The seconds were spent by another process.
            found = stored.partitions.items()
            reports = {partition: replace(report, seconds={}) for partition, report in found if isinstance(report, IngestReport)}
        return [
            reports.get(partition) or IngestReport(*partition, next_offset=next_offset)
            for partition, next_offset in self.catching_up.recovery.starts.items()
            if partition in self.plan.partitions
        ]

    def accept_reports(self, reports: list[IngestReport]) -> dict[str, Any]:
        """Take the reports of a batch, before Spark commits it; return the summary so far."""
        self._stage_progress.accept_reports(reports)
        self._batch_costs.accept_reports(reports)
        with self._accepting:
            self._open_reports.end(reports)
            every = [*reports, *self._silent_reports(reports)]
            self.progress.accept_reports(every)
            self.progress.pop_news()
            self._publish(every)
        trace_batch(f"ingest {self.name}", {"input": self.name, "ordered_topic": self.plan.settings.ordered_topic}, reports)
        jumps = [report.jump for report in reports if report.jump is not None]
        if jumps:
            self._jump = max([*jumps, *filter(None, [self._jump])], key=lambda jump: jump.by_us)
            self._publisher.update_job(jump=asdict(self._jump))
        if self._breaks.accept_reports(reports) and self._breaks.finding is not None:
            finding = self._breaks.finding
            self._log.warning("many events break a policy", found=finding["in_words"], fix=finding["fix"])
        self._publisher.update_job(breaks=self._breaks.finding)
        return self.summary()

    def accept_open_reports(self) -> dict[str, Any] | None:
        """
        Take what the tasks of an open batch have reported since the last call; return the summary if it has changed. Called about once a
        second, and more often while a client watches.
        """
        if not self.plan.settings.batch_span_us:
            return None
        with self._accepting:
            reports = self._open_reports.read_new()
            if not reports:
                return None
            self.progress.accept_open(reports)
            self._publish(reports)
            return self.summary() if self.progress.pop_news() else None

    def _publish(self, reports: list[IngestReport]) -> None:
        self._publisher.publish(reports)
        self._metrics.accept_reports(self.name, reports)
        self._watch.advance({report.place: report.next_offset for report in reports})

    def _silent_reports(self, reports: list[IngestReport]) -> list[IngestReport]:
        """
        Return, with the first *reports* of a new topic, a report for each partition that has no record: no micro-batch would report it.
        """
        if self.progress.has_begun or self.catching_up.recovery.kind is not RecoveryKind.NEW:
            return []
        reported, ends = {report.place for report in reports}, self.catching_up.ends
        return [
            IngestReport(*partition, number, watermark=Watermark(cause="nothing"))
            for number, partition in enumerate(self.plan.partitions)
            if partition not in reported and ends.get(partition, 0) == 0
        ]

    def check(self) -> None:
        """Use the newest ends from the brokers. Called about once a second. Raises RefusedError: a topic was replaced."""
        self._watch.poll()

    def end_batch(self) -> None:
        """Let the open batch end, and wait until Spark has committed it; another one ends by itself, or is cut off."""
        if self.plan.settings.batch_span_us:
            stop_and_wait(Path(self.plan.checkpoint))

    @property
    def state(self) -> tuple[str, str]:
        """The state, and a text that says what the input waits for, or the code of its failure."""
        return (self._watch.state, self._watch.waits_for) if self.failure is None else ("failed", self.failure.code)

    def line(self) -> str:
        """Return a line about the input for the terminal."""
        if self.failure is not None:
            return f"failed: {self.failure.code}"
        # Before the first batch, which starts the workers, nothing is known: counts of 0 would look like an answer.
        return f"{self.progress.line()}  {self._watch.line}".rstrip() if self.progress.has_begun else self._watch.line

    @property
    def policy_breaks(self) -> str:
        """A text that says which policies more than a tenth of the recent events break, and by how much; empty if none is so broken."""
        return self._breaks.finding["in_words"] if self._breaks.finding is not None else ""

    def summary(self) -> dict[str, Any]:
        breaks = {} if self._breaks.finding is None else {"breaks": self._breaks.finding}
        return {"input": self.name, **self.progress.summary(), **breaks, "recovery": self.catching_up.as_dict()}
