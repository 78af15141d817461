"""Drives running jobs: waits for them, stops them when asked, and turns Spark's exceptions into one clear error."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from ordering.errors import RefusedError, TidegateError
from tidegate.basics.secret_masking import scrub
from tidegate.platform.observe.detail_requests import WATCHED_EVERY_S
from tidegate.platform.observe.logs import Ticks, get_logger
from tidegate.platform.observe.stopping import Stop, raise_if_signalled
from tidegate.platform.spark.bounded_stop import BoundedStop
from tidegate.platform.spark.privates import CHECKPOINT_TAKEN, SLOW_START, STATE_UNREADABLE, WORKER_GONE

_CODE = re.compile(r"(?:(\w+): )?(TG-[A-Z-]+): (.*?)(?:\n|$)((?:  (?:where|fix|example): .*\n?)*)")
FAILURE_FILE = "failure.log"
_STARTS_MAX = 12
_READY_PAUSE_S = 0.25
GONE = "TG-SPARK-GONE"
_NO_SPACE = "No space left on device"
# Exceptions of a call to a JVM that has ended.
_JVM_GONE = (Py4JNetworkError, ConnectionError)
_RAISED = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b.*$", re.MULTILINE)
_PART = re.compile(r"  (where|fix|example): (.*)")


class StreamingQuery(Protocol):
    """The interface of a running query; Spark's own fits."""

    @property
    def isActive(self) -> bool: ...
    def awaitTermination(self, timeout: int) -> bool | None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DrivenQuery:
    """
    One query to drive: *start* starts it from the checkpoint in *folder*, which also gets Spark's full report if the query fails.
    *check* is called about once a second; a TidegateError from it ends the query. *on_failure* gets the error that ended it. *end_batch* is
    called before a running query is stopped: Spark kills a task that has not ended two seconds later.
    """

    name: str
    start: Callable[[], StreamingQuery]
    folder: Path
    on_failure: Callable[[TidegateError], None] = lambda _: None
    check: Callable[[], None] = lambda: None
    end_batch: Callable[[], None] = lambda: None


def drive(
    jobs: Sequence[DrivenQuery],
    stop: Stop,
    every_second: Callable[[], None] = lambda: None,
    *,
    isolates: bool = False,
    is_ready: Callable[[], bool] = lambda: True,
    is_watched: Callable[[], bool] = lambda: False,
) -> None:
    """
    Start queries as soon as *is_ready*; return when all have ended by themselves or *stop* was asked for. If one fails, the others are
    stopped; with *isolates* they go on, and the first failure is raised when all have ended. While *is_watched*, *every_second* is called
    four times a second.

    A query that cannot be started, the end of the JVM, and an exception from *every_second* or *is_ready* stop all queries; but an OSError
    from *every_second* is only logged (:class:`Ticks`). Raises TidegateError: a query failed; an error that a worker raised deliberately is
    raised again as it was.
    """
    tick = Ticks(every_second)
    running: list[DrivenRun] = []
    failures: list[TidegateError] = []

    def has_ended(query: DrivenRun, wait: bool) -> bool:
        try:
            return query.has_ended(wait)
        except TidegateError as error:
            if not isolates or error.code == GONE:
                raise
            failures.append(error)
            query.stop()
            return True

    with BoundedStop(lambda: stop.is_asked, len(jobs)) as bound:
        try:
            while not stop.is_asked and not is_ready():
                for job in jobs:
                    job.check()
                tick()
                time.sleep(_READY_PAUSE_S)
            for job in () if stop.is_asked else jobs:
                running.append(DrivenRun(job, stop))  # noqa: PERF401  (if the next one cannot be started, these are stopped below)
            unfinished = list(running)
            while unfinished and not stop.is_asked:
                # Only the first query waits for a second, so that all are checked once a second; Spark waits for whole seconds.
                in_haste = is_watched()
                unfinished = [query for place, query in enumerate(unfinished) if not has_ended(query, wait=place == 0 and not in_haste)]
                if in_haste:
                    time.sleep(WATCHED_EVERY_S)
                tick()
        finally:
            bound.begin()
            for query in running:
                query.stop()
    tick()
    if failures:
        raise failures[0]


