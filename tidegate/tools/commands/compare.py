"""
The command ``tidegate compare``: proves that two ordered topics have the same events, or shows where they differ.

Exit code 0: they agree. 1: they differ, or one contradicts itself: by a broken promise, or a copy with other bytes. Others: errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordering.errors import RefusedError, TidegateError
from ordering.ticks import INFINITY, NEVER, SECOND_US, format_tick
from tidegate.ordered_topic.compare.strange_records import strange_dict, strange_lines
from tidegate.platform.observe.console import Format, print_json, show_reading
from tidegate.platform.observe.terminal import print_lines

if TYPE_CHECKING:
    from tidegate.ordered_topic.compare.sides import Side
    from tidegate.ordered_topic.compare.topics import Comparison, PartitionSummary
    from tidegate.platform.kafka.admin import Admin, Topic
    from tidegate.platform.settings.load import Settings
    from tidegate.platform.settings.tables.redis import RedisSettings

SHOWN_DIFFERENCES = 5
_JOURNAL_WAIT_US = 2 * SECOND_US  # most time to wait for the journal, which adds only an explanation to the result


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="An ordered topic, or the input that writes it.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    bootstrap_b: Annotated[
        str | None, typer.Option("--bootstrap-b", help="Brokers of B; default: those of A. [kafka.client] counts for both.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only events whose system timestamp is not before this.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only events whose system timestamp is before this.")] = None,
    complete: Annotated[bool, typer.Option("--complete", help="It is a difference, too, if one topic is further than the other.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Compare two ordered topics event by event, and check each one's promises against its own events."""
    from tidegate.ordered_topic.compare.sides import make_side
    from tidegate.platform.checkpoint.output_start import parse_time_span
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.kafka.records import ALL_HEADERS
    from tidegate.platform.observe import logs
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    logs.configure(settings.logging.format, settings.logging.level)
    start_us, until_us = parse_time_span(start, until, "--from")
    properties = settings.kafka.client_properties()
    admins = [
        Admin({**properties, "bootstrap.servers": bootstrap}, settings.kafka.connect_timeout_us / 1e6)
        for bootstrap in (settings.kafka.bootstrap, bootstrap_b or settings.kafka.bootstrap)
    ]
    topics = [_find_topic(settings, admin, name) for admin, name in zip(admins, (a, b), strict=True)]
    if topics[0].partitions != topics[1].partitions:
        what = f"{topics[0].name} has {topics[0].partitions} partitions, {topics[1].name} {topics[1].partitions}: their channels differ"
        where = topics[1].name
        fix = "give both inputs the same output_partitions"
        raise RefusedError(what, code="TG-COMPARE-PARTITIONS", where=where, fix=fix, example=f"output_partitions = {topics[0].partitions}")
    sides = [
        # A topic that was begun at a later time numbers its events from there.
        replace(
            make_side(label, admin, {**properties, "bootstrap.servers": admin.bootstrap}, topic, start_us, ALL_HEADERS),
            has_own_numbers=start_us is not None,
        )
        for label, admin, topic in zip("AB", admins, topics, strict=True)
    ]
    comparison = _compare_with_progress(sides[0], sides[1], until_us, complete)
    raw = _raw_record_names(settings, admins[0], sides, comparison)
    if format is Format.JSON:
        print_json(as_dict(comparison, sides[0], sides[1], raw))
    else:
        print_lines(as_lines(comparison, sides[0], sides[1], raw))
        if not comparison.is_same:
            print_lines(f"made under other settings: {setting}" for setting in differing_settings(settings.redis, topics))
    if not comparison.is_same:
        raise typer.Exit(1)


def _find_topic(settings: Settings, admin: Admin, name: str) -> Topic:
    """Return an ordered topic by its name, or by the name of the input that writes it."""
    admin.check_reachable()
    topic = admin.find(name)
    if topic is None and name in settings.inputs:
        name = settings.inputs[name].ordered_topic
    return topic or admin.require(name, "name an ordered topic, or an input whose ordered topic is there")


def _compare_with_progress(a: Side, b: Side, until_us: int | None, complete: bool) -> Comparison:
    from tidegate.ordered_topic.compare.topics import compare_topics

    total = sum(end - start for side in (a, b) for start, end in zip(side.starts, side.ends, strict=True))
    return show_reading("compare", partial(compare_topics, a, b, until_us, complete), lambda read: f"{read:,} of {total:,} records", total)


def differing_settings(redis: RedisSettings, topics: Sequence[Topic]) -> list[str]:
    """Return each setting in which two ordered topics differ, by the fingerprints in the journal; none where Redis does not know them."""
    from tidegate.platform.checkpoint.binding import differences
    from tidegate.platform.redis_client import connect, translate_errors

    glance = redis.model_copy(update={"connect_timeout_us": min(redis.connect_timeout_us, _JOURNAL_WAIT_US)})
    with (
        suppress(TidegateError, ValueError, KeyError, TypeError, RecursionError),
        translate_errors(redis.address),
        connect(glance) as client,
    ):
        known = [client.hget(f"tidegate:{{{topic.name}}}:fingerprint:{topic.topic_id}", "settings") for topic in topics]
        if None not in known:
            before, after = (json.loads(str(fields))["settings"] for fields in known)
            return differences(before, after)
    return []


