"""
The command ``tidegate sink``: copies the result topic of an output into its stores, without Spark.

Law: it may be stopped, killed and started at any moment, and run twice: each result stands in each store once
(:mod:`sinks.stores.base`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.platform.observe.console import Format, end_line, live_line, print_json
from tidegate.platform.observe.terminal import standard_error

if TYPE_CHECKING:
    from sinks.copying.job import SinkPlan
    from tidegate.platform.metrics.job_metrics import Metrics
    from tidegate.platform.settings.load import Settings
    from tidegate.records.result_columns import Column

_TURN_S = 0.25


def sink(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which [outputs.NAME] to copy into its stores.")],
    query: Annotated[
        Path | None, typer.Option(help="The script that writes the output, for its columns; default: outputs.NAME.query.")
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Copy up to the present end of the topic, then stop.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Copy the results of an output from its topic into its stores, each once."""
    import time

    from query.output_plan import columns_of
    from sinks.copying.job import SinkJob
    from tidegate.platform.metrics.job_metrics import Metrics
    from tidegate.platform.observe import logs
    from tidegate.platform.observe.logs import Ticks
    from tidegate.platform.observe.stopping import stop_on_signal
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    logs.configure(settings.logging.format, settings.logging.level)
    columns = columns_of(settings, name, query)
    metrics = Metrics(settings.metrics.port, settings.metrics.host)
    terminal = standard_error()
    # Outside of stop_on_signal: a signal ends a wait for servers at once, as it does in the starts of ingest and queries.
    plan = _prepare_once_made(settings, name, columns, metrics, query, until_end=until_end)
    with stop_on_signal() as stop:
        job = SinkJob(plan)
        with live_line(terminal, f"sink {name}") as show, job:
            turn = 0

            def on_turn() -> None:
                show(job.poll())
                metrics.set_jobs({f"sink {name}": job.state})
                metrics.set_sink(name, job.stores())
                if format is Format.JSON and turn % 4 == 0:
                    print_json({"event": "progress", **job.summary()})

            take_turn = Ticks(on_turn)
            while not (stop.is_asked or job.is_done):
                take_turn()
                turn += 1
                time.sleep(_TURN_S)
            line = job.poll()
    # The topic has ended, and nothing was left to do: as with ingest and queries, whoever starts it again hears so.
    had_ended = job.is_done and not until_end and not any(counts["rows"] or counts["refused"] for counts in job.counts().values())
    if format is Format.JSON:
        print_json({"event": "end", **job.summary(), **({"had_ended": True} if had_ended else {})})
    else:
        end_line(terminal, f"sink {name}", "it had ended" if had_ended else line)


def _prepare_once_made(
    settings: Settings, name: str, columns: Sequence[Column], metrics: Metrics, script: Path | None, *, until_end: bool
) -> SinkPlan:
    """Prepare the job once the query has made its topic, so that both may be started in any order."""
    import time

    from ordering.errors import RefusedError
    from sinks.copying.job import prepare
    from tidegate.platform.observe.logs import get_logger
    from tidegate.platform.observe.progress_store import ProgressPublisher, sink_key

    with ExitStack() as waiting:
        publisher: ProgressPublisher | None = None
        while True:
            try:
                return prepare(settings, name, columns, until_end=until_end)
            except RefusedError as error:
                # A run to the present end would wait for what it must not copy.
                if error.code != "TG-TOPIC-MISSING" or until_end:
                    raise
                named = script or settings.output(name).query or "FILE.sql"
                text = f"waiting for topic {error.where}, which is not there: start tidegate query {named}, which makes it"
            if publisher is None:
                get_logger("sink", output=name).warning(text)
                publisher = ProgressPublisher(
                    settings.redis, sink_key(name), is_one_of_several=True, has_history=False, output=name, waits_for=text
                )
                waiting.enter_context(publisher)
            metrics.set_jobs({f"sink {name}": ("waiting", text)})
            time.sleep(_TURN_S * 4)
