"""
A running job's recovery, reported to its log and to Redis until the job has caught up, and its lag after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from structlog.typing import FilteringBoundLogger

from tidegate.observe.progress_store import ProgressPublisher
from tidegate.observe.recovery_report import CatchUp, Poller, Positions, Recovery, duration_in_words

# Asks where partitions end.
AskEnds = Callable[[Sequence[tuple[str, int]]], Positions]


class RecoveryWatch:
    """
    Watches one job; a context manager, at whose end the brokers are no longer asked.

    Args:
        recovery: Where the job goes on.
        look: Asks the brokers where given partitions end; refuses where a topic is not what it was.
        published: Where the job publishes how it stands.
        log: Where it is logged.
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
        """Record the next offsets that a batch has come to."""
        self._batches += 1
        self.catch_up.advance(positions)
        self._publish()

    def poll(self) -> str:
        """
        Take the newest ends; return in a few words how far behind the job is. Called about once a second.

        Raises:
            RefusedError: A topic was deleted, or made again.
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