def _raw_record_names(settings: Settings, admin: Admin, sides: list[Side], comparison: Comparison) -> Callable[[int, int], str]:
    """Return a function that names a raw record by its input partition's roster number and its offset."""
    topics = {side.topic for side in sides}
    rosters = [summary.roster for summary in (*comparison.a, *comparison.b) if summary.roster]
    names: list[str] = []
    settings_of_writer = next((given for given in settings.inputs.values() if given.ordered_topic in topics), None)
    if settings_of_writer is not None and all(roster.version == 1 for roster in rosters):
        # Numbers follow the sorted partitions only while the roster has version 1; a topic does not record which partitions joined later.
        raws = [admin.find(topic) for topic in sorted(settings_of_writer.topics)]
        names = [f"{topic.name}-{number}" for topic in raws if topic for number in range(topic.partitions)]

    def raw(number: int, offset: int) -> str:
        return f"{names[number]}@{offset}" if number < len(names) else f"input partition {number} @{offset}"

    return raw


def as_dict(comparison: Comparison, a: Side, b: Side, raw: Callable[[int, int], str]) -> dict[str, Any]:
    """Return the result for ``--format json``."""
    ahead = comparison.ahead()
    return {
        "same": comparison.is_same,
        "equal": comparison.equal_events,
        "a": {**_side_dict(a, comparison.a), "ahead": ahead[0]},
        "b": {**_side_dict(b, comparison.b), "ahead": ahead[1]},
        "differences": [difference.as_dict(raw) for difference in comparison.differences],
        "rosters": comparison.rosters,
        "broken": [promise.as_dict(a.topic if label == "A" else b.topic) for label, promise in comparison.broken],
    }


def _side_dict(side: Side, partitions: list[PartitionSummary]) -> dict[str, Any]:
    channels = [channel for partition in partitions for channel in partition.channels.values()]
    watermark_us = min((channel.check.c for channel in channels), default=NEVER)
    return {
        "topic": side.topic,
        "records": sum(partition.records for partition in partitions),
        "events": sum(channel.digest.count for channel in channels),
        "channels": len(channels),
        "duplicates": sum(partition.duplicates for partition in partitions),
        "torn": sum(partition.torn for partition in partitions),
        **strange_dict(partitions),
        "ctis": sum(channel.check.ctis for channel in channels),
        "stale_ctis": sum(channel.check.stale for channel in channels),
        "unproven_ctis": sum(channel.check.unproven for channel in channels),
        "watermark": None if watermark_us == NEVER else format_tick(watermark_us),
        "ended": watermark_us == INFINITY,
    }


def as_lines(comparison: Comparison, a: Side, b: Side, raw: Callable[[int, int], str]) -> list[str]:
    """Return the result as lines of text."""
    lines = []
    for side, partitions in ((a, comparison.a), (b, comparison.b)):
        numbers = _side_dict(side, partitions)
        until = "ended" if numbers["ended"] else f"until {numbers['watermark'] or 'nowhere'}"
        skipped = f"{numbers['duplicates']:,} duplicates and {numbers['torn']:,} records of torn writes skipped"
        unproven = f", {numbers['unproven_ctis']:,} of them undecided" if numbers["unproven_ctis"] else ""
        events = f"{numbers['events']:,} events in {numbers['channels']} channels, {until}"
        lines.append(f"{side.label}  {side.topic}: {events}; {skipped}; {numbers['ctis']:,} CTIs{unproven}")
    for label, broken in comparison.broken:
        topic = a.topic if label == "A" else b.topic
        lines.append(
            f"broken promise in {label}, channel {broken.number}, at {topic}-{broken.partition}@{broken.log_offset}: {broken.description}"
        )
    for label, partitions in (("A", comparison.a), ("B", comparison.b)):
        lines += [f"{label}: {line}" for line in strange_lines(partitions)]
    if comparison.rosters:
        lines.append(f"the rosters differ: {comparison.rosters}")
    for difference in comparison.differences[:SHOWN_DIFFERENCES]:
        lines += difference.text_lines(raw, (a.topic, b.topic))
    if len(comparison.differences) > SHOWN_DIFFERENCES:
        lines.append(f"{len(comparison.differences) - SHOWN_DIFFERENCES} more channels differ")
    return [*lines, _verdict(comparison)]


def _verdict(comparison: Comparison) -> str:
    if comparison.differences or comparison.rosters:
        return f"different: {comparison.equal_events:,} events are the same"
    if comparison.broken:
        return f"the events are the same, all {comparison.equal_events:,} of them, but a promise is broken"
    if comparison.contradicting:
        return f"the events are the same, all {comparison.equal_events:,} of them, but a copy contradicts one"
    ahead = [f"{label} is {count:,} events ahead" for label, count in zip("AB", comparison.ahead(), strict=True) if count]
    return f"same: {comparison.equal_events:,} events, byte for byte" + (f" ({', '.join(ahead)})" if ahead else "")
