"""
The command ``tidegate journal``: shows the journal's facts of an input, or rebuilds them from the ordered topic.

Both may run beside the ingest job. A rebuild first removes what cannot be: entries that somebody else has written. The job itself rebuilds
the facts if it finds at its start that the journal has lost some.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import Silence
from ordering.ticks import format_duration, format_tick
from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import TextColumn, TextTable, print_lines, standard_output

if TYPE_CHECKING:
    from ingest.config import IngestPlan, Partition
    from ingest.journal.rebuild import RebuildReport
    from ingest.journal.redis_journal import RedisJournal
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import Settings

_MEANING = {
    FactKind.ESTIMATE: "silence: arrival time had come to",
    FactKind.IMPORT: "imported CTI",
    FactKind.STAMP: "arrival of the records from here on",
    FactKind.CLOCK: "clock that judges absurd timestamps from here on",
    FactKind.BASE: "without any record arrival time counts from",
    FactKind.JOIN: "joined at",
    FactKind.CLOSED: "all below is judged",
    FactKind.SKIP: "not read from here to",
}


class JournalAction(StrEnum):
    """The two actions of the command."""

    SHOW = "show"
    REBUILD = "rebuild"


def journal(
    action: Annotated[JournalAction, typer.Argument(help="show: print the facts. rebuild: restore those that the ordered topic carries.")],
    name: Annotated[str, typer.Argument(metavar="INPUT", help="Which [inputs.NAME].")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With rebuild: only show what would be restored.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: redis.url=redis://host:6379/0")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Show the facts that the journal holds of an input, or rebuild it from the ordered topic."""
    from ingest.journal.impossible_facts import FactBounds, remove_impossible
    from ingest.journal.rebuild import read_topic_facts, restore_facts, roster_members
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    settings.input(name)
    admin, redis_journal = open_services(settings, name)
    plan = plan_for_journal(settings, name, admin)
    if action is JournalAction.SHOW:
        print_facts(plan, redis_journal, format)
        return
    removed = remove_impossible(
        plan, redis_journal, FactBounds(plan, partial(admin.ends, committed=False)), time.time_ns() // 1000, dry_run=dry_run
    )
    print_removed(removed, dry_run, format)
    if dry_run and any(removed.values()):
        # The journal cannot be compared with the ordered topic while it cannot be read.
        print_unknown(format)
        return
    facts = read_topic_facts(plan, admin)
    plan = plan if plan.joins else replace(plan, partitions=roster_members(plan.partitions, facts))
    print_rebuilt(restore_facts(plan, redis_journal, facts, dry_run), dry_run, format)


def open_services(settings: Settings, name: str) -> tuple[Admin, RedisJournal]:
    """
    Return the brokers and the journal of the input *name*, after checking that both answer; from now on logs are as the settings say. A
    command that reads several journals gives ``INPUT``, which errors show.
    """
    from ingest.journal.redis_journal import RedisJournal
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.observe import logs

    logs.configure(settings.logging.format, settings.logging.level)
    return Admin.connect(settings.kafka), RedisJournal.open(settings.redis, input_name=name)


def name_partitions(settings: Settings, name: str, admin: Admin) -> list[str]:
    """Return the names of an input's partitions in the order of the roster."""
    return [f"{topic}-{number}" for topic, number in plan_for_journal(settings, name, admin).partitions]


def plan_for_journal(settings: Settings, name: str, admin: Admin) -> IngestPlan:
    """Return the job's plan with the fields that journal keys need; partitions are in roster order if a checkpoint has one."""
    from ingest.config import IngestPlan
    from ingest.cti_imports import ImportedInput
    from ingest.planner.joining_partitions import read_planned_offset, with_roster
    from ingest.start.decide import find_max_ahead
    from tidegate.platform.checkpoint.binding import checkpoint_folder, read_binding
    from tidegate.platform.settings.input_topics import match_topics, own_topics

    input_settings = settings.input(name)
    folder = checkpoint_folder(settings, f"ingest-{input_settings.ordered_topic}")
    planned = read_planned_offset(folder)
    counts = admin.partition_counts()
    known_topics = {topic for topic, _ in planned.partitions} if planned is not None else set()
    raw = [admin.require(topic) for topic in sorted({*match_topics(input_settings, counts, own_topics(settings)), *known_topics})]
    ordered = admin.require(input_settings.ordered_topic, f"start tidegate ingest {name} first: it makes the topic")
    driver = input_settings.import_ctis_from
    # Starts, tasks and estimates play no part in journal keys: they are left empty.
    plan = IngestPlan(
        settings=input_settings,
        kafka=settings.kafka.client_properties(),
        redis=settings.redis,
        partitions=tuple(partition for topic in raw for partition in topic.all_partitions),
        topic_ids={topic.name: topic.topic_id for topic in raw},
        tasks=1,
        starts={},
        output_partitions=ordered.partitions,
        estimates=frozenset(),
        until_end=False,
        checkpoint=str(folder),
        imported=None if driver is None else ImportedInput(driver, settings.input(driver).ordered_topic, 1),
        ordered_topic_id=ordered.topic_id,
        arrival_max_ahead_us=find_max_ahead(input_settings, read_binding(folder) or {}, raw),
    )
    return plan if planned is None else with_roster(plan, planned.partitions, planned.joins)


