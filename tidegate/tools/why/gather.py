"""
Collects the facts of an output: from what jobs have published in Redis, the brokers, and the configuration.

Law: it reads only; jobs are asked for details as ``tidegate watermarks`` asks them, which the stages answer with their next batch.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ordering.errors import RefusedError, SettingError
from ordering.ticks import INFINITY, MILLISECOND_US, NEVER
from query.output_plan import find_plan, window_of
from query.plan.nodes import Plan
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.observe.detail_requests import SUBSTREAMS_MAX
from tidegate.platform.observe.progress_store import JobProgress, ProgressStore
from tidegate.platform.observe.reports import BucketReport, IngestReport
from tidegate.platform.settings.input_topics import match_topics, own_topics
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.tools.why.facts import WORKING, InputFacts, OutputFacts, PartitionFacts, StageFacts

_ANSWER_S = 3.0


class Gathering:
    """Collects facts over one connection to Redis and one to the brokers; *folder* is where the paths of the configuration begin."""

    def __init__(self, settings: Settings, admin: Admin, store: ProgressStore, folder: Path) -> None:
        self._settings, self._admin, self._store, self._folder = settings, admin, store, folder

    def output_facts(self, name: str, now_us: int, key: str | None = None, at_us: int | None = None) -> OutputFacts:
        """
        Return the facts of an output, also of a substream *key*; *at_us* is the time of the results that are asked for. SettingError: there
        is no such output; RefusedError: nothing says which query writes it.
        """
        return self._output_facts(name, now_us, key, at_us, ())

    def _output_facts(self, name: str, now_us: int, key: str | None, at_us: int | None, above: tuple[str, ...]) -> OutputFacts:
        if name not in self._settings.outputs:
            fix = f"name one of: {', '.join(sorted(self._settings.outputs)) or '(none is configured)'}"
            raise SettingError(f"there is no output {name}", code="TG-SETTING-NAME", where="OUTPUT", fix=fix)
        output = self._settings.outputs[name]
        topic = output.topic or name
        plan = find_plan(self._settings, output, self._folder, lambda: self._admin.find(topic))
        if plan is None:
            what, fix = f"nothing says which query writes {name}", "set the output's query, or list it in [queries]"
            raise RefusedError(what, code="TG-WHY-QUERY", where=f"outputs.{name}", fix=fix, example=f'query = "{name}.sql"')
        # Who is asked tells sooner how far it is.
        self._store.watch(topic)
        progress = self._progress_of(name, topic)
        buckets = [] if progress is None else [each for each in progress.partitions.values() if isinstance(each, BucketReport)]
        complete_us = min((each.complete_us for each in buckets), default=NEVER)
        sources = tuple(
            self._output_facts(source, now_us, key, at_us, (*above, name))
            if source in self._settings.outputs and source not in self._settings.inputs and source not in above
            else self._input_facts(source, now_us, key)
            for source in sorted(plan.inputs)
        )
        lag = 0 if progress is None else int(progress.job.get("lag") or 0)
        due_us = at_us if at_us is not None else _next_due(plan, complete_us, sources, now_us)
        stage = replace(_stage(f"query {name}", progress, now_us), starts=self._start_of(output))
        return OutputFacts(name, stage, complete_us, lag, sources, due_us, key)

    def _start_of(self, output: OutputSettings) -> str:
        """Return the command that starts the query of an output; empty if the settings name none."""
        listed = next((each for each, table in self._settings.queries.items() if output.name in (table.into, each)), None)
        return f"tidegate query {shlex.quote(output.query)}" if output.query else f"tidegate run query:{listed}" if listed else ""

    def _progress_of(self, name: str, topic: str) -> JobProgress | None:
        """Return the progress of the job that writes an output: it publishes under the topic of its first output."""
        own = self._store.read(topic)
        if own is not None:
            return own
        others = (self._store.read(each.topic or other) for other, each in self._settings.outputs.items())
        return next((each for each in others if each is not None and name in each.job.get("outputs", ())), None)

    def _input_facts(self, name: str, now_us: int, key: str | None) -> InputFacts:
        table = self._settings.input(name)
        progress = self._await_details(table.ordered_topic, key, now_us)
        reports = [] if progress is None else [each for each in progress.partitions.values() if isinstance(each, IngestReport)]
        names = match_topics(table, self._admin.partition_counts(), own_topics(self._settings))
        raw = [place for topic in names for place in self._admin.require(topic).all_partitions]
        starts, ends = self._admin.starts(raw), self._admin.ends({*raw, *(each.place for each in reports)})
        policies = table.policies()
        # A partition without a record may never have had a batch, and so no report.
        silent = [place for place in raw if place not in {each.place for each in reports}]
        unknown = [PartitionFacts(f"{topic}-{number}", NEVER, NEVER, NEVER, is_estimated=False, lag=0) for topic, number in silent]
        lags = [ends[place] - starts[place] for place in silent]
        return InputFacts(
            name=name,
            stage=replace(_stage(f"ingest {name}", progress, now_us), starts=f"tidegate ingest {name}"),
            partitions=(
                *(PartitionFacts.of(each, ends[each.place], key) for each in reports if each.complete_us != INFINITY),
                *(replace(facts, lag=lag) for facts, lag in zip(unknown, lags, strict=True)),
            ),
            late_us=policies.late_us,
            reorder_us=policies.reorder_us,
            has_substreams=table.over is not None,
            stands_still="" if progress is None else str(progress.job.get("stands_still") or ""),
        )

    def _await_details(self, topic: str, key: str | None, now_us: int) -> JobProgress | None:
        """Return the progress of an ingest job, with its substreams if one is looked for and the job answers soon."""
        progress = self._store.read(topic)
        if key is None or progress is None or not progress.is_alive(now_us // MILLISECOND_US):
            self._store.watch(topic)
            return progress
        return _await(lambda: self._ask(topic), _ANSWER_S)

    def _ask(self, topic: str) -> tuple[JobProgress | None, bool]:
        self._store.ask_details(topic, SUBSTREAMS_MAX)
        progress = self._store.read(topic)
        reports = [] if progress is None else [each for each in progress.partitions.values() if isinstance(each, IngestReport)]
        return progress, all(each.held_events is not None for each in reports)


def _await(ask: Callable[[], tuple[JobProgress | None, bool]], wait_s: float) -> JobProgress | None:
    deadline_s = time.monotonic() + wait_s
    while True:
        progress, is_complete = ask()
        if is_complete or time.monotonic() > deadline_s:
            return progress
        time.sleep(0.25)


def _stage(name: str, progress: JobProgress | None, now_us: int) -> StageFacts:
    """Return the state of a job as ``tidegate status`` has it."""
    if progress is None or not progress.job:
        return StageFacts(name, "never started")
    state, heard_us = str(progress.job.get("state", "stopped")), int(progress.job.get("at_ms", 0)) * MILLISECOND_US
    waits_for = str(progress.job.get("waits_for") or "")
    if state == "stopped":
        state = "failed" if "failure" in progress.job else state
    elif not progress.is_alive(now_us // MILLISECOND_US):
        state = "gone"
    elif state in WORKING and waits_for:
        state = "waiting"
    return StageFacts(name, state, heard_us, waits_for)


def _next_due(plan: Plan, complete_us: int, sources: tuple[InputFacts | OutputFacts, ...], now_us: int) -> int:
    """Return the time of the next results: the end of the next window, else the instant from which on no result is published."""
    known = [each.complete_us for each in sources if NEVER < each.complete_us < INFINITY]
    start_us = complete_us if complete_us > NEVER else min(known, default=now_us)
    if start_us == INFINITY:
        return INFINITY
    if (window := window_of(plan)) is not None:
        import numpy as np

        return int(window.first_end(np.array([start_us], dtype=np.int64))[0])
    return start_us
