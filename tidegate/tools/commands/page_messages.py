"""
The records that the page of ``tidegate ui`` shows, loads as files, and produces again.

Law: only topics of the pipeline are read, and only raw topics of its inputs are written, a record that ingest could not use at a time.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from ordering.errors import SettingError

if TYPE_CHECKING:
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import Settings
    from tidegate.tools.peek.again import Place
    from tidegate.tools.peek.decoding import Sight
    from tidegate.tools.peek.display import Display
    from tidegate.tools.peek.reading import TopicView

_RECORDS_MAX = 500


def make_downloads(settings: Settings) -> Mapping[str, Any]:
    """Return what the page can load as a file, by name."""
    return {"messages": lambda asked: load_messages(settings, asked), "record": lambda asked: load_record(settings, asked)}


def make_acts(settings: Settings) -> Mapping[str, Any]:
    """Return what the page can change where that is allowed, by name."""
    return {"produce-again": lambda asked: produce_letter(settings, asked)}


def list_names(settings: Settings) -> dict[str, Any]:
    """Return the inputs, the outputs and the topics of the pipeline, and which of these hold dead letters and dropped events."""
    topics = [
        name
        for table in settings.inputs.values()
        for name in (*table.topics, table.ordered_topic, table.dead_letter_topic, table.dropped_topic)
    ]
    # A query, and a sink whose store refuses results, have dead letters beside their results.
    topics += [each for name, table in settings.outputs.items() for each in (table.topic or name, table.dead_letter_topic)]
    letters = [topic for table in settings.inputs.values() for topic in (table.dead_letter_topic, table.dropped_topic)]
    letters += [table.dead_letter_topic for table in settings.outputs.values()]
    return {
        "inputs": list(settings.inputs),
        "outputs": list(settings.outputs),
        "topics": list(dict.fromkeys(filter(None, topics))),
        "letters": list(dict.fromkeys(filter(None, letters))),
    }


def find_messages(settings: Settings, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the newest records of a topic of the pipeline, each as the line of ``tidegate peek``, and why it is a dead letter."""
    from tidegate.tools.peek.decoding import ORIGIN, REASON, SightKind

    found = _look_into(settings, asked)
    records = []
    for sight in found.sights:
        record: dict[str, Any] = {"place": sight.place, "kind": sight.kind.value, "line": found.display.line(sight)}
        if sight.is_repetition:
            record["is_repetition"] = True
        if sight.kind is SightKind.DEAD_LETTER:
            record |= {"reason": sight.header(REASON), "origin": sight.header(ORIGIN), **_describe_return(settings, sight)}
        records.append(record)
    reasons = Counter(str(record["reason"]) for record in records if "reason" in record)
    counts = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    view = found.view
    return {"topic": found.topic, "records": records[::-1], "reasons": counts, "repetitions": view.repetitions, "is_cut": view.is_cut}


@dataclass(frozen=True, slots=True)
class _Look:
    topic: str
    view: TopicView
    display: Display
    sights: list[Sight]


