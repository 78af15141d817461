"""
Progress of a running job, kept in Redis for ``tidegate status``, ``tidegate watermarks`` and planners.

Each ordered topic has one hash, ``tidegate:{ORDERED_TOPIC}:progress``. Its fields, all JSON: ``topic/partition`` for each input
partition, with the last report of its stage; ``job`` about the whole job; ``replay``, how fast this run or an earlier one caught up;
``history``, what has happened to this run and earlier ones (:mod:`tidegate.platform.observe.run_history`). Sinks of one output publish
under its name, each in fields ``job ID`` and ``history ID`` of its own; a sink that starts takes over the history of those that have ended.

Law: a job never waits for Redis here and never fails because of it. The newest value of each field is kept in memory, and a thread writes
it at most once a second, while a client asks four times. Values that Redis did not accept are written when it answers again. So a value may
be old (``at_ms`` of the job says when it was written), and no result may depend on it.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ordering.errors import RefusedError, TidegateError
from tidegate.basics.process_identity import has_ended, own_identity
from tidegate.basics.secret_masking import scrub, scrub_error
from tidegate.platform.observe.detail_requests import NO_DETAILS, QUESTION_VALID_S, WATCHED_EVERY_S, leave_question
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.published_fields import (
    FieldError,
    HistoryFields,
    JobFields,
    ReplayFields,
    Unreadable,
    parse_field,
    parse_report,
)
from tidegate.platform.observe.recovery_report import ReplayReport
from tidegate.platform.observe.reports import IngestReport, Report
from tidegate.platform.observe.run_history import (
    Happened,
    HistoryEntry,
    StoredHistory,
    add_entry,
    describe_changes,
    entries_of,
    merge_entries,
    parse_history,
    to_text,
)
from tidegate.platform.redis_client import ForeignValueError, connect, translate_errors
from tidegate.platform.settings.tables.redis import RedisSettings

if TYPE_CHECKING:
    import redis

WRITE_EVERY_S = 1.0  # minimum time between two writes of one job
HEARTBEAT_S = 2.0  # if nothing changes, a job writes its field `job` and reads questions this often
SILENT_AFTER_S = 15.0  # a job that has not written for this long is gone, or cannot reach Redis

_SINK = "sink:"
_JOB, _REPLAY, _HISTORY = "job", "replay", "history"
_INSTANCE, _INSTANCE_HISTORY = "job ", "history "
_CLOSE_WAIT_S = 2.0
_LAST_HEARD = "it was heard of for the last time"
_PARTITION = re.compile(r"\d{1,10}", re.ASCII)
_log = get_logger("progress")


def question_key(ordered_topic: str) -> str:
    """Return the key of questions to the job that writes *ordered_topic* (:mod:`tidegate.platform.observe.detail_requests`)."""
    return f"tidegate:{{{ordered_topic}}}:asked"


def progress_key(ordered_topic: str) -> str:
    """Return the key of the progress of the job that writes *ordered_topic*."""
    return f"tidegate:{{{ordered_topic}}}:progress"


def sink_key(output: str) -> str:
    """Return the name under which the sink of an output publishes its progress; no topic can have it."""
    return f"{_SINK}{output}"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The published progress of a job."""

    ordered_topic: str
    # About the job: ``input``, ``state`` (starting, replaying, live, stopped), ``started_ms``, ``at_ms``, and more.
    job: Mapping[str, Any]
    # The last report of each input partition, by (topic, partition); for a query by ("bucket", number).
    partitions: Mapping[tuple[str, int], Report]
    # How fast this run or an earlier one caught up; None if none read enough records.
    replay: ReplayReport | None = None
    # The fields that are not as jobs publish them.
    unreadable: tuple[Unreadable, ...] = ()
    # When each report was published, milliseconds.
    reported_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)
    # What has happened to this run and earlier ones, the newest last.
    history: tuple[HistoryEntry, ...] = ()

    def is_alive(self, now_ms: int) -> bool:
        """Return whether the job seems to run, at the wall clock *now_ms*, milliseconds. A process of this machine is looked for."""
        is_silent = now_ms - int(self.job.get("at_ms", 0)) >= SILENT_AFTER_S * 1000
        return self.job.get("state") != "stopped" and not is_silent and not has_ended(self.job.get("process"))

    def last_arrival_us(self, topic: str, partition: int, next_offset: int) -> int | None:
        """Return the arrival frontier, microseconds, of an input partition if its report was made exactly at *next_offset*, else None."""
        report = self.partitions.get((topic, partition))
        return report.arrival_us if isinstance(report, IngestReport) and report.next_offset == next_offset else None


