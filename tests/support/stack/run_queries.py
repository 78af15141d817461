"""
Runs many query jobs in one Spark session, one after the other: ``python run_queries.py FOLDER...``.

Each folder holds a ``tidegate.toml`` and a ``query.sql``; each job reads to the present end of its input and stops. A session
takes longer to start than such a job to run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from query import job
from tidegate.observe import logs
from tidegate.observe.stopping import stop_on_signal
from tidegate.settings.load import load
from tidegate.spark.driver import DrivenQuery, drive
from tidegate.spark.session import end_session, start_session


def main(folders: list[Path]) -> None:
    """Run the job of each folder."""
    settings = load(folders[0] / "tidegate.toml")
    logs.configure(settings.logging.format, settings.logging.level)
    (folders[0].parent / "spark").mkdir()
    spark = start_session(settings, "cases", folders[0].parent / "spark")
    try:
        with stop_on_signal() as stop:
            for folder in folders:
                os.chdir(folder)
                settings = load(folder / "tidegate.toml")
                plan = job.prepare(settings, job.read_plans(settings, Path("query.sql"), None), until_end=True)
                start = lambda settings=settings, plan=plan: job.start(spark, settings, plan, lambda reports: None)  # noqa: E731
                drive([DrivenQuery(folder.name, start, folder / plan.checkpoint)], stop)
                print(folder.name, flush=True)
    finally:
        end_session(spark)


if __name__ == "__main__":
    main([Path(folder).resolve() for folder in sys.argv[1:]])