def _look_into(settings: Settings, asked: Mapping[str, str]) -> _Look:
    """Look for the newest records that are *asked* for, or for the first ones from a time on."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.records.payloads.formats import JSON, PayloadFormat
    from tidegate.tools.peek.command import bind_where, choose_partitions, find_input, find_starts, parse_from
    from tidegate.tools.peek.display import Display
    from tidegate.tools.peek.reading import RecordChoice, TopicView

    topic, limit, partition = asked.get("topic", ""), asked.get("limit", "50"), asked.get("partition", "")
    if topic not in list_names(settings)["topics"]:
        raise SettingError(f"{topic} is no topic of this pipeline", code="TG-SETTING-NAME", where="topic", fix="choose one of the list")
    if not (limit.isascii() and limit.isdigit() and 0 < int(limit[:9]) <= _RECORDS_MAX):
        raise SettingError(f"{limit} is no number of records", code="TG-SETTING-FLAG", where="limit", fix=f"1 to {_RECORDS_MAX}")
    if partition and not (partition.isascii() and partition.isdigit() and len(partition) < 9):
        raise SettingError(f"{partition} is no partition", code="TG-SETTING-FLAG", where="partition", fix="write its number")
    table = find_input(settings, topic)
    condition = bind_where(asked["where"], table) if asked.get("where") else None
    admin = Admin.connect(settings.kafka)
    places = choose_partitions(admin.require(topic, "start the stage that writes it"), int(partition) if partition else None)
    payloads = JSON if table is None else PayloadFormat.of(table, settings.schema_registry)
    kind, _, name = asked.get("stage", "").partition(" ")
    # Inputs may share a dead-letter topic; a query has its own.
    origins = find_raw_topics(settings, name, admin) if kind == "ingest" and name in settings.inputs else None
    key = asked["key"].encode() if asked.get("key") else None
    more = asked.get("ctis") != "no", asked.get("reason", ""), origins, asked.get("repetitions") != "left out"
    wanted = RecordChoice(condition, key, payloads, *more)
    start_us = parse_from(asked["from"], time.time_ns() // 1_000) if asked.get("from") else None
    with TopicView(admin, settings.kafka.client_properties(), places, wanted) as view:
        sights = view.newest(int(limit)) if start_us is None else list(islice(view.since(find_starts(admin, places, start_us)), int(limit)))
        return _Look(topic, view, Display(payloads), sights)


def find_raw_topics(settings: Settings, name: str, admin: Admin) -> frozenset[str]:
    """Return the raw topics of an input."""
    from tidegate.platform.settings.input_topics import match_topics, own_topics

    return frozenset(match_topics(settings.input(name), admin.partition_counts(), own_topics(settings)))


def _describe_return(settings: Settings, sight: Sight) -> dict[str, Any]:
    """Return whether a dead letter is one of ingest, whose record can be produced again, and of which input."""
    from tidegate.basics.dead_letter_reasons import IngestReason
    from tidegate.tools.peek.again import Place
    from tidegate.tools.peek.command import find_input
    from tidegate.tools.peek.decoding import ORIGIN, REASON

    origin = Place.parse(sight.header(ORIGIN))
    table = None if origin is None else find_input(settings, origin.topic)
    is_own = table is not None and sight.header(REASON) in set(IngestReason)
    return {"can_return": is_own, "input": table.name if table is not None else ""}


def load_messages(settings: Settings, asked: Mapping[str, str]) -> tuple[str, bytes]:
    """Return the newest records of a topic as ``tidegate peek --format json`` prints them."""
    found = _look_into(settings, {"limit": str(_RECORDS_MAX), **asked})
    lines = (json.dumps(found.display.as_dict(sight), separators=(",", ":")) + "\n" for sight in found.sights)
    return f"{found.topic}.ndjson", "".join(lines).encode()


def load_record(settings: Settings, asked: Mapping[str, str]) -> tuple[str, bytes]:
    """Return the bytes of one record's value."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.tools.peek.again import read_record

    place = _read_place(settings, asked.get("place", ""))
    record = read_record(Admin.connect(settings.kafka), settings.kafka.client_properties(), place)
    if record is None:
        raise SettingError(f"{place} is not there", code="TG-SETTING-PLACE", where="place", fix="reload the page")
    return str(place), bytes(record.value() or b"")


def produce_letter(settings: Settings, asked: Mapping[str, Any]) -> dict[str, str]:
    """Produce the record of a dead letter again."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.tools.peek.again import produce_again

    admin = Admin.connect(settings.kafka)
    raw = frozenset().union(*(find_raw_topics(settings, name, admin) for name in settings.inputs))
    place = _read_place(settings, str(asked.get("place", "")))
    return {"letter": str(place), "record": str(produce_again(admin, settings.kafka.client_properties(), place, raw))}


def _read_place(settings: Settings, text: str) -> Place:
    """Return the place of a record of a topic of the pipeline. SettingError: it is none."""
    from tidegate.tools.peek.again import Place

    place = Place.parse(text)
    if place is None or place.topic not in list_names(settings)["topics"]:
        fix = "write topic-partition@offset of one of its topics"
        raise SettingError(f"{text} is no record of this pipeline", code="TG-SETTING-PLACE", where="place", fix=fix)
    return place
