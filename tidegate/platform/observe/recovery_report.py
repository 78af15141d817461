"""
The recovery report: where a start continues, how much lies ahead, and when the job will have caught up.

Law: every start of a job reports where it continues and how much lies ahead. Until the job has caught up, it reports its
rate and the time left: the records that it is behind, divided by the rate of reading minus the rate of arriving. A job has caught up once
its positions have reached the newest ends that it knows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from ordering.errors import RefusedError, TidegateError
from ordering.ticks import SECOND_US, format_duration, format_tick
from tidegate.basics.secret_masking import scrub

POLL_EVERY_S = 2.0  # how often the driver asks the brokers for the ends
SILENT_AFTER_S = 5.0  # how long a broker may be silent before the job says that it waits
_RATE_WINDOW_S = 30.0  # the time over which a rate is measured
_RATE_SPAN_MIN_S = 0.5  # a rate over a shorter time is not reported
_REPLAY_RECORDS_MIN = 10_000  # a replay of fewer records says nothing about the next one

# An offset for each (topic, partition).
Positions = Mapping[tuple[str, int], int]
Answer = TypeVar("Answer")


class RecoveryKind(StrEnum):
    """Where a job continues."""

    NEW = "new"  # no earlier state: from the beginning
    START = "start"  # no earlier state: from an output start time
    CHECKPOINT = "checkpoint"  # from the last batch that Spark has finished
    STORE = "store"  # a sink: from the progress that its stores keep
    CTIS = "ctis"  # the checkpoint was lost: from the last CTI of each channel of the topic that the job writes


@dataclass(frozen=True, slots=True)
class Recovery:
    """The point where a job continues."""

    kind: RecoveryKind
    # Next offset of each input partition.
    starts: Positions
    # End offset of each input partition when the job was started.
    ends: Positions
    # The last finished batch; None without a checkpoint.
    batch: int | None = None
    # Whether the batch after it had begun when the job ended: it is run again, and writes the same.
    repeats_batch: bool = False
    # Output start time of the run, microseconds, if it has one.
    start_us: int | None = None
    # A text for each skip: which offsets the job does not read, and why.
    skips: tuple[str, ...] = ()

    @property
    def ahead(self) -> int:
        """How many offsets lie between the starts and the ends."""
        return sum(max(end - self.starts.get(partition, 0), 0) for partition, end in self.ends.items())

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for logs and programs."""
        return {
            "how": self.kind.value,
            "in_words": self.describe(),
            **({} if self.batch is None else {"batch": self.batch, "repeats_batch": self.repeats_batch}),
            **({} if self.start_us is None else {"start": format_tick(self.start_us)}),
            "from": {f"{topic}/{number}": offset for (topic, number), offset in sorted(self.starts.items())},
            "ahead": self.ahead,
            **({"skips": list(self.skips)} if self.skips else {}),
        }

    def describe(self) -> str:
        """Return in a few words where the job continues."""
        since = "" if self.start_us is None else f" (output start {format_tick(self.start_us)})"
        since += f"; skips: {len(self.skips)}" if self.skips else ""
        match self.kind:
            case RecoveryKind.CHECKPOINT if self.batch == -1:
                return f"checkpoint before its first batch{since}"
            case RecoveryKind.CHECKPOINT:
                again = f", batch {(self.batch or 0) + 1} is run again" if self.repeats_batch else ""
                return f"checkpoint of batch {self.batch}{again}{since}"
            case RecoveryKind.CTIS:
                return f"last CTIs of its topic{since}"
            case RecoveryKind.STORE:
                return f"progress of its stores{since}"
        return f"new{since}"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How fast a job has replayed; the next replay's duration can be estimated from it."""

    # How many records the job read from the end of its first batch until it had caught up.
    records: int
    # How long that took.
    seconds: float
    # Seconds from the start of the job to the end of its first batch.
    start_s: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds


class _Rate:
    """The rate at which a number rises, over the last half minute."""

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


