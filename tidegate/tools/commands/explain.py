"""
The command ``tidegate explain``: the effect of each policy on records of a raw topic, and the records that caused it; where an event went;
and the events from which a result was made. Reads only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.commands.explain import LIMIT_MAX
from ordering.errors import SettingError
from ordering.ticks import format_tick
from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import print_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from query.trace.result import InputTrace, ResultTrace
    from tidegate.platform.settings.load import Settings

_EVENTS_SHOWN = 10
_PLACE = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})@(?P<offset>\d{1,18})")


def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="INPUT|OUTPUT|RESULT", help="An input, an output, or topic-partition@offset of a result."),
    ],
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PLACE...]", help="Records: topic-partition@offset, of arrays @offset[index]."),
    ] = None,
    where: Annotated[str | None, typer.Option(help="Instead of places: records of which this is true, as in \"order_id = 'o-1'\".")] = None,
    key: Annotated[str | None, typer.Option(help="Records with this key: with OVER of their substream, else of Kafka.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Of an output: the results of this System.Timestamp.")] = None,
    forward: Annotated[bool, typer.Option("--forward", help="Also where events went: their seq, windows and results.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="With --where and --key: from the first record of each partition of this timestamp on."
        ),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="And up to before the first one of this timestamp.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="Most records that --where and --key explain.")] = 10,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Show what policies did with records and why, where events went, and which events a result was made of."""
    from ingest.commands.explain import explain_records
    from query.trace.result import find_output
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    match = _PLACE.fullmatch(name)
    folder = config.parent if config is not None else Path()
    if match is not None and name not in settings.inputs and (output := find_output(settings, match["topic"])) is not None:
        _explain_results(settings, folder, output, [name], key, at, format)
    elif name in settings.outputs and name not in settings.inputs:
        _explain_results(settings, folder, name, places or [], key, at, format)
    else:
        explain_records(settings, name, places, where, key, limit, format, start, until)
        if forward and places:
            _show_forward(settings, folder, name, places, format)


def _explain_results(
    settings: Settings, folder: Path, output: str, places: list[str], key: str | None, at: str | None, format: Format
) -> None:
    from ingest.commands.journal import plan_for_journal
    from query.trace.result import Tracer
    from tidegate.platform.checkpoint.output_start import parse_time_flag
    from tidegate.platform.kafka.admin import Admin

    if bool(places) == (at is not None):
        what = "either places or --at says which results" if places else "nothing says which results"
        example = f"tidegate explain {output} --key c17 --at 2026-01-05T08:01:00Z"
        raise SettingError(what, code="TG-SETTING-FLAG", where="PLACE", fix="give topic-partition@offset, or --at", example=example)
    topic = settings.output(output).topic or output
    matches = [_PLACE.fullmatch(place) for place in places]
    for place, match in zip(places, matches, strict=True):
        if match is None or match["topic"] != topic:
            what, fix = f"{place} names no result of {output}", "write topic-partition@offset, as tidegate peek does"
            raise SettingError(what, code="TG-SETTING-PLACE", where="PLACE", fix=fix, example=f"{topic}-0@1234")
    admin = Admin.connect(settings.kafka)
    tracer = Tracer(settings, admin, folder, lambda name: plan_for_journal(settings, name, admin).partitions)
    traces = [tracer.at_place(output, int(match["partition"]), int(match["offset"])) for match in matches if match is not None]
    if at is not None:
        traces = tracer.of_key(output, key, parse_time_flag(at, "--at") or 0)
    for trace in traces:
        if format is Format.JSON:
            print_json(trace.to_json())
        else:
            print_lines(_trace_lines(trace, ""))
    if not traces:
        print_lines([f"no result of {output} is like that"] if format is Format.TEXT else [])
        raise typer.Exit(1)


def _trace_lines(trace: ResultTrace, margin: str) -> Iterator[str]:
    key = "" if trace.key is None else f" of {trace.key}"
    yield f"{margin}{trace.place}: the result{key} at {format_tick(trace.system_us)}, seq {trace.seq:,}: {_json(trace.value)}"
    for each in trace.inputs:
        yield from _input_lines(each, margin + "  ")
    for table in trace.references:
        yield f"{margin}  {table.in_words()}"


def _input_lines(trace: InputTrace, margin: str) -> Iterator[str]:
    since = "" if trace.since_us is None else f" since {format_tick(trace.since_us)}"
    where = f" with {' and '.join(trace.conditions)}" if trace.conditions else ""
    yield f"{margin}made from among {trace.count:,} of {trace.input}{since}{where}:"
    for event in trace.events[:_EVENTS_SHOWN]:
        if event.made_from is not None:
            yield from _trace_lines(event.made_from, margin + "  ")
            continue
        moved = f", moved as {' and '.join(event.policies)} from {format_tick(event.event_time_us)}" if event.policies else ""
        yield f"{margin}  {event.origin or event.place} at {format_tick(event.system_us)}{moved}: {_json(event.value)}"
    if trace.count > _EVENTS_SHOWN:
        yield f"{margin}  and {trace.count - _EVENTS_SHOWN:,} more; --format json names up to 100"
    moved_events = [event for event in trace.events if event.policies and event.origin]
    if moved_events:
        yield f"{margin}which event had set the watermark: tidegate explain {trace.input} {moved_events[0].origin}"


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, default=str)


def _show_forward(settings: Settings, folder: Path, name: str, places: list[str], format: Format) -> None:
    from ingest.commands.explain import parse_places
    from tidegate.platform.kafka.admin import Admin
    from tidegate.tools.forward_trace import trace_event

    admin = Admin.connect(settings.kafka)
    numbered = settings.input(name).places
    for partition, offsets in parse_places(places, (), numbered).items():
        for offset in offsets:
            found = trace_event(settings, admin, folder, name, partition, offset)
            origin = f"{partition[0]}-{partition[1]}@{numbered.text(offset)}"
            if format is Format.JSON:
                print_json({"origin": origin, "forward": None if found is None else found.to_json()})
            else:
                print_lines([f"{origin}:", *found.lines()] if found is not None else [f"{origin} is not in the ordered topic, or not yet."])