class ProgressStore:
    """
    Reads the progress of jobs over one connection, made at first use.
    Its methods raise UnreachableError if Redis does not answer, and RefusedError if it does not permit the command.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._client: redis.Redis | None = None

    def read(self, ordered_topic: str) -> JobProgress | None:
        """Return the progress of the job that writes *ordered_topic*, with what is unreadable of it; None if it has never published."""
        try:
            with translate_errors(self._settings.address):
                fields: Any = self._connection().hgetall(progress_key(ordered_topic))
        except ForeignValueError as error:
            return _unreadable_key(ordered_topic, error)
        return _parse_progress(ordered_topic, fields) if fields else None

    def read_sinks(self, output: str, now_ms: int) -> list[JobProgress]:
        """
        Return the progress of each sink of an output, that of the newest last: there may be several at a time. One that no longer runs at
        *now_ms* is left out once another was started after its last sign of life. The newest has the history of all.
        """
        key = sink_key(output)
        try:
            with translate_errors(self._settings.address):
                fields: Any = self._connection().hgetall(progress_key(key))
        except ForeignValueError as error:
            return [_unreadable_key(key, error)]
        sinks = [_parse_progress(key, {name: text}) for name, text in fields.items() if name == _JOB or name.startswith(_INSTANCE)]
        sinks.sort(key=lambda sink: int(sink.job.get("started_ms", 0)))
        last_start_ms = max((int(sink.job.get("started_ms", 0)) for sink in sinks), default=0)
        shown = [sink for sink in sinks if sink.is_alive(now_ms) or int(sink.job.get("at_ms", 0)) >= last_start_ms or sink.unreadable]
        history = merge_entries(found.entries for found in _instance_histories(fields).values())
        if not history:
            return shown
        # A sink whose first start was refused has a history, and nothing else.
        newest = shown.pop() if shown else JobProgress(key, {}, {})
        return [*shown, replace(newest, history=tuple(history))]

    def forget_sinks(self, output: str, topic: str | None, *, only_count: bool = False) -> int:
        """
        Delete the progress of an output's sinks that read *topic*, unless *only_count*; return of how many there is any. Another project
        of the same Redis may have an output of this name, which copies another topic. What cannot be read is deleted too.
        """
        key = progress_key(sink_key(output))
        try:
            with translate_errors(self._settings.address):
                fields: Any = self._connection().hgetall(key)
                jobs = {name: text for name, text in fields.items() if name not in _instance_histories(fields)}
                own = [name for name, text in jobs.items() if _parse_progress(key, {name: text}).job.get("reads") in (None, topic)]
                # The history of sinks whose job is gone goes with the last of all.
                others = {_history_field(name) for name in jobs.keys() - set(own)}
                histories = [name for name in _instance_histories(fields) if not others or name in map(_history_field, own)]
                if (own or histories) and not only_count:
                    self._connection().hdel(key, *own, *histories)
                return len(own) or len(histories)
        except ForeignValueError:
            if not only_count:
                with translate_errors(self._settings.address):
                    self._connection().delete(key)
            return 1

    def note_refusal(self, ordered_topic: str, error: TidegateError, at_ms: int) -> None:
        """Note in the history of a topic's writers that a start was refused; without Redis nothing is noted."""
        with suppress(TidegateError, OSError), translate_errors(self._settings.address):
            found = _read_history(self._connection(), ordered_topic)
            entries = add_entry(found.entries, HistoryEntry(at_ms, Happened.REFUSED, scrub(f"{error.code}: {error.what}")))
            self._connection().hset(progress_key(ordered_topic), _HISTORY, to_text(entries, found.settings))

    def ask_details(self, ordered_topic: str, substreams: int) -> None:
        """Ask the job for details of each partition and of this many *substreams*; the question is valid for some seconds."""
        with translate_errors(self._settings.address):
            self._connection().set(question_key(ordered_topic), _json({"substreams": substreams}), ex=QUESTION_VALID_S)

    def watch(self, ordered_topic: str) -> None:
        """Let the job and its stages tell more often for some seconds how far they are; a question stays."""
        with translate_errors(self._settings.address):
            self._connection().set(question_key(ordered_topic), _json({"substreams": NO_DETAILS}), ex=QUESTION_VALID_S, nx=True)

    def ordered_topics(self) -> list[str]:
        """Return the topics whose writers have ever published, sorted."""
        before, after = progress_key("*").split("*")
        with translate_errors(self._settings.address):
            keys = list(self._connection().scan_iter(match=f"{before}*{after}", count=1_000))
        names = (str(key).removeprefix(before).removesuffix(after) for key in keys)
        return sorted(name for name in names if not name.startswith(_SINK))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connection(self) -> redis.Redis:
        if self._client is None:
            # Bytes that are no text make their field unreadable, not all of them.
            self._client = connect(self._settings, encoding_errors="backslashreplace")
        return self._client