class CatchUpReport:
    """Follows a job until it has caught up; *clock_s* is a clock that never goes back, in seconds."""

    def __init__(self, recovery: Recovery, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.recovery, self._clock_s = recovery, clock_s
        self._began_s = clock_s()
        self.positions: Positions = recovery.starts
        self.ends: Positions = recovery.ends
        self._read_rate, self._arrival_rate = _Rate(), _Rate()
        self._arrival_rate.record(self._began_s, sum(self.ends.values()))
        self._first_batch: tuple[float, int] | None = None
        # None until enough records were read to measure it.
        self.replay: ReplayReport | None = None
        # Seconds from the start until the job had caught up; None while it has not.
        self.caught_up_s: float | None = 0.0 if recovery.ahead == 0 else None

    def advance(self, positions: Positions) -> None:
        """Record the next offsets after a batch."""
        # One thread reports batches, another polls. Each replaces whole mappings, so that neither iterates over a changing one.
        self.positions = {**self.positions, **positions}
        # Workers start during the first batch, so the rate counts from its end.
        now_s, read = self._clock_s(), sum(self.positions.values())
        self._read_rate.record(now_s, read)
        if self.caught_up_s is None:
            self._first_batch = since_s, before = self._first_batch or (now_s, read)
            if now_s - since_s >= _RATE_SPAN_MIN_S and read - before >= _REPLAY_RECORDS_MIN:
                self.replay = ReplayReport(read - before, now_s - since_s, since_s - self._began_s)
        self._note_caught_up()

    def set_ends(self, ends: Positions) -> None:
        # Checked against the old ends: under load, new ends are always ahead of the positions.
        self._note_caught_up()
        self.ends = {**self.ends, **ends}
        self._arrival_rate.record(self._clock_s(), sum(self.ends.values()))

    def _note_caught_up(self) -> None:
        if self.caught_up_s is None and self.behind == 0:
            self.caught_up_s = self._clock_s() - self._began_s

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The known input partitions: first those of the start, later also those that have joined."""
        return sorted(self.positions)

    @property
    def lags(self) -> Positions:
        """How many offsets of each partition lie between the job's position and the newest known end."""
        return {partition: max(end - self.positions.get(partition, 0), 0) for partition, end in self.ends.items()}

    @property
    def behind(self) -> int:
        """How many offsets lie between the job's positions and the newest known ends."""
        return sum(self.lags.values())

    @property
    def rate(self) -> float | None:
        """Records read a second; None if too little was read to say."""
        return self._read_rate.per_s

    @property
    def eta_s(self) -> float | None:
        """Seconds until the job has caught up at the rates measured; None if they are unknown, or if it would never catch up."""
        if self.behind == 0:
            return 0.0
        gains = (self.rate or 0.0) - (self._arrival_rate.per_s or 0.0)
        return self.behind / gains if gains > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for programs: times in seconds, None if unknown."""
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
    """Write a duration, rounded to seconds, at least one."""
    return format_duration(max(round(seconds), 1) * SECOND_US)


class Poller(Generic[Answer]):
    """
    Repeats a question every *every_s* seconds in a thread of its own: the job does not wait for a broker that does not answer.
    If *ask* raises :class:`~ordering.errors.RefusedError`, that is an answer and ends the polling; after other failures it asks again.
    """

    def __init__(self, ask: Callable[[], Answer], every_s: float = POLL_EVERY_S, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._every_s, self._clock_s = ask, every_s, clock_s
        self._answers: deque[Answer] = deque(maxlen=1)
        self._refusal: RefusedError | None = None
        self._failure = ""
        # When the question under way was asked, monotonic seconds; None if none is under way.
        self._open_since_s: float | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="lookout", daemon=True)

    def __enter__(self) -> Poller[Answer]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def newest_answer(self) -> Answer | None:
        """Return the newest answer unless it was returned before, else None. Raises RefusedError: that was the answer."""
        if self._refusal is not None:
            raise self._refusal
        return self._answers.pop() if self._answers else None

    @property
    def unanswered(self) -> str:
        """Why the last question has no answer; empty if it has one, or was asked a moment ago."""
        open_since_s = self._open_since_s
        # The client gives up much later on a broker that accepts connections and does not answer.
        if not self._failure and open_since_s is not None and self._clock_s() - open_since_s > SILENT_AFTER_S:
            return f"no answer for {SILENT_AFTER_S:g} s"
        return self._failure

    def _poll(self) -> None:
        from confluent_kafka import KafkaException

        while not self._end.wait(self._every_s):
            self._open_since_s = self._clock_s()
            try:
                self._answers.append(self._ask())
                self._failure = ""
            except RefusedError as refusal:
                self._refusal = refusal
                return
            except (KafkaException, TidegateError) as error:
                # Only shown: if the job itself needs the broker, it waits for it too.
                self._failure = error.what if isinstance(error, TidegateError) else scrub(str(error))
            finally:
                self._open_since_s = None
