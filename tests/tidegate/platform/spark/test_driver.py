"""What Spark says when a job fails becomes one clear error again; signals end a job after its batch."""

from __future__ import annotations

import errno
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ordering.errors import GapError, ProtocolError, QueryError, RefusedError, SettingError, TickRangeError, TidegateError, UnreachableError
from tidegate.platform.observe.detail_requests import WATCHED_EVERY_S
from tidegate.platform.observe.stopping import Stop, stop_on_signal
from tidegate.platform.spark.driver import DrivenQuery, drive, error_from_text
from tidegate.platform.spark.session import end_session

FAILURE = """\
[STREAM_FAILED] Query [id = 5b4c1b84-5c6e-4f86-8c3c-0a53a1b7f4f1, runId = 93f58be1-8882-41bc-a8e4-475907b919a1] terminated with \
exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: \
An exception was thrown from the Python worker SQLSTATE: 39000
  File "/opt/python/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/python/site-packages/pyspark/errors/exceptions/captured.py", line 262, in deco
    raise converted from None
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
{worker}
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: query-departures [id = 5b4c1b84-5c6e-4f86-8c3c-0a53a1b7f4f1, runId = 93f58be1-8882-41bc-a8e4-475907b919a1]
Current Committed Offsets: {{tidegate_ranges: {{"final": 0, "positions": {{"0": 1700}}}}}}
Current Available Offsets: {{tidegate_ranges: {{"final": 0, "positions": {{"0": 2900}}}}}}

Current State: ACTIVE
Thread State: RUNNABLE

Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink, Append
+- ~TransformWithStateInPySpark transformWithStateUDF(label#0, bucket#1)#6, 1, [report#9], Append, NoTime, pandas, false, 0
   +- ~StreamingDataSourceV2ScanRelation[label#0, bucket#1] tidegate_ranges
"""
"""What PySpark 4.3 raises when a stateful stage fails, shortened; ``{worker}`` is the worker's own report."""


def failed(work: Callable[[], object]) -> str:
    """The text of a Spark failure that *work* caused in a worker."""
    try:
        work()
    except Exception:
        return FAILURE.format(worker=traceback.format_exc())
    raise AssertionError("the work must fail")


def raising(error: Exception, cause: Exception | None = None) -> Callable[[], object]:
    """Work that raises *error*, from *cause* if given."""

    def work() -> object:
        if cause is None:
            raise error
        try:
            raise cause
        except Exception as first:
            raise error from first

    return work


FULL = {
    "code": "TG-RETENTION",
    "where": "flights-2@1700",
    "fix": "start a new ordered topic: what is gone is gone",
    "example": 'retention = "7d"',
}


@pytest.mark.parametrize(
    "kind", [TidegateError, SettingError, QueryError, RefusedError, UnreachableError, ProtocolError, GapError, TickRangeError]
)
def test_an_error_raised_on_purpose_comes_back_as_it_was_raised(kind: type[TidegateError]) -> None:
    """Kind, exit code, sentence, place, way out and example survive the way through Spark's text."""
    raised = kind("retention has deleted records: 17 of them", **FULL)
    error = error_from_text(failed(raising(raised)), "failure.log")
    assert type(error) is kind
    assert error.exit_code == raised.exit_code
    assert error.as_dict() == raised.as_dict()


@pytest.mark.parametrize("parts", [{}, {"where": "flights-2@1700"}, {"fix": "wait"}, {"where": "a", "example": "b"}])
def test_parts_an_error_does_not_have_are_not_made_up(parts: dict[str, str]) -> None:
    """Whatever it carries, nothing of Spark's own text gets into it."""
    raised = UnreachableError("Kafka does not answer", **parts)
    assert error_from_text(failed(raising(raised)), "failure.log").as_dict() == raised.as_dict()


def test_the_last_error_of_a_chain_counts() -> None:
    """Python reports what an error was raised from first; what was raised in the end is what the job has to say."""
    first = UnreachableError("Redis does not answer", where="127.0.0.1:6379")
    last = RefusedError("the journal is needed and gone", code="TG-JOURNAL-GONE")
    assert error_from_text(failed(raising(last, first)), "failure.log").as_dict() == last.as_dict()
    assert error_from_text(failed(raising(last, ValueError("low"))), "failure.log").as_dict() == last.as_dict()


