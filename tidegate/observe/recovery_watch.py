"""
A running job's recovery, told to its log and to Redis until it has caught up, and its lag from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from structlog.typing import FilteringBoundLogger

from tidegate.observe.progress_store import ProgressPublisher
from tidegate.observe.recovery_report import CatchingUp, Lookout, Positions, Recovery, in_words

Look = Callable[[Sequence[tuple[str, int]]], Positions]
"""Asks where partitions end."""


class RecoveryWatch:
    """
    Watches one job; a context manager, at whose end the brokers are no longer asked.

    Args:
        recovery: Where the job goes on.
        look: Asks the brokers where given partitions end; refuses where a topic is not what it was.
        published: Where the job publishes how it stands.
        log: Where it is logged.
    """

    def __init__(self, recovery: Recovery, look: Look, published: ProgressPublisher, log: FilteringBoundLogger) -> None:
        self.catching_up = CatchingUp(recovery)
        self._lookout = Lookout(lambda: look(self.catching_up.partitions))
        self._published, self._log = published, log
        self._told_caught_up = recovery.ahead == 0
        self._batches = 0

    def __enter__(self) -> RecoveryWatch:
        recovery = self.catching_up.recovery
        self._log.info(f"goes on from: {recovery.in_words()}", recovery=recovery.as_dict())
        self._published.tell(recovery=self.catching_up.as_dict())
        self._lookout.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._lookout.__exit__(*error)

    def walked(self, positions: Positions) -> None:
        """Take the next offsets that a batch has come to."""
        self._batches += 1
        self.catching_up.walked(positions)
        self._tell()

    def tick(self) -> str:
        """
        Look what the brokers say; return in a few words how far behind the job is. Called about once a second.

        Raises:
            RefusedError: A topic was deleted, or made again.
        """
        ends = self._lookout.news()
        if ends is not None:
            self.catching_up.looked(ends)
            self._published.tell(ends={f"{topic}/{number}": end for (topic, number), end in sorted(ends.items())})
        self._tell()
        return self.catching_up.line() if self._batches else ""

    def _tell(self) -> None:
        caught_up_s = self.catching_up.caught_up_s
        state = "live" if caught_up_s is not None else "replaying" if self._batches else "starting"
        self._published.tell(state=state, recovery=self.catching_up.as_dict(), lag=self.catching_up.behind)
        if self.catching_up.replay is not None:
            self._published.remember(self.catching_up.replay)
        if caught_up_s is not None and not self._told_caught_up:
            self._told_caught_up = True
            self._log.info(f"caught up after {in_words(caught_up_s)}", events=self.catching_up.recovery.ahead)