class DrivenRun:
    """A query that was started; it is started again if one of its Python processes did not start in time."""

    def __init__(self, job: DrivenQuery, stop: Stop) -> None:
        self._job, self._stop, self._starts = job, stop, 0
        self._query = self._start()

    def _start(self) -> StreamingQuery:
        while True:
            self._starts += 1
            try:
                return self._job.start()
            except (PySparkException, Py4JError, *_JVM_GONE) as error:
                # A JVM that a signal ends may still answer, that its Spark is stopped, before it is gone.
                raise_if_signalled()
                self._restart_or_raise(error)

    def has_ended(self, wait: bool) -> bool:
        try:
            self._job.check()
        except TidegateError as error:
            self._job.on_failure(error)
            raise
        try:
            # awaitTermination takes whole seconds, but returns at once if the query is no longer active.
            return bool((wait or not self._query.isActive) and self._query.awaitTermination(timeout=1))
        except (PySparkException, Py4JError, *_JVM_GONE) as error:
            if self._stop.is_asked:
                # A service manager signals all processes of a job, the JVM and the workers too, so their errors are expected.
                get_logger("spark").info("the batch under way was cut off: the next start runs it again", job=self._job.name)
                return True
            self._restart_or_raise(error)
            self._query = self._start()
            return False

    def stop(self) -> None:
        """End the query, after a batch that waits for its end; the next start runs an unfinished batch again."""
        with suppress(PySparkException, Py4JError, *_JVM_GONE):
            if self._query.isActive:
                self._job.end_batch()
        with suppress(PySparkException, Py4JError, *_JVM_GONE):
            self._query.stop()

    def _restart_or_raise(self, error: Exception) -> None:
        """Return if a restart is safe and may help; else raise the job's error."""
        text = str(error)
        # Spark gives a Python process ten seconds to start, which may be too short on a busy machine.
        if SLOW_START not in text or self._starts == _STARTS_MAX or self._stop.is_asked:
            raised = self._job_error(error, text)
            self._job.on_failure(raised)
            raise raised from None
        get_logger("spark").warning(
            "a Python process did not start in time: starting the query again", job=self._job.name, attempt=self._starts
        )

    def _job_error(self, error: Exception, text: str) -> TidegateError:
        """Write Spark's report if the disk has room; return the error to raise."""
        report = self._job.folder / FAILURE_FILE
        try:
            report.write_text(scrub(text))
        except OSError as unwritten:
            text, report = f"{text}\n{unwritten}", self._job.folder
        get_logger("spark").error("the job has failed", job=self._job.name, report=str(report))
        if isinstance(error, _JVM_GONE):
            what = "Spark's JVM has ended by itself, or was killed"
            fix = "start again: the job resumes; if nobody killed it, see the system's log and spark.log there for want of memory"
            return TidegateError(what, code=GONE, where=str(self._job.folder), fix=fix)
        return error_from_text(scrub(text), str(report))


def error_from_text(text: str, report: str) -> TidegateError:
    """Return the TidegateError in a Spark failure's text, or one that says that Spark failed and names the *report*."""
    codes = _CODE.findall(text)
    if codes:
        # Python prints the cause of an error first, so the last code is the error itself.
        name, code, what, parts = codes[-1]
        kinds = {kind.__name__: kind for kind in _error_classes(TidegateError)}
        return kinds.get(name, TidegateError)(what, code=code, **dict(_PART.findall(parts)))
    if any(said in text for said in CHECKPOINT_TAKEN):
        reason = "another job uses this checkpoint"
        fix = "nothing, if it is meant to: what it writes is what this one would have; else stop one of the two before the other starts"
        return RefusedError(reason, code="TG-CHECKPOINT-TAKEN", where=report, fix=fix)
    if _NO_SPACE in text:
        return TidegateError(
            "no space is left on a disk that the job needs", code="TG-SPARK-DISK", where=report, fix="make room; starting again resumes"
        )
    if any(said in text for said in STATE_UNREADABLE):
        return TidegateError(
            "Spark cannot read the state in the checkpoint",
            code="TG-SPARK-STATE",
            where=report,
            fix="start again; if this comes again the state is damaged: delete the checkpoint folder, and ingest resumes from the CTIs of "
            "its ordered topic, a query, with --start last-stopped, from those of its result topic",
        )
    if WORKER_GONE in text:
        return TidegateError(
            "a Python worker of the job has ended by itself, or was killed",
            code="TG-SPARK",
            where=report,
            fix="start again: the job resumes; if nobody killed it, see the system's log for want of memory, and what the script calls of "
            "other packages",
        )
    exceptions = _RAISED.findall(text)
    what = exceptions[-1] if exceptions else text.strip().partition("\n")[0][:500]
    return TidegateError(
        f"the Spark job failed: {scrub(what)}", code="TG-SPARK", where=report, fix="read the report; starting again resumes"
    )


def _error_classes(root: type[TidegateError]) -> Iterator[type[TidegateError]]:
    """Yield the error classes that can be recreated from text."""
    if root.__init__ is TidegateError.__init__:
        yield root
    for kind in root.__subclasses__():
        yield from _error_classes(kind)
