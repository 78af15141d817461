"""One input of a running ingest process, in the driver: collects its reports, measures how far it is behind, and publishes both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ingest.config import IngestPlan
from ingest.planner.limits import BatchCostWriter
from ingest.planner.stage_progress import StageProgressWriter
from ingest.progress import IngestProgress
from ordering.errors import RefusedError, TidegateError
from tidegate.observe.logs import get_logger
from tidegate.observe.progress_store import ProgressPublisher, ProgressStore
from tidegate.observe.recovery_report import CatchUp, Recovery, RecoveryKind
from tidegate.observe.recovery_watch import AskEnds, RecoveryWatch


class RunningInput:
    """
    One input of the process, as a context manager. *look* asks the brokers for ends and refuses replaced topics; *at_fault*, shared by all
    inputs, holds the names of those that made the process fail.
    """

    def __init__(self, plan: IngestPlan, recovery: Recovery, look: AskEnds, at_fault: set[str]) -> None:
        self.plan, self.name, self._at_fault = plan, plan.settings.name, at_fault
        behind = sum(end - plan.starts[partition].next_offset for partition, end in recovery.ends.items())
        self.progress = IngestProgress(behind if plan.until_end else 0)
        folder, ordered = Path(plan.checkpoint), plan.settings.ordered_topic
        log = get_logger("ingest", input=self.name)
        self._stage_progress, self._batch_costs = StageProgressWriter(folder), BatchCostWriter(folder, plan.tasks)
        self._publisher = ProgressPublisher(plan.redis, ordered, folder=folder, input=self.name)
        self._watch = RecoveryWatch(recovery, look, self._publisher, log)
        self._log = log

    @property
    def catching_up(self) -> CatchUp:
        return self._watch.catch_up

    def __enter__(self) -> RunningInput:
        self._log.info(
            "ingest starts",
            topics=",".join(self.plan.settings.topics),
            partitions=len(self.plan.partitions),
            ordered_topic=self.plan.settings.ordered_topic,
            idle_estimates=bool(self.plan.estimates),
            journal=self.plan.redis.address,
        )
        self._watch.__enter__()
        self._publisher.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._watch.__exit__(*error)
        # If no input in particular made the process fail, all have failed.
        is_blameless = self._at_fault and self.name not in self._at_fault
        self._publisher.__exit__(*((None, None, None) if is_blameless else error))

    def fail(self) -> None:
        """Note that this input makes the process fail."""
        self._at_fault.add(self.name)

    def read_last_reports(self) -> list[dict[str, Any]]:
        """Return the last reports before this start; none if the job does not continue from its checkpoint."""
        if self.catching_up.recovery.kind is not RecoveryKind.CHECKPOINT:
            return []
        store = ProgressStore(self.plan.redis)
        try:
            stored = store.read(self.plan.settings.ordered_topic)
        except TidegateError:
            return []
        finally:
            store.close()
        reports = stored.partitions.items() if stored is not None else ()
        # The seconds were spent by another process.
        return [{**report, "seconds": {}} for partition, report in reports if partition in self.plan.partitions]

    def accept_reports(self, reports: list[dict[str, Any]]) -> dict[str, Any]:
        self._stage_progress.accept_reports(reports)
        self._batch_costs.accept_reports(reports)
        self.progress.accept_reports(reports)
        self._publisher.publish(reports)
        self._watch.advance({(report["topic"], report["partition"]): report["next_offset"] for report in reports})
        return self.summary()

    def tick(self) -> str:
        """Ask the brokers; return a line about the input, RefusedError if a topic was replaced. Called about once a second."""
        try:
            behind = self._watch.poll()
        except RefusedError:
            self.fail()
            raise
        return f"{self.progress.line()}  {behind}".rstrip()

    def summary(self) -> dict[str, Any]:
        return {"input": self.name, **self.progress.summary(), "recovery": self.catching_up.as_dict()}
