"""
Logging: one event a line, as text on a terminal, as JSON for programs.

Law: no secret known to :mod:`tidegate.basics.secret_masking` is ever logged, neither from our own events nor from those of libraries, nor
inside a traceback. No text of an event can command a terminal or pass for another event (:mod:`tidegate.basics.visible_text`). Field names
are the glossary's. Code that works on a range binds its fields with :func:`bind_fields`: all events logged in that block carry them,
whichever module logs them.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from ordering.errors import TidegateError
from tidegate.basics.secret_masking import scrub, scrub_error, scrub_value
from tidegate.basics.visible_text import visible, visible_lines

# py4j logs the traceback of every failed callback; the job reports it once, readably.
_NOISY = {"py4j": logging.CRITICAL, "pyspark": logging.WARNING, "urllib3": logging.WARNING}
# An error that each tick of a job meets is logged so often.
_TICK_ERROR_EVERY_S = 60.0


def configure(form: str, level: str = "info", stream: TextIO | None = None) -> None:
    """
    Send this process's events of *level* and above to *stream* (standard error). A further call replaces these choices.
    *form* is ``console``, ``json``, or ``auto``: console on a terminal, JSON elsewhere.
    """
    out = sys.stderr if stream is None else stream
    console = form == "console" or (form == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    final = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_final_processors(console, out)]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_shared_processors(), processors=final))
    handler.addFilter(_is_wanted)
    handler.writes_json = not console  # type: ignore[attr-defined]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, level_min in _NOISY.items():
        logging.getLogger(name).setLevel(level_min)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *_shared_processors(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # A later configure must reach loggers made at import.
        cache_logger_on_first_use=False,
    )


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return whether an event is none of py4j's that bypass its own logger: each stopped job would log the traceback of its last call."""
    return record.name != "root" or f"{os.sep}py4j{os.sep}" not in record.pathname


def writes_json() -> bool:
    """Return whether this process logs JSON lines; a message on standard error is then JSON too."""
    return any(getattr(handler, "writes_json", False) for handler in logging.getLogger().handlers)


def configure_worker() -> None:
    """Write the events of a planner or worker process as JSON lines, which the driver's ``WorkerLog`` reads."""
    configure("json")


# The field ``logger`` of an event (docs/operate/metrics.md): one name for each stage, so that programs can rely on it.
LoggerName = (
    Literal["tidegate", "ingest", "ingest.start", "ingest.planner", "ingest.stage", "ingest.journal"]
    | Literal["query", "query.planner", "query.reference", "sink", "kafka", "kafka.reader", "kafka.writer"]
    | Literal["schema_registry", "progress", "run", "spark", "traces", "ui", "worker"]
)


def get_logger(name: LoggerName = "tidegate", **bound: Any) -> FilteringBoundLogger:
    """Return a logger whose events carry *bound*; it may be created before :func:`configure`, whose output settings it then follows."""
    return cast(FilteringBoundLogger, structlog.stdlib.get_logger(name, **bound))


@contextmanager
def bind_fields(**fields: Any) -> Iterator[None]:
    """Add *fields* to every event that this thread logs in the block, unless the event has its own."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _spread_error,
    ]


def _final_processors(console: bool, out: TextIO) -> list[Processor]:
    # Exceptions become text before scrubbing, so that secrets in a traceback are masked too.
    processors: list[Processor] = [structlog.processors.format_exc_info, structlog.processors.UnicodeDecoder(), scrub_event]
    if console:
        return [*processors, _show_event, structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="time")]
    json_line = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    return [*processors, structlog.processors.EventRenamer("event"), json_line, lambda _logger, _method, line: visible(str(line))]


def _show_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Make the texts of an event visible; a traceback keeps its lines."""
    traceback = event.pop("exception", None)
    shown = {visible(name): _make_visible(value) for name, value in event.items()}
    return shown if traceback is None else shown | {"exception": visible_lines(str(traceback))}


def _make_visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(name)): _make_visible(inner) for name, inner in value.items()}
    return [_make_visible(inner) for inner in value] if isinstance(value, list) else value


def _spread_error(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    error = event.get("error")
    if isinstance(error, TidegateError):
        # By its parts: programs look for the code, people for the fix.
        event["error"] = scrub_error(error.as_dict())
    return event


def scrub_event(_logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask every secret in an event: in names, values, message and traceback."""
    return {scrub(str(name)): scrub_value(name, value) for name, value in event.items()}


class Ticks:
    """
    The ticks of a running job: once a second its driver logs what its workers have logged, publishes its progress and shows it.

    Call it for each tick: it runs *tick*. An error of the operating system in it, such as too many open files, does not end the job: it is
    logged when it begins, changes or has lasted for another minute, and the next tick tries again.
    """

    def __init__(self, tick: Callable[[], object], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._tick, self._clock_s = tick, clock_s
        self._error, self._said_s = "", -_TICK_ERROR_EVERY_S

    def __call__(self) -> None:
        try:
            self._tick()
        except OSError as error:
            self._say(f"{type(error).__name__}: {error}")
        else:
            self._error = ""

    def _say(self, error: str) -> None:
        now_s = self._clock_s()
        if error != self._error or now_s - self._said_s >= _TICK_ERROR_EVERY_S:
            get_logger().warning("the driver's log and progress could not be written: trying again; the job continues", error=error)
            self._error, self._said_s = error, now_s
