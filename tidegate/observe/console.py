"""
The terminal output of commands: errors in words with an exit code, tables, a live line, JSON.

Law: a :class:`~ordering.errors.TidegateError` never reaches the terminal as a traceback. It is written to standard error as text
or, if the command was given ``--format json``, as one JSON object. Standard output has data only.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from ordering.errors import TidegateError
from tidegate.provenance import check_provenance

if TYPE_CHECKING:
    from rich.console import Console

Command = TypeVar("Command", bound=Callable[..., None])

_PIPE_WIDTH = 1_000
_LOG_EVERY_S = 10.0


class Format(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


def run_command(command: Command) -> None:
    """Run one command function as a program of its own, as ``python -m ingest`` does."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(report_errors(command))
    app()


def report_errors(command: Command) -> Command:
    """Wrap a command function: check that no foreign package has our packages' names, then run it and report its errors."""

    @functools.wraps(command)
    def wrapped(*args: object, **kwargs: object) -> None:
        try:
            check_provenance()
            command(*args, **kwargs)
        except TidegateError as error:
            report_error(error, as_json=wants_json(sys.argv[1:]))
            raise typer.Exit(error.exit_code) from error

    return wrapped  # type: ignore[return-value]


def report_error(error: TidegateError, *, as_json: bool) -> None:
    """Write *error* to standard error."""
    if as_json:
        print(json.dumps({"error": error.as_dict() | {"exit_code": error.exit_code}}), file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble((error.code, "bold red"), ": ", error.what))
    for label, text in error.as_dict().items():
        if label not in ("code", "what"):
            console.print(Text.assemble((f"  {label}: ", "bold"), text.replace("\n", "\n    ")))


def table_console() -> Console:
    """Return a console for tables on standard output; into a pipe no line is cut or broken, since grep needs whole lines."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON: ``--format json`` or ``--format=json``."""
    pairs = itertools.pairwise(arguments)
    return "--format=json" in arguments or ("--format", "json") in pairs


@contextmanager
def live_line(console: Console, title: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """
    Show one live line on a terminal: call the yielded function with the text, and with how much of *total* is done.
    Without a terminal the line is logged instead, every ten seconds if it has changed.
    """
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from tidegate.observe.logs import get_logger

    columns = [SpinnerColumn(), TextColumn("{task.description}"), *([BarColumn(bar_width=20)] if total else [])]
    progress = Progress(*columns, TextColumn("{task.fields[line]}"), TimeElapsedColumn(), console=console, transient=True)
    with progress if console.is_terminal else nullcontext():
        task = progress.add_task(title, total=total, line="starting Spark")

        logged: list[str | float] = ["", time.monotonic()]

        def show(line: str, done: int = 0) -> None:
            progress.update(task, completed=done, line=line)
            if not console.is_terminal and line != logged[0] and time.monotonic() - float(logged[1]) >= _LOG_EVERY_S:
                logged[:] = line, time.monotonic()
                get_logger().info(title, progress=line)

        yield show


def print_json(fields: dict[str, Any]) -> None:
    """Print one JSON object as a line on standard output."""
    sys.stdout.write(json.dumps(fields, separators=(",", ":"), sort_keys=True) + "\n")
    sys.stdout.flush()
