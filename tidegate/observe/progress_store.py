"""
Progress of a running job, kept in Redis for whoever wants to look: ``tidegate status``, ``tidegate watermarks``, planners.

One hash for each ordered topic, ``tidegate:{ORDERED_TOPIC}:progress``: a field ``topic/partition`` for each input partition
with the last report of its stage, a field ``job`` about the job as a whole, and a field ``replay``, how fast it or a run before
it has caught up. All values are JSON.

Law: a job never waits for this and never fails by it. What is published is kept in memory, the newest of each field, and
written by a thread of its own, at most once a second; what Redis did not take is written when it answers again. What is read
is therefore what was so up to a second ago, or longer where ``at_ms`` of the job says so: no result may depend on it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from ordering.errors import TidegateError
from tidegate.observe.detail_requests import QUESTION_VALID_S, leave_question
from tidegate.observe.logs import get_logger
from tidegate.observe.recovery_report import Replay
from tidegate.redis_client import connect, translate_errors
from tidegate.settings.tables.redis import RedisSettings

# Least time between two writes of one job.
WRITE_EVERY_S = 1.0
# A job without news writes its field `job` this often, and reads then what is asked.
HEARTBEAT_S = 2.0
# A job that has not written for longer is gone, or cannot reach Redis.
SILENT_AFTER_S = 15.0

_JOB, _REPLAY = "job", "replay"
_CLOSE_WAIT_S = 2.0
_log = get_logger("progress")


def question_key(ordered_topic: str) -> str:
    """Return the key under which the job that writes *ordered_topic* is asked for more (:mod:`tidegate.observe.detail_requests`)."""
    return f"tidegate:{{{ordered_topic}}}:asked"


def progress_key(ordered_topic: str) -> str:
    """Return the key under which the job that writes *ordered_topic* publishes."""
    return f"tidegate:{{{ordered_topic}}}:progress"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """
    What a job has published.

    Args:
        ordered_topic: The topic it writes.
        job: About the job: ``input``, ``state`` (starting, replaying, live, stopped), ``started_ms``, ``at_ms``, and more.
        partitions: The last report of each input partition, by (topic, partition). Of a query: by ("bucket", number).
        replay: How fast this run or one before it has caught up; None if none had enough records.
    """

    ordered_topic: str
    job: Mapping[str, Any]
    partitions: Mapping[tuple[str, int], Mapping[str, Any]]
    replay: Replay | None = None

    def is_alive(self, now_ms: int) -> bool:
        """Return whether the job runs, as far as can be seen at the wall clock *now_ms*, milliseconds."""
        return self.job.get("state") != "stopped" and now_ms - int(self.job.get("at_ms", 0)) < SILENT_AFTER_S * 1000

    def last_arrival_us(self, topic: str, partition: int, next_offset: int) -> int | None:
        """
        Return the arrival frontier, microseconds, of an input partition walked exactly up to *next_offset*.

        None where what is published belongs to another position.
        """
        report = self.partitions.get((topic, partition), {})
        return int(report["arrival_us"]) if report.get("next_offset") == next_offset else None


class ProgressStore:
    """Reads what jobs have published; *settings* say where. One connection, made at first use."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._client: redis.Redis | None = None

    def read(self, ordered_topic: str) -> JobProgress | None:
        """
        Return what the job that writes *ordered_topic* has published, None if nothing.

        Raises:
            UnreachableError: Redis does not answer.
            RefusedError: It does not let us read.
        """
        with translate_errors(self._settings.address):
            fields: Any = self._connection().hgetall(progress_key(ordered_topic))
        return _parse_progress(ordered_topic, fields) if fields else None

    def ask_details(self, ordered_topic: str, substreams: int) -> None:
        """
        Ask the job for more about each partition, and about so many of its *substreams*, for the next seconds.

        Raises:
            UnreachableError: Redis does not answer.
            RefusedError: It does not let us write.
        """
        with translate_errors(self._settings.address):
            self._connection().set(question_key(ordered_topic), _json({"substreams": substreams}), ex=QUESTION_VALID_S)

    def ordered_topics(self) -> list[str]:
        """
        Return the topics whose jobs have ever published, sorted.

        Raises:
            UnreachableError: Redis does not answer.
            RefusedError: It does not let us read.
        """
        before, after = progress_key("*").split("*")
        with translate_errors(self._settings.address):
            keys = list(self._connection().scan_iter(match=f"{before}*{after}", count=1_000))
        return sorted(str(key).removeprefix(before).removesuffix(after) for key in keys)

    def close(self) -> None:
        """Leave Redis."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connection(self) -> redis.Redis:
        if self._client is None:
            self._client = connect(self._settings)
        return self._client


def _parse_progress(ordered_topic: str, fields: Mapping[str, str]) -> JobProgress:
    partitions = {}
    for name, text in fields.items():
        topic, slash, partition = name.rpartition("/")
        if slash:
            partitions[topic, int(partition)] = json.loads(text)
    replay = Replay(**json.loads(fields[_REPLAY])) if _REPLAY in fields else None
    return JobProgress(ordered_topic, json.loads(fields.get(_JOB, "{}")), dict(sorted(partitions.items())), replay)


@dataclass(slots=True)
class _Pending:
    """What is still to be written: the newest of everything."""

    job: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    replay: Replay | None = None
    is_job_changed: bool = False


class ProgressPublisher:
    """
    Publishes the progress of one job; a context manager, at whose end the state becomes ``stopped``.

    Args:
        settings: Where Redis is.
        ordered_topic: The topic that the job writes, or the name of an output that is no topic.
        job: What is known about the job at its start, such as ``input="flights"``.
        folder: The job's checkpoint folder, where questions to its stages are left; None: questions are not read.
        every_s: Least time between two writes, seconds.
        wall_ms: The wall clock, milliseconds.
    """

    def __init__(
        self,
        settings: RedisSettings,
        ordered_topic: str,
        *,
        folder: Path | None = None,
        every_s: float = WRITE_EVERY_S,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        **job: Any,
    ) -> None:
        self._settings, self._topic, self._every_s, self._wall_ms = settings, ordered_topic, every_s, wall_ms
        self._folder = folder
        self._pending = _Pending()
        self._changed = threading.Condition()
        self._is_ending = False
        self._client: redis.Redis | None = None
        self._is_lost = False
        self._thread = threading.Thread(target=self._write_loop, name="progress", daemon=True)
        self.update_job(state="starting", started_ms=wall_ms(), **job)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        failure = error.as_dict() if isinstance(error, TidegateError) else None
        self.update_job(state="stopped", **({"failure": failure} if failure else {}))
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(_CLOSE_WAIT_S)

    def publish(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Take the reports of one batch: of an ingest stage (``topic``, ``partition``) or of a query's (``bucket``)."""
        at_ms = self._wall_ms()
        with self._changed:
            for report in reports:
                name = f"bucket/{report['bucket']}" if "bucket" in report else f"{report['topic']}/{report['partition']}"
                self._pending.reports[name] = {**report, "at_ms": at_ms}
            self._changed.notify()

    def update_job(self, **about: Any) -> None:
        """Set fields of ``job``, leaving the others: ``state="live"``, ``recovery={...}``."""
        with self._changed:
            if any(self._pending.job.get(name, _MISSING) != value for name, value in about.items()):
                self._pending.job.update(about)
                self._pending.is_job_changed = True
                self._changed.notify()

    def keep_replay(self, replay: Replay) -> None:
        """Keep how fast the job has caught up: later runs do not take it back, until they have caught up themselves."""
        with self._changed:
            self._pending.replay = replay

    def _write_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_ending or self._pending.reports or self._pending.is_job_changed, HEARTBEAT_S)
                ending, reports, self._pending.reports = self._is_ending, self._pending.reports, {}
                self._pending.is_job_changed = False
                fields = {name: _json(report) for name, report in reports.items()}
                fields[_JOB] = _json({**self._pending.job, "at_ms": self._wall_ms()})
                if self._pending.replay is not None:
                    fields[_REPLAY] = _json(asdict(self._pending.replay))
            if not self._write(fields):
                with self._changed:
                    self._pending.reports = {**reports, **self._pending.reports}
            if ending:
                return
            with self._changed:
                # Not to be woken by news: this is what bounds how often is written.
                self._changed.wait_for(lambda: self._is_ending, self._every_s)

    def _write(self, fields: dict[Any, Any]) -> bool:
        try:
            if self._client is None:
                self._client = connect(self._settings)
            with translate_errors(self._settings.address):
                exchange = self._client.pipeline(transaction=False)
                exchange.hset(progress_key(self._topic), mapping=fields)
                exchange.get(question_key(self._topic))
                _, question = exchange.execute()
            if question and self._folder is not None:
                leave_question(self._folder, question)
        except (TidegateError, OSError) as error:
            self._client = None
            if not self._is_lost:
                _log.warning("progress is not published", reason=str(error))
            self._is_lost = True
            return False
        if self._is_lost:
            _log.info("progress is published again")
            self._is_lost = False
        return True


_MISSING = object()


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)
