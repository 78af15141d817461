"""
The command ``tidegate demo``: the flights demo, out of the checkout's ``examples/flights`` or out of the wheel.

Law: it is what ``make demo`` runs, with the same data. It writes only below ``.tidegate/demo`` in the working folder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ordering.errors import SettingError, TidegateError

_PACKAGE = Path(__file__).parents[2]
# Where the wheel has the example (hatch_build.py), and where a checkout has it.
_PLACES = (_PACKAGE / "flights_demo", _PACKAGE.parent / "examples" / "flights")
_PROGRAM, _DATA = "demo.py", "flights.parquet"


class DemoMissingError(TidegateError):
    """This installation has no demo."""

    exit_code = 2
    default_code = "TG-DEMO-MISSING"


def demo(
    flights: Annotated[int | None, typer.Option(min=1, help="Only the first so many flights to arrive; default: all 113,493.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave Kafka and Valkey running, to look at the topics.")] = False,
    apart: Annotated[bool, typer.Option("--apart", help="Run each of the four jobs in a process of its own.")] = False,
    postgres: Annotated[str | None, typer.Option(metavar="URL", help="A database; its schema flights_demo is made anew.")] = None,
) -> None:
    """Order a week of real flights and query them, through a real Kafka, Valkey and Spark; check every result."""
    if postgres is not None and not _has_postgres():
        fix, example = "install it", "pip install 'tidegate[postgres]'"
        raise SettingError("--postgres needs the package psycopg", code="TG-SETTING-FLAG", where="--postgres", fix=fix, example=example)
    chosen = [] if flights is None else ["--flights", str(flights)]
    chosen += (["--keep"] if keep else []) + (["--apart"] if apart else []) + ([] if postgres is None else ["--postgres", postgres])
    raise typer.Exit(_run([sys.executable, str(find_demo() / _PROGRAM), *chosen]))


def find_demo() -> Path:
    """Return the folder of the flights demo. Raises DemoMissingError: the wheel was built without it."""
    for place in _PLACES:
        if (place / _PROGRAM).exists() and (place / _DATA).exists():
            return place
    what, fix = "this installation has no flights demo", "install a wheel that was built from a whole checkout, or run it there"
    raise DemoMissingError(what, where=str(_PLACES[0]), fix=fix, example="make demo")


def _has_postgres() -> bool:
    from importlib.util import find_spec

    return find_spec("psycopg") is not None


def _run(command: list[str]) -> int:
    """Run the demo; return its exit code. Ctrl-C reaches both processes: this one waits until the other has stopped its servers."""
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue
