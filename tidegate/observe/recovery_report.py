"""
The recovery report: what a start has resumed or replays, how much lies ahead, and when it will have caught up.

Law (spec section 6): every start of a job says how it goes on, from where and with how much ahead; until all of that is
behind it, it says how fast it goes and how long it will take: what is behind, divided by how much faster records are read
than they come. A job has caught up when it has walked past the ends that were seen one look before the last.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaException

from ordering.errors import RefusedError, TidegateError
from ordering.ticks import SECOND_US, format_duration, format_tick

# How often the driver asks the brokers for the ends.
POLL_EVERY_S = 2.0
# The span of the past that a rate is measured over.
_RATE_WINDOW_S = 30.0
# A rate over a shorter span is not reported.
_RATE_SPAN_MIN_S = 0.5
# A replay of fewer records says nothing about the next one.
_REPLAY_RECORDS_MIN = 10_000

# An offset for each (topic, partition).
Positions = Mapping[tuple[str, int], int]
Answer = TypeVar("Answer")


class RecoveryKind(StrEnum):
    """How a job goes on."""

    # Nothing was there: it begins at the beginning.
    NEW = "new"
    # Nothing was there: it begins at an output start time.
    START = "start"
    # From the last batch that Spark has finished.
    CHECKPOINT = "checkpoint"
    # The checkpoint was lost: from the last CTI of each channel of the topic it writes.
    CTIS = "ctis"


@dataclass(frozen=True, slots=True)
class Recovery:
    """
    Where a job goes on.

    Args:
        how: What it goes on from.
        starts: Next offset of each input partition.
        ends: Where each ended when the job was started.
        batch: The last batch that was finished; None without a checkpoint.
        repeats: Whether the batch after it was under way when the job ended: it is run again, and writes the same.
        start_us: Output start time of the run, microseconds, if it has one.
    """

    kind: RecoveryKind
    starts: Positions
    ends: Positions
    batch: int | None = None
    repeats_batch: bool = False
    start_us: int | None = None

    @property
    def ahead(self) -> int:
        """How many offsets lie between the starts and the ends."""
        return sum(max(end - self.starts.get(partition, 0), 0) for partition, end in self.ends.items())

    def as_dict(self) -> dict[str, Any]:
        """Return what is known at the start, for logs and programs."""
        return {
            "how": self.kind.value,
            "in_words": self.describe(),
            **({} if self.batch is None else {"batch": self.batch, "repeats_batch": self.repeats_batch}),
            **({} if self.start_us is None else {"start": format_tick(self.start_us)}),
            "from": {f"{topic}/{number}": offset for (topic, number), offset in sorted(self.starts.items())},
            "ahead": self.ahead,
        }

    def describe(self) -> str:
        """Return in a few words what the job goes on from."""
        since = "" if self.start_us is None else f" (output start {format_tick(self.start_us)})"
        match self.kind:
            case RecoveryKind.CHECKPOINT if self.batch == -1:
                return f"checkpoint before its first batch{since}"
            case RecoveryKind.CHECKPOINT:
                again = f", batch {(self.batch or 0) + 1} is run again" if self.repeats_batch else ""
                return f"checkpoint of batch {self.batch}{again}{since}"
            case RecoveryKind.CTIS:
                return f"last CTIs of its topic{since}"
        return f"new{since}"


@dataclass(frozen=True, slots=True)
class Replay:
    """
    How fast a job has replayed, for whoever wants to know how long the next replay takes.

    Args:
        records: How many records it has read from the end of its first batch until it had caught up.
        seconds: How long that took.
        start_s: Seconds from the start of the job to the end of its first batch.
    """

    records: int
    seconds: float
    start_s: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds


class _Rate:
    """How fast a number rises, over the last half minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def record(self, now_s: float, number: int) -> None:
        self._samples.append((now_s, number))
        while now_s - self._samples[0][0] > _RATE_WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()

    @property
    def per_s(self) -> float | None:
        if not self._samples or self._samples[-1][0] - self._samples[0][0] < _RATE_SPAN_MIN_S:
            return None
        (since_s, before), (now_s, now) = self._samples[0], self._samples[-1]
        return (now - before) / (now_s - since_s)


