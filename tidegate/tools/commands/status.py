"""
The command ``tidegate status``: whether the servers of this folder answer, and the state of the jobs.

Law: it asks Redis and the stack's own files, never a job, so it also shows when a dead job was last seen. Its exit code is for
monitoring: 0 if all is well, 1 if a server does not answer or a job has failed, is gone, or waits for what does not come.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from ordering.errors import SettingError, UnreachableError
from ordering.ticks import INFINITY, MILLISECOND_US, NEVER, SECOND_US, format_tick
from tidegate.platform.metrics.event_fates import count_dead_letters, count_dropped, describe_fates, fates_as_dict
from tidegate.platform.observe.console import Format
from tidegate.platform.observe.job_lag import seconds_behind, watermark_delay_s
from tidegate.platform.observe.progress_store import JobProgress, ProgressStore
from tidegate.platform.observe.published_fields import Unreadable
from tidegate.platform.observe.recovery_report import duration_in_words
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.observe.run_history import HistoryEntry
from tidegate.platform.observe.terminal import Styled, TextColumn, TextTable, print_text, standard_output
from tidegate.platform.settings.load import Settings, load_assigned
from tidegate.platform.stack.embedded import DEFAULT_DIRECTORY, EmbeddedStack
from tidegate.tools.commands.stack import Directory, Output, print_services

RUNNING = ("starting", "replaying", "live")
_ALIVE = (*RUNNING, "waiting")
_HEALTHY_STATES = (*RUNNING, "stopped", "never started")
_COLOUR_BY_STATE = {
    "starting": "cyan",
    "replaying": "yellow",
    "live": "green",
    **dict.fromkeys(("waiting", "failed", "gone", "unreadable"), "red"),
}


# What moves the watermark of a partition next, by the cause that its job reports.
_CAUSES = {
    "event": "follows its events: a newer one moves it, or silence that is longer than `late`",
    "late floor": "follows arrivals: the next record, or an estimate after silence, moves it",
    "estimate": "follows elapsed time, since the partition is silent",
    "source CTI": "follows the CTIs of its producer",
    "import": "follows the CTIs of another input",
    "join": "is that of its joining: no event has moved it yet",
    "nothing": "stands before its first event",
}


# What has become a dead letter of a query, by the counter of the job.
_DEAD_LETTERS = {
    "bad_rows": "events are dead letters: the query failed on them",
    "results_too_large": "results are dead letters: too large for their topic",
}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job."""

    # ``ingest NAME``, ``query NAME`` or ``sink NAME``.
    name: str
    # The topic it writes, or the output's name; of a sink the topic that it copies.
    topic: str
    # Starting, replaying, live, waiting (for what does not come), stopped, failed, gone (it no longer publishes), never started,
    # unreadable.
    state: str
    # The fields that it has published about itself.
    published: Mapping[str, Any]
    # The smallest watermark of its partitions, microseconds; None if it has published none.
    watermark_us: int | None
    # How many events wait in ingest for a watermark.
    held: int = 0
    # The partition with that smallest watermark, and the cause of it; empty if not known.
    slowest: tuple[str, str] = ("", "")
    # How many dead letters a query has written, by the counter (``_DEAD_LETTERS``), without those that are 0.
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    # What the partitions of an input have counted, together.
    totals: Mapping[str, int] = field(default_factory=dict)
    # The fields in Redis that are not as jobs publish them.
    unreadable: tuple[Unreadable, ...] = ()
    # For how many seconds the oldest record that it has not read has waited; None: not known.
    lag_s: float | None = None
    # How far its watermark is behind the clock, seconds; None: it has none, or has ended.
    watermark_delay_s: float | None = None
    # Where its dead letters go; empty if it has none.
    dead_letter_topic: str = ""
    # What has happened to its runs, the newest last.
    history: tuple[HistoryEntry, ...] = ()

    @classmethod
    def of(cls, name: str, topic: str, progress: JobProgress | None, now_ms: int, dead_letter_topic: str = "") -> JobStatus:
        """Return the state of a job from the progress that it has published."""
        if progress is None or not progress.job:
            state = "unreadable" if progress is not None and progress.unreadable else "never started"
            unreadable, history = ((), ()) if progress is None else (progress.unreadable, progress.history)
            return cls(name, topic, state, {}, None, unreadable=unreadable, dead_letter_topic=dead_letter_topic, history=history)
        published_state = str(progress.job.get("state", "stopped"))
        state = "failed" if published_state == "stopped" and "failure" in progress.job else published_state
        # A job that was killed cannot publish its end: silence shows it.
        if published_state != "stopped" and not progress.is_alive(now_ms):
            state = "gone"
        elif state in RUNNING and progress.job.get("waits_for"):
            state = "waiting"
        partitions = [report for report in progress.partitions.values() if isinstance(report, IngestReport)]
        least_us = min((report.complete_us for report in progress.partitions.values()), default=NEVER)
        held = sum(report.held for report in partitions)
        totals: Counter[str] = Counter()
        for report in progress.partitions.values():
            totals.update(report.totals)
        counts = {name: int(totals[name]) for name in _DEAD_LETTERS}
        explained = [report for report in partitions if report.watermark.cause]
        last = min(explained, key=lambda report: report.complete_us, default=None)
        slowest = ("", "") if last is None else (f"{last.topic}-{last.partition}", last.watermark.cause)
        watermark_us, now_us = None if least_us == NEVER else least_us, now_ms * MILLISECOND_US
        # What ingest reads bears the time at which it came.
        by_arrival_s = seconds_behind(partitions, _published_ends(progress.job), now_us)
        return cls(
            name,
            topic,
            state,
            progress.job,
            watermark_us,
            held,
            slowest,
            {name: count for name, count in counts.items() if count},
            totals,
            progress.unreadable,
            lag_s=progress.job.get("lag_s") if by_arrival_s is None else by_arrival_s,
            watermark_delay_s=watermark_delay_s(watermark_us, now_us),
            dead_letter_topic=dead_letter_topic,
            history=progress.history,
        )

    @property
    def watermark(self) -> str | None:
        """The smallest watermark of all partitions as text."""
        if self.watermark_us is None:
            return None
        return "ended" if self.watermark_us == INFINITY else format_tick(self.watermark_us)

    @property
    def waiting(self) -> str:
        """How many events are held, and what the watermark waits for, in words; empty if none is held or the job does not run."""
        if not self.held or self.state not in RUNNING:
            return ""
        if reason := self.published.get("stands_still"):
            return f"{self.held:,} events held; {reason}"
        partition, cause = self.slowest
        stands = f"; the watermark of {partition} {_CAUSES.get(cause, f'comes from: {cause}')}" if partition else ""
        return f"{self.held:,} events held{stands}"

    @property
    def never_spoke(self) -> list[str]:
        """The input partitions that have never had a record, as ``topic-partition``."""
        ends = _published_ends(self.published) if self.name.startswith("ingest ") else {}
        return [f"{topic}-{number}" for (topic, number), end in sorted(ends.items()) if end == 0]

    @property
    def delay(self) -> Mapping[str, Any] | None:
        """The delay of the recent results of this output, from raw append to result; None if there are none, or the job does not run."""
        own = (each for each in self.published.get("delays", ()) if self.name == f"query {each['output']}")
        return next(own, None) if self.state in RUNNING else None

    def history_as_dicts(self) -> list[dict[str, Any]]:
        """Return what has happened to its runs, the newest last; a run that has gone and that no later start has missed is gone now."""
        entries = list(self.history)
        if self.state == "gone":
            entries.append(HistoryEntry(int(self.published["at_ms"]), "gone", "it was heard of for the last time"))
        return [
            {"at": format_tick(each.at_ms * MILLISECOND_US), "job": self.name, "what": each.what, "more": each.more, "times": each.times}
            for each in entries
        ]

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"job": self.name, "topic": self.topic, "state": self.state, "watermark": self.watermark}
        if self.watermark_delay_s is not None:
            fields["watermark_delay_s"] = self.watermark_delay_s
        if self.lag_s is not None:
            fields["lag_s"] = self.lag_s
        if self.held:
            fields |= {"held": self.held, "slowest": dict(zip(("partition", "cause"), self.slowest, strict=True))}
        fields |= self.dead_letters
        if fates := fates_as_dict(self.totals):
            unreadable = sum(count_dead_letters(self.totals).values())
            fields |= {"fates": fates, **({"unreadable": unreadable} if unreadable else {})}
        if count := sum(count_dead_letters(self.totals).values()) + sum(self.dead_letters.values()):
            fields["dead_letters"] = {"count": count, "topic": self.dead_letter_topic}
        if (delay := self.delay) is not None:
            fields["delay"] = delay
        if self.state in RUNNING:
            fields |= {key: self.published[key] for key in _TREND if self.published.get(key) is not None}
        if self.never_spoke:
            fields["never_spoke"] = self.never_spoke
        if self.unreadable:
            fields["unreadable_fields"] = [asdict(each) for each in self.unreadable]
        at_ms = {name: self.published[f"{key}_ms"] for name, key in _TIMES if f"{key}_ms" in self.published}
        times = {f"{name}_at": format_tick(time_ms * MILLISECOND_US) for name, time_ms in at_ms.items()}
        return fields | times | {key: self.published[key] for key in _FIELDS if self.published.get(key) not in (None, "", [])}


