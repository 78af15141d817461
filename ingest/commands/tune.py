"""
The command ``tidegate tune``: what policies would have done to recorded events, and which ones touch few events with little delay.

Law: it reads only. Standard output has the answer and nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.commands.recorded_input import (
    ArrivalFlag,
    ByArrivalFlag,
    DelimiterFlag,
    InputFormatFlag,
    PartitionFlag,
    TimestampFormatFlag,
    names_input,
    read_input,
    require_events,
    require_time,
)
from ordering.policies import Action
from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import TextColumn, TextTable, print_lines, standard_error, standard_output

if TYPE_CHECKING:
    from ingest.tuning.tuning import Tuning

_CLAMPS_TOLD = 0.01


def tune(
    name: Annotated[str, typer.Argument(metavar="INPUT|FILE", help="Which [inputs.NAME], or a file as tidegate order takes it.")],
    touch: Annotated[float, typer.Option(metavar="PERCENT", help="Most events that the proposal may move or drop.")] = 0.1,
    early: Annotated[str | None, typer.Option(help="The early tolerance to try; default: the input's, of a file 5m.")] = None,
    late: Annotated[str | None, typer.Option(help="The late tolerance to try; default: the input's, of a file 5s.")] = None,
    reorder: Annotated[str | None, typer.Option(help="The reorder tolerance to try; default: the input's, of a file 0s.")] = None,
    early_action: Annotated[Action | None, typer.Option(help="What to try with early events; default: as the input has it.")] = None,
    late_action: Annotated[Action | None, typer.Option(help="What to try with late events.")] = None,
    out_of_order_action: Annotated[Action | None, typer.Option(help="What to try with events out of order.")] = None,
    window: Annotated[
        list[str] | None, typer.Option(metavar="SIZE[/HOP]", help="Count the results that change, of windows of this size: 1m, 5m/1m.")
    ] = None,
    ask: Annotated[
        bool, typer.Option("--ask", help='Read once, then answer each line of standard input, such as {"late": "30s"}, with one of JSON.')
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve of delay against events touched: FILE.svg or FILE.png.")] = None,
    start: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Of an input: records since a time, or an age as 6h.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Of an input: records before a time, or an age.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Of an input: the newest records in all.")] = 3_000_000,
    timestamp_by: Annotated[str | None, typer.Option(help="Of a file: the field with the event time.")] = None,
    over: Annotated[str | None, typer.Option(help="Of a file: the field whose values are substreams.")] = None,
    arrival: ArrivalFlag = None,
    partition: PartitionFlag = None,
    by_arrival: ByArrivalFlag = False,
    timestamp_format: TimestampFormatFlag = "auto",
    input_format: InputFormatFlag = None,
    delimiter: DelimiterFlag = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object.")] = Format.TEXT,
) -> None:
    """Show what policies would have done to recorded events, and propose better ones."""
    from ingest.tuning.picture import draw_trade_off
    from ingest.tuning.questions import answer_questions, policies_with
    from ingest.tuning.recorded_file import FileColumns, check_share, read_file
    from ingest.tuning.recorded_topic import read_topic
    from ingest.tuning.tuning import Tuner
    from ordering.policies import Policies
    from ordering.tuning.results import WindowShape
    from tidegate.platform.observe import logs
    from tidegate.platform.observe.drawing import check_plot, write_picture
    from tidegate.platform.settings.load import load_assigned

    share = check_share(touch)
    if plot is not None:
        check_plot(plot)
    shapes = [WindowShape.parse(each) for each in window or ()]
    settings = load_assigned(config, assign)
    logs.configure(settings.logging.format, settings.logging.level)
    has_topic = names_input(settings, name)
    own = settings.input(name).policies() if has_topic else Policies()
    given = {"early": early, "late": late, "reorder": reorder}
    given |= {"early_action": early_action, "late_action": late_action, "out_of_order_action": out_of_order_action}
    policies = policies_with(own, {each: str(text) for each, text in given.items() if text is not None})
    if has_topic:
        recording = read_input(settings, name, start, until, limit, read_topic)
    else:
        columns = FileColumns(
            timestamp_by=require_time(timestamp_by, name, "tune"),
            over=over,
            arrival=arrival,
            partition=partition,
            timestamp_format=timestamp_format,
            input_format=input_format,
            delimiter=delimiter,
            by_arrival=by_arrival,
        )
        recording = read_file(name, columns)
        require_events(recording, name, columns.timestamp_by)
    tuner = Tuner(name if has_topic else Path(name).stem, recording, own)
    if ask:
        for answer in answer_questions(tuner, policies, share, sys.stdin):
            print_json(answer)
        return
    tuning = tuner.tune(policies, share, shapes)
    if plot is not None:
        write_picture(draw_trade_off(tuning), plot)
    if format is Format.JSON:
        print_json(tuning.to_json())
        return
    _print(tuning, share, is_input=has_topic)


def _print(tuning: Tuning, share: float, *, is_input: bool) -> None:
    from ingest.tuning.words import curve_table, describe_forecast, describe_proposal, describe_recording

    print_lines([describe_recording(tuning)])
    if tuning.arrival_clamps > _CLAMPS_TOLD * tuning.records:
        message = f"{tuning.arrival_clamps:,} records arrive before an earlier one: their arrival counts as that one's"
        standard_error().line(message if is_input else f"{message}; --by-arrival takes them in the order of arrival")
    heads = ["moved", "dropped", "delay p50", "p99", "held", *(f"changed, {each.shape}" for each in tuning.now.results)]
    table = TextTable([TextColumn(""), *(TextColumn(head, is_right=True) for head in heads)], is_plain=True)
    if tuning.in_force is not None and tuning.tried_changes:
        table.add("in force", *describe_forecast(tuning.in_force))
    table.add("now", *describe_forecast(tuning.now))
    if tuning.proposed is not None:
        table.add("proposed", *describe_forecast(tuning.proposed))
    standard_output().table(table)
    print_lines(describe_proposal(tuning, share))
    standard_output().table(curve_table(tuning))
    if is_input and tuning.changes:
        print_lines(["", "The difference to tidegate.toml:", *tuning.difference()])