def test_any_other_error_is_told_with_the_report() -> None:
    """An error nobody foresaw: the line that names it, and where the whole report is."""
    error = error_from_text(failed(raising(ZeroDivisionError("division by zero"))), "jobs/query-x/failure.log")
    assert (error.code, error.where) == ("TG-SPARK", "jobs/query-x/failure.log")
    assert "ZeroDivisionError: division by zero" in error.what


def test_a_failure_without_a_python_error_is_told_too() -> None:
    """The JVM may fail by itself, with a text of any form, or none."""
    assert "OutOfMemoryError" in error_from_text("Job aborted\njava.lang.OutOfMemoryError: Java heap space\n", "f").what
    assert error_from_text("the driver went away", "f").what == "the Spark job failed: the driver went away"
    assert error_from_text("", "f").code == "TG-SPARK"


def test_a_worker_that_died_is_told_as_what_it_is() -> None:
    """What py4j raised around it says nothing."""
    text = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.collect.\n: Python worker exited unexpectedly (crashed)."
    assert error_from_text(text, "f").what == "a Python worker of the job has ended by itself, or was killed"


@pytest.mark.parametrize("name", ["CANNOT_LOAD_STATE_STORE.UNCATEGORIZED", "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"])
def test_state_that_cannot_be_read_has_a_way_out(name: str) -> None:
    """Starting again does not mend it: the topics are the data."""
    error = error_from_text(f"[STREAM_FAILED] Query terminated with exception: [{name}] An error occurred.", "f")
    assert (error.code, error.exit_code) == ("TG-SPARK-STATE", 1)
    assert "--start last-stopped" in error.fix


def test_a_zombie_is_told_that_another_job_goes_on() -> None:
    """Spark finds the other one's entry in its log: an own code and a refusal's exit code, nothing of Spark's words."""
    logged = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 7. SQLSTATE: 40000"
    committed = "java.lang.IllegalStateException: Multiple streaming queries are concurrently using file:/jobs/ingest-x/spark/commits"
    for text in (logged, committed):
        error = error_from_text(text, "jobs/ingest-x/failure.log")
        assert (type(error), error.code, error.exit_code) == (RefusedError, "TG-CHECKPOINT-TAKEN", 3)


def test_a_full_disk_is_told_as_such() -> None:
    """Java and Python say it in the same words."""
    for text in ("java.io.IOException: No space left on device", failed(raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))):
        assert error_from_text(text, "f").code == "TG-SPARK-DISK"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_first_signal_asks_a_second_ends(number: signal.Signals) -> None:
    """One signal lets the batch under way finish; who sends another means it. Afterwards signals do what they did."""
    before = signal.getsignal(number)
    with stop_on_signal() as stop:
        assert not stop.is_asked
        os.kill(os.getpid(), number)
        assert stop.is_asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@dataclass
class Query:
    """A query that ends by itself, or fails, after so many looks."""

    looks: int
    failure: str = ""
    stopped: int = 0
    log: list[str] = field(default_factory=list)

    @property
    def isActive(self) -> bool:
        self.looks -= 1
        return self.looks > 0 and not self.stopped

    def awaitTermination(self, timeout: int) -> bool:
        assert timeout == 1
        self.looks -= 1
        if self.looks <= 0 and self.failure:
            raise StreamingQueryException(self.failure)
        return self.looks <= 0

    def stop(self) -> None:
        self.stopped += 1


def driven(folder: Path, **queries: Query) -> list[DrivenQuery]:
    """Jobs whose starts give these queries."""

    return [DrivenQuery(name, lambda query=query: query, folder) for name, query in queries.items()]  # type: ignore[misc]


def test_a_process_ends_when_all_its_queries_have_ended(tmp_path: Path) -> None:
    """Whichever of them is the last; each tick is told."""
    ticks: list[int] = []
    first, last = Query(2), Query(9)
    drive(driven(tmp_path, first=first, last=last), Stop(), lambda: ticks.append(1))
    assert first.looks <= 0
    assert last.looks <= 0
    assert len(ticks) > 4


