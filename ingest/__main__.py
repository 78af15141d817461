"""
The command ``tidegate ingest``, also ``python -m ingest``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.runtime.console import run


def ingest(
    name: Annotated[str, typer.Argument(help="Which [inputs.NAME] to order.")],
    until_end: Annotated[bool, typer.Option("--until-end", help="Read to the present end, write the final CTI and stop.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: inputs.flights.late=3h")] = None,
    format: Annotated[str, typer.Option(help="text or json: what is printed on standard output.")] = "text",
) -> None:
    """Put one input in order: read its raw topic, apply its time policies, write its ordered topic."""
    from rich.console import Console

    from ingest import job
    from ingest.progress import IngestProgress
    from tidegate.runtime import logs
    from tidegate.runtime.driving import drive, live_line, print_json, stopped_by_signal
    from tidegate.runtime.kafka.admin import Admin
    from tidegate.runtime.metrics import Metrics
    from tidegate.runtime.progress_store import ProgressPublisher
    from tidegate.runtime.setting_sources import parse_assignments
    from tidegate.runtime.settings import load
    from tidegate.runtime.spark import WorkerLog, session

    settings = load(config, parse_assignments(assign or []))
    logs.configure(settings.logging)
    plan = job.prepare(settings, name, until_end)
    ends = Admin(plan.kafka).ends(plan.partitions) if until_end else {}
    progress = IngestProgress(sum(end - plan.starts[partition].next_offset for partition, end in ends.items()))
    console = Console(stderr=True)

    metrics = Metrics(f"ingest-{name}", settings.metrics.port)
    logs.get_logger().info(
        "ingest starts",
        topics=",".join(plan.settings.topics),
        partitions=len(plan.partitions),
        ordered_topic=plan.settings.ordered_topic,
        idle_estimates=plan.estimates,
        journal=settings.redis.address,
    )

    def on_reports(reports: list[dict[str, Any]]) -> None:
        progress.take(reports)
        published.publish(reports)
        published.tell(state="live")
        metrics.publish(progress.summary())
        if format == "json":
            print_json({"event": "batch", **progress.summary()})

    published = ProgressPublisher(settings.redis, plan.settings.ordered_topic, input=name)
    with stopped_by_signal() as stop, live_line(console, f"ingest {name}", progress.total) as show, published:

        def on_tick() -> None:
            worker_log.follow()
            show(progress.line(), progress.totals()["events_in"])

        worker_log = WorkerLog(Path(plan.checkpoint))
        spark = session(settings, f"ingest-{name}", Path(plan.checkpoint))
        try:
            drive(lambda: job.start(spark, settings, plan, on_reports), stop, Path(plan.checkpoint), on_tick)
        finally:
            spark.stop()
    if format == "json":
        print_json({"event": "end", **progress.summary()})
    else:
        summary = progress.summary()
        console.print(f"ingest {name}: {progress.line()}; watermark {summary['watermark']}, {summary['events_per_second']:,} events/s")


if __name__ == "__main__":
    run(ingest)
