"""
Driving a running job: wait for it, stop it on a signal, and turn what Spark raises into one clear error.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ordering.errors import TidegateError
from tidegate.runtime.logs import get_logger
from tidegate.runtime.masking import scrub

_CODE = re.compile(r"(?:(\w+): )?(TG-[A-Z-]+): (.*?)(?:\n|$)((?:  (?:where|fix|example): .*\n?)*)")
FAILURE_FILE = "failure.log"
_STARTS_MAX = 5
_SLOW_START = "failed to connect back"
_RAISED = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b.*$", re.MULTILINE)
_SAY_S = 10.0
_PART = re.compile(r"  (where|fix|example): (.*)")


class Stop:
    """Becomes true when the process is asked to end (SIGTERM, SIGINT), or by :meth:`ask`."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, *_: Any) -> None:
        """End the job after the batch under way."""
        self.asked = True


@contextmanager
def stopped_by_signal() -> Iterator[Stop]:
    """Give a :class:`Stop` that SIGTERM and SIGINT set; a second signal ends the process as usual."""
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.ask()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def drive(start: Callable[[], StreamingQuery], stop: Stop, folder: Path, on_tick: Callable[[], None] = lambda: None) -> None:
    """
    Start a query; return when it has ended by itself or *stop* was asked for. *on_tick* is called about once a second.

    Args:
        start: Starts the query from its checkpoint.
        stop: Asks for an end.
        folder: The job's checkpoint folder; if the query fails, Spark's whole report is left there.
        on_tick: What to do meanwhile.

    Raises:
        TidegateError: The query failed; an error raised on purpose in a worker comes back as it was raised.
    """
    for attempt in range(1, _STARTS_MAX + 1):
        try:
            _follow(start(), stop, on_tick)
            break
        except (PySparkException, Py4JError) as error:
            text = str(error)
            # Spark gives a Python process ten seconds to start, which a busy machine may not keep. Starting again is safe.
            if _SLOW_START not in text or attempt == _STARTS_MAX or stop.asked:
                report = folder / FAILURE_FILE
                report.write_text(scrub(text))
                raise error_of(text, str(report)) from None
            get_logger().warning("a Python process did not start in time: starting the query again", attempt=attempt)
    on_tick()


def _follow(query: StreamingQuery, stop: Stop, on_tick: Callable[[], None]) -> None:
    while not query.awaitTermination(timeout=1):  # Spark takes whole seconds here
        on_tick()
        if stop.asked:
            query.stop()
            return


def error_of(text: str, report: str) -> TidegateError:
    """Return the TidegateError that a Spark failure's text carries, or one that says Spark failed and where its *report* is."""
    found = _CODE.findall(text)
    if found:
        # Python prints what an error was raised from before the error itself.
        name, code, what, parts = found[-1]
        kinds = {kind.__name__: kind for kind in _kinds(TidegateError)}
        return kinds.get(name, TidegateError)(what, code=code, **dict(_PART.findall(parts)))
    raised = _RAISED.findall(text)
    what = raised[-1] if raised else text.strip()[:500]
    return TidegateError(
        f"the Spark job failed: {scrub(what)}", code="TG-SPARK", where=report, fix="read the report; starting again resumes"
    )


def _kinds(root: type[TidegateError]) -> Iterator[type[TidegateError]]:
    """Yield the kinds of error that can be made anew from their text."""
    if root.__init__ is TidegateError.__init__:
        yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


@contextmanager
def live_line(console: Console, title: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """
    Show one live line on a terminal: call what this gives with the text, and with how much of *total* is done.

    Where there is no terminal the line is logged instead, every ten seconds if it has changed.
    """
    columns = [SpinnerColumn(), TextColumn("{task.description}"), *([BarColumn(bar_width=20)] if total else [])]
    progress = Progress(*columns, TextColumn("{task.fields[line]}"), TimeElapsedColumn(), console=console, transient=True)
    with progress if console.is_terminal else nullcontext():
        task = progress.add_task(title, total=total, line="starting Spark")

        said: list[str | float] = ["", time.monotonic()]

        def show(line: str, done: int = 0) -> None:
            progress.update(task, completed=done, line=line)
            if not console.is_terminal and line != said[0] and time.monotonic() - float(said[1]) >= _SAY_S:
                said[:] = line, time.monotonic()
                get_logger().info(title, progress=line)

        yield show


def print_json(fields: dict[str, Any]) -> None:
    """Print one JSON object a line on standard output, for programs."""
    sys.stdout.write(json.dumps(fields, separators=(",", ":"), sort_keys=True) + "\n")
    sys.stdout.flush()