def test_a_watched_process_looks_more_often(tmp_path: Path) -> None:
    """Spark is asked to wait for whole seconds: meanwhile nobody would read what the tasks of open batches report."""

    @dataclass
    class Unwaited(Query):
        def awaitTermination(self, timeout: int) -> bool:
            assert self.looks <= 0, "it is waited for, a second"
            return super().awaitTermination(timeout)

    began_s = time.monotonic()
    drive(driven(tmp_path, first=Unwaited(4), other=Unwaited(4)), Stop(), is_watched=lambda: True)
    assert time.monotonic() - began_s >= 3 * WATCHED_EVERY_S


@pytest.mark.parametrize("names", [("fails", "runs"), ("runs", "fails")])
def test_one_query_that_fails_ends_the_process_with_its_error(tmp_path: Path, names: tuple[str, str]) -> None:
    """The others are stopped first; the report says what Spark had to say."""
    queries = {"fails": Query(3, failed(raising(RefusedError("gone", code="TG-RETENTION")))), "runs": Query(10**9)}
    with pytest.raises(RefusedError) as refusal:
        drive(driven(tmp_path, **{name: queries[name] for name in names}), Stop())
    assert refusal.value.code == "TG-RETENTION"
    assert queries["runs"].stopped == 1
    assert "TG-RETENTION" in (tmp_path / "failure.log").read_text()


@pytest.mark.parametrize("names", [("fails", "runs"), ("runs", "fails")])
def test_isolated_a_query_that_fails_lets_the_others_end_by_themselves(tmp_path: Path, names: tuple[str, str]) -> None:
    """Its failure is told at once, and is the error of the process once all have ended."""
    queries = {"fails": Query(3, failed(raising(RefusedError("gone", code="TG-RETENTION")))), "runs": Query(12)}
    told: list[tuple[str, bool]] = []
    jobs = [
        DrivenQuery(name, lambda name=name: queries[name], tmp_path, lambda failure: told.append((failure.code, queries["runs"].looks > 0)))  # type: ignore[misc]
        for name in names
    ]
    with pytest.raises(RefusedError) as refusal:
        drive(jobs, Stop(), isolates=True)
    assert refusal.value.code == "TG-RETENTION"
    assert told == [("TG-RETENTION", True)]
    assert queries["runs"].looks <= 0
    assert queries["fails"].stopped


def test_isolated_a_check_that_fails_stops_its_own_query_only(tmp_path: Path) -> None:
    """The driver has seen that a topic was made again: the query that reads it must not go on."""

    def refuse() -> None:
        raise RefusedError("made again", code="TG-TOPIC-RECREATED")

    one, other, told = Query(10**9), Query(5), list[str]()
    jobs = [DrivenQuery("one", lambda: one, tmp_path, lambda failure: told.append(failure.code), refuse), *driven(tmp_path, other=other)]
    with pytest.raises(RefusedError):
        drive(jobs, Stop(), isolates=True)
    assert told == ["TG-TOPIC-RECREATED"]
    assert one.stopped
    assert other.looks <= 0


def test_isolated_a_jvm_that_was_killed_ends_all(tmp_path: Path) -> None:
    """It is shared by all queries: the first that meets it tells it, and none of them is asked further."""
    told: list[str] = []
    jobs = [DrivenQuery(name, lambda: LostQuery(9), tmp_path, lambda failure: told.append(failure.code)) for name in ("one", "other")]
    with pytest.raises(TidegateError):
        drive(jobs, Stop(), isolates=True)
    assert told == ["TG-SPARK-GONE"]


def test_what_a_tick_raises_stops_all_queries(tmp_path: Path) -> None:
    """The driver has seen something that must not go on, such as a topic made again."""

    def refuse() -> None:
        raise RefusedError("made again", code="TG-TOPIC-RECREATED")

    queries = {"one": Query(10**9), "other": Query(10**9)}
    with pytest.raises(RefusedError):
        drive(driven(tmp_path, **queries), Stop(), refuse)
    assert [query.stopped for query in queries.values()] == [1, 1]


def test_a_tick_without_a_free_descriptor_is_tried_again(tmp_path: Path) -> None:
    """Whoever uses up all descriptors for a while, with half-open requests for example, ends no job."""
    failures, worked = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)) for _ in range(3)], list[int]()

    def tick() -> None:
        if failures:
            raise failures.pop()
        worked.append(1)

    drive(driven(tmp_path, query=Query(9)), Stop(), tick)
    assert (failures, bool(worked)) == ([], True)


