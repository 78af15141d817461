"""
The command ``tidegate local``: a script on files, without Kafka, Spark or Java.

Law: standard output, or the folder given by ``--output-dir``, carries results and nothing else: the bytes that a job would write.
Messages go to standard error.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ordering.policies import Action
from tidegate.platform.observe.console import Format

if TYPE_CHECKING:  # numpy, Arrow and SQL are loaded only by a run, not by --help
    from query.local.files import LocalFile
    from query.local.run_setup import RunSetup


def local(
    script: Annotated[Path, typer.Argument(help="The query, a .sql file.")],
    input: Annotated[
        list[str] | None, typer.Option("--input", help="NAME=FILE: the records of one input; .ndjson, .csv, .parquet; - is stdin.")
    ] = None,
    delimiter: Annotated[
        list[str] | None,
        typer.Option(help="The delimiter of .csv files (;), or of one of them (NAME=;). Default: csv_delimiter, a comma."),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option("--reference", help="NAME=FILE: a table that JOIN looks up; NAME=FILE:column=type,... says types of its columns."),
    ] = None,
    output_dir: Annotated[Path | None, typer.Option(help="Folder for OUTPUT.ndjson and dead.ndjson; default: standard output.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration that the script must agree with, where it names an input.")] = None,
    early: Annotated[str | None, typer.Option(help="An event further ahead of its arrival is early; off: none. Default: 5m.")] = None,
    early_action: Annotated[Action | None, typer.Option(help="Drop an early event, or move it back to its arrival + early.")] = None,
    late: Annotated[str | None, typer.Option(help="An event that arrives later than this after its time is late. Default: 5s.")] = None,
    late_action: Annotated[Action | None, typer.Option(help="Lift a late event to its arrival - late, or drop it.")] = None,
    reorder: Annotated[str | None, typer.Option(help="How far behind the newest an event is still put in order. Default: 0s.")] = None,
    out_of_order_action: Annotated[Action | None, typer.Option(help="Lift an event further behind to the watermark, or drop it.")] = None,
    into: Annotated[str | None, typer.Option(help="The output of a script without INTO.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when a record could not be used.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How the summary on standard error is written.")] = Format.TEXT,
) -> None:
    """Run a query on files, without Kafka, Spark or Java."""
    from ordering.errors import RefusedError
    from query.lint import undeclared_inputs
    from query.local.files import parse_file_flags, parse_reference_flags, set_delimiters
    from query.local.run_setup import PolicyFlags, RunSetup
    from query.local.script import check_without_files, refuse_no_files
    from query.script import read_script

    named = [schema.name for schema in undeclared_inputs(read_script(script), [])]
    flags = PolicyFlags(early, early_action, late, late_action, reorder, out_of_order_action)
    files, tables = parse_file_flags(input or []), parse_reference_flags(reference or [])
    files, tables = set_delimiters(files, tables, delimiter or [])
    if not files:
        refuse_no_files(script, [table.name for table in tables])
    try:
        setup = RunSetup.of(files, flags, config, tables, named)
    except RefusedError:
        # An error of the script comes before one of a table's file.
        streams = [file.name for file in files]
        known = {name.lower() for name in streams}
        check_without_files(script, streams, [name for name in named if name.lower() not in known], into)
        raise
    bad_count = _run_script(script, setup, [*files, *tables], into, output_dir, as_json=format is Format.JSON)
    if strict and bad_count:
        raise typer.Exit(1)


def _run_script(script: Path, setup: RunSetup, read_files: list[LocalFile], into: str | None, folder: Path | None, *, as_json: bool) -> int:
    """Run the script; return how many records could not be used."""
    from query.local.output import PrintedResults, ResultFiles
    from query.local.report import LocalReport
    from query.local.run_setup import find_absent, open_run
    from query.local.script import bind_script, find_mistakes, unread_inputs
    from tidegate.records.files.files import BLOCK_BYTES
    from tidegate.records.files.output import discard_stdout

    bound = bind_script(script, setup.settings, into=into)
    outputs = [plan.output for plan in bound.plans]
    mistakes = [*find_mistakes(script, setup.settings, into), *unread_inputs(bound, setup.settings), *find_absent(bound, setup)]
    report = LocalReport(str(script), outputs, as_json=as_json, mistakes=mistakes)
    with (
        open_run(bound, setup, BLOCK_BYTES) as run,
        ResultFiles(folder, outputs, read_files) if folder else PrintedResults(outputs) as sink,
    ):
        # The objects that exist by now live to the end: the garbage collector need not walk through them after every few blocks.
        gc.freeze()
        try:
            with report.progress(run) as show:
                for step in run.steps():
                    sink.write(step)
                    report.add(step)
                    show([source.counts.records for source in run.inputs])
        except BrokenPipeError:
            discard_stdout()
            return 0
        finally:
            gc.unfreeze()
        report.print_summary(run)
        report.check(run)
        sink.commit()
    return report.bad
