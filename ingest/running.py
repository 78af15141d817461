"""
One input of a running ingest process, seen from the driver: what it reports, how far behind it is, whom it tells.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingest.config import IngestPlan, Partition
from ingest.progress import IngestProgress
from ingest.reached import Leaving
from ordering.errors import RefusedError
from tidegate.runtime.logs import get_logger
from tidegate.runtime.progress_store import ProgressPublisher
from tidegate.runtime.recovery import CatchingUp, Lookout, Recovery, in_words

Tell = Callable[[dict[str, Any]], None]


class RunningInput:
    """
    One input of the process; a context manager, at whose end the input counts as stopped.

    Args:
        plan: Its plan.
        recovery: Where it goes on.
        look: Asks the brokers where its partitions end; refuses where a topic is not what it was.
        at_fault: Names of the inputs of this process that made it fail, shared by all of them.
    """

    def __init__(self, plan: IngestPlan, recovery: Recovery, look: Callable[[], dict[Partition, int]], at_fault: set[str]) -> None:
        self.plan, self.name, self._at_fault = plan, plan.settings.name, at_fault
        behind = sum(end - plan.starts[partition].next_offset for partition, end in recovery.ends.items())
        self.progress = IngestProgress(behind if plan.until_end else 0)
        self.catching_up = CatchingUp(recovery)
        self._told_caught_up = recovery.ahead == 0
        self._lookout = Lookout(look)
        known = self.catching_up.as_dict()
        folder = Path(plan.checkpoint)
        self._leaving = Leaving(folder)
        self._published = ProgressPublisher(plan.redis, plan.settings.ordered_topic, folder=folder, input=self.name, recovery=known)
        self._log = get_logger(__name__, input=self.name)

    def __enter__(self) -> RunningInput:
        self._published.__enter__()
        self._lookout.__enter__()
        self._log.info(
            "ingest starts",
            topics=",".join(self.plan.settings.topics),
            partitions=len(self.plan.partitions),
            ordered_topic=self.plan.settings.ordered_topic,
            idle_estimates=bool(self.plan.estimates),
            journal=self.plan.redis.address,
        )
        recovery = self.catching_up.recovery
        self._log.info(f"goes on from: {recovery.in_words()}", recovery=recovery.as_dict())
        return self

    def __exit__(self, *error: Any) -> None:
        self._lookout.__exit__(*error)
        # What nobody in particular has failed by, all have.
        blameless = self._at_fault and self.name not in self._at_fault
        self._published.__exit__(*((None, None, None) if blameless else error))

    def fail(self) -> None:
        """Take note that it is this input by which the process fails."""
        self._at_fault.add(self.name)

    def take(self, reports: list[dict[str, Any]]) -> dict[str, Any]:
        """Take the reports of one batch; return everything known."""
        self._leaving.take(reports)
        self.progress.take(reports)
        self.catching_up.walked({(report["topic"], report["partition"]): report["next_offset"] for report in reports})
        self._published.publish(reports)
        self._tell()
        return self.summary()

    def tick(self) -> str:
        """
        Look what the brokers say; return one line that says how the input stands. Called about once a second.

        Raises:
            RefusedError: A topic was deleted, or made again.
        """
        try:
            ends = self._lookout.news()
        except RefusedError:
            self.fail()
            raise
        if ends is not None:
            self.catching_up.looked(ends)
            self._published.tell(ends={f"{topic}/{number}": end for (topic, number), end in sorted(ends.items())})
        self._tell()
        behind = self.catching_up.line() if self.progress.batches else ""
        return f"{self.progress.line()}  {behind}".rstrip()

    def _tell(self) -> None:
        caught_up_s = self.catching_up.caught_up_s
        state = "starting" if not self.progress.batches and caught_up_s is None else "replaying" if caught_up_s is None else "live"
        self._published.tell(state=state, recovery=self.catching_up.as_dict(), lag=self.catching_up.behind)
        if caught_up_s is not None and not self._told_caught_up:
            self._told_caught_up = True
            self._log.info(f"caught up after {in_words(caught_up_s)}", events=self.catching_up.recovery.ahead)

    def summary(self) -> dict[str, Any]:
        """Return everything known, for ``--format json``."""
        return {"input": self.name, **self.progress.summary(), "recovery": self.catching_up.as_dict()}
