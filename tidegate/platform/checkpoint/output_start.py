"""
Output start times of both jobs: ``--start now|TIME|last-stopped|earliest`` (docs/operate/starting.md).
Law: a run with output start S writes the results with s >= S of a run from the beginning, in the same order, numbered from 0. A run keeps
its start. The same ``--start``, ``last-stopped`` or no ``--start`` continues it; any other is refused, as it would leave a gap or repeat
results.
"""

from __future__ import annotations

from dataclasses import dataclass

from ordering.errors import RefusedError, SettingError, TickRangeError
from ordering.ticks import INFINITY, NEVER, format_tick, parse_tick
from tidegate.platform.settings.tables.redis import RedisSettings

EARLIEST, NOW, LAST_STOPPED = "earliest", "now", "last-stopped"


@dataclass(frozen=True, slots=True)
class Start:
    """
    An output start time: *text* is ``earliest``, ``now``, ``last-stopped`` or a time in ISO-8601, *start_us* its value in microseconds.

    *start_us* is None for ``earliest``, and for ``last-stopped`` until the last run's progress has been read.
    """

    text: str = EARLIEST
    start_us: int | None = None


BEGINNING = Start()


def parse_start(text: str | None, now_us: int) -> Start | None:
    """Parse ``--start``; *now_us* is the time of ``now``, microseconds. Raises TickRangeError: it is neither a keyword nor a time."""
    if text is None:
        return None
    if text in (EARLIEST, LAST_STOPPED):
        return Start(text)
    if text == NOW:
        return Start(NOW, now_us)
    try:
        start_us = parse_tick(text)
    except TickRangeError as error:
        fix = f"{NOW}, {EARLIEST}, {LAST_STOPPED}, or a time in ISO-8601"
        raise TickRangeError(error.what, where="--start", fix=fix, example="--start 2001-01-01T00:00:00Z") from None
    return Start(format_tick(start_us), start_us)


def parse_time_flag(text: str | None, flag: str) -> int | None:
    """Return the time that a flag gives, microseconds; None without the flag. Raises TickRangeError: it is no time in ISO-8601."""
    try:
        return None if text is None else parse_tick(text)
    except TickRangeError as error:
        raise TickRangeError(error.what, where=flag, fix=error.fix, example=f"{flag} 2001-01-01T00:00:00Z") from None


def parse_time_span(since: str | None, until: str | None, since_flag: str) -> tuple[int | None, int | None]:
    """Return the times that *since_flag* and ``--until`` give, microseconds. Raises SettingError: the second is not after the first."""
    since_us, until_us = parse_time_flag(since, since_flag), parse_time_flag(until, "--until")
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise SettingError(f"--until is not after {since_flag}", code="TG-SETTING-CONFLICT", where="--until", fix="name a later time")
    return since_us, until_us


def refuse_other_start(requested: Start | None, known: Start | None, run: str, where: str, ways_out: str) -> None:
    """Raise RefusedError (TG-START-BOUND) if *requested* is not the *known* start (None: forgotten) of *run*, words that name it."""
    if requested is None or requested.text == LAST_STOPPED or (known is not None and requested.text == known.text):
        return
    first_start = "at an unknown start" if known is None else f"with --start {known.text}"
    what = f"{run} was begun {first_start}; --start {requested.text} would leave a gap in it or repeat results"
    fix = f"leave --start out (or --start last-stopped) to go on; to begin anew {ways_out}"
    raise RefusedError(what, code="TG-START-BOUND", where=where, fix=fix, example="--start last-stopped")


def read_last_stop(redis: RedisSettings, ordered_topic: str) -> Start:
    """
    Return the start at the least c of the last run into *ordered_topic*, by its progress in Redis: up to there everything is written. If no
    run is known that has promised anything, that is the beginning.

    Raises RefusedError: the last run has come to its end (TG-START-UNKNOWN); UnreachableError: Redis does not answer.
    """
    # Whoever only reads the flag asks no server.
    from tidegate.platform.observe.logs import get_logger
    from tidegate.platform.observe.progress_store import ProgressStore

    with ProgressStore(redis) as store:
        progress = store.read(ordered_topic)
    least_us = min((report.complete_us for report in progress.partitions.values()), default=NEVER) if progress is not None else NEVER
    if least_us == INFINITY:
        what = f"the last run into {ordered_topic} had come to its end"
        fix = f"say from when on: --start {NOW}, --start {EARLIEST}, or a time"
        raise RefusedError(what, code="TG-START-UNKNOWN", where="--start", fix=fix, example="--start 2001-01-01T00:00:00Z")
    if least_us <= 0:
        get_logger().info(f"no earlier run into {ordered_topic} is known: begins at the beginning")
        return BEGINNING
    return Start(LAST_STOPPED, least_us)
