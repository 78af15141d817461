"""
The command ``tidegate watermarks``: the watermarks of running jobs, their causes, and the events that wait for them.

It shows the reports of the last batches, which jobs publish in Redis (:mod:`tidegate.platform.observe.progress_store`). While it runs it
also asks the jobs for expensive figures, the next release and single substreams; jobs compute these only while a client asks.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordering.errors import RefusedError, SettingError
from ordering.ticks import INFINITY, MILLISECOND_US, NEVER, SECOND_US, format_duration, format_tick
from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.reports import HeldReport, IngestReport
from tidegate.platform.observe.terminal import TextColumn, TextTable, standard_output

if TYPE_CHECKING:
    from tidegate.platform.observe.progress_store import JobProgress, ProgressStore
    from tidegate.platform.settings.load import Settings

SUBSTREAMS = 20
_INTERVAL_S = 1.0
_ANSWER_S = 3.0  # how long ``--once`` waits for jobs to answer


def watermarks(
    input: Annotated[str | None, typer.Argument(help="Only this input (or output); default: every job that has published.")] = None,
    substreams: Annotated[bool, typer.Option("--substreams", help=f"Also the {SUBSTREAMS} fullest substreams of each partition.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print the table once instead of showing it live; so into a file or pipe.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw the newest watermarks and events of the input's ordered topic: FILE.svg, FILE.png or, as figures, FILE.json."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="With --plot: only the events with this key; with OVER also its own watermark.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Into a file or pipe too: print again every second.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: redis.url=redis://host:6379/0")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Show each partition's watermark, what drives it, and what waits for it."""
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.platform.observe.stopping import stop_on_signal
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    if plot is not None:
        _plot(settings, input, plot, None if key is None else key.encode())
        return
    store = ProgressStore(settings.redis)
    topics = _find_topics(settings, store, input)
    substream_count = SUBSTREAMS if substreams else 0
    terminal = standard_output()
    is_plain = not terminal.is_terminal

    def show(reports: list[JobProgress]) -> None:
        rows = _rows(reports)
        unreadable = [each for progress in reports for each in progress.unreadable]
        if format is Format.JSON:
            print_json(_as_dict(rows) | ({"unreadable_fields": [asdict(each) for each in unreadable]} if unreadable else {}))
            return
        terminal.table(_table(rows, is_plain=is_plain))
        for line in dict.fromkeys(f"{row.job}: {row.stands_still}" for row in rows if row.stands_still):
            terminal.line(line)
        for each in unreadable:
            terminal.line(each.in_words)

    if once or (is_plain and not follow):
        show(_await_answers(store, topics, substream_count))
    elif is_plain or format is Format.JSON:
        with stop_on_signal() as stop:
            while not stop.is_asked:
                show(_ask(store, topics, substream_count))
                time.sleep(_INTERVAL_S)
    else:
        with stop_on_signal() as stop, terminal.live_table() as show_live:
            while not stop.is_asked:
                show_live(_table(_rows(_ask(store, topics, substream_count))))
                time.sleep(_INTERVAL_S)


def _plot(settings: Settings, name: str | None, plot: Path, key: bytes | None) -> None:
    """Draw the newest stretch of an input's ordered topic, or of a result topic. SettingError: no input is named, and there is not one."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.observe.drawing import check_plot, write_picture
    from tidegate.tools.staircase.picture import draw_staircase
    from tidegate.tools.staircase.read import Section, read_staircase

    as_json = plot.suffix.lower() == ".json"
    if not as_json:
        check_plot(plot)
    if name is None and len(settings.inputs) != 1:
        what, fix = "a picture shows one input or output", f"name one of: {', '.join(sorted({*settings.inputs, *settings.outputs}))}"
        raise SettingError(what, code="TG-SETTING-FLAG", where="--plot", fix=fix)
    chosen = name or next(iter(settings.inputs))
    is_output = chosen in settings.outputs and chosen not in settings.inputs
    topic = settings.output(chosen).topic or chosen if is_output else settings.input(chosen).ordered_topic
    admin = Admin.connect(settings.kafka)
    found = admin.require(topic, "start the stage that writes it")
    table = None if is_output else settings.input(chosen)
    policies, over = (None, False) if table is None else (table.policies(), table.over is not None)
    kafka, shown = settings.kafka.client_properties(), Section(key=key)
    stairs = read_staircase(admin, kafka, found, policies, over, shown)
    if not as_json:
        write_picture(draw_staircase(stairs, {}), plot)
        return
    from ingest.commands.journal import name_partitions
    from tidegate.tools.staircase.dropped import choose_dropped, read_newest_dropped
    from tidegate.tools.staircase.figures import make_figures

    names = [] if table is None else name_partitions(settings, chosen, admin)
    place_text = str if table is None else table.places.text
    pieces = [] if table is None else read_newest_dropped(admin, kafka, table.dropped_topic)
    dropped = choose_dropped(pieces, stairs, names, shown, over)
    plot.write_text(json.dumps(make_figures(stairs, policies, names, place_text, dropped)) + "\n")


def _as_dict(rows: list[WatermarkRow]) -> dict[str, Any]:
    return {"at": format_tick(_now_us()), "rows": [row.as_dict() for row in rows]}


def _find_topics(settings: Settings, store: ProgressStore, name: str | None) -> list[str]:
    if name is None:
        topics = store.ordered_topics()
        if not topics:
            what = "no job has published anything"
            where = settings.redis.address
            fix = "start one, or name the Redis that the jobs use"
            raise RefusedError(what, code="TG-PROGRESS-NONE", where=where, fix=fix, example="--set redis.url=redis://host:6379/0")
        return topics
    if name in settings.inputs:
        return [settings.inputs[name].ordered_topic]
    return [settings.output(name).topic or name] if name in settings.outputs else [settings.input(name).ordered_topic]


def _ask(store: ProgressStore, topics: list[str], substreams: int) -> list[JobProgress]:
    for topic in topics:
        store.ask_details(topic, substreams)
    return [progress for topic in topics if (progress := store.read(topic)) is not None]


def _await_answers(store: ProgressStore, topics: list[str], substreams: int) -> list[JobProgress]:
    """Return the answers of running jobs; after some seconds, the reports published before by jobs that have had no batch."""
    began_ms, deadline_s = _now_us() // MILLISECOND_US, time.monotonic() + _ANSWER_S
    while True:
        reports = _ask(store, topics, substreams)
        live = [job for job in reports if job.is_alive(began_ms)]
        partitions = [report for job in live for report in job.partitions.values() if isinstance(report, IngestReport)]
        is_waiting = any(report.held_events is None for report in partitions)
        if not is_waiting or time.monotonic() > deadline_s:
            return reports
        time.sleep(_INTERVAL_S / 4)


@dataclass(frozen=True, slots=True)
class WatermarkRow:
    """One line: an input partition, a substream of one, or a query's bucket."""

    job: str
    # The ordered topic that the job writes: several jobs may order one input.
    topic: str
    # ``topic-partition``; for a substream its key.
    timeline: str
    is_substream: bool
    # Starting, replaying, live, stopped, or silent: it no longer publishes.
    state: str
    watermark_us: int
    # The cause of the watermark: event, late floor, estimate, source CTI, import, join, end, floor.
    driven_by: str
    # The watermark delay; None before the first watermark and after the end.
    delay_us: int | None
    # How many events wait.
    held: int | None
    # The system timestamp of the next event to be released; None if no event waits or the job has not answered.
    next_us: int | None
    # When the job reported, microseconds.
    reported_us: int
    # Why silence releases none of the held events; empty if it does, or if none is held.
    stands_still: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "topic": self.topic,
            "substream" if self.is_substream else "partition": self.timeline,
            "state": self.state,
            "watermark": _format_time(self.watermark_us),
            "driven_by": self.driven_by,
            "delay_s": None if self.delay_us is None else round(self.delay_us / SECOND_US, 3),
            "held": self.held,
            "next_release": None if self.next_us is None else format_tick(self.next_us),
            "reported": format_tick(self.reported_us),
            **({"stands_still": self.stands_still} if self.stands_still else {}),
        }


