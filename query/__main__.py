"""The commands ``tidegate query`` (also ``python -m query``) and ``tidegate plan``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ordering.errors import TidegateError
from ordering.ticks import INFINITY
from tidegate.platform.observe.console import Format, end_line, live_line, print_json, run_command
from tidegate.platform.observe.terminal import print_lines, standard_error

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
    from query import job
    from query.listed import find_query
    from query.progress import QueryProgress
    from query.reference.forgetting import LookupFloor
    from query.start.read_positions import finished_positions
    from query.start.survey import FINISHED_FILE, query_folder
    from sinks.copying.beside import SinksBeside, check_beside, copy_rest
    from tidegate.platform.checkpoint.batch_cost import BatchCostWriter
    from tidegate.platform.checkpoint.binding import replace_text
    from tidegate.platform.checkpoint.claim import check_not_resetting, claim
    from tidegate.platform.checkpoint.ended_run import RunEnded
    from tidegate.platform.checkpoint.output_start import parse_start, parse_time_flag
    from tidegate.platform.observe import logs
    from tidegate.platform.observe.metrics import Metrics
    from tidegate.platform.observe.progress_store import ProgressPublisher
    from tidegate.platform.observe.recovery_watch import RecoveryWatch
    from tidegate.platform.observe.stopping import stop_on_signal
    from tidegate.platform.settings.load import load_assigned
    from tidegate.platform.spark.cluster import Cluster
    from tidegate.platform.spark.driver import DrivenQuery, drive
    from tidegate.platform.spark.launch.private_folder import keep_files_private
    from tidegate.platform.spark.session import end_session, start_session
    from tidegate.platform.spark.worker_log import WorkerLog

    keep_files_private()
    settings = load_assigned(config, assign)
    settings.require_secrets()
    logs.configure(settings.logging.format, settings.logging.level)
    asked = find_query(settings, script, into, start)
    plans = job.read_plans(settings, asked.script, asked.into)
    selected = {each.output: each.columns for each in plans}
    check_beside(settings, selected)
    claim(folder := query_folder(settings, plans))
    check_not_resetting(folder)
    requested, until_us = parse_start(asked.start, time.time_ns() // 1_000), parse_time_flag(until, "--until")
    try:
        plan = job.prepare(settings, plans, requested, until_us=INFINITY if until_us is None else until_us, until_end=until_end)
    except RunEnded as ended:
        # The job may have been killed between its last result and the last copy.
        copied = copy_rest(settings, selected)
        line = ended.line("results of them go to a new output") + (f"; {copied:,} results copied that its stores lacked" if copied else "")
        fields = {"finished": True, "had_ended": True, "copied": copied, "records_since": ended.records_since}
        _print_end(format, plans[0].output, line, fields)
        return
    claim(folder)
    job.record_query(settings, plan, asked.script, asked.into)
    name = plan.name
    progress, batch_costs = QueryProgress(plan.buckets), BatchCostWriter(folder, plan.buckets)
    lookup_floor = LookupFloor(folder, plan.buckets) if plan.references else None
    metrics = Metrics(settings.metrics.port, settings.metrics.host)
    log = logs.get_logger("query", output=name)
    topics = ", ".join(feed.topic for feed in plan.feeds)
    job.log_start(plan, log, topics)
    job.warn_of_absent_columns(plan)
    publisher = ProgressPublisher(
        settings.redis, plan.outputs[0].topic or name, query=name, reads=topics, outputs=[output.name for output in plan.outputs]
    )
    cluster = Cluster(settings, folder, lambda: spark)
    watch = RecoveryWatch(job.recovery(plan), job.make_end_lookup(plan), publisher, log, {"Spark": cluster.waiting})
    sinks = SinksBeside(settings, selected)
    with stop_on_signal() as stop, live_line(standard_error(), f"query {name}") as show, publisher, watch, sinks:

        def on_reports(reports: list[dict[str, Any]]) -> None:
            progress.accept_reports(reports)
            if progress.is_finished:
                # Before Spark commits the batch: if the process is killed in between, the next start runs the batch again, and ends again.
                replace_text(folder / FINISHED_FILE, "")
            batch_costs.accept_reports(reports)
            job.warn_of_absent_in_first_records(progress.pop_absent_columns())
            nulls = progress.null_columns(settings.query.null_share_warn)
            job.warn_of_null_columns(progress.pop_null_columns(nulls))
            publisher.update_job(nulls=[each.as_dict() for each in nulls])
            metrics.set_null_columns(name, nulls)
            if lookup_floor is not None:
                lookup_floor.accept_reports(reports)
            publisher.publish(reports)
            metrics.accept_query_reports(name, reports)
            if format is Format.JSON:
                print_json({"event": "batch", **progress.summary(), "recovery": watch.catch_up.as_dict()})
            if progress.is_finished:
                stop.ask()

        def on_tick() -> None:
            worker_log.follow()
            if progress.batches:
                # Reports come before their batch has ended, so the positions are read from Spark's log.
                watch.advance(finished_positions(plan))
            behind = watch.poll()
            show(f"{progress.line()}  {behind}".rstrip() if progress.batches else behind)
            metrics.set_query_lags(name, watch.catch_up.lags)
            own = (watch.state, watch.waits_for) if cluster.is_ready() else ("starting", "")
            metrics.set_jobs({f"query {name}": own, **sinks.poll(metrics)})
            metrics.set_executors(cluster.executors_wanted, cluster.executors_held)
            progress.check_gaps(watch.answered_s, watch.catch_up.ends, watch.catch_up.positions)

        worker_log = WorkerLog(folder)
        spark = start_session(settings, f"query-{name}", folder)
        try:
            driven = DrivenQuery(name, lambda: job.start(spark, settings, plan, on_reports), folder)
            drive([driven], stop, on_tick, is_ready=cluster.is_ready)
            if progress.is_finished:
                sinks.finish(on_tick, lambda: stop.is_signalled)
                if not sinks.are_done:
                    log.warning("stopped before its stores had all results: the next start copies the rest")
        finally:
            end_session(spark)
    _print_end(format, name, progress.line(), {**progress.summary(), "recovery": watch.catch_up.as_dict()})


def _print_end(format: Format, name: str, line: str, fields: dict[str, Any]) -> None:
    if format is Format.JSON:
        print_json({"event": "end", **fields})
    else:
        end_line(standard_error(), f"query {name}", line)


def plan(
    script: Script,
    into: Into = None,
    start: Annotated[str | None, typer.Option(help=f"Also what would be read from where, and for how long: {TIMES}.")] = None,
    config: Config = None,
    assign: Assign = None,
    format: Annotated[Format, typer.Option("--format", help="How it is printed; json: one object.")] = Format.TEXT,
) -> None:
    """Show what a query computes, needs and keeps, without running it."""
    from query import job
    from query.listed import find_query
    from query.plan.never_null import columns_never_null
    from query.preview.display import PlanReport
    from query.preview.forecast import GLANCE_S, forecast, retention_warnings
    from query.start.bucket_layout import describe_parallelism
    from sinks.stores.checking import check_stores, describe_copies, warn_of_null_keys
    from tidegate.platform.checkpoint.output_start import parse_start
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    asked = find_query(settings, script, into)
    plans = job.read_plans(settings, asked.script, asked.into)
    requested = parse_start(start, time.time_ns() // 1_000)
    outputs = [script_plan.output for script_plan in plans if script_plan.output in settings.outputs]
    paces = {output: str(settings.outputs[output].pace()) for output in outputs}
    known_forecast, unknown = None, ""
    try:
        admin = Admin(settings.kafka.client_properties(), settings.kafka.connect_timeout_us / 1e6 if requested else GLANCE_S)
        admin.check_reachable()
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
