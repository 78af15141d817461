"""
``tidegate topic list``, ``describe`` and ``delete``: the topics of the brokers, and what each is to this configuration.

Law: a topic that a stage writes is deleted with its checkpoint (``tidegate reset``), never alone; a raw topic is deleted only while no job
reads it, with what the journal knows of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from ordering.errors import RefusedError
from tidegate.platform.observe.console import Format, confirm_deletion, print_json
from tidegate.platform.observe.terminal import TextColumn, TextTable, print_lines, standard_output

if TYPE_CHECKING:
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import Settings

_INTERNAL = "__"
# What matters of a topic's settings to whom it is described.
_CONFIG = ("cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes", "message.timestamp.type")


def list_topics(settings: Settings, admin: Admin, format: Format) -> None:
    """Print each topic with its partitions and what it is."""
    roles = roles_of(settings, admin)
    table = TextTable(
        [TextColumn("topic"), TextColumn("partitions", is_right=True), TextColumn("records", is_right=True), TextColumn("what it is")],
        is_plain=True,
    )
    for name, partitions in sorted(admin.partition_counts().items()):
        if name.startswith(_INTERNAL):
            continue
        try:
            records = _count_records(admin, [(name, number) for number in range(partitions)])
        except Exception:
            if admin.find(name) is None:  # deleted since the brokers named it
                continue
            raise
        if format is Format.JSON:
            print_json({"topic": name, "partitions": partitions, "records": records, "roles": roles.get(name, [])})
        table.add(name, f"{partitions:,}", f"{records:,}", ", ".join(roles.get(name, [])) or "not of this configuration")
    if format is Format.TEXT and table.rows:
        standard_output().table(table)
    elif format is Format.TEXT:
        print_lines([f"there is no topic on {admin.bootstrap}"])


def describe_topic(settings: Settings, admin: Admin, name: str, format: Format) -> None:
    """Print the settings of a topic and the bounds of its partitions."""
    topic, roles = admin.require(name), roles_of(settings, admin).get(name, [])
    starts, ends = admin.starts(topic.all_partitions), admin.ends(topic.all_partitions, committed=False)
    config = {key: topic.config[key] for key in _CONFIG if key in topic.config}
    if format is Format.JSON:
        bounds = [{"partition": number, "start": starts[name, number], "end": ends[name, number]} for number in range(topic.partitions)]
        print_json({"topic": name, "topic_id": topic.topic_id, "roles": roles, "config": config, "partitions": bounds})
        return
    print_lines([f"{name}, id {topic.topic_id}: {', '.join(roles) or 'not of this configuration'}"])
    print_lines(f"  {key} = {value}" for key, value in config.items())
    table = TextTable(
        [TextColumn("partition", is_right=True), TextColumn("first offset", is_right=True), TextColumn("end", is_right=True)], is_plain=True
    )
    for place in topic.all_partitions:
        table.add(f"{place[1]:,}", f"{starts[place]:,}", f"{ends[place]:,}")
    standard_output().table(table)


def delete_topic(settings: Settings, admin: Admin, name: str, format: Format, *, is_sure: bool) -> None:
    """Delete a topic that no stage writes, and what the journal knows of it."""
    from tidegate.platform.redis_client import connect, translate_errors

    topic = admin.require(name, "tidegate topic list names those that are there")
    if name.startswith(_INTERNAL):
        raise RefusedError(f"{name} is Kafka's own", code="TG-TOPIC-OWN", where=name, fix="leave it")
    _refuse_own(settings, name)
    client = connect(settings.redis)
    _refuse_readers(settings, admin, name)
    with translate_errors(settings.redis.address):
        keys = sorted(str(key) for key in client.scan_iter(match=f"tidegate:*:journal:{topic.topic_id}:*", count=1_000))
    records = _count_records(admin, topic.all_partitions)
    if format is Format.TEXT:
        print_lines([f"topic {name}: {records:,} records in {topic.partitions} partitions", *(f"redis {key}" for key in keys)])
    is_wanted = is_sure or confirm_deletion(f"tidegate topic delete {name}", format)
    if is_wanted:
        admin.delete([name])
        if keys:
            with translate_errors(settings.redis.address):
                client.delete(*keys)
    if format is Format.JSON:
        print_json({"topic": name, "records": records, "redis": keys, "deleted": is_wanted})
    elif is_wanted:
        print_lines([f"deleted {name}"])
    if not is_wanted:
        raise typer.Exit(1)


def roles_of(settings: Settings, admin: Admin) -> dict[str, list[str]]:
    """Return what the topics are to this configuration, by their names."""
    from tidegate.platform.settings.input_topics import match_topics, own_topics

    counts, own = admin.partition_counts(), own_topics(settings)
    roles: dict[str, list[str]] = {}

    def note(topics: Iterable[str | None], role: str) -> None:
        for topic in topics:
            if topic:
                roles.setdefault(topic, []).append(role)

    for name, table in settings.inputs.items():
        note(match_topics(table, counts, own), f"raw topic of {name}")
        note([table.ordered_topic], f"ordered topic of {name}")
        note([table.dead_letter_topic], f"dead letters of {name}")
    for name, output in settings.outputs.items():
        note([output.topic], f"results of {name}")
        note([output.plain_topic], f"plain results of {name}")
        note([output.dead_letter_topic], f"dead letters of {name}")
    return roles


def _count_records(admin: Admin, partitions: list[tuple[str, int]]) -> int:
    starts, ends = admin.starts(partitions), admin.ends(partitions, committed=False)
    return sum(ends[place] - starts[place] for place in partitions)


def _refuse_own(settings: Settings, name: str) -> None:
    for kind, tables in (("inputs", settings.inputs), ("outputs", settings.outputs)):
        for table_name, table in tables.items():
            written = (getattr(table, key, None) for key in ("ordered_topic", "topic" if kind == "outputs" else "", "plain_topic"))
            if name in [topic for topic in written if topic]:
                what = f"{name} is written by a stage: without its checkpoint it goes, with it the stage could not go on"
                fix = "start the stage over"
                raise RefusedError(what, code="TG-TOPIC-OWN", where=name, fix=fix, example=f"tidegate reset {table_name}")


def _refuse_readers(settings: Settings, admin: Admin, name: str) -> None:
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.platform.settings.input_topics import match_topics, own_topics

    now_ms, counts, own = time.time_ns() // 1_000_000, admin.partition_counts(), own_topics(settings)
    with ProgressStore(settings.redis) as store:
        for input_name, table in settings.inputs.items():
            progress = store.read(table.ordered_topic) if name in match_topics(table, counts, own) else None
            if progress is not None and progress.job and progress.is_alive(now_ms):
                fix = f"stop tidegate ingest {input_name} first"
                raise RefusedError(f"ingest {input_name} reads {name}", code="TG-RESET-RUNNING", where=name, fix=fix)