class CatchUp:
    """
    Follows a job until it has caught up.

    Args:
        recovery: Where it goes on.
        clock_s: A clock that does not go back, seconds.
    """

    def __init__(self, recovery: Recovery, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.recovery, self._clock_s = recovery, clock_s
        self._began_s = clock_s()
        self._positions, self._ends = dict(recovery.starts), dict(recovery.ends)
        self._read_rate, self._arrival_rate = _Rate(), _Rate()
        self._arrival_rate.record(self._began_s, sum(self._ends.values()))
        self._first_batch: tuple[float, int] | None = None
        # How fast it has replayed so far; None if that was too little.
        self.replay: Replay | None = None
        # Seconds from the start until the job had caught up; None while it has not.
        self.caught_up_s: float | None = 0.0 if recovery.ahead == 0 else None

    def advance(self, positions: Positions) -> None:
        """Record the next offsets that a batch has come to."""
        # One thread reports batches, another polls: each replaces mappings whole, so that neither iterates over a changing one.
        self._positions = {**self._positions, **positions}
        # The first batch pays for cold workers: the rate counts from its end.
        now_s, read = self._clock_s(), sum(self._positions.values())
        self._read_rate.record(now_s, read)
        if self.caught_up_s is None:
            self._first_batch = since_s, before = self._first_batch or (now_s, read)
            if now_s - since_s >= _RATE_SPAN_MIN_S and read - before >= _REPLAY_RECORDS_MIN:
                self.replay = Replay(read - before, now_s - since_s, since_s - self._began_s)
        self._note_caught_up()

    def set_ends(self, ends: Positions) -> None:
        """Set the ends that the brokers have reported."""
        self._note_caught_up()
        self._ends = {**self._ends, **ends}
        self._arrival_rate.record(self._clock_s(), sum(self._ends.values()))

    def _note_caught_up(self) -> None:
        if self.caught_up_s is None and self.behind == 0:
            self.caught_up_s = self._clock_s() - self._began_s

    @property
    def ends(self) -> Positions:
        """The ends that were seen last."""
        return self._ends

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The input partitions that are known by now: those of the start, and those that have joined."""
        return sorted(self._positions)

    @property
    def lags(self) -> Positions:
        """How many offsets of each partition lie between where the job is and the end that was seen last."""
        return {partition: max(end - self._positions.get(partition, 0), 0) for partition, end in self._ends.items()}

    @property
    def behind(self) -> int:
        """How many offsets lie between where the job is and the ends that were seen last."""
        return sum(self.lags.values())

    @property
    def rate(self) -> float | None:
        """Records read a second; None while nothing can be said."""
        return self._read_rate.per_s

    @property
    def eta_s(self) -> float | None:
        """Seconds until the job has caught up if all goes on so; None while nothing can be said, or at this rate never."""
        if self.behind == 0:
            return 0.0
        gains = (self.rate or 0.0) - (self._arrival_rate.per_s or 0.0)
        return self.behind / gains if gains > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Return what is known by now, for programs: times in seconds, None for what cannot be said."""
        rate, eta_s, caught_up_s = self.rate, self.eta_s, self.caught_up_s
        return {
            **self.recovery.as_dict(),
            "behind": self.behind,
            "rate": None if rate is None else round(rate),
            "eta_s": None if eta_s is None else round(eta_s, 1),
            "caught_up_after_s": None if caught_up_s is None else round(caught_up_s, 1),
        }

    def status_line(self) -> str:
        """Return in a few words how far behind the job is; empty once it has caught up."""
        if self.caught_up_s is not None:
            return ""
        rate, eta_s = self.rate, self.eta_s
        speed = "" if rate is None else f" at {rate:,.0f}/s"
        ready = "" if eta_s is None else f", caught up in {duration_in_words(eta_s)}"
        return f"{self.behind:,} behind{speed}{ready}"


def duration_in_words(seconds: float) -> str:
    """Write a span of time as people say it, no finer than a second."""
    return format_duration(max(round(seconds), 1) * SECOND_US)


class Poller(Generic[Answer]):
    """
    Repeats a question in a thread of its own, so that the job does not wait for a broker that does not answer.

    Args:
        look: The question. A :class:`~ordering.errors.RefusedError` is an answer that ends the watch; other failures are asked
            again.
        every_s: Seconds between two questions.
    """

    def __init__(self, ask: Callable[[], Answer], every_s: float = POLL_EVERY_S) -> None:
        self._ask, self._every_s = ask, every_s
        self._answers: deque[Answer] = deque(maxlen=1)
        self._refusal: RefusedError | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="lookout", daemon=True)

    def __enter__(self) -> Poller[Answer]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def newest_answer(self) -> Answer | None:
        """
        Return the newest answer, if it is newer than the last one returned.

        Raises:
            RefusedError: That was the answer.
        """
        if self._refusal is not None:
            raise self._refusal
        return self._answers.pop() if self._answers else None

    def _poll(self) -> None:
        while not self._end.wait(self._every_s):
            try:
                self._answers.append(self._ask())
            except RefusedError as refusal:
                self._refusal = refusal
                return
            except (KafkaException, TidegateError):
                # A broker that does not answer changes nothing: the job itself waits for it too.
                continue
