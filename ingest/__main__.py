"""The command ``tidegate ingest``, also ``python -m ingest``."""

from __future__ import annotations

from tidegate.basics.early_stop import end_on_signal

# Before the other imports, which take most of a start.
if __name__ == "__main__":
    end_on_signal()

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.platform.observe.console import Format, run_command


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

    from ingest import PYTHON_MODULES
    from ingest.input_order import order_by_imports
    from tidegate.platform.checkpoint.binding import checkpoint_folder
    from tidegate.platform.checkpoint.claim import check_not_resetting, claim
    from tidegate.platform.observe import logs
    from tidegate.platform.observe.traces import exporting
    from tidegate.platform.settings.load import load_assigned
    from tidegate.platform.spark.early_session import EarlySession, separate_stderr
    from tidegate.platform.spark.launch.private_folder import keep_files_private

    separate_stderr()
    keep_files_private()
    now_us = time.time_ns() // 1000
    settings = load_assigned(config, assign)
    settings.require_secrets()
    logs.configure(settings.logging.format, settings.logging.level)
    names = list(dict.fromkeys(names))
    folders = [checkpoint_folder(settings, f"ingest-{settings.input(name).ordered_topic}") for name in names]
    for folder in folders:
        claim(folder)
        check_not_resetting(folder)
    title = f"ingest {' '.join(names)}"
    with ExitStack() as running:
        running.enter_context(exporting(settings.traces))
        # Spark starts while the job is imported and prepared. All inputs share one session: its log lies in the first input's checkpoint
        # folder.
        spark = running.enter_context(EarlySession(settings, title.replace(" ", "-"), folders[0], PYTHON_MODULES))
        claim(folders[0])
        from ingest import job
        from ingest.run import IngestRun, print_had_ended
        from tidegate.platform.checkpoint.ended_run import RunEnded
        from tidegate.platform.checkpoint.output_start import parse_start
        from tidegate.platform.spark.early_session import WorkerLog

        worker_log = WorkerLog(folders[0])

        spark.begin()
        requested = parse_start(start, now_us)
        prepared = []
        for name in order_by_imports(settings, names):
            try:
                prepared.append(job.prepare(settings, name, until_end, requested))
            except RunEnded as ended:
                print_had_ended(name, ended, as_json=format is Format.JSON)
        if not prepared:
            return
        # Those that were missing are there now.
        for folder in folders:
            claim(folder)
        run = IngestRun(prepared, settings, spark, as_json=format is Format.JSON)
        run.run(title, worker_log, isolates=on_failure is OnFailure.CONTINUE)


if __name__ == "__main__":
    run_command(ingest)
