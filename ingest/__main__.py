"""The command ``tidegate ingest``, also ``python -m ingest``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.observe.console import Format, end_line, live_line, print_json, run_command
from tidegate.observe.terminal import Terminal, standard_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.config import IngestPlan
    from ingest.running_input import RunningInput
    from tidegate.observe.recovery_report import Recovery
    from tidegate.settings.load import Settings
    from tidegate.spark.early_session import EarlySession
    from tidegate.spark.worker_log import WorkerLog


class OnFailure(StrEnum):
    """Whether the other inputs of a process go on or stop if one fails."""

    CONTINUE = "continue"
    STOP = "stop"


def ingest(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Which [inputs.NAME] to order; several run in one process.")],
    start: Annotated[
        str | None,
        typer.Option(help="Events from this time on, for a new ordered topic: now, a time (ISO-8601), last-stopped or earliest."),
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Read to the present end, write the final CTI and stop.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: inputs.flights.late=3h")] = None,
    on_failure: Annotated[OnFailure, typer.Option(help="What the other inputs of this process do if one fails.")] = OnFailure.CONTINUE,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Put inputs in order: read their raw topics, apply their time policies, write their ordered topics."""
    import time
    from contextlib import ExitStack

    from tidegate.checkpoint.binding import checkpoint_folder
    from tidegate.checkpoint.claim import claim
    from tidegate.observe import logs
    from tidegate.settings.load import load_assigned
    from tidegate.spark.early_session import EarlySession, separate_stderr
    from tidegate.spark.launch.private_folder import keep_files_private
    from tidegate.spark.offset_log import checkpoint_state
    from tidegate.spark.worker_log import WorkerLog

    separate_stderr()
    keep_files_private()
    now_us = time.time_ns() // 1000
    settings = load_assigned(config, assign)
    logs.configure(settings.logging.format, settings.logging.level)
    names = list(dict.fromkeys(names))
    folders = [checkpoint_folder(settings, f"ingest-{settings.input(name).ordered_topic}") for name in names]
    for folder in folders:
        claim(folder)
    # All inputs share one Spark session: its log lies in the first input's checkpoint folder.
    worker_log = WorkerLog(folders[0])
    comes_back = any(checkpoint_state(folder) != "empty" for folder in folders)
    title = f"ingest {' '.join(names)}"
    with ExitStack() as running:

        def start_spark() -> EarlySession:
            return running.enter_context(EarlySession(settings, title.replace(" ", "-"), folders[0]))

        # If a job is restarted, Spark starts while it is prepared, to save time. A new job may still be refused, so Spark starts
        # afterwards.
        spark = start_spark() if comes_back else None
        from ingest import job
        from tidegate.checkpoint.output_start import parse_start

        requested = parse_start(start, now_us)
        prepared = [job.prepare(settings, name, until_end, requested) for name in job.order_by_imports(settings, names)]
        for folder in folders:
            claim(folder)
        isolates = on_failure is OnFailure.CONTINUE
        _run(title, prepared, settings, worker_log, spark or start_spark(), isolates=isolates, as_json=format is Format.JSON)


def _run(
    title: str,
    prepared: list[tuple[IngestPlan, Recovery]],
    settings: Settings,
    worker_log: WorkerLog,
    spark: EarlySession,
    *,
    isolates: bool,
    as_json: bool,
) -> None:
    from contextlib import ExitStack

    from ingest import job
    from ingest.running_input import RunningInput
    from ordering.errors import TidegateError
    from tidegate.checkpoint.claim import release
    from tidegate.observe.metrics import Metrics
    from tidegate.observe.stopping import stop_on_signal
    from tidegate.spark.cluster import Cluster
    from tidegate.spark.driver import DrivenQuery, drive

    at_fault: set[str] = set()
    cluster = Cluster(settings, Path(prepared[0][0].checkpoint), spark.get)
    inputs = [RunningInput(plan, recovery, job.make_end_lookup(plan), at_fault, cluster.waiting) for plan, recovery in prepared]
    metrics = Metrics(settings.metrics.port, settings.metrics.host)
    terminal = standard_error()

    def make_query(running_input: RunningInput) -> DrivenQuery:
        def on_reports(reports: list[dict[str, Any]]) -> None:
            summary = running_input.accept_reports(reports)
            metrics.accept_reports(running_input.name, reports)
            if as_json:
                print_json({"event": "batch", **summary})

        def on_failure(failure: TidegateError) -> None:
            running_input.fail(failure)
            metrics.fail_input(running_input.name)
            # Others go on in this process; this one may be mended and started alone meanwhile.
            release(Path(running_input.plan.checkpoint))
            if as_json:
                print_json({"event": "failed", "input": running_input.name, "failure": failure.as_dict()})

        return DrivenQuery(
            running_input.name,
            lambda: job.start(spark.get(), settings, running_input.plan, on_reports),
            Path(running_input.plan.checkpoint),
            on_failure,
            running_input.check,
        )

    with (
        stop_on_signal() as stop,
        live_line(terminal, title, sum(running_input.progress.total or 0 for running_input in inputs)) as show,
        ExitStack() as open_,
    ):
        for running_input in inputs:
            policies = running_input.plan.settings.policies()
            metrics.add_input(running_input.name, policies.reorder_us, policies.late_us)
            metrics.accept_reports(running_input.name, running_input.read_last_reports())
            open_.enter_context(running_input)

        def on_tick() -> None:
            worker_log.follow()
            has_begun = cluster.is_ready()
            metrics.set_jobs({f"ingest {running.name}": running.state if has_begun else ("starting", "") for running in inputs})
            metrics.set_executors(cluster.executors_wanted, cluster.executors_held)
            lines = [running_input.line() for running_input in inputs]
            for running_input in inputs:
                metrics.set_ends(running_input.name, running_input.catching_up.ends)
            shown = lines if len(lines) == 1 else [f"{running.name}: {line}" for running, line in zip(inputs, lines, strict=True)]
            show("  |  ".join(shown), sum(running_input.progress.totals()["events_in"] for running_input in inputs))

        try:
            drive([make_query(running_input) for running_input in inputs], stop, on_tick, isolates=isolates, is_ready=cluster.is_ready)
        except TidegateError:
            ended = [running_input for running_input in inputs if running_input.failure is None] if isolates else []
            _print_ends(ended, terminal, as_json=as_json)
            raise
    _print_ends(inputs, terminal, as_json=as_json)


def _print_ends(inputs: Sequence[RunningInput], terminal: Terminal, *, as_json: bool) -> None:
    for running_input in inputs:
        summary = running_input.summary()
        if as_json:
            print_json({"event": "end", **summary})
        else:
            rate = f", {summary['events_per_second']:,} events/s" if summary["events_per_second"] else ""
            watermark = f"; watermark {'ended' if summary['finished'] else summary['watermark']}{rate}" if summary["watermark"] else ""
            breaks = f"; {running_input.policy_breaks}: see docs/backfill.md" if running_input.policy_breaks else ""
            end_line(terminal, f"ingest {running_input.name}", f"{running_input.progress.line()}{watermark}{breaks}")


if __name__ == "__main__":
    run_command(ingest)
