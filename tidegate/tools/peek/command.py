"""
The command ``tidegate peek``: the newest records of any topic, decoded; then, if asked, those that come.

Law: it reads alone, in no consumer group, so no job and no other consumer notices. Data goes to standard output, remarks to standard error.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ordering.errors import SettingError
from ordering.ticks import NEVER, parse_duration
from tidegate.platform.observe.console import Format
from tidegate.platform.observe.terminal import print_lines, print_text, standard_error

if TYPE_CHECKING:
    from tidegate.language.expressions.tree import Expr
    from tidegate.platform.kafka.admin import Admin, Topic
    from tidegate.platform.settings.load import Settings
    from tidegate.platform.settings.tables.inputs import InputSettings
    from tidegate.tools.peek.decoding import Sight
    from tidegate.tools.peek.reading import Partition, TopicView

_LIMIT_MAX = 100_000
_POLL_S = 0.5


def peek(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A raw, ordered or result topic, or one of dead letters.")],
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, max=_LIMIT_MAX, help="How many records; default: the newest 10, with --from all.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Records whose timestamp is not before this: a time, an age as in 10m, earliest."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with the records that come, until Ctrl-C.")] = False,
    key: Annotated[str | None, typer.Option(help="Only records with this key.")] = None,
    where: Annotated[str | None, typer.Option(help="Only records of which this is true, as in \"speed > 50 AND car = 'a'\".")] = None,
    reason: Annotated[str, typer.Option(help="Only dead letters and dropped events whose reason begins so.")] = "",
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    ctis: Annotated[bool, typer.Option("--ctis/--no-ctis", help="Whether CTIs are shown too.")] = True,
    repetitions: Annotated[
        bool, typer.Option("--repetitions/--no-repetitions", help="Whether what was written again is shown too, marked.")
    ] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Show the newest records of a topic: raw, ordered, results, dead letters."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import load_assigned
    from tidegate.records.payloads.formats import JSON, PayloadFormat
    from tidegate.tools.peek.display import Display
    from tidegate.tools.peek.reading import RecordChoice, TopicView

    settings = load_assigned(config, assign)
    table = find_input(settings, topic)
    condition = None if where is None else bind_where(where, table)
    start_us = None if start is None else parse_from(start, time.time_ns() // 1_000)
    admin = Admin.connect(settings.kafka)
    partitions = choose_partitions(admin.require(topic, "tidegate topic list names those that are there"), partition)
    payloads = JSON if table is None else PayloadFormat.of(table, settings.schema_registry)
    wanted = RecordChoice(condition, None if key is None else key.encode(), payloads, ctis, reason, has_repetitions=repetitions)
    display = Display(payloads)

    def show(sight: Sight) -> None:
        if format is Format.JSON:
            # The members of a payload stay in their order.
            print_text(json.dumps(display.as_dict(sight), separators=(",", ":")) + "\n")
        else:
            print_lines([display.line(sight)])

    with TopicView(admin, settings.kafka.client_properties(), partitions, wanted) as view:
        shown = _show_first(view, admin, partitions, start_us, limit, show)
        if follow:
            _follow(view, show)
        elif not shown:
            standard_error().line(f"no record of {topic} is like that" if not wanted.is_all or start_us else f"{topic} has no records")
        _print_remarks(view, repetitions)


def _show_first(
    view: TopicView, admin: Admin, partitions: list[Partition], start_us: int | None, limit: int | None, show: Callable[[Sight], None]
) -> int:
    """Show the records that are there; return how many."""
    if start_us is None:
        return _show_all(view.newest(10 if limit is None else limit), None, show)
    return _show_all(view.since(find_starts(admin, partitions, start_us)), limit, show)


def find_starts(admin: Admin, partitions: Sequence[Partition], start_us: int) -> dict[Partition, int]:
    """Return the offset of the first record of each partition whose timestamp is not before *start_us*; ``NEVER``: of the first of all."""
    starts = admin.starts(partitions)
    if start_us == NEVER:
        return starts
    first = admin.offsets_from(partitions, start_us)
    return {place: max(first[place], starts[place]) for place in partitions}


def _show_all(sights: Iterable[Sight], limit: int | None, show: Callable[[Sight], None]) -> int:
    count = 0
    for sight in sights:
        show(sight)
        count += 1
        if count == limit:
            break
    return count


def _follow(view: TopicView, show: Callable[[Sight], None]) -> None:
    """Show the records that come, until a signal."""
    from tidegate.platform.observe.stopping import stop_on_signal

    with stop_on_signal() as stop:
        while not stop.is_asked:
            if not _show_all(view.since(dict(view.positions)), None, show):
                time.sleep(_POLL_S)


def _print_remarks(view: TopicView, has_repetitions: bool) -> None:
    from tidegate.tools.peek.reading import SEARCHED_MAX

    if view.repetitions:
        what = "marked" if has_repetitions else "left out"
        standard_error().line(f"{what}: {view.repetitions:,} repetitions, written again after a failure; every reader skips them")
    if view.is_cut:
        standard_error().line(f"only the newest {SEARCHED_MAX:,} records of each partition were searched; --from earliest searches all")


def choose_partitions(topic: Topic, partition: int | None) -> list[Partition]:
    """Return all partitions of a topic, or one. Raises SettingError: it has no such partition."""
    if partition is None:
        return topic.all_partitions
    if partition >= topic.partitions:
        what = f"{topic.name} has no partition {partition}"
        raise SettingError(what, code="TG-SETTING-FLAG", where="--partition", fix=f"it has partitions 0 to {topic.partitions - 1}")
    return [(topic.name, partition)]


def parse_from(text: str, now_us: int) -> int:
    """Return the instant of ``--from``, microseconds; ``NEVER``: the beginning. Raises TickRangeError: it is neither time nor age."""
    from tidegate.platform.checkpoint.output_start import parse_time_flag

    if text == "earliest":
        return NEVER
    if re.fullmatch(r"(\d+(\.\d+)?(us|ms|s|m|h|d))+", text):
        return max(now_us - parse_duration(text), 0)
    return parse_time_flag(text, "--from") or 0


def find_input(settings: Settings, topic: str) -> InputSettings | None:
    """Return the input whose payloads a topic has: its raw and ordered topics, those of its dead letters and dropped events."""
    for table in settings.inputs.values():
        pattern = table.topic_pattern
        own = {*table.topics, table.ordered_topic, table.dead_letter_topic, table.dropped_topic}
        if topic in own or (pattern is not None and re.fullmatch(pattern, topic)):
            return table
    return None


def bind_where(text: str, table: InputSettings | None) -> Expr:
    """Return the condition of ``--where``. Raises QueryError: it is none, or reads more than the payload."""
    from tidegate.language.expressions.binding.input_schema import InputSchema
    from tidegate.language.expressions.binding.setting_expressions import bind_condition

    schema = InputSchema("topic", is_free=True) if table is None else table.schema_of_events(table.name)
    return bind_condition(text, "--where", schema, frozenset({schema.name, schema.name.lower()}))
