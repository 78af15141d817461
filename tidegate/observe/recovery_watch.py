"""A running job's recovery, reported to its log and to Redis until the job has caught up; after that, its lag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from structlog.typing import FilteringBoundLogger

from tidegate.observe.progress_store import ProgressPublisher
from tidegate.observe.recovery_report import CatchUp, Poller, Positions, Recovery, duration_in_words

# Asks the brokers for the ends of partitions.
AskEnds = Callable[[Sequence[tuple[str, int]]], Positions]


class RecoveryWatch:
    """
    Watches one job; at the end of its context it stops asking the brokers.
    *ask_ends* returns the ends of given partitions; it raises RefusedError if a topic was deleted or made again.
    """

    def __init__(self, recovery: Recovery, ask_ends: AskEnds, publisher: ProgressPublisher, log: FilteringBoundLogger) -> None:
        self.catch_up = CatchUp(recovery)
        self._poller = Poller(lambda: ask_ends(self.catch_up.partitions))
        self._publisher, self._log = publisher, log
        self._is_caught_up_logged = recovery.ahead == 0
        self._batches = 0

    def __enter__(self) -> RecoveryWatch:
        recovery = self.catch_up.recovery
        self._log.info(f"goes on from: {recovery.describe()}", recovery=recovery.as_dict())
        self._publisher.update_job(recovery=self.catch_up.as_dict())
        self._poller.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._poller.__exit__(*error)

    def advance(self, positions: Positions) -> None:
        """Record the next offsets after a batch."""
        self._batches += 1
        self.catch_up.advance(positions)
        self._publish()

    def poll(self) -> str:
        """
        Use the newest ends; return in a few words how far behind the job is. Called about once a second.
        Raises RefusedError if a topic was deleted or made again.
        """
        ends = self._poller.newest_answer()
        if ends is not None:
            self.catch_up.set_ends(ends)
            self._publisher.update_job(ends={f"{topic}/{number}": end for (topic, number), end in sorted(ends.items())})
        self._publish()
        return self.catch_up.status_line() if self._batches else ""

    def _publish(self) -> None:
        caught_up_s = self.catch_up.caught_up_s
        state = "live" if caught_up_s is not None else "replaying" if self._batches else "starting"
        self._publisher.update_job(state=state, recovery=self.catch_up.as_dict(), lag=self.catch_up.behind)
        if self.catch_up.replay is not None:
            self._publisher.keep_replay(self.catch_up.replay)
        if caught_up_s is not None and not self._is_caught_up_logged:
            self._is_caught_up_logged = True
            self._log.info(f"caught up after {duration_in_words(caught_up_s)}", events=self.catch_up.recovery.ahead)
