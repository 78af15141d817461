"""
The command ``tidegate order``: the time model on a file, without Kafka, Spark or Java.

Law: standard output, or the file given by ``--output``, carries the events and nothing else; messages go to standard error. A
record that cannot be read never stops the run.
"""

from __future__ import annotations

import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ordering.policies import Action, Shape
from tidegate.platform.observe.console import Format

if TYPE_CHECKING:  # numpy and Arrow are loaded only by a run, not by --help
    from ingest.files.report import OrderReport
    from ingest.files.walk import FileWalk
    from tidegate.records.files.blocks import FileRecords
    from tidegate.records.files.output import LineWriter
    from tidegate.records.files.rows import OrderPlan


# How times are written, and the format of a file. The values are the names in lower case.
Unit = StrEnum("Unit", "AUTO ISO S MS US NS")
InputFormat = StrEnum("InputFormat", "NDJSON JSON JSONL CSV TSV PARQUET")


def order(
    file: Annotated[str, typer.Argument(help="The file: .ndjson, .jsonl, .json, .csv, .tsv or .parquet; - is standard input.")],
    timestamp_by: Annotated[
        str, typer.Option(help="Field with the event time: a.b.c, a name with odd characters in [brackets]; of a span its start.")
    ],
    over: Annotated[str | None, typer.Option(help="Field whose values are substreams with a watermark each.")] = None,
    early: Annotated[str, typer.Option(help="An event further ahead of its arrival than this is early; off: none.")] = "5m",
    early_action: Annotated[Action, typer.Option(help="Drop an early event, or move it back to its arrival + early.")] = Action.DROP,
    late: Annotated[str, typer.Option(help="An event that arrives later than this after its time is late; off: none.")] = "5s",
    late_action: Annotated[Action, typer.Option(help="Lift a late event to its arrival - late, or drop it.")] = Action.ADJUST,
    reorder: Annotated[str, typer.Option(help="How far behind the newest an event may be and still be put in order unchanged.")] = "0s",
    out_of_order_action: Annotated[Action, typer.Option(help="Lift an event further behind to the watermark, or drop it.")] = Action.ADJUST,
    arrival: Annotated[
        str | None,
        typer.Option(
            help="Field with the arrival; else EventEnqueuedUtcTime, EnqueuedTime or LastModified, if there; none: no arrival. "
            "Without an arrival only reorder applies: nothing is early or late."
        ),
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="Field with the input partition; else PartitionId, if there; else all is 0.")
    ] = None,
    timestamp_format: Annotated[
        Unit, typer.Option(help="How event times are written; auto: ISO-8601, hh:mm[:ss], or numbers since 1970 by their size.")
    ] = Unit.AUTO,
    shape: Annotated[Shape, typer.Option(help="Whether an event is an instant, a span, or one edge of a span.")] = Shape.POINT,
    end: Annotated[str | None, typer.Option(help="Field with the end of a span; an edge without it is a start edge.")] = None,
    key: Annotated[str | None, typer.Option(help="Field by which an end edge finds its start edge, where there is no --over.")] = None,
    input_format: Annotated[InputFormat | None, typer.Option(help="What the file holds, if its ending does not say.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="The delimiter of a CSV; default: a comma, in .tsv a tab.")] = None,
    explode: Annotated[
        bool,
        typer.Option("--explode", help="Arrays among JSON objects are as many events as they have elements, as in a file that is one."),
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Where the ordered events go; default: standard output.")] = None,
    dropped: Annotated[Path | None, typer.Option(help="Where dropped and unreadable records go, with the reason.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what happened to every event, and because of which other.")] = False,
    format: Annotated[Format, typer.Option(help="How the summary on standard error is written.")] = Format.TEXT,
) -> None:
    """Put the events of a file in order, without Kafka, Spark or Java."""
    from ingest.files.report import OrderReport
    from tidegate.records.files.blocks import FileFormat as FileFormat
    from tidegate.records.files.fields import parse_path
    from tidegate.records.files.files import BLOCK_BYTES, choose_delimiter, detect_format, open_records, open_source
    from tidegate.records.files.flags import NONE, check_shape, parse_policies
    from tidegate.records.files.output import LineWriter, check_distinct_files, discard_stdout
    from tidegate.records.files.rows import OrderPlan

    check_shape(shape, end, key)
    has_arrival = arrival != NONE
    paths = {"--over": over, "--arrival": arrival if has_arrival else None, "--partition": partition, "--end": end, "--key": key}
    path_by_flag = {flag: parse_path(text, flag) if text is not None else None for flag, text in paths.items()}
    plan = OrderPlan(
        policies=parse_policies(early, early_action, late, late_action, reorder, out_of_order_action),
        timestamp_by=parse_path(timestamp_by, "--timestamp-by"),
        timestamp_format=timestamp_format.value,
        over=path_by_flag["--over"],
        arrival=path_by_flag["--arrival"],
        has_arrival=has_arrival,
        partition=path_by_flag["--partition"],
        shape=shape,
        end=path_by_flag["--end"],
        key=path_by_flag["--key"],
        should_explain=explain,
        clock_us=time.time_ns() // 1_000,
    )
    input_suffix = input_format.value if input_format else None
    separator = choose_delimiter(file, delimiter, input_suffix)
    report = OrderReport(file, as_json=format is Format.JSON)
    with open_source(file) as source:
        file_format = detect_format(file, source, input_suffix)
        check_distinct_files(source, output, dropped)
        records = open_records(file, file_format, source, separator, BLOCK_BYTES, explodes=explode)
        plan = replace(plan, is_typed=file_format is not FileFormat.CSV)
        with LineWriter(output) as ordered_writer, LineWriter(dropped, is_wanted=dropped is not None) as dropped_writer:
            try:
                walk = walk_file(file, records, plan, ordered_writer, dropped_writer, report)
            except BrokenPipeError:
                discard_stdout()
                return
            # The summary comes before the check, since it explains a failure; files are committed only after the check.
            report.print_summary(walk)
            report.check(walk)
            ordered_writer.commit()
            dropped_writer.commit()


def walk_file(
    path: str, records: FileRecords, plan: OrderPlan, ordered_writer: LineWriter, dropped_writer: LineWriter, report: OrderReport
) -> FileWalk:
    """Walk all records of the file at *path*, writing as events are released; return the walk."""
    from ingest.files.report import check_header
    from ingest.files.walk import FileWalk

    walk = FileWalk(plan)
    if records.columns is not None:
        walk.names.resolve(records.columns)
        check_header(path, walk.names, records)
    with report.progress(records) as show:
        for block in records.blocks():
            outcome = walk.walk_block(block)
            ordered_writer.write(outcome.ordered)
            dropped_writer.write(outcome.dropped)
            show([walk.summary.records])
        ordered_writer.write(walk.finish().ordered)
    return walk
