"""
The command ``tidegate ingest``, also ``python -m ingest``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.runtime.console import run


def ingest(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Which [inputs.NAME] to order; several run in one process.")],
    start: Annotated[
        str | None,
        typer.Option(help="Events from this time on, for a new ordered topic: now, a time (ISO-8601), last-stopped or earliest."),
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Read to the present end, write the final CTI and stop.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: inputs.flights.late=3h")] = None,
    format: Annotated[str, typer.Option(help="text or json: what is printed on standard output.")] = "text",
) -> None:
    """Put inputs in order: read their raw topics, apply their time policies, write their ordered topics."""
    import time
    from contextlib import ExitStack

    from rich.console import Console

    from ingest import job
    from ingest.running import RunningInput
    from ingest.starting import parse_start
    from tidegate.runtime import logs
    from tidegate.runtime.driving import Driven, drive, live_line, print_json, stopped_by_signal
    from tidegate.runtime.metrics import Metrics
    from tidegate.runtime.setting_sources import parse_assignments
    from tidegate.runtime.settings import load
    from tidegate.runtime.spark import WorkerLog, session

    asked = parse_start(start, time.time_ns() // 1000)
    settings = load(config, parse_assignments(assign or []))
    logs.configure(settings.logging)
    prepared = [job.prepare(settings, name, until_end, asked) for name in job.in_order(settings, names)]
    at_fault: set[str] = set()
    inputs = [RunningInput(plan, recovery, job.look(plan), at_fault) for plan, recovery in prepared]
    title = f"ingest {' '.join(each.name for each in inputs)}"
    metrics = Metrics(settings.metrics.port, settings.metrics.host)
    console = Console(stderr=True)
    # What Spark has to say of all inputs goes where the first one keeps its checkpoint.
    folder = Path(inputs[0].plan.checkpoint)

    def start_of(each: RunningInput) -> Driven:
        def on_reports(reports: list[dict[str, Any]]) -> None:
            summary = each.take(reports)
            metrics.take(each.name, reports)
            if format == "json":
                print_json({"event": "batch", **summary})

        return Driven(each.name, lambda: job.start(spark, settings, each.plan, on_reports), Path(each.plan.checkpoint), each.fail)

    with (
        stopped_by_signal() as stop,
        live_line(console, title, sum(each.progress.total or 0 for each in inputs)) as show,
        ExitStack() as open_,
    ):
        for each in inputs:
            policies = each.plan.settings.policies()
            metrics.input(each.name, policies.reorder_us, policies.late_us)
            open_.enter_context(each)
        worker_log = WorkerLog(folder)

        def on_tick() -> None:
            worker_log.follow()
            lines = [each.tick() for each in inputs]
            for each in inputs:
                metrics.looked(each.name, each.catching_up.ends)
            told = lines if len(lines) == 1 else [f"{each.name}: {line}" for each, line in zip(inputs, lines, strict=True)]
            show("  |  ".join(told), sum(each.progress.totals()["events_in"] for each in inputs))

        spark = session(settings, title.replace(" ", "-"), folder)
        try:
            drive([start_of(each) for each in inputs], stop, on_tick)
        finally:
            spark.stop()
    for each in inputs:
        summary = each.summary()
        if format == "json":
            print_json({"event": "end", **summary})
        else:
            line = f"{each.progress.line()}; watermark {summary['watermark']}, {summary['events_per_second']:,} events/s"
            console.print(f"ingest {each.name}: {line}")


if __name__ == "__main__":
    run(ingest)