def _rows(reports: list[JobProgress]) -> list[WatermarkRow]:
    now_us = _now_us()
    return [row for progress in reports for row in _progress_rows(progress, now_us)]


def _progress_rows(progress: JobProgress, now_us: int) -> Iterator[WatermarkRow]:
    state = str(progress.job.get("state", "unknown"))
    if state != "stopped" and not progress.is_alive(now_us // MILLISECOND_US):
        state = "silent"
    name = str(progress.job.get("input") or progress.job.get("query") or progress.ordered_topic)
    for (topic, partition), report in progress.partitions.items():
        # A bucket is as far as its input, and holds nothing.
        row = WatermarkRow(
            job=name,
            topic=progress.ordered_topic,
            timeline=f"{topic}-{partition}",
            is_substream=False,
            state=state,
            watermark_us=report.watermark_us,
            driven_by="input",
            delay_us=_delay_us(report.watermark_us, now_us),
            held=None,
            next_us=None,
            reported_us=progress.reported_ms[topic, partition] * MILLISECOND_US,
        )
        if not isinstance(report, IngestReport):
            yield row
            continue
        stands_still = str(progress.job.get("stands_still", "")) if report.held else ""
        found = report.held_events or HeldReport()
        yield replace(row, driven_by=report.watermark.cause or "input", held=report.held, next_us=found.from_us, stands_still=stands_still)
        for substream in found.top:
            yield replace(
                row,
                timeline=substream.key or "(no key)",
                is_substream=True,
                watermark_us=substream.watermark_us,
                driven_by=substream.cause,
                delay_us=_delay_us(substream.watermark_us, now_us),
                held=substream.held,
                next_us=substream.held_from_us,
            )


def _delay_us(watermark_us: int, now_us: int) -> int | None:
    return now_us - watermark_us if NEVER < watermark_us < INFINITY else None


def _table(rows: list[WatermarkRow], *, is_plain: bool = False) -> TextTable:
    columns = ("job", "partition", "state", "watermark", "driven by", "delay", "age", "held", "next release at")
    table = TextTable([TextColumn(name, is_folded=True) for name in columns], is_plain=is_plain)
    topics = {row.topic: row.job for row in rows}
    ambiguous = {job for job, count in Counter(topics.values()).items() if count > 1}
    for row in rows:
        age = format_duration(max(_now_us() - row.reported_us, 0) // SECOND_US * SECOND_US)
        delay = "-" if row.delay_us is None else format_duration(max(row.delay_us, 0) // MILLISECOND_US * MILLISECOND_US)
        table.add(
            "" if row.is_substream else f"{row.job} ({row.topic})" if row.job in ambiguous else row.job,
            f"  {row.timeline}" if row.is_substream else row.timeline,
            "" if row.is_substream else row.state,
            _format_time(row.watermark_us),
            f"{row.driven_by} (not silence)" if row.stands_still else row.driven_by,
            delay,
            age,
            "-" if row.held is None else f"{row.held:,}",
            "-" if row.next_us is None else f"> {format_tick(row.next_us)}",
        )
    return table


def _format_time(time_us: int) -> str:
    return "ended" if time_us == INFINITY else "-" if time_us == NEVER else format_tick(time_us)


def _now_us() -> int:
    return time.time_ns() // 1000
