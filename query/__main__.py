"""The commands ``tidegate query`` (also ``python -m query``) and ``tidegate plan``."""

from __future__ import annotations

from tidegate.basics.early_stop import end_on_signal

# Before the other imports, which take most of a start.
if __name__ == "__main__":
    end_on_signal()

import time
from pathlib import Path
from typing import Annotated

import typer

from ordering.errors import TidegateError
from ordering.ticks import INFINITY
from tidegate.platform.observe.console import Format, print_json, run_command
from tidegate.platform.observe.terminal import print_lines

TIMES = "now, TIME (ISO-8601), last-stopped, earliest"

Script = Annotated[
    Path, typer.Argument(help="The query: a .sql file, the NAME of [queries.NAME], or the name of one that an installed package offers.")
]
Into = Annotated[str | None, typer.Option(help="Which [outputs.NAME] takes the results; may also stand in the script as INTO NAME.")]
Config = Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")]
Assign = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")]


def query(
    script: Script,
    into: Into = None,
    start: Annotated[str | None, typer.Option(help=f"Results from here on: {TIMES}; default: resume, or all.")] = None,
    until: Annotated[str | None, typer.Option(help="Results below this time (ISO-8601), then stop: a bounded recount.")] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Read to the present end, close every window and stop.")] = False,
    config: Config = None,
    assign: Assign = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Run one query over an ordered topic; it stops by itself when its input has ended."""
    from query import PYTHON_MODULES
    from query.listed import find_query
    from query.run import QueryRun, QueryStart, print_had_ended
    from tidegate.platform.checkpoint.claim import claim
    from tidegate.platform.checkpoint.ended_run import RunEnded
    from tidegate.platform.checkpoint.output_start import parse_time_flag
    from tidegate.platform.observe import logs
    from tidegate.platform.observe.traces import exporting
    from tidegate.platform.settings.load import load_assigned
    from tidegate.platform.spark.early_session import EarlySession, separate_stderr
    from tidegate.platform.spark.launch.private_folder import keep_files_private

    separate_stderr()
    keep_files_private()
    settings = load_assigned(config, assign)
    settings.require_secrets()
    logs.configure(settings.logging.format, settings.logging.level)
    asked, as_json = find_query(settings, script, into, start), format is Format.JSON
    until_us = parse_time_flag(until, "--until")
    starting = QueryStart(settings, asked)
    claim(starting.folder)
    # Spark starts while the job is prepared.
    with exporting(settings.traces), EarlySession(settings, f"query-{starting.output}", starting.folder, PYTHON_MODULES) as spark:
        spark.begin()
        try:
            prepared = starting.prepare(until_us=INFINITY if until_us is None else until_us, until_end=until_end)
        except RunEnded as ended:
            print_had_ended(starting, ended, as_json=as_json)
            return
        QueryRun(settings, starting, prepared, spark, as_json=as_json).run()


def plan(
    script: Script,
    into: Into = None,
    start: Annotated[str | None, typer.Option(help=f"Also what would be read from where, and for how long: {TIMES}.")] = None,
    config: Config = None,
    assign: Assign = None,
    format: Annotated[Format, typer.Option("--format", help="How it is printed; json: one object.")] = Format.TEXT,
) -> None:
    """Show what a query computes, needs and keeps, without running it."""
    from query.listed import find_query
    from query.plan.never_null import columns_never_null
    from query.preview.display import PlanReport
    from query.preview.glance import GLANCE_S, retention_warnings
    from query.script_plans import read_plans
    from query.start.bucket_layout import describe_parallelism
    from sinks.stores.checking import check_stores, describe_copies, warn_of_null_keys
    from tidegate.platform.checkpoint.output_start import parse_start
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    asked = find_query(settings, script, into)
    plans = read_plans(settings, asked.script, asked.into)
    requested = parse_start(start, time.time_ns() // 1_000)
    outputs = [script_plan.output for script_plan in plans if script_plan.output in settings.outputs]
    paces = {output: str(settings.outputs[output].pace()) for output in outputs}
    known_forecast, unknown = None, ""
    try:
        admin = Admin(settings.kafka.client_properties(), settings.kafka.connect_timeout_us / 1e6 if requested else GLANCE_S)
        admin.check_reachable()
        from query.preview.forecast import forecast

        known_forecast = forecast(settings, plans, admin, requested)
    except TidegateError as error:
        # Without --start, brokers are needed only for the forecast.
        if requested is not None:
            raise
        unknown = error.what
    warnings = known_forecast.warnings if known_forecast else retention_warnings(plans, settings.retentions_us())
    references = [settings.references[name] for name in sorted({name for script_plan in plans for name in script_plan.references})]
    stores = [error for each in plans if each.output in outputs for error in check_stores(settings.outputs[each.output], each.columns)]
    for each in plans:
        if each.output in outputs:
            stores += warn_of_null_keys(settings.outputs[each.output], each.columns, columns_never_null(each))
    copies = [line for each in plans if each.output in outputs for line in describe_copies(settings.outputs[each.output], each.columns)]
    shown = PlanReport(plans, describe_parallelism(settings, plans), paces, known_forecast, unknown, warnings, references, stores, copies)
    if format is Format.JSON:
        print_json(shown.as_dict())
    else:
        print_lines(line for text in shown.lines() for line in text.split("\n"))


if __name__ == "__main__":
    run_command(query)
