"""
What the page of ``tidegate ui`` can ask: the answers of ``status``, ``watermarks --plot``, ``why``, ``peek``, ``explain`` and ``tune``.

Law: an answer is what its command finds, by the same functions, or by the command itself where that may walk a whole topic: in a process
of its own, so its memory ends with it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordering.errors import RefusedError, SettingError, UnreachableError
from ordering.ticks import NEVER, parse_tick
from tidegate.basics.secret_masking import scrub

if TYPE_CHECKING:
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import Settings
    from tidegate.tools.page.graph import InputPlaces, Trends
    from tidegate.tools.staircase.follow import Follower

_RECORDS_MAX = 500
_COMMAND_S = 120.0
_SHARE = re.compile(r"\d{1,3}(\.\d{1,6})?")
_DURATION = re.compile(r"\d{1,9}(\.\d{1,6})?(us|ms|s|m|h|d)")
_TICK = re.compile(r"-?\d{1,19}")


def make_answers(settings: Settings, folder: Path, flags: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return what the page can ask, by name; *folder* is that of the configuration, *flags* lead commands to the same settings."""
    from tidegate.tools.page.graph import Trends

    followers: dict[str, Follower] = {}
    trends = Trends()
    return {
        "pipeline": lambda _: find_pipeline(settings, folder, trends),
        "time": lambda asked: find_times(settings, asked, followers),
        "why": lambda asked: find_why(settings, folder, asked.get("name", "")),
        "messages": lambda asked: find_messages(settings, asked),
        "event": lambda asked: find_event(settings, flags, asked),
        "tune": lambda asked: find_tuning(settings, flags, asked),
        "history": lambda _: find_history(settings),
        "names": lambda _: list_names(settings),
    }


def list_names(settings: Settings) -> dict[str, Any]:
    """Return the inputs, the outputs and the topics of the pipeline."""
    topics = [
        name
        for table in settings.inputs.values()
        for name in (*table.topics, table.ordered_topic, table.dead_letter_topic, table.dropped_topic)
    ]
    topics += [table.topic or name for name, table in settings.outputs.items()]
    return {"inputs": list(settings.inputs), "outputs": list(settings.outputs), "topics": list(dict.fromkeys(filter(None, topics)))}


