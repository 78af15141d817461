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
from threading import Lock
from typing import TYPE_CHECKING, Any

from ordering.errors import RefusedError, SettingError, TidegateError, UnreachableError
from ordering.ticks import NEVER, format_tick
from tidegate.basics.secret_masking import scrub
from tidegate.tools.commands.page_messages import find_messages, find_raw_topics, list_names
from tidegate.tools.commands.page_tuning import Tunings

if TYPE_CHECKING:
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import Settings
    from tidegate.tools.page.graph import InputPlaces
    from tidegate.tools.staircase.follow import Follower

_COMMAND_S = 120.0
_GLANCE_US = 1_500_000
# So many facts of the journals are shown, and so many silences of each partition.
_FACTS_MAX, _SILENCES_MAX = 200, 5
# Of so many records the bytes are shown.
_RAW_MAX = 10
_TICK = re.compile(r"-?\d{1,19}")


def make_answers(settings: Settings, folder: Path, flags: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return what the page can ask, by name; *folder* is that of the configuration, *flags* lead commands to the same settings."""
    followers: dict[str, Follower[Any]] = {}
    brokers = Brokers(settings)
    return {
        "pipeline": lambda _: find_pipeline(settings, folder, brokers),
        "time": lambda asked: find_times(settings, asked, followers, brokers),
        "why": lambda asked: find_why(settings, folder, asked, brokers),
        "messages": lambda asked: find_messages(settings, asked),
        "event": lambda asked: find_event(settings, flags, asked),
        "tune": Tunings(settings, folder, flags),
        "history": lambda _: find_happenings(settings),
        "names": lambda _: list_names(settings),
    }


class Brokers:
    """The one client of the brokers for the answers that pages follow: a client has threads, and is gone only long after its use."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, Lock()
        self._admin: Admin | None = None

    def connect(self) -> Admin:
        """Return the client of brokers that answer. Raises as :meth:`Admin.connect`, soon: brokers that do not answer are to be named."""
        from tidegate.platform.kafka.admin import Admin

        with self._lock:
            if self._admin is None:
                kafka = self._settings.kafka
                self._admin = Admin.connect(kafka.model_copy(update={"connect_timeout_us": min(kafka.connect_timeout_us, _GLANCE_US)}))
                return self._admin
        self._admin.check_reachable()
        return self._admin


def find_pipeline(settings: Settings, folder: Path, brokers: Brokers) -> dict[str, Any]:
    """Return the jobs as ``tidegate status --format json`` has them, and the graph of the pipeline."""
    from tidegate.tools.commands.status import read_jobs

    shown = {job.name: job.as_dict() for job in read_jobs(settings, [], time.time_ns() // 1_000_000)}
    try:
        graph = _find_graph(settings, folder, shown, brokers)
    except UnreachableError as error:
        # The jobs are known without Kafka, whose absence may be why one looks.
        return {"jobs": list(shown.values()), "graph": None, "trouble": scrub(str(error))}
    return {"jobs": list(shown.values()), "graph": graph, "trouble": ""}


def _find_graph(settings: Settings, folder: Path, shown: dict[str, dict[str, Any]], brokers: Brokers) -> dict[str, Any]:
    from query.output_plan import find_plan
    from tidegate.tools.page.graph import make_graph

    admin = brokers.connect()
    inputs = {name: _input_places(settings, name, admin) for name in settings.inputs}
    reads = {}
    for name, output in settings.outputs.items():
        plan = find_plan(settings, output, folder, partial(admin.find, output.topic or name))
        reads[name] = () if plan is None else tuple(sorted(plan.inputs))
    topics = {name: output.topic or name for name, output in settings.outputs.items()}
    stores = {name: [*output.stores, *(["files"] if output.files else [])] for name, output in settings.outputs.items()}
    ordered = {name: table.ordered_topic for name, table in settings.inputs.items()}
    return make_graph(shown, inputs, ordered, reads, topics, stores)


def _input_places(settings: Settings, name: str, admin: Admin) -> InputPlaces:
    from tidegate.tools.page.graph import InputPlaces

    topics = tuple(sorted(find_raw_topics(settings, name, admin)))
    places = [place for topic in topics if (found := admin.find(topic)) is not None for place in found.all_partitions]
    ends = admin.ends(places)
    return InputPlaces(topics, tuple(f"{topic}-{number}" for topic, number in places if ends[topic, number] == 0))


def find_times(settings: Settings, asked: Mapping[str, str], followers: dict[str, Follower[Any]], brokers: Brokers) -> dict[str, Any]:
    """
    Return the newest events and watermarks of an input, or those before a time, as ``tidegate watermarks INPUT --plot FILE.json`` has them;
    and the events that are held. Times are microseconds; *followers* are those of topics.
    """
    from ingest.commands.journal import name_partitions
    from ordering.ticks import INFINITY
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.platform.observe.reports import IngestReport
    from tidegate.tools.staircase import dropped, read
    from tidegate.tools.staircase.figures import make_figures
    from tidegate.tools.staircase.follow import Follower, read_before

    name = asked.get("name", "")
    table = settings.input(name)
    before_us, from_us, until_us = (_read_tick(asked, each) for each in ("before", "from", "until"))
    number, key = _read_tick(asked, "number"), asked["key"].encode() if asked.get("key") else None
    admin = brokers.connect()
    topic = admin.require(table.ordered_topic, "start the stage that writes it")
    kafka = settings.kafka.client_properties()
    if before_us is None:
        stretches = followers.setdefault(topic.name, Follower(read.read_stretches, read.RECORDS_MAX)).look(admin, kafka, topic)
    else:
        stretches = read_before(admin, kafka, topic, before_us)
    section = read.Section(NEVER if from_us is None else from_us, INFINITY if until_us is None else until_us, number, key)
    policies = table.policies()
    stairs = read.make_staircase(topic.name, stretches, policies, table.over is not None, section)
    with ProgressStore(settings.redis) as store:
        store.ask_details(table.ordered_topic, 0)
        progress = store.read(table.ordered_topic)
    reports = [] if progress is None else [each for each in progress.partitions.values() if isinstance(each, IngestReport)]
    held = [
        {"partition": f"{each.topic}-{each.partition}", "held": each.held, "from_us": each.held_events and each.held_events.from_us}
        for each in reports
        if each.held
    ]
    names, letters = name_partitions(settings, name, admin), []
    if table.dropped_topic is not None and (found := admin.find(table.dropped_topic)) is not None:
        letters = followers.setdefault(found.name, Follower(dropped.read_dropped, dropped.RECORDS_MAX)).look(admin, kafka, found)
    events = dropped.choose_dropped(letters, stairs, names, section, table.over is not None)
    figures = make_figures(stairs, policies, names, table.places.text, events)
    return figures | {"held": held, "over": table.over is not None, "dropped_topic": table.dropped_topic}


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
    # The two kinds of names are told by their times: results have one, records lie between two.
    flags_of_kind = ("where", "key", "from", "until") if name in settings.inputs else ("where", "key", "at")
    wanted = [f"--{each}={asked[each]}" for each in flags_of_kind if asked.get(each)]
    places = ["--", name, *([place] if place else [])]
    lines = run_command(["explain", *wanted, *(["--forward"] if place else []), *flags, *places], codes=(0, 1))
    return {"name": name, "found": _with_raw_bytes(settings, lines)}


def _with_raw_bytes(settings: Settings, found: list[Any]) -> list[Any]:
    """Return what ``explain`` has found, each record with its bytes as they are in Kafka."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.tools.peek.again import Place, read_record
    from tidegate.tools.peek.display import show_bytes

    admin, kafka = Admin.connect(settings.kafka), settings.kafka.client_properties()
    shown: list[Any] = []
    for each in found:
        named = each.get("place") or (f"{each['topic']}-{each['partition']}@{each['offset']}" if "offset" in each else "")
        place = Place.parse(str(named).partition("[")[0])
        record = None if place is None or len(shown) >= _RAW_MAX else read_record(admin, kafka, place)
        raw = {} if record is None else {"raw": {"place": str(place), "key": show_bytes(record.key()), "value": show_bytes(record.value())}}
        shown.append(each | raw)
    return shown


def find_happenings(settings: Settings) -> dict[str, Any]:
    """
    Return what has happened to each job as ``tidegate status --history --format json`` has it, and the newest facts of the journal of each
    input that bear a time: estimates in silence, partitions that joined.
    """
    from tidegate.tools.commands.status import find_history, read_jobs

    happened = find_history(read_jobs(settings, [], time.time_ns() // 1_000_000))
    facts, trouble = [], ""
    for name in settings.inputs:
        try:
            facts += _find_facts(settings, name)
        except TidegateError as error:
            # What happened to the jobs is known without the journal, and may be why it has nothing.
            trouble = scrub(str(error))
    return {"history": happened, "facts": sorted(facts, key=lambda each: str(each["at"]), reverse=True)[:_FACTS_MAX], "trouble": trouble}


def _find_facts(settings: Settings, name: str) -> list[dict[str, Any]]:
    from ingest.commands.journal import open_services, plan_for_journal
    from ingest.journal.rebuild import read_journal_facts
    from ordering.protocol.facts import FactKind

    admin, journal = open_services(settings, name)
    plan = plan_for_journal(settings, name, admin)
    found = []
    for topic, number in plan.partitions:
        facts = read_journal_facts(plan, journal, (topic, number))
        # A silence has many estimates, one after the other at one position.
        silences = {fact.position: fact.value for fact in facts if fact.kind == FactKind.ESTIMATE}
        for position, value in sorted(silences.items())[-_SILENCES_MAX:]:
            more = f"{topic}-{number}: estimated before record {position:,}, the last time"
            found.append({"at": format_tick(value), "job": f"ingest {name}", "what": "silence", "more": more})
        found += [
            {
                "at": format_tick(fact.value),
                "job": f"ingest {name}",
                "what": "joined",
                "more": f"{topic}-{number} joined at this event time",
            }
            for fact in facts
            if fact.kind == FactKind.JOIN
        ]
    return found


def run_command(command: Sequence[str], codes: Sequence[int] = (0,)) -> list[Any]:
    """Run a command with ``--format json`` in a process of its own; return the objects that it prints. RefusedError: its error."""
    head, *rest = command
    line = [sys.executable, "-P", "-m", "tidegate", head, "--format", "json", *rest]
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
    except subprocess.TimeoutExpired:
        what = f"tidegate {head} has not ended within {_COMMAND_S:.0f} s"
        raise RefusedError(what, code="TG-UI-SLOW", where=head, fix="run it in a terminal, where it may take its time") from None
    found = [json.loads(each) for each in done.stdout.splitlines() if each.startswith(("{", "["))]
    if done.returncode not in codes or (not found and done.stderr):
        told = [json.loads(each)["error"] for each in done.stderr.splitlines() if each.startswith('{"error": ')]
        error = told[-1] if told else {}
        what = str(error.get("what") or done.stderr.strip()[-500:] or f"tidegate {head} failed")
        code, fix = str(error.get("code") or "TG-UI-COMMAND"), "run it in a terminal: it says more there"
        raise RefusedError(what, code=code, where=str(error.get("where") or head), fix=str(error.get("fix") or ("" if error else fix)))
    return found


def find_why(settings: Settings, folder: Path, asked: Mapping[str, str], brokers: Brokers) -> dict[str, Any]:
    """
    Return what the next results of an output wait for, or those of a time or of a substream, as ``tidegate why --format json`` has it, and
    the same in words.
    """
    from tidegate.platform.checkpoint.output_start import parse_time_flag
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.tools.why.command import as_dict
    from tidegate.tools.why.gather import Gathering
    from tidegate.tools.why.holds import find_holds

    name = asked.get("name", "")
    settings.output(name)
    at_us = parse_time_flag(asked["at"], "at") if asked.get("at") else None
    admin = brokers.connect()
    now_us = time.time_ns() // 1_000
    with ProgressStore(settings.redis) as store:
        facts = Gathering(settings, admin, store, folder).output_facts(name, now_us, asked.get("key") or None, at_us)
    holds = find_holds(facts, now_us)
    return as_dict(facts, holds, now_us) | {"in_words": [hold.in_words for hold in holds]}