def test_a_query_whose_python_process_was_slow_is_started_again(tmp_path: Path) -> None:
    """Only that one, and not for ever."""
    starts: list[str] = []

    def slow(times: int) -> DrivenQuery:
        def start() -> Query:
            starts.append("slow")
            return Query(1, "Python worker failed to connect back." if len(starts) <= times else "")

        return DrivenQuery("slow", start, tmp_path)

    drive([slow(2), *driven(tmp_path, other=Query(5))], Stop())
    assert len(starts) == 3
    starts.clear()
    with pytest.raises(TidegateError):
        drive([slow(99)], Stop())
    assert len(starts) == 12


@dataclass
class LostQuery(Query):
    """A query whose JVM is gone: nothing about it can be asked or said any more."""

    gone: Exception = field(default_factory=ConnectionRefusedError)

    def awaitTermination(self, timeout: int) -> bool:
        raise self.gone

    def stop(self) -> None:
        raise self.gone


@pytest.mark.parametrize("gone", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("Answer from Java side is empty")])
def test_a_jvm_that_was_killed_is_told_in_one_error(tmp_path: Path, gone: Exception) -> None:
    """Also where the stopping of its queries meets the same; the input it happened to has failed."""
    failures: list[str] = []
    job = DrivenQuery("x", lambda: LostQuery(9, gone=gone), tmp_path, lambda _: failures.append("x"))
    with pytest.raises(TidegateError) as error:
        drive([job, DrivenQuery("other", lambda: LostQuery(9, gone=gone), tmp_path)], Stop())
    assert (error.value.code, error.value.exit_code, error.value.where) == ("TG-SPARK-GONE", 1, str(tmp_path))
    assert failures == ["x"]


def test_a_jvm_that_was_killed_can_be_stopped_all_the_same() -> None:
    """What the job has to say is not covered by what its end meets."""

    class Gone:
        def stop(self) -> None:
            raise ConnectionRefusedError(111, "Connection refused")

    end_session(cast(SparkSession, Gone()))


def test_where_the_report_finds_no_room_the_error_is_told_nevertheless(tmp_path: Path) -> None:
    """An error with a code keeps it; one without is blamed on the disk if that is full."""
    (tmp_path / "failure.log").symlink_to("/dev/full")
    for text, code in ((failed(raising(RefusedError("gone", code="TG-RETENTION"))), "TG-RETENTION"), ("it failed", "TG-SPARK-DISK")):
        with pytest.raises(TidegateError) as error:
            drive(driven(tmp_path, query=Query(1, text)), Stop())
        assert error.value.code == code


def test_asked_to_stop_all_queries_are_stopped(tmp_path: Path) -> None:
    """At the next look."""
    stop, query = Stop(), Query(10**9)
    drive(driven(tmp_path, query=query), stop, stop.ask)
    assert query.stopped == 1


def test_what_ends_because_a_stop_was_asked_for_is_no_failure(tmp_path: Path) -> None:
    """Service managers signal the JVM and the workers too: the batch under way fails, the job has stopped as it was told."""
    stop, failed = Stop(), list[str]()

    class Cut(Query):
        def awaitTermination(self, timeout: int) -> bool:
            stop.ask()
            raise Py4JNetworkError("Answer from Java side is empty")

    drive([DrivenQuery("a", lambda: Cut(9), tmp_path, lambda _: failed.append("a"))], stop)
    assert failed == []


def test_queries_start_when_all_is_ready(tmp_path: Path) -> None:
    """Until then the job is checked and shown; asked to stop, it starts nothing."""
    started: list[str] = []

    def start() -> Query:
        started.append("query")
        return Query(1)

    ready = iter([False, False, True])
    seen: list[int] = []
    drive([DrivenQuery("a", start, tmp_path)], Stop(), lambda: seen.append(len(started)), is_ready=lambda: next(ready))
    assert seen[:2] == [0, 0]
    assert started == ["query"]
    stop = Stop()
    drive([DrivenQuery("a", start, tmp_path)], stop, stop.ask, is_ready=lambda: False)
    assert started == ["query"]