def _unreadable_key(ordered_topic: str, error: ForeignValueError) -> JobProgress:
    return JobProgress(ordered_topic, {}, {}, unreadable=(Unreadable(progress_key(ordered_topic), "", error.why),))


def _parse_progress(ordered_topic: str, fields: Mapping[str, str]) -> JobProgress:
    job: Mapping[str, Any] = {}
    partitions: dict[tuple[str, int], Report] = {}
    reported_ms: dict[tuple[str, int], int] = {}
    replay, history, unreadable = None, list[HistoryEntry](), list[Unreadable]()
    for name, text in fields.items():
        topic, slash, partition = name.rpartition("/")
        try:
            if name == _JOB or name.startswith(_INSTANCE):
                job = parse_field(JobFields, text)
            elif name == _REPLAY:
                replay = ReplayReport(**parse_field(ReplayFields, text))
            elif name == _HISTORY or name.startswith(_INSTANCE_HISTORY):
                history = entries_of(parse_field(HistoryFields, text).get("entries", ()))
            elif slash and not _PARTITION.fullmatch(partition):
                raise FieldError("its name is that of no partition")
            elif slash:
                report, at_ms = parse_report(topic, int(partition), text)
                partitions[report.place], reported_ms[report.place] = report, at_ms
        except FieldError as error:
            unreadable.append(Unreadable(progress_key(ordered_topic), name, str(error)))
    return JobProgress(ordered_topic, job, dict(sorted(partitions.items())), replay, tuple(unreadable), reported_ms, tuple(history))


def _read_history(client: redis.Redis, ordered_topic: str) -> StoredHistory:
    fields: Any = client.hmget(progress_key(ordered_topic), [_JOB, _HISTORY])
    return parse_history(fields[0], fields[1])


def _history_field(job_field: str) -> str:
    return job_field.replace(_INSTANCE, _INSTANCE_HISTORY, 1) if job_field.startswith(_INSTANCE) else _HISTORY


def _instance_histories(fields: Mapping[str, str]) -> dict[str, StoredHistory]:
    """Return what each sink of an output has left, by the field of its history; refused starts are in the field that all share."""
    return {name: parse_history(None, text) for name, text in fields.items() if name == _HISTORY or name.startswith(_INSTANCE_HISTORY)}


@dataclass(slots=True)
class _Pending:
    """The newest values; those that have changed are still to be written."""

    job: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    replay: ReplayReport | None = None
    is_job_changed: bool = False
    # What has happened since the last write.
    notes: list[HistoryEntry] = field(default_factory=list)


