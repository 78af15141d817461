"""Output start times of both jobs: ``--start now|TIME|last-stopped|earliest`` (spec section 6)."""

from __future__ import annotations

from dataclasses import dataclass

from ordering.errors import RefusedError, TickRangeError
from ordering.ticks import INFINITY, format_tick, parse_tick
from tidegate.observe.progress_store import ProgressStore
from tidegate.settings.tables.redis import RedisSettings

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


def continues_run(asked: Start | None, began: Start | None) -> bool:
    """Return whether the requested start continues a run that *began* with a start (None: unknown)."""
    return asked is None or asked.text == LAST_STOPPED or (began is not None and asked.text == began.text)


def read_last_stop(redis: RedisSettings, ordered_topic: str) -> Start:
    """
    Return the start that continues after the promises of the last run into *ordered_topic*, as published in Redis.

    Raises RefusedError: its progress is unknown (TG-START-UNKNOWN); UnreachableError: Redis does not answer.
    """
    store = ProgressStore(redis)
    try:
        progress = store.read(ordered_topic)
    finally:
        store.close()
    promises_us = [int(report["c"]) for report in progress.partitions.values()] if progress is not None else []
    least_us = min(promises_us, default=INFINITY)
    if not 0 < least_us < INFINITY:
        raise RefusedError(
            f"nobody knows how far the last run into {ordered_topic} had come, or it had come to its end",
            code="TG-START-UNKNOWN",
            where="--start",
            fix=f"say from when on: --start {NOW}, --start {EARLIEST}, or a time",
            example="--start 2001-01-01T00:00:00Z",
        )
    return Start(LAST_STOPPED, least_us)