def find_pipeline(settings: Settings, folder: Path, trends: Trends) -> dict[str, Any]:
    """Return the jobs as ``tidegate status --format json`` has them, each with how far it is behind, and the graph of the pipeline."""
    from tidegate.tools.commands.status import read_jobs
    from tidegate.tools.page.graph import watermark_delay_s

    now_us = time.time_ns() // 1_000
    jobs = read_jobs(settings, [], now_us // 1_000)
    shown = {job.name: job.as_dict() for job in jobs}
    for job in jobs:
        lag = shown[job.name].get("lag")
        change, cleared_s = trends.add(job.name, int(lag)) if lag is not None else (None, None)
        delay_s = watermark_delay_s(job.watermark_us, now_us)
        shown[job.name] |= {"lag_change": change, "cleared_in_s": cleared_s, "watermark_delay_s": delay_s}
    try:
        graph = _find_graph(settings, folder, shown, now_us)
    except UnreachableError as error:
        # The jobs are known without Kafka, whose absence may be why one looks.
        return {"jobs": list(shown.values()), "graph": None, "trouble": scrub(str(error))}
    return {"jobs": list(shown.values()), "graph": graph, "trouble": ""}


def _find_graph(settings: Settings, folder: Path, shown: dict[str, dict[str, Any]], now_us: int) -> dict[str, Any]:
    """Return the graph, and add to each ingest job in *shown* how long it is behind."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.platform.observe.reports import IngestReport
    from tidegate.tools.page.graph import make_graph, seconds_behind
    from tidegate.tools.results.columns import find_plan

    admin = Admin.connect(settings.kafka)
    inputs = {name: _input_places(settings, name, admin) for name in settings.inputs}
    with ProgressStore(settings.redis) as store:
        for name, table in settings.inputs.items():
            progress = store.read(table.ordered_topic)
            reports = [] if progress is None else [each for each in progress.partitions.values() if isinstance(each, IngestReport)]
            shown[f"ingest {name}"]["lag_s"] = seconds_behind(reports, inputs[name].ends, now_us)
    reads = {}
    for name, output in settings.outputs.items():
        plan = find_plan(settings, output, folder, partial(admin.find, output.topic or name))
        reads[name] = () if plan is None else tuple(sorted(plan.inputs))
    topics = {name: output.topic or name for name, output in settings.outputs.items()}
    stores = {name: [*output.stores, *(["files"] if output.files else [])] for name, output in settings.outputs.items()}
    ordered = {name: table.ordered_topic for name, table in settings.inputs.items()}
    return make_graph(shown, inputs, ordered, reads, topics, stores)


def _input_places(settings: Settings, name: str, admin: Admin) -> InputPlaces:
    from ingest.planner.joining_partitions import match_topics, own_topics
    from tidegate.tools.page.graph import InputPlaces

    topics = tuple(match_topics(settings.input(name), admin.partition_counts(), own_topics(settings)))
    places = [place for topic in topics if (found := admin.find(topic)) is not None for place in found.all_partitions]
    ends = admin.ends(places)
    return InputPlaces(topics, ends, tuple(f"{topic}-{number}" for topic, number in places if ends[topic, number] == 0))


def find_times(settings: Settings, asked: Mapping[str, str], followers: dict[str, Follower]) -> dict[str, Any]:
    """
    Return the newest events and watermarks of an input, or those before a time, as ``tidegate watermarks INPUT --plot FILE.json`` has them;
    and the events that are held. Times are microseconds.
    """
    from ingest.commands.journal import name_partitions
    from ordering.ticks import INFINITY
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.platform.observe.reports import IngestReport
    from tidegate.tools.staircase.figures import make_figures
    from tidegate.tools.staircase.follow import Follower, read_before
    from tidegate.tools.staircase.read import Section, make_staircase

    name = asked.get("name", "")
    table = settings.input(name)
    before_us, from_us, until_us = (_read_tick(asked, each) for each in ("before", "from", "until"))
    number = _read_tick(asked, "number")
    admin = Admin.connect(settings.kafka)
    topic = admin.require(table.ordered_topic, "start the stage that writes it")
    kafka = settings.kafka.client_properties()
    if before_us is None:
        stretches = followers.setdefault(name, Follower()).look(admin, kafka, topic)
    else:
        stretches = read_before(admin, kafka, topic, before_us)
    section = Section(NEVER if from_us is None else from_us, INFINITY if until_us is None else until_us, number)
    policies = table.policies()
    stairs = make_staircase(topic.name, stretches, policies, table.over is not None, section)
    with ProgressStore(settings.redis) as store:
        store.ask_details(table.ordered_topic, 0)
        progress = store.read(table.ordered_topic)
    reports = [] if progress is None else [each for each in progress.partitions.values() if isinstance(each, IngestReport)]
    held = [
        {"partition": f"{each.topic}-{each.partition}", "held": each.held, "from_us": each.held_events and each.held_events.from_us}
        for each in reports
        if each.held
    ]
    return make_figures(stairs, policies, name_partitions(settings, name, admin), table.places.text) | {"held": held}


def _read_tick(asked: Mapping[str, str], name: str) -> int | None:
    text = asked.get(name, "")
    if text and not _TICK.fullmatch(text):
        raise SettingError(f"{text} is no number of microseconds", code="TG-SETTING-VALUE", where=name, fix="write a whole number")
    return int(text) if text else None


def find_event(settings: Settings, flags: Sequence[str], asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``tidegate explain --forward --format json`` says of a record, a result, or records with a key or a field's value."""
    name, place = asked.get("name", ""), asked.get("place", "")
    if name not in settings.inputs and name not in settings.outputs:
        raise SettingError(f"there is no input or output {name}", code="TG-SETTING-NAME", where="name", fix="choose one of the list")
    wanted = [f"--{each}={asked[each]}" for each in ("where", "key", "at") if asked.get(each)]
    if name in settings.inputs:
        wanted = [each for each in wanted if not each.startswith("--at=")]
    lines = _run(["explain", *wanted, *(["--forward"] if place else []), *flags, "--", name, *([place] if place else [])], codes=(0, 1))
    return {"name": name, "found": lines}


def find_tuning(settings: Settings, flags: Sequence[str], asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``tidegate tune INPUT --format json`` says of policies over an input's newest records."""
    name = asked.get("name", "")
    settings.input(name)
    tried = []
    for each in ("early", "late", "reorder"):
        if text := asked.get(each, ""):
            if not _DURATION.fullmatch(text):
                raise SettingError(
                    f"{text} is no duration", code="TG-SETTING-VALUE", where=each, fix="write a number and a unit: 5s, 2m, 1h"
                )
            tried.append(f"--{each}={text}")
    touch = asked.get("touch") or "0.1"
    if not _SHARE.fullmatch(touch):
        raise SettingError(f"{touch} is no share", code="TG-SETTING-VALUE", where="touch", fix="write percent: 0.1")
    [found] = _run(["tune", f"--touch={touch}", *tried, *flags, "--", name])
    return dict(found)


def find_history(settings: Settings) -> dict[str, Any]:
    """Return what each job has said of itself, by time, as ``tidegate status --format json`` has it: starts, catch-ups, ends, failures."""
    from tidegate.tools.commands.status import read_jobs

    happened = []
    for job in read_jobs(settings, [], time.time_ns() // 1_000_000):
        shown = job.as_dict()
        recovery = shown.get("recovery") or {}
        if started := shown.get("started_at"):
            happened.append({"at": started, "job": job.name, "what": "started", "more": str(recovery.get("in_words") or "")})
            if caught_up_s := recovery.get("caught_up_after_s"):
                at_us = parse_tick(started) + round(caught_up_s * 1_000_000)
                happened.append({"at": _format(at_us), "job": job.name, "what": "caught up", "more": f"after {caught_up_s:,.1f} s"})
        if job.state not in ("starting", "replaying", "live", "waiting") and (seen := shown.get("last_seen_at")):
            failure = shown.get("failure") or {}
            happened.append({"at": seen, "job": job.name, "what": job.state, "more": str(failure.get("what") or "")})
    return {"history": sorted(happened, key=lambda each: each["at"], reverse=True)}


def _format(us: int) -> str:
    from ordering.ticks import format_tick

    return format_tick(us)


def _run(command: Sequence[str], codes: Sequence[int] = (0,)) -> list[Any]:
    """Run a command with ``--format json`` in a process of its own; return the objects that it prints. RefusedError: its error."""
    head, *rest = command
    line = [sys.executable, "-P", "-m", "tidegate", head, "--format", "json", *rest]
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
    except subprocess.TimeoutExpired:
        what = f"tidegate {head} has not ended within {_COMMAND_S:.0f} s"
        raise RefusedError(what, code="TG-UI-SLOW", where=head, fix="run it in a terminal") from None
    found = [json.loads(each) for each in done.stdout.splitlines() if each.startswith(("{", "["))]
    if done.returncode not in codes or (not found and done.stderr):
        told = [json.loads(each)["error"] for each in done.stderr.splitlines() if each.startswith('{"error": ')]
        error = told[-1] if told else {}
        what = str(error.get("what") or done.stderr.strip()[-500:] or f"tidegate {head} failed")
        raise RefusedError(
            what, code=str(error.get("code") or "TG-UI-COMMAND"), where=str(error.get("where") or head), fix=str(error.get("fix") or "")
        )
    return found


def find_why(settings: Settings, folder: Path, name: str) -> dict[str, Any]:
    """Return what the next results of an output wait for, as ``tidegate why --format json`` has it, and the same in words."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.tools.commands.why import as_dict
    from tidegate.tools.why.gather import Gathering
    from tidegate.tools.why.holds import find_holds

    settings.output(name)
    now_us = time.time_ns() // 1_000
    with ProgressStore(settings.redis) as store:
        facts = Gathering(settings, Admin.connect(settings.kafka), store, folder).output_facts(name, now_us)
    holds = find_holds(facts, now_us)
    return as_dict(facts, holds) | {"in_words": [hold.in_words for hold in holds]}


def find_messages(settings: Settings, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the newest records of a topic of the pipeline, each as the line of ``tidegate peek``."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.records.payloads.formats import JSON, PayloadFormat
    from tidegate.tools.commands.peek import bind_where, find_input
    from tidegate.tools.peek.display import Display
    from tidegate.tools.peek.reading import RecordChoice, TopicView

    topic, limit = asked.get("topic", ""), asked.get("limit", "50")
    if topic not in list_names(settings)["topics"]:
        raise SettingError(f"{topic} is no topic of this pipeline", code="TG-SETTING-NAME", where="topic", fix="choose one of the list")
    if not (limit.isascii() and limit.isdigit() and 0 < int(limit[:9]) <= _RECORDS_MAX):
        raise SettingError(f"{limit} is no number of records", code="TG-SETTING-FLAG", where="limit", fix=f"1 to {_RECORDS_MAX}")
    table = find_input(settings, topic)
    condition = bind_where(asked["where"], table) if asked.get("where") else None
    admin = Admin.connect(settings.kafka)
    places = admin.require(topic, "start the stage that writes it").all_partitions
    payloads = JSON if table is None else PayloadFormat.of(table, settings.schema_registry)
    display = Display(payloads)
    wanted = RecordChoice(condition, asked["key"].encode() if asked.get("key") else None, payloads, asked.get("ctis") != "no")
    with TopicView(admin, settings.kafka.client_properties(), places, wanted) as view:
        records = [{"place": sight.place, "kind": sight.kind.value, "line": display.line(sight)} for sight in view.newest(int(limit))]
        return {"topic": topic, "records": records[::-1], "repetitions": view.repetitions, "is_cut": view.is_cut}