def print_facts(plan: IngestPlan, redis_journal: RedisJournal, format: Format) -> None:
    """Print all facts of the input partitions of *plan*."""
    from ingest.journal.rebuild import read_journal_facts

    table = TextTable([TextColumn(name) for name in ("partition", "position", "fact", "value")], is_plain=True)
    for partition in plan.partitions:
        facts = read_journal_facts(plan, redis_journal, partition)
        if format is Format.JSON:
            print_json(_as_dict(plan, redis_journal, partition, facts))
        for fact in facts:
            table.add(f"{partition[0]}-{partition[1]}", _format_position(fact), _MEANING[FactKind(fact.kind)], _format_value(fact))
        if (silence := _read_silence(plan, redis_journal, partition)) is not None:
            since = f"after {format_tick(silence.arrival_us)}, since {format_duration(silence.since_us)} after boot {silence.boot_id}"
            table.add(f"{partition[0]}-{partition[1]}", f"{silence.position:,}", "silent", since)
    if format is Format.TEXT and table.rows:
        standard_output().table(table)
    elif format is Format.TEXT:
        print_lines([f"the journal at {plan.redis.address} holds nothing of {plan.settings.name}"])


def _read_silence(plan: IngestPlan, redis_journal: RedisJournal, partition: Partition) -> Silence | None:
    key = plan.journal_key(partition)
    return redis_journal.read_silence(key) if redis_journal.has_facts(key) else None


def _format_position(fact: Fact) -> str:
    # The position of a join is a number in the roster, not an offset.
    return "-" if fact.kind == FactKind.JOIN else f"{fact.position:,}"


def _format_value(fact: Fact) -> str:
    if fact.kind == FactKind.CLOSED:
        return ""
    if fact.kind == FactKind.SKIP:
        return f"{fact.value:,}"
    return f"{format_tick(fact.value)}, number {fact.position}" if fact.kind == FactKind.JOIN else format_tick(fact.value)


def _as_dict(plan: IngestPlan, redis_journal: RedisJournal, partition: Partition, facts: list[Fact]) -> dict[str, Any]:
    silence = _read_silence(plan, redis_journal, partition)
    fact_dicts = [{"kind": FactKind(fact.kind).name.lower(), "position": fact.position, _value_name(fact): fact.value} for fact in facts]
    place = {"topic": partition[0], "partition": partition[1]}
    return {**place, "facts": fact_dicts, "silence": None if silence is None else silence._asdict()}


def _value_name(fact: Fact) -> str:
    return "until" if fact.kind == FactKind.SKIP else "value_us"


def print_removed(removed: Mapping[Partition, int], dry_run: bool, format: Format) -> None:
    """Print how many entries were removed because they cannot be, or would be, for each input partition that has some."""
    for (topic, partition), count in removed.items():
        if count and format is Format.JSON:
            print_json({"topic": topic, "partition": partition, "dry_run": dry_run, "removed": count})
        elif count:
            print_lines([f"{topic}-{partition}: {'would remove' if dry_run else 'removed'} {count:,} entries that cannot be"])


def print_unknown(format: Format) -> None:
    """Print that a dry run cannot tell what would be given back."""
    if format is Format.TEXT:
        print_lines(["what the ordered topic would give back is known once these are removed"])


def print_rebuilt(rebuilt: RebuildReport, dry_run: bool, format: Format) -> None:
    """Print the facts that were restored, or would be, for each input partition."""
    for (topic, partition), missing in rebuilt.missing.items():
        wrong = rebuilt.contradicted[topic, partition]
        if format is Format.JSON:
            print_json({"topic": topic, "partition": partition, "dry_run": dry_run, "given_back": dict(missing), "contradicted": wrong})
        else:
            conflict = f"; {wrong:,} stand otherwise in the journal and stay so: another job was faster" if wrong else ""
            print_lines([f"{topic}-{partition}: {_describe_missing(missing, dry_run)}{conflict}"])


def _describe_missing(missing: Counter[str], dry_run: bool) -> str:
    counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(missing.items()))
    return f"{'would give back' if dry_run else 'gave back'} {counted}" if counted else "nothing was missing"
