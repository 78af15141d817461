"""
The output of commands: errors in words with an exit code, a live line, JSON.

Law: a :class:`~ordering.errors.TidegateError` never reaches the terminal as a traceback. It is written to standard error as text or, with
``--format json``, as one JSON object. Standard output has data only.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import Any, TypeVar

import typer

from ordering.errors import SettingError, TidegateError
from tidegate.basics.early_stop import STOPPED
from tidegate.basics.own_packages import find_intruder
from tidegate.basics.safe_path import protect_processes
from tidegate.basics.secret_masking import scrub, scrub_error
from tidegate.platform.observe.stopping import StoppedWhileStarting, raise_if_stopped_before, stop_while_starting
from tidegate.platform.observe.terminal import Styled, Terminal, print_text, standard_error

Command = TypeVar("Command", bound=Callable[..., None])
Result = TypeVar("Result")

_LOG_EVERY_S = 10.0
_POLL_S = 0.2


class Format(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


def run_command(command: Command) -> None:
    """Run one command function as a program of its own, as ``python -m ingest`` does."""
    protect_processes()
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(report_errors(command))
    run_stoppable(app, is_job=True)


def run_stoppable(program: Callable[[], object], *, is_job: bool) -> None:
    """Run a program to its end; a job that a signal stops in its start ends with exit code 0."""
    if not is_job:
        program()
        return
    try:
        with stop_while_starting():
            program()
    except StoppedWhileStarting:
        print_text(STOPPED, sys.stderr)
        raise SystemExit(0) from None


def report_errors(command: Command) -> Command:
    """Wrap a command function: check that no foreign package has our packages' names, then run it and report its errors."""

    @functools.wraps(command)
    def wrapped(*args: object, **kwargs: object) -> None:
        try:
            check_provenance()
            command(*args, **kwargs)
        except TidegateError as error:
            raise_if_stopped_before()
            report_error(error, as_json=wants_json(sys.argv[1:]))
            raise typer.Exit(error.exit_code) from error
        except (typer.Exit, typer.Abort, BrokenPipeError, EOFError):  # typer ends the program by them
            raise
        except Exception as error:
            raise_if_stopped_before()
            # A mistake of ours, or of a library: its traceback may show what a client was given.
            print_text(scrub(traceback.format_exc()), sys.stderr)
            raise typer.Exit(1) from error

    return wrapped  # type: ignore[return-value]


def report_error(error: TidegateError, *, as_json: bool) -> None:
    """Write *error* to standard error: as one JSON object if *as_json* or if this process logs JSON, else as text."""
    from tidegate.platform.observe.logs import writes_json

    fields = scrub_error(error.as_dict())
    if as_json or writes_json():
        print_text(json.dumps({"error": fields | {"exit_code": error.exit_code}}) + "\n", sys.stderr)
        return
    terminal = standard_error()
    heads = {"what": Styled(error.code, "bold red")} | {label: Styled(f"  {label}", "bold") for label in ("where", "fix", "example")}
    for label, text in fields.items():
        if label in heads:
            first, *others = text.split("\n")
            terminal.line(heads[label], ": ", first)
            for line in others:
                terminal.line("" if label == "what" else "    ", line)


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON: ``--format json`` or ``--format=json``."""
    pairs = itertools.pairwise(arguments)
    return "--format=json" in arguments or ("--format", "json") in pairs


@contextmanager
def live_line(terminal: Terminal, title: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """
    Show one live line on a terminal: call the yielded function with the text, and with how much of *total* is done.
    Without a terminal the line is logged instead, every ten seconds if it has changed.
    """
    from tidegate.platform.observe.logs import get_logger

    with terminal.progress([(title, total)]) if terminal.is_terminal else nullcontext() as progress:
        if progress is not None:
            progress(0, 0, "starting Spark")

        logged: list[str | float] = ["", time.monotonic()]

        def show(line: str, done: int = 0) -> None:
            if progress is not None:
                progress(0, done, line)
            elif line != logged[0] and time.monotonic() - float(logged[1]) >= _LOG_EVERY_S:
                logged[:] = line, time.monotonic()
                get_logger().info(title, progress=line)

        yield show


@contextmanager
def live_lines(terminal: Terminal, titles: Sequence[str]) -> Iterator[Callable[[int, str], None]]:
    """As :func:`live_line`, with a line for each of *titles*: call the yielded function with the number of a title and its text."""
    from tidegate.platform.observe.logs import get_logger

    width = max(map(len, titles), default=0)
    with terminal.progress([(title.ljust(width), None) for title in titles]) if terminal.is_terminal else nullcontext() as progress:
        logged = dict.fromkeys(range(len(titles)), ("", -_LOG_EVERY_S))

        def show(number: int, line: str) -> None:
            before, since_s = logged[number]
            if progress is not None:
                progress(number, 0, line)
            elif line != before and time.monotonic() - since_s >= _LOG_EVERY_S:
                logged[number] = line, time.monotonic()
                get_logger().info(titles[number], progress=line)

        yield show


def show_reading(
    title: str, work: Callable[[Callable[[int], None]], Result], describe: Callable[[int], str], total: int | None = None
) -> Result:
    """
    Run *work* and return its result, with a live line of :func:`live_line` on standard error meanwhile. *work* gets a function to call,
    from any of its threads, with how many records it has just read; *describe* writes the text for all of them so far.
    """
    from concurrent.futures import ThreadPoolExecutor

    read, lock = 0, threading.Lock()

    def on_records(count: int) -> None:
        nonlocal read
        with lock:
            read += count

    # The work runs in a thread of its own, so that the terminal is updated by one thread alone.
    with ThreadPoolExecutor(max_workers=1) as pool, live_line(standard_error(), title, total) as show:
        working = pool.submit(work, on_records)
        ended = threading.Event()
        working.add_done_callback(lambda _: ended.set())
        while not ended.wait(_POLL_S):
            show(describe(read), read)
        return working.result()


def end_line(terminal: Terminal, title: str, line: str) -> None:
    """Show the last line of a job: on a terminal as text, else logged like the lines of :func:`live_line`."""
    from tidegate.platform.observe.logs import get_logger

    if terminal.is_terminal:
        terminal.line(f"{title}: {line}")
    else:
        get_logger().info(f"{title} ends", progress=line)


def print_json(fields: dict[str, Any]) -> None:
    """Print one JSON object as a line on standard output."""
    print_text(json.dumps(fields, separators=(",", ":"), sort_keys=True) + "\n")


class ShadowedError(TidegateError):
    """A foreign module is imported under the name of one of this distribution's packages."""

    exit_code = 2
    default_code = "TG-SHADOWED"


def check_provenance() -> None:
    """Raise ShadowedError if Python finds another module under the name of one of this distribution's packages, or none."""
    if (intruder := find_intruder()) is not None:
        raise ShadowedError(intruder.what, where=str(intruder.own_location), fix=intruder.fix)


def confirm_deletion(command: str, format: Format) -> bool:
    """Ask whether all that was listed shall go; *command* is what would delete it. Raises SettingError: nobody can be asked."""
    if format is Format.JSON or not sys.stdin.isatty():
        what, fix = "nobody can be asked whether all of this shall go", "say --yes to delete it"
        raise SettingError(what, code="TG-SETTING-FLAG", where="--yes", fix=fix, example=f"{command} --yes")
    return typer.confirm("Delete all of this?", err=True)
