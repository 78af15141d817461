"""The command ``tidegate run``: all stages of the configuration, or some, in one process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.platform.observe.console import Format, end_line, live_lines, print_json
from tidegate.tools.commands.ui import PORT, command_flags, page_beside

if TYPE_CHECKING:
    from ordering.errors import TidegateError
    from tidegate.platform.settings.load import Settings

# How often stages are looked at, seconds: while some wait to be opened, and once all are open.
_TURN_S, _CALM_TURN_S = 0.5, 1.0


def run(
    stages: Annotated[
        list[str] | None, typer.Argument(metavar="[STAGE]...", help="ingest:NAME, query:NAME or sink:NAME; default: all stages.")
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Read inputs to their present end; the rest ends with them.")] = False,
    stack: Annotated[bool, typer.Option("--stack", help="Start the embedded Kafka and Valkey first, and stop them at the end.")] = False,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Serve the pipeline as a page to this machine, if the extra ui is there.")
    ] = True,
    page_port: Annotated[int, typer.Option(min=0, max=65535, help="The port of that page.")] = PORT,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Run the inputs, the listed queries and the sinks of the configuration, all in one process."""
    from tidegate.platform.checkpoint.claim import claim
    from tidegate.platform.observe import logs
    from tidegate.platform.observe.traces import exporting
    from tidegate.platform.settings.load import load_assigned
    from tidegate.platform.spark.early_session import EarlySession, separate_stderr
    from tidegate.platform.spark.launch.private_folder import keep_files_private
    from tidegate.tools.pipeline.choice import PYTHON_MODULES, choose, run_folder

    separate_stderr()
    keep_files_private()
    as_json = format is Format.JSON
    with ExitStack() as running:
        if stack:
            from tidegate.tools.commands.stack import own_stack

            running.enter_context(own_stack())
        settings = load_assigned(config, assign)
        settings.require_secrets()
        logs.configure(settings.logging.format, settings.logging.level)
        running.enter_context(exporting(settings.traces))
        labels = choose(settings, stages or [])
        if stack:
            _make_raw_topics(settings, labels)
        folder = run_folder(settings, labels[0])
        folder.mkdir(parents=True, exist_ok=True)
        claim(folder)
        needs_spark = any(not label.startswith("sink:") for label in labels)
        spark = running.enter_context(EarlySession(settings, "run", folder, PYTHON_MODULES)) if needs_spark else None

        # All that follows is imported while Spark starts.
        from tidegate.platform.metrics.job_metrics import Metrics
        from tidegate.platform.observe.logs import Ticks
        from tidegate.platform.observe.stopping import stop_on_signal
        from tidegate.platform.observe.terminal import standard_error
        from tidegate.platform.spark.bounded_stop import BoundedStop
        from tidegate.platform.spark.cluster import Cluster
        from tidegate.platform.spark.early_session import WorkerLog
        from tidegate.tools.pipeline.keeping import KeptStage, Phase, keep_going
        from tidegate.tools.pipeline.selection import make_stages
        from tidegate.tools.pipeline.stages import Surroundings

        if spark is not None:
            spark.begin()
        cluster = Cluster(settings, folder, _session_of(spark))
        worker_log, metrics = WorkerLog(folder), Metrics(settings.metrics.port, settings.metrics.host)
        failures: dict[str, TidegateError] = {}

        def on_failure(label: str, error: TidegateError) -> None:
            failures[label] = error
            logs.get_logger("run", stage=label).error("this stage cannot start; the others go on", error=error)

        def on_summary(event: str, label: str, summary: dict[str, Any]) -> None:
            if as_json:
                print_json({"event": event, "stage": label, **summary})

        stop = running.enter_context(stop_on_signal())
        on_batch, on_progress = partial(on_summary, "batch"), partial(on_summary, "progress")
        around = Surroundings(settings, _session_of(spark), cluster, metrics, stop, on_batch, on_progress, until_end)
        kept = [KeptStage(stage) for stage in make_stages(settings, labels, around, on_failure)]
        if page:
            folder_of_paths = config.parent if config is not None else Path()
            running.enter_context(page_beside(settings, folder_of_paths, command_flags(config, assign), page_port))
        if spark is not None:
            running.enter_context(BoundedStop(lambda: stop.is_asked, len(kept)))
        show = running.enter_context(live_lines(standard_error(), [each.stage.label for each in kept]))

        def on_turn() -> None:
            worker_log.follow()
            for place, each in enumerate(kept):
                show(place, each.line())
            failed = {label.replace(":", " "): ("failed", error.code) for label, error in failures.items()}
            metrics.set_jobs({**failed, **{each.stage.job: each.state() for each in kept if each.phase is not Phase.ENDED}})
            metrics.set_executors(cluster.executors_wanted, cluster.executors_held)

        keep_going(kept, lambda: stop.is_asked, Ticks(on_turn), _TURN_S, _CALM_TURN_S, until_end=until_end)
        failures |= {each.stage.label: each.failure for each in kept if each.failure is not None and each.phase is Phase.FAILED}
    for each in kept:
        if as_json:
            print_json({"event": "end", "stage": each.stage.label, "phase": str(each.phase), "restarts": each.restarts})
        elif each.stage.label not in failures:
            end_line(standard_error(), each.stage.label, each.last_line)
    for error in failures.values():
        raise error


def _make_raw_topics(settings: Settings, labels: Sequence[str]) -> None:
    """Create the raw topics that are missing, as ``tidegate topic create`` does: the embedded broker creates none by itself."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.observe.logs import get_logger

    admin = Admin.connect(settings.kafka)
    names = [label.partition(":")[2] for label in labels if label.startswith("ingest:")]
    for topic in dict.fromkeys(topic for name in names for topic in settings.input(name).topics):
        if admin.find(topic) is None:
            admin.create(topic, 1, {"message.timestamp.type": "LogAppendTime"})
            get_logger("run").info("raw topic created", topic=topic, partitions=1, timestamps="LogAppendTime")


def _session_of(spark: Any) -> Any:
    return spark.get if spark is not None else lambda: None