class ProgressPublisher:
    """
    Publishes the progress of one job; at the end of its context the state becomes ``stopped``.

    Args:
        ordered_topic: The topic that the job writes, or the name of an output that is no topic.
        is_one_of_several: Whether other jobs may publish under this name at the same time.
        has_history: Whether what happens to this job is kept.
        settings_shown: The settings of this run, as texts: the history says what has changed since the last one.
        folder: The job's checkpoint folder, where questions to its stages are left; None: questions are not read.
        every_s: Minimum time between two writes, seconds.
        wall_ms: The wall clock, milliseconds.
        **job: Fields known at the start of the job, such as ``input="flights"``.
    """

    def __init__(
        self,
        settings: RedisSettings,
        ordered_topic: str,
        *,
        is_one_of_several: bool = False,
        has_history: bool = True,
        settings_shown: Mapping[str, str] = MappingProxyType({}),
        folder: Path | None = None,
        every_s: float = WRITE_EVERY_S,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        **job: Any,
    ) -> None:
        self._settings, self._topic, self._every_s, self._wall_ms = settings, ordered_topic, every_s, wall_ms
        self._folder, self._settings_shown = folder, settings_shown
        # The history as this job has written it; None: it has not read that of earlier runs.
        self._entries: list[HistoryEntry] | None = None
        self._has_history = has_history
        self._field = f"{_INSTANCE}{uuid.uuid4().hex[:12]}" if is_one_of_several else _JOB
        self._has_forgotten = not is_one_of_several
        self._pending = _Pending()
        self._changed = threading.Condition()
        self._is_ending = self._is_watched = False
        self._client: redis.Redis | None = None
        self._is_lost = False
        self._thread = threading.Thread(target=self._write_loop, name="progress", daemon=True)
        self.update_job(state="starting", started_ms=wall_ms(), process=own_identity(), **job)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        failure = scrub_error(error.as_dict()) if isinstance(error, TidegateError) else None
        self.update_job(state="stopped", **({"failure": failure} if failure else {}))
        if kind is not None:
            self.note(Happened.FAILED, f"{failure['code']}: {failure['what']}" if failure else kind.__name__)
        else:
            self.note(Happened.STOPPED)
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(_CLOSE_WAIT_S)

    def publish(self, reports: Iterable[Report]) -> None:
        """Publish the reports of one batch."""
        at_ms = self._wall_ms()
        with self._changed:
            for report in reports:
                topic, number = report.place
                self._pending.reports[f"{topic}/{number}"] = {**report.as_dict(), "at_ms": at_ms}
            self._changed.notify()

    @property
    def is_watched(self) -> bool:
        """Whether a client asks, as far as the last write has seen."""
        return self._is_watched

    def update_job(self, **about: Any) -> None:
        """Set fields of ``job``, such as ``state="live"``; the other fields stay."""
        with self._changed:
            if any(self._pending.job.get(name, _MISSING) != value for name, value in about.items()):
                self._pending.job.update(about)
                self._pending.is_job_changed = True
                self._changed.notify()

    def note(self, what: Happened, more: str = "") -> None:
        """Note in the history that something has happened now."""
        with self._changed:
            self._pending.notes.append(HistoryEntry(self._wall_ms(), what, scrub(more)))
            self._changed.notify()

    def keep_replay(self, replay: ReplayReport) -> None:
        """Keep how fast the job has caught up; later runs replace it once they have caught up themselves."""
        with self._changed:
            self._pending.replay = replay

    def _write_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_ending or self._pending.reports or self._pending.is_job_changed, HEARTBEAT_S)
                ending, reports, self._pending.reports = self._is_ending, self._pending.reports, {}
                notes, self._pending.notes = self._pending.notes, []
                self._pending.is_job_changed = False
                fields = {name: _json(report) for name, report in reports.items()}
                fields[self._field] = _json({**self._pending.job, "at_ms": self._wall_ms()})
                if self._pending.replay is not None:
                    fields[_REPLAY] = _json(asdict(self._pending.replay))
            if not self._write(fields, notes):
                with self._changed:
                    self._pending.notes = [*notes, *self._pending.notes]
                    # A report that came meanwhile is newer and wins.
                    self._pending.reports = {**reports, **self._pending.reports}
            if ending:
                return
            with self._changed:
                # New reports do not end this wait: it bounds how often Redis is written.
                self._changed.wait_for(lambda: self._is_ending, min(self._every_s, WATCHED_EVERY_S) if self._is_watched else self._every_s)

    def _forget_ended(self, client: redis.Redis) -> None:
        """
        Delete what jobs of this name have left that no longer run, and take over their history. A user without the right to look leaves it:
        readers pass it over.
        """
        key, now_ms = progress_key(self._topic), self._wall_ms()
        with suppress(RefusedError), translate_errors(self._settings.address):
            found: Any = client.hgetall(key)
            names = [name for name in found if name == _JOB or name.startswith(_INSTANCE)]
            jobs = {name: _parse_progress(self._topic, {name: found[name]}) for name in names}
            ended = {name: progress.job for name, progress in jobs.items() if not progress.is_alive(now_ms)}
            stored = _instance_histories(found)
            histories = [name for name in map(_history_field, ended) if name in stored and name != _HISTORY]
            killed = [job["at_ms"] for job in ended.values() if job.get("state", "stopped") != "stopped"]
            entries = [
                *(stored[name].entries for name in histories),
                [HistoryEntry(at_ms, Happened.KILLED, _LAST_HEARD) for at_ms in killed],
            ]
            newest = max((stored[name] for name in histories), key=lambda each: each.last_ms, default=None)
            if self._has_history:
                self._entries = self._begin(merge_entries(entries), {} if newest is None else newest.settings)
                if self._entries:
                    # Written before that of the others goes: readers show once what is there twice for a moment.
                    client.hset(key, _history_field(self._field), to_text(self._entries, self._settings_shown))
            if ended:
                client.hdel(key, *ended, *(histories if self._has_history else ()))
        if self._entries is None:
            self._entries = []

    def _begin(self, entries: list[HistoryEntry], settings_before: Mapping[str, str]) -> list[HistoryEntry]:
        """Return the entries of earlier runs with the settings that have changed since."""
        changes = describe_changes(settings_before, self._settings_shown)
        entry = HistoryEntry(self._pending.job["started_ms"], Happened.SETTINGS, scrub(changes))
        return add_entry(entries, entry) if changes else entries

    def _add_to_history(self, client: redis.Redis, notes: Sequence[HistoryEntry]) -> str | None:
        """Return the field of the history with what is new in it; None: nothing is."""
        if not self._has_history or (self._entries is not None and not notes):
            return None
        entries = self._entries
        if entries is None:
            before = _read_history(client, self._topic)
            entries = before.entries
            if before.job.get("state", "stopped") != "stopped" and before.job.get("process") != own_identity():
                entries = add_entry(entries, HistoryEntry(before.job["at_ms"], Happened.KILLED, _LAST_HEARD))
            entries = self._begin(entries, before.settings)
        for entry in notes:
            entries = add_entry(entries, entry)
        self._entries = entries
        return to_text(entries, self._settings_shown)

    def _write(self, fields: dict[Any, Any], notes: Sequence[HistoryEntry] = ()) -> bool:
        try:
            if self._client is None:
                self._client = connect(self._settings, encoding_errors="backslashreplace")
            with translate_errors(self._settings.address):
                if not self._has_forgotten:
                    self._forget_ended(self._client)
                    self._has_forgotten = True
                entries_before = self._entries
                if (history := self._add_to_history(self._client, notes)) is not None:
                    fields[_history_field(self._field)] = history
                # One round trip for writing and for reading the question.
                exchange = self._client.pipeline(transaction=False)
                exchange.hset(progress_key(self._topic), mapping=fields)
                exchange.get(question_key(self._topic))
                try:
                    _, question = exchange.execute()
                except BaseException:
                    # The notes come again with the next write.
                    self._entries = entries_before
                    raise
            self._is_watched = bool(question)
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
