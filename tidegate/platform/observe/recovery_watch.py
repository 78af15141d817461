"""
Reports a running job's recovery, and then its lag, to its log and to Redis; also the brokers, stores or executors that it waits for.

Law: a job that waits for brokers, stores or executors says so: in its log once when the wait begins and once when it ends, and in Redis as
long as it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from structlog.typing import FilteringBoundLogger

from tidegate.platform.observe.job_lag import JobLag
from tidegate.platform.observe.progress_store import ProgressPublisher
from tidegate.platform.observe.recovery_report import POLL_EVERY_S, CatchUpReport, Poller, Positions, Recovery, duration_in_words
from tidegate.platform.observe.run_history import Happened

# Asks the brokers for the ends of partitions.
AskEnds = Callable[[Sequence[tuple[str, int]]], Positions]


class RecoveryWatch:
    """
    Watches one job; at the end of its context it stops asking the brokers.

    Args:
        ask_ends: Returns the ends of given partitions; raises RefusedError if a topic was deleted or made again.
        waits: For each thing beside Kafka that the job may wait for, by its name: returns a text while the job waits, else an empty one.
    """

    def __init__(
        self,
        recovery: Recovery,
        ask_ends: AskEnds,
        publisher: ProgressPublisher,
        log: FilteringBoundLogger,
        waits: Mapping[str, Callable[[], str]] = MappingProxyType({}),
    ) -> None:
        self.catch_up = CatchUpReport(recovery)
        self._lag = JobLag()
        self._poller = Poller(lambda: ask_ends(self.catch_up.partitions))
        self._publisher, self._log, self._asked_waits = publisher, log, waits
        # The text of each wait that lasts, by name.
        self._waits: dict[str, str] = {}
        self._is_caught_up_logged = recovery.ahead == 0
        self._batches = 0
        # How long the brokers have answered, seconds: each answer stands for the pause before it.
        self.answered_s = 0.0

    def __enter__(self) -> RecoveryWatch:
        recovery = self.catch_up.recovery
        self._log.info(f"resumed from: {recovery.describe()}", recovery=recovery.as_dict())
        self._publisher.update_job(recovery=self.catch_up.as_dict())
        self._publisher.note(Happened.STARTED, f"resumed from: {recovery.describe()}, {recovery.ahead:,} records ahead")
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
        Use the newest ends; return :attr:`line`. Called about once a second. Raises RefusedError: a topic was deleted or made again.
        """
        ends = self._poller.newest_answer()
        if ends is not None:
            self.answered_s += POLL_EVERY_S
            self.catch_up.set_ends(ends)
            self._lag.record(self.catch_up.ends, self.catch_up.positions, self.catch_up.lags)
            self._publisher.update_job(ends={f"{topic}/{number}": end for (topic, number), end in sorted(ends.items())})
        self._note_waits()
        self._publish()
        return self.line

    @property
    def line(self) -> str:
        """A short text that says what the job waits for, or how far behind it is."""
        return self.waits_for or (self.catch_up.status_line() if self._batches else f"no batch yet, {self.catch_up.behind:,} records wait")

    @property
    def waits_for(self) -> str:
        """The texts of the waits that last; empty if the job works."""
        return "; ".join(self._waits.values())

    @property
    def state(self) -> str:
        """Starting, replaying or live; or waiting."""
        return "waiting" if self._waits else self._state

    @property
    def _state(self) -> str:
        return "live" if self.catch_up.caught_up_s is not None else "replaying" if self._batches else "starting"

    def _note_waits(self) -> None:
        unanswered = self._poller.unanswered
        waits = {name: ask() for name, ask in self._asked_waits.items()}
        waits["Kafka"] = unanswered and f"waiting for Kafka: {unanswered}"
        for name, text in waits.items():
            if text and name not in self._waits:
                self._log.warning(text)
            elif not text and name in self._waits:
                self._log.info(f"waits for {name} no longer")
        self._waits = {name: text for name, text in waits.items() if text}

    def _publish(self) -> None:
        caught_up_s = self.catch_up.caught_up_s
        about = {"recovery": self.catch_up.as_dict(), "lag": self.catch_up.behind, "waits_for": self.waits_for, **self._lag.as_dict()}
        self._publisher.update_job(state=self._state, **about)
        if self.catch_up.replay is not None:
            self._publisher.keep_replay(self.catch_up.replay)
        if caught_up_s is not None and not self._is_caught_up_logged:
            self._is_caught_up_logged = True
            self._publisher.note(Happened.CAUGHT_UP, f"after {duration_in_words(caught_up_s)}, {self.catch_up.recovery.ahead:,} records")
            self._log.info(f"caught up after {duration_in_words(caught_up_s)}", events=self.catch_up.recovery.ahead)