# Fields that a job publishes and JSON shows unchanged; times, by their names in JSON and the beginnings of their published names.
_FIELDS = "lag", "recovery", "failure", "jump", "waits_for", "stands_still", "breaks", "nulls", "delays"
_TIMES = (("started", "started"), ("last_seen", "at"))
# What is true of a job only while it runs: records read a second, by how many its lag changes a second, seconds until it is cleared.
_TREND = "events_per_s", "lag_change", "cleared_in_s"


def _published_ends(job: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """Return the ends of its partitions that a job has heard last."""
    places = ((*place.rpartition("/"), end) for place, end in job.get("ends", {}).items())
    return {(topic, int(number)): end for topic, _, number, end in places if number.isascii() and number.isdigit()}


def status(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Inputs or outputs; default: all there are.")] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: redis.url=env:REDIS_URL")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="What has happened: starts, kills, catch-ups, failures, refusals, changed settings.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Show the servers of this folder and what the jobs are doing; exit with 1 if something is wrong."""
    stack = None if names else EmbeddedStack(directory).status()
    settings = load_assigned(config, assign)
    asks_redis = bool(names or settings.inputs or settings.outputs)
    has_server = stack is not None and any(service.pid for service in stack.services)
    try:
        jobs = read_jobs(settings, names or [], time.time_ns() // 1_000_000) if asks_redis else []
    except UnreachableError:
        # The state of this folder's servers is known without Redis, and may be the reason.
        if stack is not None and has_server and output is Format.TEXT:
            print_services(stack)
        raise
    if history:
        _print_history(jobs, output)
        return
    if output is Format.JSON:
        stack_fields = stack.as_dict() if stack is not None else {}
        print_text(json.dumps({**stack_fields, "jobs": [job.as_dict() for job in jobs]}) + "\n")
    else:
        if stack is not None and (has_server or not jobs):
            print_services(stack)
        if jobs:
            standard_output().table(jobs_table(jobs, time.time_ns() // 1_000_000))
        for job in jobs:
            _print_notes(job)
    # Servers elsewhere are checked by their jobs. Servers of this folder count if one runs, or if there is no job to ask for.
    silent = stack is not None and not stack.healthy and (has_server or not asks_redis)
    if silent or not all(job.state in (RUNNING if names else _HEALTHY_STATES) and not job.unreadable for job in jobs):
        raise typer.Exit(1)


def find_history(jobs: Iterable[JobStatus]) -> list[dict[str, Any]]:
    """Return what has happened to jobs, the newest first."""
    return sorted((each for job in jobs for each in job.history_as_dicts()), key=lambda each: str(each["at"]), reverse=True)


def _print_history(jobs: Iterable[JobStatus], output: Format) -> None:
    found = find_history(jobs)
    if output is Format.JSON:
        print_text("".join(json.dumps(each) + "\n" for each in found))
        return
    table = TextTable([TextColumn("at", is_whole=True), TextColumn("job", is_whole=True), TextColumn("what"), TextColumn("more")])
    for each in found:
        times = f" ({each['times']:,} times)" if each["times"] > 1 else ""
        table.add(each["at"], each["job"], f"{each['what']}{times}", each["more"])
    standard_output().table(table)


def _print_notes(job: JobStatus) -> None:
    """Print the facts about a job that its line in the table does not have: a line for each."""
    terminal = standard_output()
    for each in job.unreadable:
        terminal.line(Styled(job.name, "red"), f": {each.in_words}")
    if job.waiting:
        terminal.line(f"{job.name}: {job.waiting}")
    if fates := describe_fates(job.totals):
        is_lost = count_dropped(job.totals) or count_dead_letters(job.totals)
        terminal.line(Styled(job.name, "yellow") if is_lost else job.name, f": {fates}")
    for counter, count in job.dead_letters.items():
        terminal.line(Styled(job.name, "yellow"), f": {count:,} {_DEAD_LETTERS[counter]}")
    if job.state == "waiting":
        terminal.line(Styled(job.name, "red"), f": {job.published['waits_for']}")
    if "failure" in job.published and job.state == "failed":
        failure = job.published["failure"]
        terminal.line(Styled(job.name, "red"), f": {failure['code']}: {failure['what']}")
    if breaks := job.published.get("breaks"):
        terminal.line(Styled(job.name, "yellow"), f": {breaks['in_words']}: {breaks['fix']}")
    for column in job.published.get("nulls", ()):
        terminal.line(Styled(job.name, "yellow"), f": {column['in_words']}")
    if (delay := job.delay) is not None:
        terminal.line(f"{job.name}: {delay['in_words']}")
    if "jump" in job.published:
        terminal.line(Styled(job.name, "yellow"), f": {_jump_in_words(job.published['jump'])}")


def _jump_in_words(jump: Mapping[str, Any]) -> str:
    return f"{jump['origin']} moved time by {duration_in_words(jump['by_us'] / SECOND_US)} ({jump['cause']})"


def read_jobs(settings: Settings, names: Sequence[str], now_ms: int) -> list[JobStatus]:
    """
    Return the jobs behind the inputs and outputs *names*, or behind all that are configured. Raises SettingError: there is no such input or
    output; UnreachableError: Redis does not answer.
    """
    inputs = {name: ("ingest", table.ordered_topic) for name, table in settings.inputs.items()}
    outputs = {name: ("query", table.topic or name) for name, table in settings.outputs.items()}
    sinks = [name for name, table in settings.outputs.items() if table.stores and (not names or name in names)]
    chosen_jobs = [(name, *job) for tables in (inputs, outputs) for name, job in tables.items() if not names or name in names]
    unknown = sorted(set(names) - inputs.keys() - outputs.keys())
    if unknown:
        fix = f"name one of: {', '.join(sorted({*inputs, *outputs})) or '(none is configured)'}"
        raise SettingError(f"there is no input or output {unknown[0]}", code="TG-SETTING-NAME", where=unknown[0], fix=fix)
    with ProgressStore(settings.redis) as store:
        progress_by_topic = {
            topic: store.read(topic)
            for tables in (inputs, outputs)
            for name, (_, topic) in tables.items()
            if not names or name in {*names, *outputs}
        }
        progress_by_sink: dict[str, Sequence[JobProgress | None]] = {name: store.read_sinks(name, now_ms) or [None] for name in sinks}
    all_progress = [progress for progress in progress_by_topic.values() if progress is not None]
    jobs = [
        JobStatus.of(f"{kind} {name}", topic, progress, now_ms, _dead_letter_topic(settings, kind, name, progress))
        for name, kind, topic in chosen_jobs
        for progress in [_newest_progress(name, progress_by_topic[topic], all_progress)]
    ]
    # Several sinks may copy one output, each with a line of its own.
    return jobs + [
        JobStatus.of(f"sink {name}", settings.outputs[name].topic or name, progress, now_ms)
        for name in sinks
        for progress in progress_by_sink[name]
    ]


def _dead_letter_topic(settings: Settings, kind: str, name: str, progress: JobProgress | None) -> str:
    """Return where the dead letters of an input's or output's job go: those of a query to the topic of its first output."""
    if kind == "ingest":
        return settings.input(name).dead_letter_topic
    outputs = () if progress is None else progress.job.get("outputs", ())
    first = outputs[0] if outputs else name
    return settings.outputs[first].dead_letter_topic if first in settings.outputs else f"{first}.dead"


def _newest_progress(name: str, own: JobProgress | None, jobs: Sequence[JobProgress]) -> JobProgress | None:
    """Return the progress of the last writer of an output; a job publishes under the topic of its first output."""
    candidates = [job for job in jobs if name in job.job.get("outputs", ())] + [own] * (own is not None)
    return max(candidates, key=lambda job: int(job.job.get("at_ms", 0)), default=None)  # type: ignore[union-attr]


def jobs_table(jobs: Iterable[JobStatus], now_ms: int) -> TextTable:
    """Return the jobs as a table."""
    unbroken = [TextColumn(name, is_whole=True) for name in ("job", "state", "started")]
    figures = [TextColumn(name, is_right=True, is_folded=True) for name in ("behind", "rate", "caught up in")]
    table = TextTable([*unbroken, TextColumn("resumed from"), *figures, TextColumn("watermark", is_folded=True)])
    for job in jobs:
        lag, recovery = job.published.get("lag"), job.published.get("recovery", {})
        rate, eta_s, caught_up_s = (recovery.get(name) for name in ("rate", "eta_s", "caught_up_after_s"))
        runs = job.state in _ALIVE
        ready = f"after {duration_in_words(caught_up_s)}" if caught_up_s else duration_in_words(eta_s) if eta_s else "-"
        # A job that had nothing to catch up shows nothing.
        ready = "" if caught_up_s == 0 else ready
        seen = "" if runs or not job.published else f", seen {_ago(job.published['at_ms'], now_ms)}"
        table.add(
            job.name,
            [Styled(job.state, _COLOUR_BY_STATE.get(job.state, "dim")), seen],
            _ago(job.published["started_ms"], now_ms) if "started_ms" in job.published else "-",
            recovery.get("in_words", "-"),
            "-" if lag is None else f"{lag:,}",
            f"{rate:,}/s" if rate is not None and runs else "-",
            ready if runs else "-",
            job.watermark or "-",
        )
    return table


def _ago(at_ms: int, now_ms: int) -> str:
    return f"{duration_in_words((now_ms - at_ms) / 1_000)} ago"
