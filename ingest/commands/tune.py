"""
The command ``tidegate tune``: what policies would have done to recorded events, and which ones touch few events with little delay.

Law: it reads only. Standard output has the answer and nothing else.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ordering.errors import SettingError
from ordering.policies import Action
from ordering.ticks import parse_duration
from tidegate.platform.observe.console import Format, live_line, print_json
from tidegate.platform.observe.terminal import TextColumn, TextTable, print_lines, standard_error, standard_output

if TYPE_CHECKING:
    from ingest.tuning.recorded_file import FileColumns
    from ingest.tuning.tuning import Tuning
    from ordering.policies import Policies
    from ordering.tuning.recording import Recording
    from tidegate.platform.settings.load import Settings

_CLAMPS_TOLD = 0.01


def tune(
    name: Annotated[str, typer.Argument(metavar="INPUT|FILE", help="Which [inputs.NAME], or a file as tidegate order takes it.")],
    touch: Annotated[float, typer.Option(metavar="PERCENT", help="Most events that the proposal may move or drop.")] = 0.1,
    early: Annotated[str | None, typer.Option(help="The early tolerance to try; default: the input's, of a file 5m.")] = None,
    late: Annotated[str | None, typer.Option(help="The late tolerance to try; default: the input's, of a file 5s.")] = None,
    reorder: Annotated[str | None, typer.Option(help="The reorder tolerance to try; default: the input's, of a file 0s.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve of delay against events touched: FILE.svg or FILE.png.")] = None,
    start: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Of an input: records since a time, or an age as 6h.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Of an input: records before a time, or an age.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Of an input: the newest records in all.")] = 3_000_000,
    timestamp_by: Annotated[str | None, typer.Option(help="Of a file: the field with the event time.")] = None,
    over: Annotated[str | None, typer.Option(help="Of a file: the field whose values are substreams.")] = None,
    arrival: Annotated[
        str | None, typer.Option(help="Of a file: the field with the arrival, or an expression: 'DATEADD(minute, delay, date)'.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Of a file: the field with the input partition.")] = None,
    by_arrival: Annotated[bool, typer.Option("--by-arrival", help="Take a file's records in the order of their arrivals.")] = False,
    timestamp_format: Annotated[str, typer.Option(help="Of a file: auto, iso, s, ms, us or ns.")] = "auto",
    input_format: Annotated[str | None, typer.Option(help="Of a file: ndjson, csv or parquet, if its ending does not say.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of a file: the delimiter of a CSV.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object.")] = Format.TEXT,
) -> None:
    """Show what policies would have done to recorded events, and propose better ones."""
    from ingest.tuning.picture import draw_trade_off
    from ingest.tuning.recorded_file import FileColumns, check_share
    from ingest.tuning.tuning import tune as compute
    from tidegate.platform.observe.drawing import check_plot, write_picture
    from tidegate.platform.settings.load import load_assigned

    share = check_share(touch)
    if plot is not None:
        check_plot(plot)
    settings = load_assigned(config, assign)
    is_input = name in settings.inputs
    if not is_input and not Path(name).exists():
        known = ", ".join(sorted(settings.inputs)) or "(none is configured)"
        what, fix = f"there is neither an input nor a file {name}", f"name one of: {known}; or a file that is there"
        raise SettingError(what, code="TG-SETTING-NAME", where="INPUT", fix=fix)
    if is_input:
        policies = _tried(settings.input(name).policies(), early, late, reorder)
        recording = _read_input(settings, name, start, until, limit)
    else:
        from ordering.policies import Policies

        policies = _tried(Policies(), early, late, reorder)
        recording = _read_file(
            name,
            FileColumns(
                timestamp_by=_require_time(timestamp_by, name),
                over=over,
                arrival=arrival,
                partition=partition,
                timestamp_format=timestamp_format,
                input_format=input_format,
                delimiter=delimiter,
                by_arrival=by_arrival,
            ),
        )
    tuning = compute(name if is_input else Path(name).stem, recording, policies, share)
    if plot is not None:
        write_picture(draw_trade_off(tuning), plot)
    if format is Format.JSON:
        print_json(tuning.to_json())
        return
    _print(tuning, share, is_input=is_input)


def _require_time(timestamp_by: str | None, name: str) -> str:
    if timestamp_by is None:
        fix = "name the field with the event time"
        example = f"tidegate tune {name} --timestamp-by at"
        raise SettingError(
            f"{name} is a file, and nothing names its event time", code="TG-SETTING-FLAG", where="--timestamp-by", fix=fix, example=example
        )
    return timestamp_by


def _tried(policies: Policies, early: str | None, late: str | None, reorder: str | None) -> Policies:
    """Return the policies with the tolerances that flags name."""
    from tidegate.records.files.flags import parse_policies

    flags = parse_policies(early or "0s", Action.DROP, late or "0s", Action.ADJUST, reorder or "0s", Action.ADJUST)
    given = {"early_us": early, "late_us": late, "reorder_us": reorder}
    return replace(policies, **{field: getattr(flags, field) for field, text in given.items() if text is not None})


def parse_bound(text: str | None, flag: str, now_us: int) -> int | None:
    """Return a bound of a span, microseconds: a time, or an age as in ``6h``; None: no bound. Raises TickRangeError: it is neither."""
    from tidegate.platform.checkpoint.output_start import parse_time_flag

    if text is None:
        return None
    if re.fullmatch(r"(\d+(\.\d+)?(us|ms|s|m|h|d))+", text):
        return max(now_us - parse_duration(text), 0)
    return parse_time_flag(text, flag)


def _read_input(settings: Settings, name: str, start: str | None, until: str | None, limit: int) -> Recording:
    from ingest.tuning.recorded_topic import Span, read_topic
    from tidegate.platform.kafka.admin import Admin

    now_us = time.time_ns() // 1_000
    span = Span(parse_bound(start, "--from", now_us), parse_bound(until, "--until", now_us), limit)
    admin = Admin.connect(settings.kafka)
    read = 0
    with live_line(standard_error(), f"reading {name}", limit) as show:

        def on_records(count: int) -> None:
            nonlocal read
            read += count
            show(f"{read:,} records", read)

        return read_topic(settings, name, admin, span, on_records)


def _read_file(path: str, columns: FileColumns) -> Recording:
    from ingest.tuning.recorded_file import read_file
    from tidegate.records.files.blocks import OrderFileError

    recording = read_file(path, columns)
    if not recording.events:
        what = f"no record of {path} has an arrival and an event time in {columns.timestamp_by}"
        fix = "correct --timestamp-by and --arrival; --timestamp-format says how times are written"
        raise OrderFileError(what, code="TG-ORDER-FIELD", where=path, fix=fix, example="--timestamp-by at")
    return recording


def _print(tuning: Tuning, share: float, *, is_input: bool) -> None:
    from ingest.tuning.words import curve_table, describe_forecast, describe_proposal, describe_recording

    print_lines([describe_recording(tuning)])
    if tuning.arrival_clamps > _CLAMPS_TOLD * tuning.records:
        told = f"{tuning.arrival_clamps:,} records arrive before an earlier one: their arrival counts as that one's"
        standard_error().line(told if is_input else f"{told}; --by-arrival takes them in the order of arrival")
    table = TextTable(
        [TextColumn(""), *(TextColumn(head, is_right=True) for head in ("moved", "dropped", "delay p50", "p99", "held"))], is_plain=True
    )
    table.add("now", *describe_forecast(tuning.now))
    if tuning.proposed is not None:
        table.add("proposed", *describe_forecast(tuning.proposed))
    standard_output().table(table)
    print_lines(describe_proposal(tuning, share))
    standard_output().table(curve_table(tuning))
    if is_input and tuning.changes:
        print_lines(["", "The difference to tidegate.toml:", *tuning.difference()])
